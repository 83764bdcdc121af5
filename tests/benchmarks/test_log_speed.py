"""Speed of decoding logs to events, as a ratio to splitting their lines, measured side by side."""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from streams.sources.source_registry import source_named
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


def lsf_accounted(number: int) -> str:
    hosts = "8 " + " ".join(f'"16*node{host:04}"' for host in range(8))
    return lsf.finished(number, hosts=hosts).replace('"md" 0.1', f'"#!/bin/sh;{"#BSUB -n 128  # tasks;" * 20}" 0.1', 1)


def sacct_row(number: int) -> str:
    """Return the columns of a row, without a header."""
    day, tres = "2024-05-01T", "billing=16,cpu=16,gres/gpu=2,mem=64G,node=1"
    times = f"{day}10:{number // 60 % 60:02}:{number % 60:02}|{day}10:00:00|{day}12:00:00|{day}13:00:00|01:00:00"
    return (
        f"{number}|{number}|alder|batch|normal|acc|grp|100|ada|1000|{times}|0:0|COMPLETED|1|16|16|64Gn|{tres}|{tres}"
        "|02:00:00|n1|md\n"
    )


def gridengine_json(number: int) -> str:
    return gridengine.as_json(gridengine.accounted(number))


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
        ("lsf", lsf_accounted, 25),
        ("gridengine", gridengine.accounted, 45),
        ("gridengine", gridengine_json, 60),
        ("htcondor", htcondor_job, 45),
        ("flux-log", flux_job, 45),
        ("slurm", sacct_row, 80),
    ],
)
def test_log_decoding_time_is_bounded_by_plain_split(
    name: str, job: Callable[[int], str], most: float, tmp_path: Path
) -> None:
    """The bound is on the ratio to `line.split()`."""
    path = tmp_path / "log"
    path.write_text("".join(job(number) for number in range(1, JOBS + 1)))
    bare, read, lines = [], [], 0
    for _ in range(ROUNDS):
        before = process_time()
        with path.open() as file:
            lines = sum(bool(line.split()) for line in file)
        bare.append(process_time() - before)
        source = source_named(name)(str(path), "s")
        before = process_time()
        events = sum(1 for _ in type(source).read_merged([source]))
        read.append(process_time() - before)
        assert events == 3 * JOBS
    ratio = min(read) / min(bare)
    print(f"{name}, {job.__name__}: {lines / min(read):,.0f} lines/s, {ratio:.1f} times a bare loop")
    assert ratio < most
