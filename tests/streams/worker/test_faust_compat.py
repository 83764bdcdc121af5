"""Offsets, states, and forced exit of a worker."""

import asyncio
import hashlib
import inspect
import logging
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from faust.transport.drivers import aiokafka
from faust.types import TP
from mode.utils.queues import ThrowableQueue

from streams.broker.topics import Topics
from streams.settings import KafkaSettings, Settings
from streams.worker.app import build_app
from streams.worker.checkpoint.stored_site import StoredState
from streams.worker.faust_compat import RecoveryEnd
from streams.worker.kafka_compat import Consumer


@pytest.fixture
def faust_app(tmp_path: Path) -> Iterator[Any]:
    yield build_app(Settings(kafka=KafkaSettings(prefix="x.")), str(tmp_path))


def test_partition_without_commit_is_read_from_its_beginning(faust_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    events, state = Topics("x.").events, Topics("x.").state
    sought: list[Any] = []

    async def to_committed(_: Any) -> None:
        sought.append("committed")

    async def to_beginning(*places: Any) -> None:
        sought.extend((place.topic, place.partition) for place in places)

    async def ends(*places: TP) -> dict[TP, int]:
        return dict.fromkeys(places, 17)

    assert type(faust_app.consumer) is Consumer
    consumer = faust_app.consumer
    monkeypatch.setattr(aiokafka.Consumer, "perform_seek", to_committed)
    monkeypatch.setattr(consumer, "_thread", SimpleNamespace(seek_to_beginning=to_beginning, highwaters=ends))
    monkeypatch.setattr(consumer, "_is_changelog_tp", lambda place: place.topic == state)
    monkeypatch.setattr(consumer, "assignment", lambda: [TP(events, 0), TP(events, 1), TP(events, 2), TP(state, 1)])
    consumer._committed_offset[TP(events, 0)] = 17
    consumer._committed_offset[TP(events, 2)] = consumer._read_offset[TP(events, 2)] = 18  # of an earlier topic
    asyncio.run(consumer.perform_seek())
    assert sought == ["committed", (events, 1), (events, 2)]
    assert consumer._read_offset[TP(events, 2)] is None  # otherwise earlier records would be dropped


def test_later_state_counts_in_any_write_order(faust_app: Any) -> None:
    def state(offset: int, epoch: int = 0) -> bytes:
        return msgspec.msgpack.encode(StoredState(1, 0, offset, b"%d" % offset, epoch))

    table = faust_app.tables["sites"]
    written = [(b"a", state(3)), (b"a", state(9)), (b"a", state(5)), (b"b", state(1))]
    written += [(b"c", state(7)), (b"c", state(2, epoch=1)), (b"c", state(8))]
    table.apply_changelog_batch([changelog(key, value) for key, value in written])
    assert {key: table.get(key) for key in table.keys()} == {  # noqa: SIM118
        b"a": state(9),
        b"b": state(1),
        b"c": state(2, epoch=1),
    }


def changelog(key: bytes, value: bytes | None, partition: int = 0) -> Any:
    return SimpleNamespace(key=key, value=value, message=SimpleNamespace(partition=partition))


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_moved_site_is_in_its_new_partition_in_any_read_order(faust_app: Any, order: tuple[int, ...]) -> None:
    old, new = (msgspec.msgpack.encode(StoredState(1, part, -1, b"", epoch)) for part, epoch in ((0, 0), (3, 1)))
    written = [changelog(b"a", old, 0), changelog(b"a", None, 0), changelog(b"a", new, 3)]
    table = faust_app.tables["sites"]
    table.data.clear()
    table.apply_changelog_batch([written[place] for place in order])
    assert table.get(b"a") == new
    table.apply_changelog_batch([changelog(b"a", None, 3)])
    assert table.get(b"a") is None


def test_forced_exit_deletes_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    directory = tmp_path / "queuecast-x"
    (directory / "v1").mkdir(parents=True)
    built = build_app(Settings(), str(directory))
    built._end()
    assert ended == [0]
    assert not directory.exists()
    built.failed = RuntimeError()
    built._end()
    assert ended == [0, 1]


def test_wait_after_the_end_of_recovery_returns(faust_app: Any) -> None:
    recovery = faust_app.tables.recovery
    assert type(recovery.signal_recovery_end) is RecoveryEnd

    def end() -> None:  # as Faust does it, without a pause in between
        recovery._set_recovery_ended()
        recovery.signal_recovery_end.set()
        recovery.signal_recovery_end.clear()

    async def wait_before_and_after_the_end() -> None:
        recovery._set_recovery_started()
        waiting = asyncio.ensure_future(recovery.signal_recovery_end.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        end()
        await waiting
        recovery._set_recovery_started()
        end()
        await recovery.signal_recovery_end.wait()

    asyncio.run(wait_before_and_after_the_end())


def test_fetched_records_are_returned_unless_rebalanced(faust_app: Any) -> None:
    place = TP("x.events", 3)
    faust_app.consumer_generation_id = 7

    def message(generation: int) -> Any:
        return SimpleNamespace(message=SimpleNamespace(tp=place, generation_id=generation))

    async def read() -> None:
        queue: ThrowableQueue[Any] = ThrowableQueue(flow_control=faust_app.flow_control)
        given: list[Any] = []

        async def take() -> None:
            async for one in faust_app.fetched(SimpleNamespace(channel=SimpleNamespace(queue=queue))):
                given.append(one)  # noqa: PERF401  # one by one

        async def put(*messages: Any) -> None:
            for one in messages:
                queue.put_nowait(one)
            for _ in range(3):  # the task begins, or is woken, and runs
                await asyncio.sleep(0)

        taking = asyncio.ensure_future(take())
        faust_app.flow_control.resume()
        fresh = [message(7) for _ in range(100)]
        await put(message(6), *fresh[:99])
        assert given == fresh[:99]
        assert place in faust_app.monitor.stream_inbound_time
        faust_app.flow_control.suspend()
        await put(message(7))
        faust_app.flow_control.resume()
        await put(fresh[99])
        assert given == fresh
        await queue.throw(StopAsyncIteration())  # so Faust ends it
        await taking

    asyncio.run(read())


@pytest.mark.parametrize(
    ("what", "fingerprint"),
    [
        ("faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._create_worker_consumer", "c2701bfc3e6f"),
        ("faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._fetch_records", "39a2c6c79fc1"),
        ("faust.transport.drivers.aiokafka:AIOKafkaConsumerThread.on_start", "38b4e8bd1e10"),
        ("faust.transport.consumer:Consumer.perform_seek", "0e8c130ff4b0"),
        ("faust.transport.consumer:Consumer.on_stop", "45b1d2210ce2"),
        ("faust.streams:Stream.events", "c62f4dd3a73f"),
        ("faust.streams:Stream._py_aiter", "3a48ee257a65"),
        ("faust.tables.base:Collection.apply_changelog_batch", "b980a78d3ae9"),
        ("faust.tables.base:Collection.send_changelog", "3dd3884e1b5f"),
        ("faust.tables.recovery:Recovery.signal_recovery_end", "e35b4caa0b91"),
        ("faust.tables.recovery:Recovery._wait", "ec7429b70176"),
        ("mode.threads:ServiceThread.start", "f11841038a03"),
        ("mode.threads:ServiceThread.stop", "32d026539c36"),
        ("mode.threads:ServiceThread._serve", "67809eae0957"),
        ("mode.threads:ServiceThread._gather_remaining_tasks", "6f65b92dd101"),
        ("mode.threads:QueueServiceThread.call_thread", "479edda75b54"),
        ("aiokafka.consumer.group_coordinator:GroupCoordinator._push_error_to_user", "743ff515bd7e"),
        ("aiokafka.consumer.group_coordinator:GroupCoordinator.ensure_active_group", "33c84c1a9301"),
        ("aiokafka.consumer.group_coordinator:GroupCoordinator._maybe_leave_group", "016cd88a16e6"),
        ("aiokafka.consumer.fetcher:Fetcher.fetched_records", "be4348896b9b"),
        ("aiokafka.consumer.fetcher:Fetcher._create_fetch_waiter", "61d840568746"),
        ("aiokafka.conn:create_conn", "673276cbddb4"),
        ("streams.worker.kafka_compat:Connection.__base__.send", "5909ea32f4ef"),
        ("streams.worker.kafka_compat:Connection.__base__._send_sasl_token", "7a3d948fc526"),
        ("mode.services:Service.wait_first", "feade6a31f8a"),
    ],
)
def test_patched_function_has_recorded_source_hash(what: str, fingerprint: str) -> None:
    """If this fails after an upgrade: check the patch against the new code, then update the hash here."""
    found = pkgutil.resolve_name(what)
    source = inspect.getsource(found.fget if isinstance(found, property) else found)
    assert hashlib.sha256(source.encode()).hexdigest()[:12] == fingerprint


HANG = """
import sys
from numba import njit
from streams.worker.faust_compat import watch_loop

@njit
def hang(n):
    while n > 0:
        n += 1 if n < 1000 else -1
    return n

hang(0)
watch_loop(1.0)
hang(1)
"""


def test_hang_in_compiled_code_is_killed_with_a_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", HANG], capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGVTALRM and "most recent call first" in ended.stderr


def test_watch_loop_keeps_running_process_alive() -> None:
    code = (
        "import time\nfrom streams.worker.faust_compat import watch_loop\n"
        "for _ in range(12):\n    watch_loop(0.5)\n    end = time.process_time() + 0.1\n"
        "    while time.process_time() < end: pass\nwatch_loop(0.0)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
