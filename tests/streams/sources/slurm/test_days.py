"""Of a long dump the old rows are passed over: what is read is as if sacct had been asked for a later span."""

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
    """Five jobs a day, each over within hours; the 2nd runs from the third day to the last, the 7th still."""
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


def test_the_last_jobs_are_read_and_those_that_were_there_then(tmp_path: Path) -> None:
    events, report = read([written(tmp_path / "sacct.txt", rows())], last=12)
    assert jobs(events) == {"2", "7", *map(str, range(85, 100))}
    assert report.jobs == 100 and not report.skipped


def test_it_is_what_a_dump_of_a_later_span_tells(tmp_path: Path) -> None:
    later = [one for one in rows() if one.split("|")[5] >= at(17) or "Unknown" in one]
    part, report = read([written(tmp_path / "later.txt", later)], None)
    found, narrowed = read([written(tmp_path / "sacct.txt", rows())], last=12)
    assert found == part and narrowed.reached == report.reached


@pytest.mark.parametrize("more_numbers", [days.MORE_NUMBERS, 3])
@pytest.mark.parametrize("later_first", [False, True])
def test_of_a_job_that_still_lives_all_rows_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more_numbers: int, later_first: bool
) -> None:
    """Else it would be its first attempt again, and of an array all tasks would wait that have left."""
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


def test_of_a_short_dump_all_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "sacct.txt", rows())
    assert read([path], last=100)[0] == read([path], None)[0]
    assert read([path], last=100)[1].jobs == 0


def test_files_that_overlap_do_not_make_days_busier(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{n}.txt", rows()[begin:]) for n, begin in enumerate((0, 60, 80))]
    events, report = read(files, last=12)
    assert jobs(events) == {"2", "7", *map(str, range(85, 100))} and report.jobs == 100


@pytest.mark.parametrize(
    "odd", ["1000.batch|x|ada|{0}|{0}|{0}|COMPLETED|4\n", "1|a|b|ada|{0}|{0}|{0}|COMPLETED|4\n", "no row\n", "\n"]
)
def test_what_is_no_plain_row_is_read_as_ever(tmp_path: Path, odd: str) -> None:
    text = rows()
    text.insert(3, odd.format(at(0.1)))
    part, narrowed = read([written(tmp_path / "sacct.txt", text)], last=12)
    whole, report = read([tmp_path / "sacct.txt"], None)
    assert jobs(part) <= jobs(whole)
    assert jobs(part) - {"1"} == {"2", "7", *map(str, range(85, 100))}
    assert [skipped.places for skipped in narrowed.skipped.values()] == [
        skipped.places for skipped in report.skipped.values()
    ]


def test_a_zipped_file_that_is_cut_short_is_told_once(tmp_path: Path) -> None:
    zipped = gzip.compress((HEADER + "".join(rows())).encode(), 0)  # stored: something is there before the end
    (tmp_path / "sacct.gz").write_bytes(zipped[:-9])
    events, report = read([tmp_path / "sacct.gz"], last=12)
    assert jobs(events) == {"2", "7", *map(str, range(85, 100))}
    assert [(part.count, part.found) for part in report.skipped.values()] == [(1, BROKEN_ZIP)]


def test_one_cluster_of_several_is_read_whole(tmp_path: Path) -> None:
    text = "".join(f"{one.rstrip()}|{'ab'[n % 2]}\n" for n, one in enumerate(rows()))
    (tmp_path / "sacct.txt").write_text(HEADER.replace("\n", "|Cluster\n") + text)
    with read_log([tmp_path / "sacct.txt"], "s", None, None, ["cluster=a"], last=12) as (log, report):
        assert log.jobs == 50 and report.jobs == 0


def test_an_array_counts_as_one_of_the_last_jobs(tmp_path: Path) -> None:
    arrays = [row(f"{n}_{task}", n / 5, n / 5 + 0.2) for n in range(100) for task in range(30)]
    events, report = read([written(tmp_path / "sacct.txt", arrays)], last=12)
    assert jobs(events) == {str(n) for n in range(84, 100)} and report.jobs == 100
