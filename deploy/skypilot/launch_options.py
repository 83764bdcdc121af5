"""SkyPilot on Slurm: launch in the partition where the job starts first, and fail over when the bound of 90 % passes.

    sky launch $(python launch_options.py 64 4h alder/gpu alder/batch birch/gpu) task.yaml

Needs the package queuecast-client; the service's address is in QUEUECAST_URL, its token in QUEUECAST_SERVE_TOKEN.
"""

import math
import os
import sys
from collections.abc import Sequence

from queuecast import HttpClient, UserError, WaitAnswer

BOUND = "0.9"
MIN_TIMEOUT_S = 120  # SkyPilot's default for a job without a partition


def launch_options(client: HttpClient, cpus: int, walltime: str, places: Sequence[str]) -> list[str]:
    """Return the options of `sky launch`; none if no place has an estimate, so that SkyPilot chooses.

    Args:
        client: a client of the HTTP service.
        cpus: CPUs of the job.
        walltime: time limit of the job, such as "4h".
        places: CLUSTER/PARTITION, with the cluster's name in queuecast, which is also its name in SkyPilot.
    """
    waits = {place: answer for place in places if (answer := _answer(client, cpus, walltime, place)) is not None}
    if not waits:
        return []
    best = min(waits, key=lambda place: waits[place].cautious_wait_s or waits[place].predicted_wait_s or 0.0)
    timeout_s = max(math.ceil((waits[best].bounds or {}).get(BOUND, 0.0)), MIN_TIMEOUT_S)
    return ["--infra", f"slurm/{best}", "--config", f"slurm.provision_timeout={timeout_s}"]


def _answer(client: HttpClient, cpus: int, walltime: str, place: str) -> WaitAnswer | None:
    cluster, _, partition = place.partition("/")
    try:
        answer = client.wait(cluster, cpus=cpus, walltime=walltime, partition=partition)
    except UserError:
        return None
    return None if answer.cannot_run or answer.stale or answer.predicted_wait_s is None else answer


if __name__ == "__main__":
    cpus, walltime, *places = sys.argv[1:]
    client = HttpClient(os.environ["QUEUECAST_URL"], os.environ.get("QUEUECAST_SERVE_TOKEN"))
    sys.stdout.write(" ".join(launch_options(client, int(cpus), walltime, places)) + "\n")
