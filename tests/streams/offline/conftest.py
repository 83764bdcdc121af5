"""A simulated site as a trace, in an empty directory."""

from pathlib import Path

import pytest

from models.records import Cancel, End, Start
from models.simulation import generate, run
from streams.sources.swf import Trace, read_swf
from tests.support.traces import HEADER, swf_line


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A simulated busy site of 240 jobs, some cancelled, as a trace."""
    jobs = generate(seed=3, jobs=240, cpus=64, load=0.9)
    left: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in run(jobs, cpus=64, site="made"):
        if isinstance(event, Start | Cancel):
            left[event.job] = event.time
        elif isinstance(event, End):
            ended[event.job] = event.time
    lines = [
        swf_line(
            int(job.job),
            job.submit,
            int(left[job.job]) - job.submit,
            int(ended[job.job] - left[job.job]) if job.job in ended else 0,
            1 if job.job in ended else 5,
            job.cpus,
            job.walltime,
            int(job.user[1:]),
        )
        for job in jobs
    ]
    path = tmp_path / "made.swf"
    path.write_text(HEADER + "".join(lines))
    return read_swf(path)
