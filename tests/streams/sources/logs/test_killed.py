"""Kill a log source repeatedly during rotation: no event is lost and none has new content."""

import gzip
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.streams.sources.schedulers import test_gridengine as gridengine
from tests.streams.sources.schedulers import test_lsf as lsf
from tests.streams.sources.schedulers import test_pbs as pbs
from tests.support.deployment import unique, until
from tests.support.logs import read

ROOT = Path(__file__).parents[4]
JOBS, PARTS = 60, 4

FOLLOWER = """
import os, sys
from pathlib import Path
import msgspec
from streams.sources.cursors import CursorFile
from streams.sources.publisher import from_source
from streams.sources.source_registry import source_named

name, location, directory = sys.argv[1:]
source = source_named(name)(location, "s", pause_s=0.01)
topic = os.open(Path(directory) / "topic", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with CursorFile(Path(directory), source, "topic") as file:
    for event, cursor, *_ in from_source(source, file):
        if event is not None:
            os.write(topic, msgspec.json.encode(event) + b"\\n")
        if cursor is not None:
            file.keep(cursor)
"""


def pbs_job(number: int) -> list[str]:
    job = f"{number}.srv"
    again = "11/14/2023 22:40:00;R;7.srv;\n" + pbs.STARTED.replace("=1700000100", "=1700000600") if number % 3 else ""
    return [text.replace("7.srv", job) for text in (pbs.QUEUED, pbs.STARTED + again, pbs.ENDED)]


def lsf_job(number: int) -> list[str]:
    return [lsf.new(number), lsf.started(job=number), lsf.status(64, lsf.T + 361, number, ended=lsf.T + 360)]


def gridengine_job(number: int) -> list[str]:
    return [
        gridengine.new(number),
        gridengine.log(1000000060, "delivered", number),
        "1000000360:acct:" + gridengine.accounted(number),
    ]


def dated(records: str, moment: int) -> str:
    """Return the records with their timestamps set to `moment` seconds: logs are in time order."""
    header = f"11/14/2023 {22 + moment // 3600}:{moment // 60 % 60:02}:{moment % 60:02};"
    records = re.sub(r"^\d\d/\d\d/\d{4} [\d:]{8};", header, records, flags=re.MULTILINE)
    records = re.sub(r'^("\w+" "10\.1") \d+', rf"\1 {lsf.T + moment}", records, flags=re.MULTILINE)
    return re.sub(r"^\d{10}:", f"{1000000000 + moment}:", records, flags=re.MULTILINE)


def longer_than(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size > size


@pytest.mark.parametrize(("name", "job"), [("pbs", pbs_job), ("lsf", lsf_job), ("gridengine", gridengine_job)])
def test_killed_log_source_resumes_from_cursor(name: str, job: Callable[[int], list[str]], tmp_path: Path) -> None:
    chance = random.Random(7)
    stories = [job(number) for number in range(1, JOBS + 1)]
    # Spread the records of each job over several files.
    places = [sorted(number + chance.randrange(JOBS) for _ in story) for number, story in enumerate(stories)]
    records = sorted((place, step, number) for number, of_job in enumerate(places) for step, place in enumerate(of_job))
    text = "".join(dated(stories[number][step], moment) for moment, (_, step, number) in enumerate(records))
    expected = [msgspec.json.encode(event) for event in read(name, tmp_path, text).live]
    assert len(unique(expected)) == len(expected) >= 3 * JOBS
    log, topic = tmp_path / "logs" / "log", tmp_path / "topic"
    log.parent.mkdir()
    lines = text.splitlines(keepends=True)
    for part in range(PARTS):
        of_part = lines[len(lines) * part // PARTS : len(lines) * (part + 1) // PARTS]
        if part:  # rotate while no source runs; compress one file
            old = log.rename(log.with_name(f"log.{part}"))
            if part == 2:
                old.with_name("log.2.gz").write_bytes(gzip.compress(old.read_bytes()))
                old.unlink()
        before = topic.stat().st_size if topic.exists() else 0
        with log.open("a") as file:
            file.write("".join(of_part[: len(of_part) // 2]))
        follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, name, str(log), str(tmp_path)], cwd=ROOT)
        try:
            until(partial(longer_than, topic, before))
            if part == PARTS - 1:
                log.rename(log.with_name("log.last"))  # rotate while the source runs
            with log.open("a") as file:
                file.write("".join(of_part[len(of_part) // 2 :]))
            if part == PARTS - 1:
                until(lambda: len(unique(topic.read_bytes().splitlines())) >= len(expected))
        finally:
            follower.send_signal(signal.SIGKILL)
            follower.wait()
    assert unique(topic.read_bytes().splitlines()) == expected
