"""Truncated Slurm files: complete jobs are read, and the position of the cut is reported."""

import gzip
import json
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from models.records import AnyEvent
from streams.bulk.reading import read_log
from streams.sources.contract import SkippedPart
from streams.sources.slurm import recorded
from streams.sources.slurm.calls import CallFailed, jobs_of
from streams.sources.slurm.source import SlurmSource
from tests.support.made_slurm import MadeJob, records, sacct, sacct_json, squeue

JOBS = [MadeJob(number=n, submit=n, start=n + 5, end=n + 9, user=f'a\u00e9{{"[{n}') for n in range(1, 6)]
PLACE = re.compile(r"it breaks off in line (\d+), byte (\d+), after (\d+) whole jobs")


def submitted(path: Path) -> tuple[list[str], list[SkippedPart]]:
    skipped: list[SkippedPart] = []
    events = SlurmSource(str(path), "s", skipped.append).read_all()
    return [event.job for event in events if event.kind == "submit"], skipped


def pretty(document: bytes) -> bytes:
    return json.dumps(json.loads(document), indent=2, ensure_ascii=False).encode()


@pytest.fixture(params=["whole", "in turn"])
def _memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a document in one piece, or job by job as for a large file."""
    if request.param == "in turn":
        monkeypatch.setattr(recorded, "LARGE_BYTES", 0)
        monkeypatch.setattr(recorded, "BLOCK_BYTES", 50)


@pytest.mark.usefixtures("_memory")
@pytest.mark.parametrize("look", [sacct_json, squeue])
@pytest.mark.parametrize("shape", [bytes, pretty])
def test_truncated_json_yields_jobs_preceding_the_cut(
    look: Callable[[list[MadeJob], int], bytes], shape: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    document = shape(look(JOBS, 100))
    begins = [found.start() for found in re.finditer(rb'\{\s*"job_id": [1-5]\b', document)]
    for cut in range(document.index(b'"eligible'), len(document), 17):
        (tmp_path / "a.json").write_bytes(document[:cut])
        jobs, skipped = submitted(tmp_path / "a.json")
        (part,) = skipped
        place = PLACE.fullmatch(part.found)
        assert place is not None and part.expected == "a whole answer, as JSON"
        line, byte, whole = map(int, place.groups())
        assert jobs == [str(number) for number in range(1, whole + 1)]
        assert whole == sum(begin < cut for begin in begins) - (byte in begins and byte < cut)
        assert line == document.count(b"\n", 0, byte) + 1
        assert byte <= cut


@pytest.mark.usefixtures("_memory")
def test_response_following_truncated_one_is_read(tmp_path: Path) -> None:
    days = [pretty(sacct_json(JOBS[:2], 100)), pretty(sacct_json(JOBS[2:], 100))]
    cut = days[0].rindex(b'"job_id"') + 9
    (tmp_path / "a.json").write_bytes(days[0][:cut] + b"\n" + days[1] + b"\n")
    jobs, skipped = submitted(tmp_path / "a.json")
    assert jobs == ["1", "3", "4", "5"]
    assert [PLACE.fullmatch(part.found) is not None for part in skipped] == [True]


@pytest.mark.usefixtures("_memory")
def test_truncation_and_invalid_job_are_both_reported(tmp_path: Path) -> None:
    document = sacct_json(JOBS, 100).replace(b'"job_id": 2', b'"job_id": []')
    (tmp_path / "a.json").write_bytes(document[:-3])
    jobs, skipped = submitted(tmp_path / "a.json")
    assert jobs == ["1", "3", "4"]
    assert [(part.line, part.expected) for part in skipped] == [(2, "a job as JSON"), (None, "a whole answer, as JSON")]


@pytest.mark.parametrize("kind", ["json", "records"])
def test_large_file_is_read_in_bounded_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "LARGE_BYTES", 1 << 20)
    monkeypatch.setattr(recorded, "BLOCK_BYTES", 1 << 18)
    lines = b"".join(line + b"\n" for job in JOBS * 1000 for _, line in records(job))
    (tmp_path / "a").write_bytes(sacct_json(JOBS * 1500, 100) if kind == "json" else lines)
    source = SlurmSource(str(tmp_path / "a"), "s", pytest.fail)
    file = source._only_file()
    assert file is not None and file.kind == kind
    tracemalloc.start()
    rows = sum(1 for _ in file.rows())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == (7_500 if kind == "json" else 10_000)
    assert peak < (tmp_path / "a").stat().st_size / 2 + (1 << 20)


def test_report_contains_truncated_response(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(sacct_json(JOBS, 100)[:-30])
    with read_log([tmp_path / "a.json"], "s") as (log, report):
        assert log.jobs == 4
        assert "after 4 whole jobs" in report.skipped["a whole answer, as JSON"].found


@pytest.mark.parametrize("content", [sacct(JOBS * 400, 100).encode(), sacct_json(JOBS * 400, 100)])
def test_truncated_compressed_file_is_read_to_its_end(content: bytes, tmp_path: Path) -> None:
    zipped = gzip.compress(content, 0)  # stored uncompressed: some data precedes the cut
    (tmp_path / "a.gz").write_bytes(zipped[: len(zipped) // 2])
    jobs, skipped = submitted(tmp_path / "a.gz")
    assert jobs[0] == "1"
    assert skipped[0].found == "the zipped file is broken or cut short"


@pytest.mark.parametrize("inside", [b"[", b'{"a":', b'"', b'{"job_id":1},'])
def test_deeply_nested_document_is_skipped_within_time_limit(inside: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"jobs":[{"submit_time":' + inside * 200_000)
    began = time.process_time()
    assert submitted(tmp_path / "a.json")[0] == []
    assert time.process_time() - began < 10


def test_many_truncated_responses_are_read_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes((b'{"jobs":[{"submit_time":' + b" \n" * 1000) * 10_000)
    began = time.process_time()
    skipped = submitted(tmp_path / "a.json")[1]
    assert PLACE.fullmatch(skipped[-1].found)
    assert len(skipped) == 10_000
    assert skipped[-1].found.startswith("it breaks off in line 9999001, byte ")
    assert time.process_time() - began < 15


def test_truncated_squeue_response_raises_call_failed() -> None:
    """A poll with missing jobs would otherwise report that they ended."""
    with pytest.raises(CallFailed):
        jobs_of(squeue(JOBS, 100)[:-40], pytest.fail, "squeue")


def test_truncated_recorded_poll_is_skipped(tmp_path: Path) -> None:
    looks = tmp_path / "looks"
    looks.mkdir()
    (looks / "1-squeue.json").write_bytes(squeue(JOBS, 8))
    (looks / "2-squeue.json").write_bytes(squeue(JOBS, 8)[:-300])
    skipped: list[SkippedPart] = []
    events: list[AnyEvent] = list(SlurmSource(str(looks), "s", skipped.append).read_all())
    assert not any(event.kind in ("end", "cancel") for event in events)
    assert [Path(part.file).name for part in skipped] == ["2-squeue.json"]
