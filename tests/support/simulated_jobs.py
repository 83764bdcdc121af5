"""Jobs for simulated schedulers, and estimates of their run times that may be wrong."""

from models.simulation import Estimates, SimulatedJob

CPUS = 8


class Given(Estimates):
    """Estimates by job, right or wrong."""

    def __init__(self, seconds: dict[str, int]) -> None:
        super().__init__()
        self.seconds = seconds

    def _expect(self, job: SimulatedJob, elapsed: int) -> float | None:
        return self.seconds[job.job]


def make(number: int, submit: int, cpus: int, run: int, user: str | None = "u") -> SimulatedJob:
    return SimulatedJob(
        job=str(number),
        submit=submit,
        user=user,
        group=None,
        queue=None,
        executable=None,
        cpus=cpus,
        run=run,
        walltime=None,
    )
