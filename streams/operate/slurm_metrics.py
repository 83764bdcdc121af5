"""What slurmctld counts beside what is known of its site: Slurm 25.11 and later, `MetricsType=metrics/openmetrics`.

Its pages of metrics count jobs by state and the processors of each node. No event can be made of them: they name no
job, and tell no limits, no reservations, nor which node is down. So they are no source; they tell whether one sees all.
"""

from streams.client.blocking import Client
from streams.errors import NotUnderstood, UserError
from streams.operate.checks import CheckResult, shown_at, url_of
from streams.settings import Settings

MAX_APART, MAX_APART_JOBS = 0.1, 10
"""A look and an answer are of different moments, and Slurm counts an array in its own way: so much they may differ."""


def page_of(given: str) -> tuple[str, str]:
    """The site and the address of its slurmctld's metrics in `SITE=HOST:PORT`.

    Raises:
        NotUnderstood: it is not of this form.
    """
    site, equal, address = given.partition("=")
    if not site or not equal:
        raise NotUnderstood(f"{given!r}: expected SITE=HOST:PORT")
    return site, url_of(address).rstrip("/")


def check_slurm(settings: Settings, given: str) -> CheckResult:
    """Whether as many jobs and processors are known of a site as its slurmctld counts. Raises as `page_of`."""
    site, url = page_of(given)
    counted: dict[str, float] = {}
    for page in ("jobs", "nodes"):
        found = shown_at(f"{url}/{page}", "slurm", "slurm_", "set MetricsType=metrics/openmetrics, and no PrivateData")
        if isinstance(found, CheckResult):
            return found
        counted |= found
    try:
        with Client(settings, patience_s=0) as grid:
            known = grid.site(site)
    except UserError as error:
        return CheckResult("slurm", "warn", f"{site} cannot be asked about: {error}")
    pending = known.live.queued_jobs + known.held_jobs  # Slurm counts jobs that are held, or wait for others, too
    pairs = {
        "jobs queued or held": (pending, counted.get("jobs_pending", 0.0), MAX_APART_JOBS),
        "jobs running": (known.live.running_jobs, counted.get("jobs_running", 0.0), MAX_APART_JOBS),
        "processors": (known.cpus, counted.get("node_cpus", 0.0), 0),
    }
    text = ", ".join(f"{mine} {what} where Slurm counts {its:.0f}" for what, (mine, its, _) in pairs.items())
    if any(abs(mine - its) > max(least, MAX_APART * its) for mine, its, least in pairs.values()):
        return CheckResult(
            "slurm", "warn", f"{site}: {text}", "see whether its source sees all jobs: PrivateData, its log"
        )
    return CheckResult("slurm", "ok", f"{site}: {text}")
