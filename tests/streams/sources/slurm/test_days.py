"""Option `last` on a long sacct dump: old rows are skipped, as in a dump of a later time span."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from models.records import AnyEvent, JobEvent, Submit
from streams.bulk.reading import Report, read_log
from streams.errors import BROKEN_ZIP
from streams.sources.slurm import days

HEADER = "JobID|JobName|User|Submit|Start|End|State|NCPUS\n"


def at(day: float) -> str:
    whole, rest = divmod(day, 1)
    return f"2024-05-{1 + int(whole):02}T{int(rest * 24):02}:00:00"


def row(job: str, submit: float, end: float | None, name: str = "md", state: str = "COMPLETED") -> str:
    ended = "Unknown" if end is None else at(end)
    return f"{job}|{name}|ada|{at(submit)}|{at(submit)}|{ended}|{state if end is not None else 'RUNNING'}|4\n"


def queued(job: str, submit: float) -> str:
    return f"{job}|md|ada|{at(submit)}|Unknown|Unknown|PENDING|4\n"


def rows(count: int = 20, each: int = 5) -> list[str]:
    """Return rows of `each` short jobs a day; job 2 runs from the first day to the last, job 7 is still running."""
    found = [row(str(n), n // each, n // each + 0.2) for n in range(count * each)]
    found[2], found[7] = row("2", 0, count - 1), row("7", 1, None)
    return found


def read(files: Sequence[Path], last: int | None) -> tuple[list[AnyEvent], Report]:
    with read_log(files, "s", last=last) as (log, report):
        return list(log.events()), report


def written(path: Path, text: Sequence[str]) -> Path:
    path.write_text(HEADER + "".join(text))
    return path


def jobs(events: list[AnyEvent]) -> set[str]:
    return {event.job for event in events if isinstance(event, Submit)}


def test_last_option_reads_last_jobs_and_overlapping_jobs(tmp_path: Path) -> None:
    events, report = read([written(tmp_path / "sacct.txt", rows())], last=12)
    assert jobs(events) == {"2", "7", *map(str, range(85, 100))}
    assert report.jobs == 100 and not report.skipped


def test_last_option_equals_dump_of_later_time_span(tmp_path: Path) -> None:
    later = [one for one in rows() if one.split("|")[5] >= at(17) or "Unknown" in one]
    part, report = read([written(tmp_path / "later.txt", later)], None)
    found, narrowed = read([written(tmp_path / "sacct.txt", rows())], last=12)
    assert found == part and narrowed.reached == report.reached


@pytest.mark.parametrize("more_numbers", [days.MORE_NUMBERS, 3])
@pytest.mark.parametrize("later_first", [False, True])
def test_last_option_keeps_all_rows_of_live_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more_numbers: int, later_first: bool
) -> None:
    """Otherwise a job restarts at its first attempt, and departed array tasks are pending again."""
    monkeypatch.setattr(days, "MORE_NUMBERS", more_numbers)
    requeued = [row("700", 1, 1.2, state="REQUEUED"), row("700", 1.2, None)]
    array = [row(f"800_{n}", 0, 0.4) for n in range(1, 4)] + [row("800_4", 0, None), queued("800_[5-9]", 0)]
    text = [*requeued, *array]
    path = written(tmp_path / "sacct.txt", [*rows(), *(reversed(text) if later_first else text)])
    whole, report = read([path], None)
    part, narrowed = read([path], last=12)
    assert len(part) < len(whole) / 2

    def of_live(events: list[AnyEvent]) -> list[AnyEvent]:
        found = [event for event in events if isinstance(event, JobEvent) and event.job[:3] in ("700", "800")]
        return [msgspec.structs.replace(one, late=True) if isinstance(one, Submit) else one for one in found]

    assert of_live(part) == of_live(whole) != []
    assert narrowed.reached == report.reached


def test_last_option_on_short_dump_reads_all_rows(tmp_path: Path) -> None:
    path = written(tmp_path / "sacct.txt", rows())
    assert read([path], last=100)[0] == read([path], None)[0]
    assert read([path], last=100)[1].jobs == 0


def test_overlapping_files_count_each_job_once(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{n}.txt", rows()[begin:]) for n, begin in enumerate((0, 60, 80))]
    events, report = read(files, last=12)
    assert jobs(events) == {"2", "7", *map(str, range(85, 100))} and report.jobs == 100


@pytest.mark.parametrize(
    "odd", ["1000.batch|x|ada|{0}|{0}|{0}|COMPLETED|4\n", "1|a|b|ada|{0}|{0}|{0}|COMPLETED|4\n", "no row\n", "\n"]
)
def test_last_option_reports_irregular_rows_like_full_read(tmp_path: Path, odd: str) -> None:
    text = rows()
    text.insert(3, odd.format(at(0.1)))
    part, narrowed = read([written(tmp_path / "sacct.txt", text)], last=12)
    whole, report = read([tmp_path / "sacct.txt"], None)
    assert jobs(part) <= jobs(whole)
    assert jobs(part) - {"1"} == {"2", "7", *map(str, range(85, 100))}
    assert [skipped.places for skipped in narrowed.skipped.values()] == [
        skipped.places for skipped in report.skipped.values()
    ]


def test_truncated_gzip_file_is_reported_one_time(tmp_path: Path) -> None:
    zipped = gzip.compress((HEADER + "".join(rows())).encode(), 0)  # stored uncompressed: some data precedes the cut
    (tmp_path / "sacct.gz").write_bytes(zipped[:-9])
    events, report = read([tmp_path / "sacct.gz"], last=12)
    assert jobs(events) == {"2", "7", *map(str, range(85, 100))}
    assert [(part.count, part.found) for part in report.skipped.values()] == [(1, BROKEN_ZIP)]


def test_cluster_filter_reads_all_jobs_despite_last_option(tmp_path: Path) -> None:
    text = "".join(f"{one.rstrip()}|{'ab'[n % 2]}\n" for n, one in enumerate(rows()))
    (tmp_path / "sacct.txt").write_text(HEADER.replace("\n", "|Cluster\n") + text)
    with read_log([tmp_path / "sacct.txt"], "s", None, None, ["cluster=a"], last=12) as (log, report):
        assert log.jobs == 50 and report.jobs == 0


def test_job_array_counts_as_single_job_for_last_option(tmp_path: Path) -> None:
    arrays = [row(f"{n}_{task}", n / 5, n / 5 + 0.2) for n in range(100) for task in range(30)]
    events, report = read([written(tmp_path / "sacct.txt", arrays)], last=12)
    assert jobs(events) == {str(n) for n in range(84, 100)} and report.jobs == 100
