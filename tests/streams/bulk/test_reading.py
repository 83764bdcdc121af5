"""Reading of files into one log: read, skipped and left-out records are counted and reported."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams.bulk.event_log import Share
from streams.bulk.reading import read_log
from streams.errors import InvalidInput, UserError
from streams.sources.contract import SkippedPart
from streams.sources.slurm import overlapping, recorded
from tests.streams.sources.schedulers import test_gridengine as gridengine
from tests.streams.sources.schedulers import test_htcondor as htcondor
from tests.streams.sources.schedulers import test_lsf as lsf
from tests.streams.sources.schedulers import test_pbs as pbs
from tests.support.traces import HEADER, made_trace, swf_line


def test_read_log_reports_files_and_skipped_records(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(HEADER + swf_line(1) + "oops\n" + swf_line(2, wait=-1) + swf_line(3, 5))
    skipped: list[SkippedPart] = []
    with read_log([path], on_skipped=skipped.append) as (log, report):
        assert log.jobs == 2 and log.site == "a" and log.path.exists()
        assert [(file.format, file.records, file.events) for file in report.files] == [("swf", 3, log.count)]
        assert report.left_out == {"jobs without a wait": 1}
        ((reason, parts),) = report.skipped.items()
        assert reason.startswith("18 or more: job number") and (parts.count, parts.found) == (1, "1 fields")
        assert len(skipped) == 1 and f"a.swf:{skipped[0].line}" == parts.places[0]
    assert not log.path.exists()


def test_files_share_first_site_and_count_duplicates_once(tmp_path: Path) -> None:
    made_trace(tmp_path / "a.swf", 40)
    (tmp_path / "b.swf").write_bytes((tmp_path / "a.swf").read_bytes())
    paths = [tmp_path / "a.swf", tmp_path / "b.swf"]
    with read_log(paths[:1]) as (once, _), read_log(paths) as (both, report):
        assert list(both.events()) == list(once.events())
        assert report.events == 2 * once.count


def test_read_log_reads_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(swf_line(1).encode())))
    with read_log([Path("-")], "alder") as (log, _):
        assert (log.site, log.jobs) == ("alder", 1)


def test_read_log_without_job_reports_file_content(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"type":"capacity","site":"s","time":1,"cpus":4}\n\n{"type":"end"}\n')
    words = r"no job in it; 1 empty lines; a\.json:3: found .*, expected an event"
    with pytest.raises(InvalidInput, match=words), read_log([tmp_path / "a.json"]):
        pass
    with pytest.raises(UserError, match="'crystal' is not a source"), read_log([tmp_path / "a.json"], None, "crystal"):
        pass


LOGS = {
    "pbs": [
        pbs.QUEUED,
        pbs.QUEUED.replace("7.srv", "8.srv"),
        "11/14/2023 22:13:20;Q;9.srv;queue=workq\n",
        pbs.STARTED,
        pbs.ENDED,
        pbs.STARTED.replace("7.srv", "9.srv"),
        "11/14/2023 22:16:00;D;8.srv;requestor=ada@host\n",
    ],
    "lsf": [
        lsf.new(1),
        lsf.new(2, name="md[1-3]%2"),
        lsf.started(job=1),
        lsf.executed(job=1),
        lsf.started(job=2, index=1),
        lsf.started(job=2, index=2),
        lsf.status(64, lsf.T + 400, 1, ended=lsf.T + 399),
        lsf.finished(1),
        lsf.status(64, lsf.T + 400, 2, ended=lsf.T + 399),
    ],
    "gridengine": [
        gridengine.new(7),
        gridengine.new(8),
        gridengine.log(1000000060, "delivered", 7),
        gridengine.log(1000000360, "finished", 7),
        gridengine.log(1000000360, "deleted", 8),
    ],
    "htcondor": [htcondor.event(kind, kind) for kind in (0, 12, 13, 1)] + [htcondor.event(5, 20, htcondor.TERMINATED)],
}


@pytest.mark.parametrize("name", LOGS)
def test_log_split_into_files_equals_whole_log(name: str, tmp_path: Path) -> None:
    """Jobs may span files, for any position of the cut and any order of the files."""
    lines = LOGS[name]
    (tmp_path / "whole").write_text("".join(lines))
    with read_log([tmp_path / "whole"], "s") as (log, one):
        whole = list(log.events())
    for cut in range(1, len(lines)):
        (tmp_path / "sooner").write_text("".join(lines[:cut]))
        (tmp_path / "later").write_text("".join(lines[cut:]))
        with read_log([tmp_path / "later", tmp_path / "sooner"], "s", name) as (log, two):
            assert list(log.events()) == whole
        assert two.left_out == one.left_out and not two.skipped
        assert sum(file.events for file in two.files) == one.files[0].events
        assert sum(file.records for file in two.files) == one.files[0].records


def test_capacity_with_named_format_and_options_is_read(tmp_path: Path) -> None:
    jobs, columns, size = (tmp_path / name for name in ("jobs.csv", "map.toml", "size.jsonl"))
    jobs.write_text("number;come;wait;cpus\n1;1700000100;5;4\n")
    columns.write_text('separator = ";"\n[columns]\njob = "number"\nsubmit = "come"\nwait = "wait"\ncpus = "cpus"\n')
    size.write_text('{"type":"capacity","v":1,"site":"alder","time":1700000000,"cpus":512}\n')
    with read_log([jobs, size], "alder", "table", options=[f"map={columns}"]) as (log, _):
        capacity = log.surveys["alder"].capacity
    assert capacity is not None and capacity.cpus == 512


def test_format_and_options_apply_to_all_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for number, path in enumerate(paths):
        path.write_text(f'{{"v":1,"site":"s","type":"submit","time":{number}.0,"job":"{number}"}}\n')
    for files in (paths[:1], paths, paths[:1] * 2):
        with pytest.raises(UserError, match="nonsense"), read_log(files, options=["nonsense=1"]):
            pass
        with pytest.raises(UserError, match="in the Standard Workload Format"), read_log(files, format_name="swf"):
            pass


def test_read_log_applies_source_options(tmp_path: Path) -> None:
    (tmp_path / "20231114").write_text(pbs.QUEUED.replace(f"{pbs.WHO} {pbs.TIMES} {pbs.WHAT}", "queue=workq"))
    for options, hour_later in (((), 1), (("timezone=Europe/Paris",), 0)):
        with read_log([tmp_path / "20231114"], options=options) as (log, _):
            assert log.begin == 1_700_000_000 - 3600 + 3600 * hour_later
    with (
        pytest.raises(InvalidInput, match="the options of pbs are: pause_s, timezone"),
        read_log([tmp_path / "20231114"], options=["zone=UTC"]),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("JobID    JobName  State\n-----    -------  -----\n1        md       COMPLETED\n", "columns between blanks"),
        ('"JobID","State","Submit"\n"1","COMPLETED","2026-01-02T12:00:00"\n', "columns in quotes"),
    ],
)
def test_sacct_output_of_other_form_reports_expected_command(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    with (
        pytest.raises(InvalidInput, match=f"found {found}, expected the output of `TZ=UTC sacct -XDP"),
        read_log([tmp_path / "a.txt"], format_name="slurm"),
    ):
        pass


def test_read_log_names_standard_input_in_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"hello\n")))
    unknown = pytest.raises(InvalidInput, match=r"^standard input: the format is not recognised")
    with unknown, read_log([Path("-")]):
        pass
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(swf_line(1).encode())))
    with read_log([Path("-")]) as (_, report):
        assert [file.file for file in report.files] == ["standard input"]


@pytest.mark.parametrize("last", [None, 100])
def test_reading_progress_never_decreases(last: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [f"2026-{month:02}-{day:02}T12:00:00" for month in range(1, 13) for day in range(1, 29)]
    rows = [f"{n}|{days[n // 20]}|{days[n // 20]}|{days[n // 20]}|COMPLETED" for n in range(20 * len(days))]
    (tmp_path / "a.txt").write_text("\n".join(["JobID|Submit|Start|End|State", *rows, ""]))
    size, getters, values = (tmp_path / "a.txt").stat().st_size, list[Share](), list[float | None]()

    @contextmanager
    def shown(_unit: str, total: int | None, share: Share) -> Iterator[Callable[[float], None]]:
        getters.append(share)
        yield lambda _: values.append(share()) if total is None else None

    blocks = recorded.OneFile._blocks

    def watched(*given: Any, **named: Any) -> Iterator[bytes]:
        for block in blocks(*given, **named):
            yield block
            values.append(getters[0]())

    monkeypatch.setattr(recorded.OneFile, "_blocks", watched)
    monkeypatch.setattr(recorded, "BLOCK_BYTES", size // 20)
    monkeypatch.setattr(overlapping, "BATCH_ROWS", 10)
    with read_log([tmp_path / "a.txt"], "s", shown=shown, last=last):
        pass
    shares = [share for share in values if share is not None]
    assert shares == sorted(shares) and shares[0] < 0.1 and shares[-1] == 1.0
    steps = [after - before for before, after in pairwise(shares)]
    assert max(steps) < 0.1, "it does not leap"
