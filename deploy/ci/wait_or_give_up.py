"""A CI pipeline: print the site where a job starts in time, or give up before submitting it.

    python wait_or_give_up.py 64 1h 30m

prints a site and exits with 0. It exits with 75 if the job is unlikely to start within 30 minutes at any site. Needs
the package queuecast-client; the service's address is in QUEUECAST_URL, its token in QUEUECAST_SERVE_TOKEN.
"""

import os
import sys

from queuecast import HttpClient, Ranking, UserError

GIVE_UP = 75  # EX_TEMPFAIL: the same may work later


def site_in_time(ranking: Ranking, probability: float = 0.9) -> str | None:
    """Return the first site where the job starts in time with this probability; None if there is none."""
    for site in ranking.ranking:
        trusted = not (site.stale or site.low_confidence or site.unverified)
        if trusted and site.p_start is not None and site.p_start >= probability:
            return site.site
    return None


def main(cpus: str, walltime: str, patience: str) -> int:
    """Print the site and return the exit code: 0 for a site in time, `GIVE_UP` for none."""
    client = HttpClient(os.environ["QUEUECAST_URL"], os.environ.get("QUEUECAST_SERVE_TOKEN"))
    try:
        found = site_in_time(client.rank(cpus=int(cpus), walltime=walltime, start_within=patience))
    except UserError as error:
        sys.exit(f"queuecast: {error}")
    if found is None:
        sys.stderr.write(f"queuecast: no site starts the job within {patience} with 90 %\n")
        return GIVE_UP
    sys.stdout.write(f"{found}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
