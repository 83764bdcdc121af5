"""Jobs by what the categories of run times look at."""

from models.site.job import Job


def make(
    user: str | None = "ada",
    executable: str | None = None,
    queue: str | None = None,
    cpus: int = 4,
    walltime: float | None = None,
) -> Job:
    """A job with this request."""
    return Job(
        id="1", attempt=0, submit=0.0, user=user, executable=executable, queue=queue, cpus=cpus, walltime=walltime
    )
