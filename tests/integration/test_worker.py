"""A worker on real servers: its outputs equal a replay in this process."""

import json
import random
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deploy.local.stack import free_port
from models.engine.outgoing import Anomaly
from models.method_registry import DEFAULT_RUN, METHODS, RUN_METHODS
from models.records import AnyEvent, Capacity
from streams.offline.replay import replay
from streams.sources.swf import read_swf
from tests.support.command import Command
from tests.support.deployment import Deploy, Message, interleaved, metrics, parts, simulated, unique
from tests.support.traces import fed, trace_path


def three_simulated_sites() -> list[AnyEvent]:
    return interleaved(simulated("alder", 250, 1), simulated("birch", 200, 2), simulated("cedar", 200, 3, "fcfs"))


def three_real_sites() -> list[AnyEvent]:
    names = ("CTC", "KTH", "SDSC-SP2")
    return fed(read_swf(trace_path(name)).first(500) for name in names)


@pytest.mark.parametrize("workload", [three_simulated_sites, pytest.param(three_real_sites, marks=pytest.mark.trace)])
def test_three_concurrent_sites_equal_replay_to_the_byte(
    deploy: Deploy, workload: Callable[[], list[AnyEvent]]
) -> None:
    events, here = workload(), deploy(history=300)
    expected = here.expected(events)
    here.worker.start()
    here.send(events)
    here.await_outputs(sum(map(len, expected.values())))
    here.stop()
    assert here.records() == expected
    assert len(expected) == 6
    assert here.dead_letters() == []
    for site in {event.site for event in events}:
        assert here.stored(site) == here.expected_in_redis(events, site)


@pytest.mark.long
def test_stream_of_all_methods_equals_replay_after_crash(deploy: Deploy) -> None:
    here = deploy(history=60, publish_shadows=True, shadows=tuple(METHODS), run_shadows=tuple(RUN_METHODS))
    events = interleaved(simulated("alder", 120, 1), simulated("birch", 120, 2))
    expected = here.expected(events)
    methods = {json.loads(line)["method"] for line in expected[here.topics.predictions, "alder"]}
    assert methods == {*METHODS, *RUN_METHODS} - {DEFAULT_RUN}  # all predictions have its run times
    here.worker.start()
    first, second = parts(events, 2)
    here.send(first)
    here.await_outputs(sum(map(len, here.expected(first).values())))
    here.worker.kill()
    here.send(second)
    here.worker.start()
    here.await_outputs(sum(map(len, expected.values())))
    here.stop()
    assert {key: unique(values) for key, values in here.records().items()} == {
        key: unique(values) for key, values in expected.items()
    }
    for site in ("alder", "birch"):
        assert here.stored(site) == here.expected_in_redis(events, site)


@pytest.mark.long
def test_worker_with_faulty_stream_equals_replay(deploy: Deploy) -> None:
    """Late, repeated or reordered events and invalid messages: the outputs equal a replay."""
    here, alder = deploy(), disturbed(simulated("alder", 200))
    bad: list[tuple[bytes | None, bytes | None, str]] = [
        (b"alder", None, "empty"),
        (b"alder", b"", "empty"),
        (b"alder", b" " * 70_000, "too_large"),
        (b"alder", b"\xff\xfe", "not_json"),
        (b"alder", b'{"type": "submit"', "not_json"),
        (b"alder", b'{"v":2,"site":"alder","type":"dance","time":1.0}', "version"),
        (b"alder", b'{"site":"alder","type":"dance","time":1.0,"job":"1"}', "unknown_type"),
        (b"alder", b'{"site":"alder","type":"submit","time":-5.0,"job":"1"}', "malformed"),
        (b"birch", b'{"site":"alder","type":"submit","time":5.0,"job":"x"}', "wrong_key"),
        (None, b'{"site":"alder","type":"submit","time":5.0,"job":"x"}', "wrong_key"),
    ]
    messages: list[Message] = [(event.site.encode(), msgspec.json.encode(event)) for event in alder]
    for place, (key, value, _) in enumerate(bad):
        messages.insert(place * 40, (key, value))
    records = list(replay(alder, here.settings.engine))
    refused = [record.reason for record in records if isinstance(record, Anomaly) and record.rejected]
    assert len(refused) > 3
    here.worker.start()
    here.send_raw(messages)
    here.await_outputs(sum(map(len, here.expected(alder).values())) + len(refused) + len(bad))
    metric_values = metrics(here.worker)
    here.stop()

    assert here.records() == here.expected(alder)
    letters = here.dead_letters()
    assert Counter(letter.reason for letter in letters) == Counter(refused) + Counter(reason for *_, reason in bad)
    assert len({(letter.partition, letter.offset) for letter in letters}) == len(letters)
    assert {letter.site for letter in letters if letter.reason in refused} == {"alder"}
    assert {letter.value_bytes for letter in letters if letter.reason not in refused} == {
        len(value or b"") for _, value, _ in bad
    }
    assert metric_values["queuecast_messages_read_total"][()] == len(alder) + len(bad)
    assert metric_values["queuecast_events_total"]["alder",] == len(alder)
    assert sum(metric_values["queuecast_events_rejected_total"].values()) == len(letters)
    assert here.stored("alder") == here.expected_in_redis(alder, "alder")


def disturbed(events: list[AnyEvent]) -> list[AnyEvent]:
    """Return events, some repeated, some late, and some with an impossible time."""
    dice = random.Random(7)
    late = [(place + dice.choice((0,) * 8 + (3, 300)), event) for place, event in enumerate(events)]
    twice = [(place + dice.choice((1, 50)), event) for place, event in late if dice.random() < 0.1]
    early = [
        (place, msgspec.structs.replace(event, time=0.0)) for place, event in enumerate(events) if place % 25 == 24
    ]
    stale: list[tuple[int, AnyEvent]] = [
        (place, Capacity(site=events[0].site, time=0.0, cpus=1)) for place in range(5, len(events), 60)
    ]
    return [event for _, event in sorted(late + twice + early + stale, key=lambda placed: placed[0])]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"QUEUECAST_KAFKA_BOOTSTRAP": "127.0.0.1:{free}"}, "kafka: no broker answers at 127.0.0.1:{free}"),
        ({"QUEUECAST_REDIS_URL": "redis://127.0.0.1:{free}/0"}, "redis at 127.0.0.1:{free}: "),
        ({"QUEUECAST_KAFKA_PREFIX": "none-such."}, "topics are missing: none-such.events, none-such.questions, "),
        ({"QUEUECAST_WORKER_WEB_PORT": "{busy}"}, "web port {busy} of 127.0.0.1: Address already in use; "),
    ],
)
def test_worker_start_error_is_printed_in_one_line(
    deploy: Deploy, tmp_path: Path, environment: dict[str, str], message: str
) -> None:
    settings = deploy().settings
    with socket.create_server(("127.0.0.1", 0)) as busy:
        ports = {"free": free_port(), "busy": busy.getsockname()[1]}
        usual = {
            "QUEUECAST_KAFKA_BOOTSTRAP": settings.kafka.bootstrap,
            "QUEUECAST_KAFKA_PREFIX": settings.kafka.prefix,
            "QUEUECAST_REDIS_URL": settings.redis.url,
            "QUEUECAST_WORKER_STARTUP_TIMEOUT_SECONDS": "0",
        }
        given = {name: value.format(**ports) for name, value in environment.items()}
        with Command(tmp_path, "worker", **usual | given) as worker:
            assert worker.ended() == 1
    assert worker.out == ""
    assert worker.err.startswith(f"queuecast: {message.format(**ports)}")
    assert worker.err.count("\n") == 1
