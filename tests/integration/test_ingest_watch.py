"""The commands `ingest` and `watch` on a real broker."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer

from deploy.local.stack import LocalStack
from models.engine.settings import EngineSettings
from models.method import Memory
from models.records import AnyEvent
from streams.broker.topics import Topics
from streams.bulk import site_history as past
from streams.bulk.event_log import in_order
from streams.cli.app import main
from streams.offline.replay import replay
from streams.sources.silences import HEARTBEAT_S, LogHeartbeats
from streams.sources.swf import events_of, read_swf
from streams.worker.intake.messages import read_site_message
from tests.support.command import with_us
from tests.support.made_slurm import history, sacct
from tests.support.topic_messages import messages_of
from tests.support.traces import made_trace, swf_line

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def topics(local_stack: LocalStack, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Topics:
    """Topics with a separate prefix, which the command line also uses."""
    prefix = f"t{uuid.uuid4().hex[:8]}."
    monkeypatch.setenv("QUEUECAST_KAFKA_BOOTSTRAP", local_stack.kafka.bootstrap)
    monkeypatch.setenv("QUEUECAST_KAFKA_PREFIX", prefix)
    monkeypatch.setenv("QUEUECAST_TOPICS_PARTITIONS", "3")
    assert main(["topics", "create"]) == 0
    capsys.readouterr()
    return Topics(prefix)


@pytest.fixture
def bootstrap(local_stack: LocalStack) -> str:
    return local_stack.kafka.bootstrap


def messages(bootstrap: str, topic: str) -> list[Any]:
    return [*messages_of({"bootstrap_servers": bootstrap}, topic)]


def test_topics_create_creates_topics_once(topics: Topics, capsys: Capture) -> None:
    assert main(["topics", "create", "--partitions", "7"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert {line[0]: " ".join(line[2:]) for line in lines} == {
        topics.events: "14 days",
        topics.predictions: "7 days",
        topics.outcomes: "7 days",
        topics.notices: "7 days",
        topics.dead_letters: "30 days",
        topics.estimates: "latest per shape, 24 h",
        topics.questions: "1 h",
        topics.answers: "1 h",
        topics.state: "latest per site",
    }
    assert {line[1] for line in lines} == {"3"}


def ingested(path: Path, site: str) -> list[AnyEvent]:
    """Return the events of a trace in the order in which `ingest` sends them, with heartbeats."""
    heartbeats = LogHeartbeats(HEARTBEAT_S)
    return [one for event in in_order(events_of(read_swf(path), site)) for one in (*heartbeats.before(event), event)]


def test_ingest_sends_traces_in_order_keyed_by_site(
    topics: Topics, bootstrap: str, tmp_path: Path, capsys: Capture
) -> None:
    paths = {site: made_trace(tmp_path / f"{site}.swf", jobs=300, seed=seed) for seed, site in enumerate(("a", "b"))}
    began = time.time()
    assert main(["ingest", *map(str, paths.values())]) == 0
    found = messages(bootstrap, topics.events)
    for site, path in paths.items():
        own = [msgspec.json.decode(message.value, type=AnyEvent) for message in found if message.key == site.encode()]
        assert own == ingested(path, site)
    assert len({(message.key, message.partition) for message in found}) == 2
    assert all(began * 1000 - 1 <= message.timestamp <= time.time() * 1000 for message in found)
    assert f"{len(found)} events sent" in capsys.readouterr().out


def test_ingest_until_limits_events_of_named_site(topics: Topics, bootstrap: str, tmp_path: Path) -> None:
    path = str(made_trace(tmp_path / "x.swf"))
    assert main(["ingest", path, "--site", "début", "--until", "0.5"]) == 0
    found = [msgspec.json.decode(message.value, type=AnyEvent) for message in messages(bootstrap, topics.events)]
    times = [event.time for event in found if event.site == "début"]
    assert 0 < max(times) - min(times) <= 1800


def running(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "queuecast", *arguments]
    return subprocess.Popen(command, env=with_us(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_interrupted_ingest_prints_number_of_sent_events(topics: Topics, bootstrap: str, tmp_path: Path) -> None:
    path = made_trace(tmp_path / "x.swf", jobs=2000)
    with running("ingest", str(path), "--speed", "1000") as process:
        while process.poll() is None and not messages(bootstrap, topics.events):
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, len(err.splitlines())) == (130, 1)  # the speed
    count = int(out.splitlines()[-1].split()[0])
    assert len(messages(bootstrap, topics.events)) == count > 0


def endless_trace(path: Path, seed: int = 5) -> Path:
    """Return a trace with a very late last job, so that a paced ingest never ends by itself."""
    made_trace(path, jobs=1000, seed=seed)
    with path.open("a") as file:
        file.write(swf_line(1001, submit=1e9))
    return path


def await_cursors(process: "subprocess.Popen[str]", directory: Path, sites: str, events: int) -> None:
    """Wait until the cursors of all sites are past `count` events."""
    reached = dict.fromkeys(sites, 0)
    while min(reached.values()) < events:
        assert process.poll() is None, process.communicate()
        for site in sites:
            path = directory / f"swf-{site}.cursor"
            reached[site] = json.loads(path.read_bytes().splitlines()[1])["events"] if path.exists() else 0
        time.sleep(0.01)


def test_killed_ingest_resumes_from_cursors(topics: Topics, bootstrap: str, tmp_path: Path) -> None:
    """No event is lost, and events sent again are identical."""
    paths = [endless_trace(tmp_path / f"{site}.swf", seed) for seed, site in enumerate("ab")]
    cursors = tmp_path / "cursors"
    command = ["ingest", *map(str, paths), "--cursors", str(cursors)]
    for count in (400, 1200):
        with running(*command, "--speed", "20000") as process:
            await_cursors(process, cursors, "ab", count)
            process.kill()
    before = messages(bootstrap, topics.events)
    with running(*command) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("resuming from")) == (0, 2)
    found = messages(bootstrap, topics.events)
    whole = {path.stem: [msgspec.json.encode(event) for event in ingested(path, path.stem)] for path in paths}
    for site, events in whole.items():
        values = [message.value for message in found if message.key == site.encode()]
        assert list(dict.fromkeys(values)) == list(dict.fromkeys(events))
    sent = int(out.splitlines()[-1].split()[0])
    assert sent == len(found) - len(before)
    assert sent <= sum(map(len, whole.values())) - 2 * 1200
    with running(*command) as process:
        assert process.communicate(timeout=60)[0].startswith("0 events sent")
    assert len(messages(bootstrap, topics.events)) == len(found)


def test_ingest_stopped_by_sigterm_resumes_without_repeats(topics: Topics, bootstrap: str, tmp_path: Path) -> None:
    path = endless_trace(tmp_path / "x.swf")
    command = ["ingest", str(path), "--cursors", str(tmp_path)]
    with running(*command, "--speed", "20000") as process:
        await_cursors(process, tmp_path, "x", 400)
        assert main(command) == 1  # another process holds the cursor
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, len(err.splitlines())) == (128 + signal.SIGTERM, 1)
    assert int(out.splitlines()[-1].split()[0]) == len(messages(bootstrap, topics.events))
    assert main(command) == 0
    values = [msgspec.json.decode(message.value, type=AnyEvent) for message in messages(bootstrap, topics.events)]
    assert values == ingested(path, "x")


def test_ingest_rejects_cursor_of_other_topic_or_log(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    command = ["ingest", str(made_trace(tmp_path / "x.swf")), "--cursors", str(tmp_path)]
    assert main(command) == 0
    monkeypatch.setenv("QUEUECAST_KAFKA_PREFIX", f"{topics.prefix}other.")
    assert main(["topics", "create"]) == 0
    assert main(command) == 1
    assert "x.cursor: its topic is 't" in capsys.readouterr().err
    monkeypatch.setenv("QUEUECAST_KAFKA_PREFIX", topics.prefix)
    made_trace(tmp_path / "x.swf", jobs=7)
    assert main(command) == 1
    assert "the cursor is of another log, or of another part of this one (" in capsys.readouterr().err


@pytest.fixture
def predicted(local_stack: LocalStack, topics: Topics, tmp_path: Path) -> list[bytes]:
    """Predictions and outcomes of a made site, on their topics as from a worker."""
    settings = EngineSettings(method="median", shadows=())
    found: list[bytes] = []
    producer = KafkaProducer(bootstrap_servers=local_stack.kafka.bootstrap)
    for record in replay(events_of(read_swf(made_trace(tmp_path / "s.swf", jobs=50)), "made"), settings):
        kind = type(record).__name__.lower() + "s"
        value = msgspec.json.encode(record)
        producer.send(f"{topics.prefix}{kind}", value=value, key=b"made")
        found += [value] if kind == "predictions" else []
    producer.send(topics.predictions, value=b"what", key=b"made")
    producer.close()
    return found


def test_watch_prints_stored_records(predicted: list[bytes], capsys: Capture) -> None:
    assert main(["watch", "--from-beginning", "--count", str(len(predicted)), "--json"]) == 0
    assert [line.encode() for line in capsys.readouterr().out.splitlines()] == predicted
    assert main(["watch", "--from-beginning", "--outcomes", "--site", "made", "--job", "3", "--count", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("  made  job 3  " in line for line in lines)


def test_watch_prints_new_records_until_interrupt(local_stack: LocalStack, predicted: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=local_stack.kafka.bootstrap)
    topic = Topics(os.environ["QUEUECAST_KAFKA_PREFIX"]).predictions
    seen: list[str] = []
    with running("watch", "--json") as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: seen.extend(iter(process.stdout.readline, "")))  # type: ignore[union-attr]
        reader.start()
        deadline = time.monotonic() + 60
        while not seen and time.monotonic() < deadline:  # it starts at the end, after a lookup of that offset
            producer.send(topic, value=predicted[0], key=b"made")
            producer.flush()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        reader.join()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    producer.close()
    assert {json.dumps(json.loads(line)) for line in seen} == {json.dumps(json.loads(predicted[0]))}


@pytest.mark.parametrize("predicted", [5, 6000])
def test_ingested_history_ends_at_start_of_live_source(
    topics: Topics, bootstrap: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, predicted: int
) -> None:
    monkeypatch.setattr(past, "needed", lambda *_: Memory(None, predicted))
    jobs, cut = history(1), 1100
    (tmp_path / "sacct.txt").write_text(sacct(jobs, cut))
    (tmp_path / "looks").mkdir()
    (tmp_path / "looks" / "0001-sacct.txt").write_text(sacct(jobs, 4000, cut - 300))
    dump, cursors = ["ingest", "--history", str(tmp_path / "sacct.txt"), "--site", "a"], ["--cursors", str(tmp_path)]
    assert main([*dump, *cursors]) == 0
    before = len(messages(bootstrap, topics.events))
    assert main([*dump, *cursors]) == 1
    assert "the source has already started" in capsys.readouterr().err
    with running("source", "slurm", str(tmp_path / "looks"), "--site", "a", *cursors) as process:
        while process.poll() is None and len(found := messages(bootstrap, topics.events)) < before + 10:
            pass
        process.terminate()
        process.communicate(timeout=60)
    carried = [read_site_message(message.key, message.value).parts for message in found]
    old = [getattr(part.event, "old", False) for parts in carried for part in parts if part.number is not None]
    assert any(old) == (predicted < 6000)
    before = sum(map(len, carried[:before]))
    events = [part.event for parts in carried for part in parts]
    keys = [(event.kind, *event.key) for event in events if event.kind in ("submit", "start", "end", "cancel")]
    assert len(keys) == len(set(keys))
    assert {event.kind for event in events if getattr(event, "historical", False)} <= {"submit", "requeue"}
    assert not any(getattr(event, "historical", False) for event in events[before:])
