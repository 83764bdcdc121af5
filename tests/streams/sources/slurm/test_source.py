"""Source `slurm`: each kind of input keeps the contract and yields the same events."""

import gzip
import json
import lzma
import zlib
from base64 import b85encode
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from models.records import AnyEvent
from queuecast.testing_sources import BadPart, SourceContract, events_there
from streams.bulk.reading import read_log
from streams.errors import UserError
from streams.sources.contract import MAX_CURSOR_BYTES, CursorError, SkippedPart, encode_cursor
from streams.sources.slurm.attempt_events import BY
from streams.sources.slurm.source import SlurmSource, _unpacked
from streams.sources.source_registry import format_of
from tests.support.made_slurm import NOON, MadeJob, history, records, sacct, squeue

NODES = (
    "NodeName=n1 CPUTot=8 Gres=(null) State=IDLE RealMemory=1000 Partitions=batch Weight=1\n"
    "NodeName=n2 CPUTot=8 Gres=gpu:a100:2 State=DOWN* RealMemory=1000 Partitions=batch,gpu Weight=2\n"
)
PARTITIONS = "PartitionName=batch Default=YES MaxTime=1-00:00:00 State=UP PriorityTier=1\n"
JOBS = [
    MadeJob(number=1, submit=0, start=20, end=90),
    MadeJob(number=2, submit=5, end=50, state="CANCELLED"),
    MadeJob(number=3, submit=10, start=30, end=70, state="REQUEUED"),
    MadeJob(number=3, submit=70, start=200, end=260, restarts=1),
    MadeJob(number=4, submit=15, start=130, end=140, state="TIMEOUT", expected=400),
    MadeJob(number=5, submit=100, start=150),
    MadeJob(number=6, submit=110),
]
"""Two ended jobs, one cancelled while pending, one requeued, one running and one pending."""

EVENTS = 6 + 5 + 5
"""Submits, starts, and ends of attempts."""


def kinds(events: list[AnyEvent]) -> list[tuple[float, str, str, int]]:
    """Return time, kind, job and attempt of the events that all inputs have in common."""
    return sorted(
        (event.time - NOON, event.kind, event.job, event.attempt)
        for event in events
        if event.kind in ("submit", "start", "end", "cancel", "requeue")
    )


class TestQueue(SourceContract):
    name = "slurm"
    events = 6 + 5 + 5 + 2 + 1
    bad = (
        BadPart(line=None, field=None, expected="a response of Slurm"),
        BadPart(line=2, field="state", expected="a state"),
    )

    def write(self, directory: Path) -> str:
        for number, at in enumerate((6, 25, 60, 120, 160, 300), 1):
            (directory / f"{number:04}-squeue.json").write_bytes(squeue(JOBS, at))
        (directory / "0001-nodes.txt").write_text(NODES)
        (directory / "0001-partitions.txt").write_text(PARTITIONS)
        (directory / "0003-nodes.txt").write_text(NODES.replace("DOWN*", "IDLE"))
        (directory / "0003-partitions.txt").write_text(PARTITIONS)
        (directory / "0005-nodes.txt").write_text(NODES.replace("DOWN*", "IDLE"))
        (directory / "0005-partitions.txt").write_text(PARTITIONS)
        (directory / "0002-squeue.json").write_bytes(b"slurm_load_jobs error: Unable to contact slurm controller")
        worse = squeue([*JOBS, MadeJob(number=9, submit=0, start=1, end=2, state="WHAT")], 300)
        (directory / "0006-squeue.json").write_bytes(worse)
        return str(directory)


class TestAccounting(SourceContract):
    name = "slurm"
    events = EVENTS
    bad = (BadPart(line=9, field=None, expected="14 columns"),)

    def write(self, directory: Path) -> str:
        (directory / "0001-sacct.txt").write_text(sacct(JOBS, 120))
        (directory / "0002-sacct.txt").write_text(sacct(JOBS, 300) + "broken\n")
        return str(directory)


class TestJobcomp(SourceContract):
    name = "slurm"
    events = EVENTS - 1  # a pending job has no record
    bad = (
        BadPart(line=1, field=None, expected="a record of jobcomp/kafka"),
        BadPart(line=2, field="@submit", expected="a time"),
        BadPart(line=23, field=None, expected="a record of jobcomp/kafka"),
    )

    def write(self, directory: Path) -> str:
        sent = sorted(record for job in JOBS for record in records(job))
        lines = [b"{", b'{"jobid":5}', *(value for _, value in sent for _ in range(2))]
        path = directory / "alder.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n" + b'{"jobid":7')
        return str(path)


def read_events(tmp_path: Path, looks: dict[str, bytes], name: str = "looks") -> list[AnyEvent]:
    directory = tmp_path / name
    directory.mkdir()
    for path, content in looks.items():
        (directory / path).write_bytes(content)
    return [event for event, _ in events_there(SlurmSource(str(directory), "here"))]


def test_missing_job_after_restart_is_given_up_at_same_poll(tmp_path: Path) -> None:
    gone, other = MadeJob(number=1, submit=0, start=10), [MadeJob(number=n, submit=n) for n in (2, 3)]
    looks = [[gone], [other[0]], other]
    for number, jobs in enumerate(looks, 1):
        (tmp_path / f"{number}-squeue.json").write_bytes(squeue(jobs, 60 * number))
    steps = events_there(SlurmSource(str(tmp_path), "here"))
    assert [event.kind for event, _ in steps] == ["submit", "start", "submit", "submit", "end"]
    for place, (_, cursor) in enumerate(steps, 1):
        if cursor is not None:
            assert events_there(SlurmSource(str(tmp_path), "here"), cursor) == steps[place:]


@pytest.mark.parametrize("seed", range(3))
def test_source_kinds_yield_equal_events_alone_and_combined(tmp_path: Path, seed: int) -> None:
    jobs = history(seed)
    happens = {time for job in jobs for time in (job.submit, job.start, job.end) if time is not None}
    moments = sorted(happens)
    queue = {f"{at:06}-squeue.json": squeue(jobs, at) for at in moments}
    by_queue = read_events(tmp_path, queue, "queue")
    expected = kinds(by_queue)
    attempts = len(jobs)
    assert sum(kind in ("end", "cancel", "requeue") for _, kind, _, _ in expected) == attempts
    by_accounting = read_events(
        tmp_path, {f"{at:06}-sacct.txt": sacct(jobs, at).encode() for at in moments}, "accounting"
    )
    assert kinds(by_accounting) == expected
    sent = sorted(record for job in jobs for record in records(job))
    (tmp_path / "records").write_bytes(b"".join(value + b"\n" for _, value in sent))
    by_records = SlurmSource(str(tmp_path / "records"), "here")
    assert kinds([event for event, _ in events_there(by_records)]) == expected
    seldom = {f"{at:06}-squeue.json": squeue(jobs, at) for at in range(0, 4000, 60)}
    both = seldom | {f"{at:06}-sacct.txt": sacct(jobs, at, at - 700).encode() for at in range(59, 4059, 60)}
    by_both = read_events(tmp_path, both, "both")
    assert {key[1:] for key in kinds(by_both)} >= {key[1:] for key in expected if key[1] != "requeue"}
    together = SlurmSource(f"{tmp_path / 'accounting'}+{tmp_path / 'records'}", "here")
    assert kinds([event for event, _ in events_there(together)]) == expected


def test_recorded_polls_score_slurms_estimates(tmp_path: Path) -> None:
    jobs = history(1)
    for job in jobs:
        job.expected = None if job.start is None else job.start + 30
    for at in range(60, 4000, 60):
        (tmp_path / f"{NOON + at}-squeue.json.gz").write_bytes(gzip.compress(squeue(jobs, at)))
    (tmp_path / f"{NOON + 4000}-squeue.json.gz").write_bytes(gzip.compress(squeue(jobs, 4000))[:-30])
    with read_log([tmp_path], "alder") as (log, report):
        assert log.surveys["alder"].expected_by[BY] > 5
        assert [parts.found[:14] for parts in report.skipped.values()] == ["cannot be read"]


@pytest.mark.parametrize("kind", ["text", "json", "records"])
def test_files_are_recognised_and_read_whole(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "alder.log"
    if kind == "text":
        path.write_bytes(gzip.compress(sacct(JOBS, 300).encode()))
    elif kind == "json":
        path.write_bytes(squeue(JOBS, 300))
    else:
        path.write_bytes(b"".join(value + b"\n" for job in JOBS for _, value in records(job)))
    source = format_of(path)(str(path))
    assert (source.name, source.sites) == ("slurm", ("alder",))
    events = list(source.read_all())
    assert sum(event.kind == "end" for event in events) == 3
    assert not any(event.late for event in events if event.kind == "submit")
    assert source.records == {"text": 7, "json": 6, "records": 10}[kind]


def test_local_times_use_timezone_option(tmp_path: Path) -> None:
    (tmp_path / "alder.txt").write_text(sacct(JOBS[:1], 300))
    source = SlurmSource(str(tmp_path / "alder.txt"), timezone="Europe/Paris")
    assert next(iter(source.read_all())).time == NOON - 3600
    with pytest.raises(UserError, match="expected one such as Europe"):
        SlurmSource(str(tmp_path / "alder.txt"), timezone="Mars")


@pytest.mark.parametrize(
    ("name", "site", "zipped"),
    [("a+b (1).txt", "a+b (1)", bytes), (".sacct", "site", gzip.compress), ("c.xz", "c", lzma.compress)],
)
def test_file_with_any_name_or_compression_is_read(
    name: str, site: str, zipped: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(zipped(sacct(JOBS, 300).encode()))
    source = SlurmSource(str(tmp_path / name))
    assert source.sites == (site,)
    assert sum(event.kind == "end" for event in source.read_all()) == 3


def test_concatenated_responses_in_one_file_are_read(tmp_path: Path) -> None:
    days = [squeue(JOBS[:2], 300), squeue(JOBS[4:6], 300)]
    (tmp_path / "a.json").write_bytes(
        b"\n".join([days[0], b'{"jobs": [', json.dumps(json.loads(days[1]), indent=1).encode()])
    )
    skipped: list[SkippedPart] = []
    source = SlurmSource(str(tmp_path / "a.json"), "s", skipped.append)
    assert {event.job for event in source.read_all() if event.kind == "submit"} == {"1", "2", "4", "5"}
    assert [part.expected for part in skipped] == ["a whole answer, as JSON"]


def test_unreadable_parts_of_file_are_reported(tmp_path: Path) -> None:
    """The columns identify the format even if no row of the file is readable."""
    text = sacct(JOBS, 300)
    (tmp_path / "a.txt").write_text("\ufeff" + text)
    (tmp_path / "b.txt").write_text(text.replace("|Submit|", "|Sent|"))
    (tmp_path / "c.txt").write_bytes(b"\x00\xff\n" * 3)
    parts: list[SkippedPart] = []
    for name, events, skipped in (("a.txt", EVENTS, 0), ("b.txt", 0, 1), ("c.txt", 0, 2)):
        if name != "c.txt":
            assert format_of(tmp_path / name) is SlurmSource
        source = SlurmSource(str(tmp_path / name), "s", parts.append)
        assert (len(list(source.read_all())), len(parts)) == (events, skipped)
        parts.clear()


def test_invalid_location_raises_user_error(tmp_path: Path) -> None:
    for location in ("", "slurm", "kafka://", "kafka://broker:9092", "http://", str(tmp_path), "slurmdb"):
        with pytest.raises(UserError):
            SlurmSource(location, "here")
    with pytest.raises(UserError, match="name the site"):
        SlurmSource("squeue")


def test_cursor_of_large_queue_stays_small(tmp_path: Path) -> None:
    jobs = [MadeJob(number=4_000_000 + number, submit=number // 5) for number in range(10_000)]
    (tmp_path / "0001-squeue.json").write_bytes(squeue(jobs, 5000))
    cursor = events_there(SlurmSource(str(tmp_path), "here"))[-1][1]
    assert cursor is not None
    assert len(cursor) < 40 * len(jobs) < MAX_CURSOR_BYTES


def test_cluster_option_filters_rows_of_recorded_polls(tmp_path: Path) -> None:
    rows = "".join(f"7|{name}|2026-01-01T10:00:00|2026-01-01T10:01:00|Unknown|RUNNING\n" for name in ("fir", "elm"))
    (tmp_path / "0001-sacct.txt").write_text(f"JobID|Cluster|Submit|Start|End|State\n{rows}")
    counts = [
        len([e for e in SlurmSource(str(tmp_path), "s", pytest.fail, cluster=name).read_all() if e.kind == "submit"])
        for name in ("fir", "oak")
    ]
    assert counts == [1, 0]


def test_cursor_with_undecodable_jobs_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0001-squeue.json").write_bytes(squeue([MadeJob(number=7, submit=0)], 5000))
    cursor = events_there(SlurmSource(str(tmp_path), "here"))[-1][1]
    assert cursor is not None
    place, jobs = _unpacked(cursor)
    assert len(jobs) == 1
    for packed in (b"x", zlib.compress(b"{}")[:-1], zlib.compress(b"[]")):
        broken = msgspec.structs.replace(place, jobs=b85encode(packed).decode())
        with pytest.raises(CursorError, match="is not one of this source"):
            _unpacked(encode_cursor(broken))
    monkeypatch.setattr("streams.sources.slurm.source.MAX_JOBS_BYTES", 10)
    with pytest.raises(CursorError, match="more than 10 bytes"):
        _unpacked(cursor)
