"""What a worker does with messages, and with its own death at any moment."""

import asyncio
import logging
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from faust.transport.drivers import aiokafka
from faust.types import TP
from hypothesis import example, given
from hypothesis import settings as checks
from hypothesis import strategies as st
from prometheus_client import generate_latest

from models.engine.engine import Engine, read_saved
from models.engine.engine import Settings as EngineSettings
from models.records import AnyEvent, Capacity, DeadLetter, Start, Submit
from models.simulation import generate, run
from streams.errors import Unreachable, UserError
from streams.offline.replay import replay
from streams.settings import KafkaSettings, Settings, WorkerSettings
from streams.topics import Topics
from streams.worker import app
from streams.worker.app import build_app, check_port
from streams.worker.ledger import Kept
from tests.support.fakes import Crash, MemoryStore, Process, World

ENGINE = EngineSettings(method="median", shadows=("zero",), history=8)
SITES = ("alder", "birch")


def settings(events: int = 1000, **worker: Any) -> Settings:
    """Settings with a checkpoint every so many events, and no other."""
    return Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=events, checkpoint_seconds=1e9, **worker))


def site(name: str, jobs: int) -> list[AnyEvent]:
    return list(run(generate(3, jobs, cpus=32, load=0.9), 32, name))


def mixed() -> World:
    """Two sites and a few messages that are no events, in one partition."""
    world = World()
    events = sorted(site("alder", 100) + site("birch", 30), key=lambda event: event.time)
    world.publish_events(events[:100])
    world.publish(b"alder", b"what?")
    world.publish_events([Capacity(site="alder", time=0.0, cpus=1)])
    world.publish_events(events[100:])
    world.publish(b"cedar", None)
    return world


def live(process: Process) -> None:
    asyncio.run(process.live())


def states(world: World) -> dict[bytes, tuple[int, Any]]:
    """The sites' offsets and states, but for what was forgotten lately, which depends on when that was stored."""
    found = {}
    for key, value in world.table.items():
        kept = msgspec.msgpack.decode(value, type=Kept)
        saved = read_saved(zlib.decompress(kept.state))
        saved.forgotten = []
        found[key] = kept.offset, msgspec.msgpack.encode(saved, enc_hook=lambda array: array.tobytes())
    return found


def histories(world: World) -> dict[str, tuple[list[Any], dict[int, Any], dict[str, Any]]]:
    rows = {name: [(n, row.job, row.wait_s) for n, row in sorted(kept.items())] for name, kept in world.started.items()}
    return {name: (rows[name], world.runs[name], world.rows[name]) for name in rows}


@pytest.fixture(scope="module")
def undisturbed() -> World:
    world = mixed()
    live(Process(world, settings()))
    return world


def test_what_goes_out_is_what_a_replay_gives(undisturbed: World) -> None:
    messages = [message.value for message in undisturbed.messages[0]]
    events = [msgspec.json.decode(value, type=AnyEvent) for value in messages if value not in (b"what?", None)]
    records = [msgspec.json.encode(record) for record in replay(events, ENGINE) if not hasattr(record, "rejected")]
    assert undisturbed.said("predictions", "outcomes") == records
    letters = [msgspec.json.decode(value, type=DeadLetter) for value in undisturbed.said("dead-letters")]
    assert [(one.reason, one.site, one.offset) for one in letters] == [
        ("not_json", None, 100),
        ("stale_capacity", "alder", 101),
        ("empty", None, len(messages) - 1),
    ]
    assert undisturbed.committed == {0: len(messages)}


@checks(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1200), max_size=4), st.integers(1, 120), st.booleans())
@example([0], 1, False)
@example([50, 60, 70, 80], 10, True)
def test_wherever_it_dies_the_end_is_as_if_it_had_not(
    undisturbed: World, crashes: list[int], checkpoint: int, eager: bool
) -> None:
    world = mixed()
    world.eager = eager
    for world.steps in crashes:
        try:
            live(Process(world, settings(checkpoint)))
        except Crash:
            assert world.committed.get(0, 0) <= len(world.messages[0])
    world.steps = None
    live(Process(world, settings(checkpoint)))
    assert list(dict.fromkeys(world.outputs)) == undisturbed.outputs
    assert states(world) == states(undisturbed)
    assert histories(world) == histories(undisturbed)
    assert world.committed == undisturbed.committed


def test_it_dies_at_every_step_of_a_settlement(undisturbed: World) -> None:
    whole = mixed()
    live(Process(whole, settings(10)))
    forgotten = [run for run in range(1, 60) if run not in whole.runs["alder"]]
    assert forgotten
    assert whole.log[-40:].count("trim alder") > 1
    for steps in range(len(whole.log) - 40, len(whole.log)):
        world = mixed()
        world.steps = steps
        with pytest.raises(Crash):
            live(Process(world, settings(10)))
        world.steps = None
        live(Process(world, settings(10)))
        assert list(dict.fromkeys(world.outputs)) == undisturbed.outputs
        assert states(world) == states(undisturbed)
        assert histories(world) == histories(undisturbed)


def a_few(world: World, partition: int = 0) -> World:
    world.publish_events([Submit(site="alder", time=1.0, job="1"), Start(site="alder", time=5.0, job="1")], partition)
    return world


@pytest.fixture
def process() -> Process:
    return Process(a_few(World()), settings())


def test_an_event_that_is_seen_again_changes_nothing_and_says_nothing(process: Process) -> None:
    async def twice() -> None:
        await process.worker.take_over({0})
        for message in process.world.delivered() * 2:
            await process.worker.take(message)
        await process.worker.hand_over({0})

    asyncio.run(twice())
    assert len(process.world.outputs) == 2
    assert process.world.committed == {0: 2}


def test_messages_of_partitions_that_are_others_are_left_alone(process: Process) -> None:
    async def others() -> None:
        await process.worker.take_over({1})
        for message in process.world.delivered():
            await process.worker.take(message)
        await process.worker.hand_over({1})

    asyncio.run(others())
    assert process.world.log == []


def test_a_flaw_in_a_method_stops_neither_the_site_nor_the_others(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Engine.apply

    def flawed(engine: Engine, event: AnyEvent) -> Any:
        if isinstance(event, Start) and event.site == "alder":
            raise ZeroDivisionError("float division by zero")
        return whole(engine, event)

    monkeypatch.setattr(Engine, "apply", flawed)
    process.world.publish_events([Submit(site="alder", time=6.0, job="2"), Submit(site="birch", time=6.0, job="2")])
    live(process)
    assert len(process.world.said("predictions")) == 3
    (letter,) = (msgspec.json.decode(value, type=DeadLetter) for value in process.world.said("dead-letters"))
    assert (letter.reason, letter.site, letter.offset) == ("engine_failed", "alder", 1)
    assert "ZeroDivisionError" in letter.detail
    (record,) = (record for record in caplog.records if record.name == "streams.worker.app")
    assert (record.site, record.partition, record.offset) == ("alder", 0, 1)  # type: ignore[attr-defined]


def test_too_many_sites_of_a_partition_are_turned_away_and_again_after_a_restart() -> None:
    world = World()
    names = ("a", "b", "c", "a", "c", "b")
    world.publish_events(Submit(site=name, time=1.0, job=str(n)) for n, name in enumerate(names))
    live(Process(world, settings(partition_sites=2)))
    world.committed = {}
    live(Process(world, settings(partition_sites=2)))
    letters = [msgspec.json.decode(value, type=DeadLetter) for value in world.said("dead-letters")]
    assert [(one.reason, one.offset) for one in letters] == [("too_many_sites", 2), ("too_many_sites", 4)] * 2
    assert set(world.table) == {b"a", b"b"}


def test_what_cannot_be_settled_in_time_is_left_to_the_next_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(MemoryStore):
        async def write(self, *_: Any) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(app, "SETTLE_S", 0.05)
    world = a_few(World())
    process = Process(world, settings(), store=Stuck(world))
    live(process)
    assert list(process.ledger) == []
    assert (world.table, world.committed) == ({}, {})
    live(Process(world, settings()))
    assert world.committed == {0: 2}
    assert len(set(world.outputs)) == 2


def test_a_process_that_stood_still_writes_nothing_more(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(app, "since_boot", lambda: now)
    process.worker.check_alive()
    now += 29.0
    process.worker.check_alive()
    now += 31.0
    with pytest.raises(RuntimeError, match="stood still for 31 s"):
        process.worker.check_alive()
    with pytest.raises(RuntimeError, match="stood still"):
        live(process)


@pytest.fixture
def faust_app(tmp_path: Path) -> Iterator[Any]:
    yield build_app(Settings(kafka=KafkaSettings(prefix="x."), engine=ENGINE), str(tmp_path))


def test_the_app_uses_the_topics_that_are_made_for_it(faust_app: Any) -> None:
    topics = Topics("x.")
    assert faust_app.conf.id == topics.group
    assert faust_app.tables["sites"].changelog_topic.get_topic_name() == topics.state
    assert not faust_app.conf.topic_allow_declare
    assert faust_app.conf.producer_acks == -1


def test_partitions_of_which_nothing_is_committed_are_read_from_their_beginnings(
    faust_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, state = Topics("x.").events, Topics("x.").state
    sought: list[Any] = []

    async def to_committed(_: Any) -> None:
        sought.append("committed")

    async def to_beginning(*places: Any) -> None:
        sought.extend((place.topic, place.partition) for place in places)

    async def ends(*places: TP) -> dict[TP, int]:
        return dict.fromkeys(places, 17)

    assert type(faust_app.consumer) is app.Consumer
    consumer = faust_app.consumer
    monkeypatch.setattr(aiokafka.Consumer, "perform_seek", to_committed)
    monkeypatch.setattr(consumer, "_thread", SimpleNamespace(seek_to_beginning=to_beginning, highwaters=ends))
    monkeypatch.setattr(consumer, "_is_changelog_tp", lambda place: place.topic == state)
    monkeypatch.setattr(consumer, "assignment", lambda: [TP(events, 0), TP(events, 1), TP(events, 2), TP(state, 1)])
    consumer._committed_offset[TP(events, 0)] = 17
    consumer._committed_offset[TP(events, 2)] = consumer._read_offset[TP(events, 2)] = 18  # of a topic before this one
    asyncio.run(consumer.perform_seek())
    assert sought == ["committed", (events, 1), (events, 2)]
    assert consumer._read_offset[TP(events, 2)] is None  # else what comes before it would be dropped


def test_of_two_states_the_later_one_counts_whichever_was_written_last(faust_app: Any) -> None:
    def state(offset: int, epoch: int = 0) -> bytes:
        return msgspec.msgpack.encode(Kept(1, 0, offset, b"%d" % offset, epoch))

    table = faust_app.tables["sites"]
    written = [(b"a", state(3)), (b"a", state(9)), (b"a", state(5)), (b"b", state(1))]
    written += [(b"c", state(7)), (b"c", state(2, epoch=1)), (b"c", state(8))]
    table.apply_changelog_batch([SimpleNamespace(key=key, value=value) for key, value in written])
    assert {key: table.get(key) for key in table.keys()} == {  # noqa: SIM118
        b"a": state(9),
        b"b": state(1),
        b"c": state(2, epoch=1),
    }


def test_a_prediction_that_leaves_late_is_marked_beside_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    world, now = World(), 10_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    for arrived, job in ((now - 60.0, "1"), (now - 75.9, "2"), (now + 5.0, "3")):
        world.arrived = arrived
        world.publish_events([Submit(site="alder", time=1.0, job=job), Start(site="alder", time=2.0, job=job)])
    process = Process(world, settings(late_seconds=60.0))
    live(process)
    marks = [
        (topic.rpartition(".")[2], headers) for (topic, *_), headers in zip(world.outputs, world.headers, strict=True)
    ]
    assert [headers for topic, headers in marks if topic == "predictions"] == [[], [("late", b"75")], []]
    assert not any(headers for topic, headers in marks if topic != "predictions")
    assert b"queuecast_late_predictions_total 1.0" in generate_latest(process.metrics.registry)

    world.committed, world.table, now = {}, {}, now + 1000.0
    live(Process(world, settings(late_seconds=60.0)))
    half = len(world.outputs) // 2
    assert world.outputs[half:] == world.outputs[:half]
    assert [headers for headers in world.headers[half:] if headers] == [
        [("late", b"1060")],
        [("late", b"1075")],
        [("late", b"995")],
    ]


class Waits:
    """Servers of which some are away for some looks; and how long was waited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: UserError) -> None:
        self.now, self.pauses, self.errors = 0.0, list[float](), list(errors)
        monkeypatch.setattr(app, "check_topics", lambda *_: self.look())
        monkeypatch.setattr(app, "check_group", lambda _: None)
        monkeypatch.setattr(app, "check_redis", self.redis)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    async def redis(self, _: Any) -> None:
        self.look()

    def look(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_servers_that_cannot_be_reached_are_waited_for_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits(monkeypatch, *(Unreachable(f"away {n}") for n in range(6)))
    app.await_servers(settings(), waits.sleep)
    assert waits.pauses == [1.0, 2.0, 5.0, 10.0, 10.0, 10.0]
    assert caplog.records[0].getMessage().startswith("not yet: away 0 (next look in 1 s")
    assert len(caplog.records) == 6


def test_they_are_not_waited_for_longer_than_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(monkeypatch, *(Unreachable("away") for _ in range(9)))
    with pytest.raises(Unreachable):
        app.await_servers(settings(start_seconds=4.0), waits.sleep)
    assert waits.pauses == [1.0, 2.0, 1.0]
    waits = Waits(monkeypatch, Unreachable("away"))
    with pytest.raises(Unreachable):
        app.await_servers(settings(start_seconds=0.0), waits.sleep)
    assert waits.pauses == []


def test_what_will_not_pass_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(monkeypatch, Unreachable("away"), UserError("refused"))
    with pytest.raises(UserError, match="refused"):
        app.await_servers(settings(), waits.sleep)
    assert waits.pauses == [1.0]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_ends_a_worker_is_told_in_the_logs_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    Waits(monkeypatch, UserError("topics are missing"))
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    with pytest.raises(SystemExit if log_format == "json" else UserError):
        app.run_worker(settings(log_format=log_format))
    lines = [msgspec.json.decode(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert lines == (["topics are missing"] if log_format == "json" else [])


def test_a_forced_end_leaves_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    directory = tmp_path / "queuecast-x"
    (directory / "v1").mkdir(parents=True)
    built = build_app(Settings(engine=ENGINE), str(directory))
    built._end()
    assert ended == [0]
    assert not directory.exists()
    built.failed = RuntimeError()
    built._end()
    assert ended == [0, 1]


def test_a_host_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(UserError, match=r"web port 6066 of 192\.0\.2\.1: "):
        check_port(WorkerSettings(web_host="192.0.2.1"))
