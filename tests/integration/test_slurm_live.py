"""A real Slurm: the answer about a queued job follows drains, cancels and reservations within a poll."""

import time
from collections.abc import Callable, Iterator

import pytest

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import JobAnswer, JobQuestion
from streams.sources.slurm.source import SlurmSource
from tests.support.slurm import RealSlurm

pytestmark = pytest.mark.long

SITE = "alder"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSlurm]:
    RealSlurm.require()
    with RealSlurm() as running:
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, running.environment[name])
        yield running


class Followed:
    """An engine that consumes the events of a Slurm source."""

    def __init__(self) -> None:
        self.engine = Engine(SITE, EngineSettings(method="blend", shadows=(), bounds="", what_if_method="blend"))
        self._source = SlurmSource("squeue+sacct", SITE, lambda part: pytest.fail(str(part)), "1s", "2s", "1s")
        self._steps = self._source.events()

    def poll(self) -> None:
        """Consume events until the machine and then the queue have been polled completely."""
        for call, calls in (("scontrol", 2 * 3), ("squeue", 2)):  # the first poll may have started before
            wanted = self._count(call) + calls
            while self._count(call) < wanted:
                event, _ = next(self._steps)
                if event is not None:
                    self.engine.apply(event)

    def _count(self, call: str) -> int:
        """Return how often a command of this name was called."""
        return self._source.calls[call].count if call in self._source.calls else 0

    def job_answer(self, job: str) -> JobAnswer:
        """Return the answer about a job now."""
        found = answer(JobQuestion(id="1", site=SITE, job=job), self.engine, max(time.time(), self.engine.time))
        assert isinstance(found, JobAnswer) and found.live is not None
        return found

    def start_of(self, job: str) -> float:
        """Return when a job is expected to start, Unix seconds."""
        expected = self.job_answer(job).expected_start
        assert expected is not None
        return expected

    def until(self, slurm: RealSlurm, true: Callable[[], object]) -> None:
        """Poll until the condition is true."""

        def known() -> object:
            self.poll()
            return true()

        slurm.until(known)


def test_answer_follows_cancels_reservations_and_drains(slurm: RealSlurm) -> None:
    followed = Followed()
    running = slurm.submit("--nodes=2", "--exclusive", "--time=3", sleep=170)
    slurm.until(lambda: slurm.states()[running] == "RUNNING")
    large = slurm.submit("--nodes=2", "--exclusive", "--time=10", sleep=600)
    small = slurm.submit("--nodes=1", "--exclusive", "--time=5", sleep=300)
    jobs = followed.engine.context.state.jobs
    followed.until(slurm, lambda: {(running, 0), (large, 0), (small, 0)} <= jobs.keys())
    behind = followed.start_of(small)

    slurm.run("scancel", large)
    followed.poll()
    first = followed.start_of(small)
    assert first < behind - 120.0

    ends = time.time() + 3600.0
    begins = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 30.0))
    words = (
        "ReservationName=upkeep",
        f"StartTime={begins}",
        "Duration=60",
        "Nodes=n1,n2",
        "Users=root",
        "Flags=MAINT,IGNORE_JOBS",
    )
    slurm.run("scontrol", "create", "reservation", *words)
    followed.poll()
    assert followed.start_of(small) >= ends - 60.0
    slurm.run("scontrol", "delete", "ReservationName=upkeep")
    followed.poll()
    assert followed.start_of(small) < ends - 60.0

    for node in ("n1", "n2"):
        slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    followed.poll()
    drained = followed.job_answer(small)
    assert drained.live is not None
    assert drained.expected_start is None or isinstance(drained.live.blocked_by, str)
    for node in ("n1", "n2"):
        slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    followed.poll()
    assert followed.start_of(small) < ends - 60.0
