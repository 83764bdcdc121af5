"""Overlapping files of one Slurm site, such as monthly dumps: each attempt of a job counts once."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from models.records import AnyEvent
from streams.bulk.reading import Report, read_log
from streams.errors import UserError
from streams.sources.slurm import recorded
from streams.sources.slurm.source import SlurmSource
from tests.support.made_slurm import NOON, SACCT, MadeJob, history, records, sacct, sacct_json, squeue, stamp
from tests.support.sizes import mostly_long, some

END = 4000
TWICE = "duplicate rows"
Dump = Callable[[list[MadeJob], int, int], bytes]


def text(jobs: list[MadeJob], at: int, since: int = 0) -> bytes:
    return sacct(jobs, at, since).encode()


def read(directory: Path, *contents: bytes) -> tuple[list[AnyEvent], Report]:
    """Return the events of files in this order, without capacity events, and the report."""
    paths = [directory / f"{number}.log" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    with read_log(paths, "s") as (log, report):
        return [event for event in log.events() if event.kind != "capacity"], report


def kinds(events: list[AnyEvent]) -> list[tuple[str, int, str, float]]:
    return [(event.job, event.attempt, event.kind, event.time - NOON) for event in events]


@pytest.mark.parametrize("dump", [text, sacct_json])
@pytest.mark.parametrize("seed", mostly_long(range(3)))
def test_overlapping_slurm_dumps_equal_whole_dump(dump: Dump, seed: int, tmp_path: Path) -> None:
    jobs = history(seed)
    read_all, _ = read(tmp_path, dump(jobs, END, 0))
    for cut in some(range(100 + 200 * seed, 2600 + 200 * seed, 600), 2):
        months = [dump(jobs, cut, 0), dump(jobs, END, cut)]
        repeated = sum(job.submit <= cut <= job.end for job in jobs)
        for order in (months, months[::-1]):
            found, report = read(tmp_path, *order)
            assert found == read_all
            assert report.left_out == ({TWICE: repeated} if repeated else {})
            assert not report.skipped
            assert sum(file.records for file in report.files) == len(jobs) + repeated
            assert report.events == len(read_all)


def test_attempts_in_two_files_belong_to_one_job(tmp_path: Path) -> None:
    """Also for files selected by state, of which none is the earlier one."""
    first = MadeJob(number=3, submit=10, start=30, end=70, state="PREEMPTED")
    second = MadeJob(number=3, submit=70, start=200, end=260)
    expected = [("3", 0, "submit", 10), ("3", 0, "start", 30), ("3", 0, "requeue", 70)]
    expected += [("3", 1, "start", 200), ("3", 1, "end", 260)]
    files = [text([first], END), text([second], END)]
    for order in (files, files[::-1]):
        found, report = read(tmp_path, *order)
        assert kinds(found) == expected
        assert not report.left_out


def test_slurm_files_repeated_attempt_is_no_requeue(tmp_path: Path) -> None:
    preempted = MadeJob(number=3, submit=10, start=30, end=70, state="PREEMPTED")
    expected = [("3", 0, "submit", 10), ("3", 0, "start", 30), ("3", 0, "end", 70)]
    one = text([preempted], END)
    for files in ([one, one], [one + one], [sacct_json([preempted] * 2, END)]):
        found, report = read(tmp_path, *files)
        assert kinds(found) == expected
        assert report.left_out == {TWICE: 1}
    sent = b"".join(value + b"\n" for _, value in records(preempted))
    found, report = read(tmp_path, sent + sent)
    assert kinds(found) == expected
    assert not report.left_out  # records may be delivered twice


def test_requeue_with_first_submission_gives_two_attempts(tmp_path: Path) -> None:
    """The job is listed as queued before and after its first run."""
    preempted = MadeJob(number=3, submit=10, start=30, end=70, state="PREEMPTED")
    other = MadeJob(number=4, submit=20, start=80, end=90)
    before = text([MadeJob(number=3, submit=10), MadeJob(number=5, submit=20)], 25)
    again = text([preempted, MadeJob(number=3, submit=10), other], 100)
    for order in ([before, again], [again, before]):
        found, report = read(tmp_path, *order)
        assert [key for key in kinds(found) if key[0] == "3"] == [
            ("3", 0, "submit", 10),
            ("3", 0, "start", 30),
            ("3", 0, "requeue", 70),
        ]
        assert report.left_out == {TWICE: 1}


def test_array_pending_in_one_file_starts_in_the_next(tmp_path: Path) -> None:
    def queued(tasks: str) -> bytes:
        fields = [f"7_[{tasks}]", "7", stamp(10), stamp(10), "Unknown", "Unknown", "PENDING"]
        return "\n".join([SACCT, "|".join([*fields, "60", "batch", "ada", "1", "", "cpu=4,node=1", ""]), ""]).encode()

    def tasks(*numbers: int) -> list[MadeJob]:
        return [MadeJob(number=70 + n, submit=10, start=40 * n, end=40 * n + 30, array=7, task=n) for n in numbers]

    expected, _ = read(tmp_path, text(tasks(1, 2, 3), END))
    for files in (
        [queued("1-3"), text(tasks(1, 2, 3), END)],
        [queued("1-3"), text(tasks(1), 50) + queued("2-3"), text(tasks(1, 2, 3), END)],
        [queued("1-3"), text(tasks(1), 75), text(tasks(2, 3), END)],
    ):
        for order in (files, files[::-1]):
            found, _ = read(tmp_path, *order)
            assert kinds(found) == kinds(expected)
            (row,) = [event for event in found if event.kind == "submit"]
            assert (row.job, row.array_size) == ("7", 3)


def test_slurm_dump_reading_time_is_linear_in_rows(tmp_path: Path) -> None:
    row = sacct([MadeJob(number=1, submit=1, start=2, end=3)], END).splitlines()[1].removeprefix("1|1|")
    lines = (f"{number}|{number}|{row}" for number in range(1, 40_001))
    (tmp_path / "a.txt").write_text("\n".join([SACCT, *lines, ""]))
    source, began = SlurmSource(str(tmp_path / "a.txt")), time.process_time()
    assert sum(1 for _ in SlurmSource.read_merged([source])) == 3 * 40_000
    assert time.process_time() - began < 15  # 1 s; a comparison of all pairs of rows takes minutes


def test_slurm_files_keep_scheduler_estimate(tmp_path: Path) -> None:
    """The job is queued with an estimate, and running in a later answer."""
    job = MadeJob(number=4, submit=15, start=130, end=140, expected=400)
    answers = [squeue([job, MadeJob(number=1, submit=90)], 100), squeue([job], 135)]
    for order in (answers, answers[::-1]):
        found, report = read(tmp_path, *order)
        assert [key for key in kinds(found) if key[0] == "4"] == [
            ("4", 0, "submit", 15),
            ("4", 0, "expected_start", 90),
            ("4", 0, "start", 130),
        ]
        assert report.left_out == {TWICE: 1}


def of_cluster(name: str) -> bytes:
    times = "2026-01-02T12:00:00|2026-01-02T12:00:10|2026-01-02T12:00:20"
    return f"JobID|Cluster|Submit|Start|End|State\n100|{name}|{times}|COMPLETED\n".encode()


def test_slurm_dumps_of_several_clusters_require_cluster_option(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"several clusters, fir \(.*0.log\) and elm \(.*1.log\).*--set cluster=fir"):
        read(tmp_path, of_cluster("fir"), of_cluster("elm"))
    paths = [tmp_path / f"{number}.log" for number in range(2)]
    with read_log(paths, "s", options=["cluster=elm"]) as (log, report):
        assert log.jobs == 1 and report.left_out == {"jobs of other clusters": 1}


def test_slurm_files_large_answer_gives_same_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs are read in parts, to save memory."""
    content = sacct_json(history(1), END, 0)
    small = read(tmp_path, content)
    monkeypatch.setattr(recorded, "LARGE_BYTES", 0)
    assert read(tmp_path, content) == small


def test_slurm_end_event_omits_default_state(tmp_path: Path) -> None:
    """Each event is sent and stored, so the default state takes no space."""
    read(tmp_path, text(history(1), END, 0))
    events = SlurmSource.read_merged([SlurmSource(str(tmp_path / "0.log"), "s")])
    ends = [msgspec.json.encode(event) for _, event in events if event.kind == "end"]
    assert any(b'"state"' not in end for end in ends)
    assert not any(b'"completed"' in end for end in ends)
