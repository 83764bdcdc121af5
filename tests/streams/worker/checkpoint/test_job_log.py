"""Log of live jobs: a restore returns the state at the last stored head."""

import random
import zlib
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent
from models.stored_values import MAX_DECOMPRESSED_BYTES
from streams.worker.checkpoint.job_log import JobLog, SegmentRange, keys_of, segment_key, site_of
from streams.worker.checkpoint.stored_site import StoredSegment, StoredState, decode_stored, encode_stored, read_state
from tests.support.engines import EVERY, SMALL, encoded, workload
from tests.support.events import end, start, submit
from tests.support.sizes import mostly_long

Put = tuple[bytes, bytes | None]
"""A message of the changelog."""


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink the segments so that a short workload fills and cleans many of them."""
    for name, value in {"TAIL_BYTES": 1500, "SEGMENT_BYTES": 1000, "SLACK_BYTES": 1000, "MIN_MOVED_BYTES": 400}.items():
        monkeypatch.setattr(f"streams.worker.checkpoint.job_log.{name}", value)


def checkpoint(log: JobLog, engine: Engine, offset: int) -> Iterator[Put]:
    """Return the messages of a checkpoint in order."""
    cut, jobs = log.cut(engine)
    for key, segment in jobs.segments:
        yield key, encode_stored(StoredSegment(1, 0, zlib.compress(segment, 1)))
    head = StoredState(2, 0, offset, zlib.compress(cut.state, 1), runs=jobs.runs, tail=zlib.compress(jobs.tail, 1))
    yield engine.site.encode(), encode_stored(head)
    yield from ((key, None) for key in jobs.freed)


def put(table: dict[bytes, bytes], message: Put) -> None:
    key, value = message
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


class Worker:
    """Return the changelog of one process and its progress at each checkpoint."""

    def __init__(self, every: bool = False) -> None:
        self.settings = EVERY if every else SMALL
        self.engine = Engine("s", self.settings)
        self.log = JobLog("s")
        self.changelog: list[Put] = []
        self.heads: dict[int, int] = {}
        """Index of the event before each head, by the head's index in the changelog."""
        self.held: dict[int, tuple[object, ...]] = {}
        """State of the engine after each of these events."""

    def live(self, events: list[AnyEvent], ends: set[int]) -> None:
        for place, event in enumerate(events):
            self.engine.apply(event)
            if place in ends:
                self.held[place] = held(self.engine)
                for message in checkpoint(self.log, self.engine, place):
                    if message[0] == b"s":
                        self.heads[len(self.changelog)] = place
                    self.changelog.append(message)


@cache
def lived(seed: int, every: bool = False) -> Worker:
    dice = random.Random(seed)
    worker = Worker(every)
    events = workload(1)
    worker.live(events, {place for place in range(len(events)) if dice.random() < 0.15})
    return worker


def held(engine: Engine) -> tuple[object, ...]:
    """Return what a restore must equal: ordered jobs, their numbers and method data."""
    live = engine.parts.live
    kept = {name: dict(one._values) for name, one in engine.methods.per_job.items()}
    jobs = [engine.encoded_job(number) for number in live.numbers.values()]
    return list(live.numbers.items()), jobs, live.entered, list(kept.items())


@settings(max_examples=40)
@given(st.integers(0, 1), st.data())
def test_crash_at_any_message_restores_the_last_head(seed: int, data: st.DataObject) -> None:
    worker = lived(seed)
    length = data.draw(st.integers(min(worker.heads) + 1, len(worker.changelog)))
    table: dict[bytes, bytes] = {}
    for message in worker.changelog[:length]:
        put(table, message)
    stored = decode_stored(table[b"s"])
    assert stored.offset == worker.heads[max(place for place in worker.heads if place < length)]
    saved, read_log = read_state("s", stored, table.get)
    assert read_log.fault is None
    again = Engine("s", SMALL)
    again._restore(saved)
    assert held(again) == worker.held[stored.offset]


def test_job_log_deletes_old_segments_and_keeps_few() -> None:
    worker = lived(0)
    table: dict[bytes, bytes] = {}
    written = sum(value is not None and key != b"s" for key, value in worker.changelog)
    for message in worker.changelog:
        put(table, message)
    left = {key for key in table if key != b"s"}
    assert written > 30 and len(left) < written / 3
    assert left == set(worker.log.keys) == {*keys_of("s", decode_stored(table[b"s"]).runs)}


@pytest.mark.parametrize("every", [False, True])
def test_repeated_restores_give_the_same_records(every: bool) -> None:
    """Each restart writes segments under a new name; cleaning covers all names."""
    worker, other = Worker(every), Engine("s", EVERY if every else SMALL)
    table: dict[bytes, bytes] = {}
    rows: dict[str, dict[int, object]] = {}
    started: dict[int, object] = {}
    runs: dict[int, object] = {}
    lives = 0
    for place, event in enumerate(workload(1)[:400]):
        assert encoded(worker.engine.apply(event)) == encoded(other.apply(event))
        if place % 9 != 8:
            continue
        cut, jobs = worker.log.cut(worker.engine)
        for row in cut.changes.started:
            started[row.number] = row
        for run in cut.changes.runs:
            runs[run.number] = run
        for name, own in cut.changes.rows.items():
            rows.setdefault(name, {}).update((row.number, row) for row in own)
        for run in cut.changes.forgotten_runs:
            runs.pop(run.number, None)
        for key, segment in jobs.segments:
            put(table, (key, encode_stored(StoredSegment(1, 0, zlib.compress(segment)))))
        stored = StoredState(2, 0, place, zlib.compress(cut.state), runs=jobs.runs, tail=zlib.compress(jobs.tail))
        for key in jobs.freed:
            put(table, (key, None))
        if place % 45 == 44:
            lives += 1
            saved, read_log = read_state("s", stored, table.get)
            assert read_log.fault is None
            engine = Engine.load(
                saved,
                list(started.values()),  # type: ignore[arg-type]
                list(runs.values()),  # type: ignore[arg-type]
                worker.settings,
                {name: list(own.values()) for name, own in rows.items()},  # type: ignore[misc]
            )
            assert held(engine) == held(other)
            worker.engine, worker.log = engine, read_log
    assert lives > 5


def test_checkpoint_without_job_log_stores_full_state_once() -> None:
    engine, old = Engine("s", SMALL), JobLog("s")
    for event in workload(1)[:200]:
        engine.apply(event)
    list(checkpoint(old, engine, 0))
    log = JobLog("s")
    log.fill(engine, old.keys)
    table: dict[bytes, bytes] = {}
    messages = list(checkpoint(log, engine, 200))
    assert {key for key, value in messages if value is None} == set(old.keys)
    for message in messages:
        put(table, message)
    again = Engine("s", SMALL)
    again._restore(read_state("s", decode_stored(table[b"s"]), table.get)[0])
    assert held(again) == held(engine)
    assert all(key == b"s" for key, _ in checkpoint(log, engine, 200))  # nothing has changed


@pytest.mark.parametrize("what", ["missing", "garbage", "no segment"])
def test_missing_segment_is_reported_and_others_are_read(what: str) -> None:
    worker = lived(1)
    table: dict[bytes, bytes] = {}
    for message in worker.changelog:
        put(table, message)
    stored = decode_stored(table[b"s"])
    assert stored.runs
    lost = next(keys_of("s", stored.runs[-1:]))
    table[lost] = b"\xc1" if what == "garbage" else encode_stored(StoredSegment(1, 0, zlib.compress(b"\xc1")))
    if what == "missing":
        del table[lost]
    saved, read_log = read_state("s", stored, table.get)
    assert read_log.fault is not None
    assert 0 < len(saved.live.jobs) <= saved.live.count


def test_segment_key_names_its_site_and_is_no_site_key() -> None:
    for site in ("ctc", "ålder", "\0", "x" * 256):
        key = segment_key(site, "0123abcd", 17)
        assert site_of(key) == site.encode() == site_of(site.encode()) and key != site.encode()
        with pytest.raises(UnicodeDecodeError):
            key.decode()
    assert list(keys_of("s", [SegmentRange("0123abcd", 17, 18)])) == [segment_key("s", "0123abcd", n) for n in (17, 18)]


def written(live: int, every: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of the later checkpoints, one every `every` events, with `live` queued jobs."""
    monkeypatch.undo()
    engine = Engine("s", EngineSettings(method="median", shadows=("zero",), runtimes="closest", bounds=""))
    for number in range(live):
        engine.apply(submit(f"old {number}", float(number), cpus=1 + number % 7, user=f"u{number % 9}"))
    log, found = JobLog("s"), []
    log.fill(engine)
    for number in range(3000):
        time = float(live + number)
        engine.apply(submit(str(number), time, cpus=1 + number % 7, user=f"u{number % 9}"))
        engine.apply(start(str(number), time))
        engine.apply(end(str(number), time + 1.0))
        if number % every == every - 1:
            found.append(sum(len(value or b"") for _, value in checkpoint(log, engine, number)))
    return found[3:]


@pytest.mark.parametrize("every", mostly_long([100, 10]))
def test_checkpoint_size_follows_changes_not_live_jobs(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (written(live, every, monkeypatch) for live in (100, 10_000))
    assert sum(many) < 3 * sum(few)
    assert max(many) < 6 * max(few)


def test_corrupt_or_too_large_state_is_rejected() -> None:
    worker, table = lived(0), dict[bytes, bytes]()
    for message in worker.changelog:
        put(table, message)
    bomb = zlib.compress(bytes(MAX_DECOMPRESSED_BYTES + 1))
    for part in (b"", b"x", zlib.compress(b"state")[:-1], bomb):
        for name in ("state", "tail"):
            stored = decode_stored(table[b"s"])
            setattr(stored, name, part)
            with pytest.raises(ValueError):
                read_state("s", stored, table.get)
    stored = decode_stored(table[b"s"])
    key = next(iter(keys_of("s", stored.runs)))
    table[key] = encode_stored(StoredSegment(1, 0, bomb))
    assert read_state("s", stored, table.get)[1].fault is not None
