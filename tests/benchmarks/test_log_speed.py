"""How fast logs become events: a ratio to the least that one can do with their lines, measured side by side."""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from streams.sources.registry import source_named
from tests.streams.sources.schedulers import test_flux as flux
from tests.streams.sources.schedulers import test_gridengine as gridengine
from tests.streams.sources.schedulers import test_htcondor as htcondor
from tests.streams.sources.schedulers import test_lsf as lsf
from tests.streams.sources.schedulers import test_pbs as pbs

JOBS = 5000
ROUNDS = 5


def pbs_job(number: int) -> str:
    return (pbs.QUEUED + pbs.STARTED + pbs.ENDED).replace("7.srv", f"{number}.srv")


def lsf_job(number: int) -> str:
    end = lsf.status(64, lsf.T + 361, number, ended=lsf.T + 360)
    return lsf.new(number) + lsf.started(job=number) + lsf.executed(job=number) + end + lsf.finished(number)


def htcondor_job(number: int) -> str:
    kinds = ((0, 0), (1, 10), (5, 20))
    times = (f"2024-09-15T10:{number // 60 % 60:02}:{after_s:02}Z" for _, after_s in kinds)
    return "".join(htcondor.as_json(kind, at, None, Cluster=number) for (kind, _), at in zip(kinds, times, strict=True))


def flux_job(number: int) -> str:
    return flux.text(flux.entries(number))


@pytest.mark.parametrize(
    ("name", "job", "most"),
    [
        ("pbs", pbs_job, 25),
        ("lsf", lsf_job, 25),
        ("gridengine", gridengine.accounted, 45),
        ("htcondor", htcondor_job, 45),
        ("flux-log", flux_job, 45),
    ],
)
def test_logs_are_read_fast(name: str, job: Callable[[int], str], most: float, tmp_path: Path) -> None:
    """10 to 20 µs a line; the bound is on the ratio to `line.split()`."""
    path = tmp_path / "log"
    path.write_text("".join(job(number) for number in range(JOBS)))
    bare, read, lines = [], [], 0
    for _ in range(ROUNDS):
        before = process_time()
        with path.open() as file:
            lines = sum(bool(line.split()) for line in file)
        bare.append(process_time() - before)
        source = source_named(name).open(str(path), "s")
        before = process_time()
        events = sum(1 for _ in source.whole())
        read.append(process_time() - before)
        assert events == 3 * JOBS
    ratio = min(read) / min(bare)
    print(f"{name}: {lines / min(read):,.0f} lines/s, {ratio:.1f} times a bare loop")
    assert ratio < most
