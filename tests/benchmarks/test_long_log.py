"""A log of a million jobs: memory for reading and replaying, and time to the first result.

`TESTS_LOG_JOBS` is the number of jobs. `made` writes a file of each format, of a machine that is always nearly full.
"""

import heapq
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import psutil
import pytest

from tests.support.traces import HEADER, swf_line

pytestmark = pytest.mark.timeout(7200)

JOBS = int(os.environ.get("TESTS_LOG_JOBS", "1000000"))
MOST_MB = 2000.0
CPUS = 64
COLUMNS = "JobID|Cluster|Partition|User|Submit|Eligible|Start|End|State|TimelimitRaw|ReqTRES|AllocTRES"


def jobs(seed: int = 3) -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """Yield number, submit, wait, run (s), CPUs, walltime and user of each job, scheduled first come, first served."""
    dice, free, running, now, submit = random.Random(seed), CPUS, list[tuple[int, int]](), 0, 0
    for number in range(1, JOBS + 1):
        submit += int(dice.expovariate(1 / 650))
        now, cpus, run = max(now, submit), dice.choice((1, 2, 4, 8, 32)), 1 + int(dice.expovariate(1 / 2500))
        while free < cpus or (running and running[0][0] <= now):
            end, back = heapq.heappop(running)
            now, free = max(now, end), free + back
        free -= cpus
        heapq.heappush(running, (now + run, cpus))
        yield number, submit, now - submit, run, cpus, 60 * (1 + run // 30), dice.randrange(300)


def write_swf(path: Path) -> None:
    """Write the jobs as a trace."""
    with path.open("w") as file:
        file.write(HEADER)
        for number, submit, wait, run, cpus, walltime, user in jobs():
            file.write(swf_line(number, submit, wait, run, 1, cpus, walltime, user))


def write_sacct(path: Path) -> None:
    """Write the jobs as the output of `sacct -XP`."""

    def at(second: int) -> str:
        return datetime.fromtimestamp(835_823_160 + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")

    with path.open("w") as file:
        file.write(COLUMNS + "\n")
        for number, submit, wait, run, cpus, walltime, user in jobs():
            times = "|".join(map(at, (submit, submit, submit + wait, submit + wait + run)))
            tres = f"cpu={cpus},node=1"
            file.write(f"{number}|one|batch|u{user}|{times}|COMPLETED|{walltime // 60}|{tres}|{tres}\n")


def ran(*arguments: str) -> tuple[str, float, str]:
    """Run a command; return its time as text, the peak memory of its processes (MB), and its output."""
    begin, before, most = time.monotonic(), os.times(), 0.0
    command = [sys.executable, "-m", "queuecast", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        outputs: list[str] = []
        reader = Thread(target=lambda: outputs.append(process.stdout.read()))  # type: ignore[union-attr]
        reader.start()
        while process.poll() is None:
            most = max(most, resident_mb(process.pid))
            time.sleep(0.2)
        reader.join()
    assert process.returncode == 0
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{time.monotonic() - begin:.0f} s, {cpu_s:.0f} s of CPU time", most, outputs[0]


def resident_mb(pid: int) -> float:
    """Return the present memory of a process and its children."""
    try:
        one = psutil.Process(pid)
        return sum(process.memory_info().rss for process in (one, *one.children(recursive=True))) / 1e6
    except psutil.NoSuchProcess:
        return 0.0


@pytest.mark.parametrize(("name", "write"), [("long.swf", write_swf), ("sacct.txt", write_sacct)])
def test_long_log_replay_memory_is_bounded(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    file = tmp_path / name
    write(file)
    print(f"\n{name}, {JOBS:,} jobs, {file.stat().st_size / 1e6:.0f} MB")
    found = []
    for what in (["--fast"], ["--method", "median"]):
        seconds, most, output = ran("replay", str(file), *what)
        print(f"replay {' '.join(what)}: {seconds}, {most:.0f} MB")
        assert "blend" in output or "--fast" not in what
        found.append(most)
    assert max(found) <= MOST_MB
