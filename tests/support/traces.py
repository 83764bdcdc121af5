"""Traces for tests: real ones where they are at hand, and made ones."""

import gzip
import os
import random
from collections.abc import Iterable
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path

import pytest

from models.records import AnyEvent
from streams.sources.swf import Trace, events_of

SHARED = Path(__file__).parents[3] / "shared"
HEADER = "; UnixStartTime: 835823160\n; MaxProcs: 64\n; MaxNodes: 16 (of 20)\n"


def shared_path(name: str) -> Path:
    """A file beside the repository; without it the test is skipped, or fails in CI, where it must be."""
    path = SHARED / name
    if not path.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{path} is missing")
        pytest.skip(f"{path} is not at hand")
    return path


def trace_path(name: str) -> Path:
    """A real trace, by the beginning of its file's name: CTC, HPC2N, KTH, SDSC-BLUE or SDSC-SP2."""
    found = sorted(shared_path("traces").glob(f"{name}*.swf.gz"))
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


def first_jobs(name: str, path: Path, jobs: int | None) -> Path:
    """Write a trace of the first jobs of a real one (all: None), after its whole header."""
    with gzip.open(trace_path(name), "rt", errors="replace") as trace:
        lines = list(trace)
    head = [line for line in lines if line.startswith(";")]
    path.write_text("".join([*head, *islice((line for line in lines if not line.startswith(";")), jobs)]))
    return path


def fed(traces: Iterable[Trace]) -> list[AnyEvent]:
    """The events of traces, side by side from their beginnings, as `feed` sends them; a site has its file's name."""
    dated = [((event.time - trace.begin, event) for event in events_of(trace, trace.site)) for trace in traces]
    return [event for _, event in merge(*dated, key=itemgetter(0))]


def swf_line(
    number: int,
    submit: float = 0,
    wait: float = 0,
    run: float = 0,
    status: int = 1,
    cpus: int = 4,
    walltime: float = 3600,
    user: int = 1,
) -> str:
    """One job's line."""
    return f"{number} {submit} {wait} {run} {cpus} -1 -1 {cpus} {walltime} -1 {status} {user} 2 3 0 -1 -1 -1\n"


def made_trace(path: Path, jobs: int = 400, seed: int = 5) -> Path:
    """Write a trace of a busy site: bursts of submissions in one second, waits of none to hours, jobs cancelled."""
    dice = random.Random(seed)
    submit, lines = 0, [HEADER]
    for number in range(1, jobs + 1):
        submit += dice.choice((0, 0, 1, 30, 400))
        wait = dice.choice((-1, *(0,) * 5, *(int(dice.expovariate(1 / 3000)) for _ in range(14))))
        run, status = int(dice.expovariate(1 / 2500)), dice.choice((1, 1, 1, 0))
        if dice.random() < 0.1:
            run, status = dice.choice((0, -1)), 5
        user, cpus = dice.randrange(8), dice.choice((1, 2, 4, 8, 32))
        lines.append(swf_line(number, submit, wait, run, status, cpus, dice.choice((600, 3600, 36000)), user))
    path.write_text("".join(lines))
    return path
