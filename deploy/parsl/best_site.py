"""Parsl: run an app at the site where its pilot job starts first.

Needs the package queuecast-client.
"""

from collections.abc import Mapping

from queuecast import HttpClient, UserError


def executors_by_start(
    client: HttpClient, executors: Mapping[str, str], cpus: int, walltime: str, home: str | None = None
) -> list[str]:
    """Return the labels of the executors; the site where a pilot job would finish first comes first.

    Args:
        client: a client of the HTTP service.
        executors: the label of each executor by site, as in `Config(executors=[...])`.
        cpus: CPUs of a block (`nodes_per_block` times the CPUs of a node).
        walltime: time limit of a block, such as "4h".
        home: the preferred site, unless a job starts 30 minutes sooner at another one.
    """
    try:
        found = client.rank(
            cpus=cpus, walltime=walltime, sites=list(executors), prefer=home, unless_sooner="30m" if home else None
        )
    except UserError:  # the service does not answer: as they are
        return list(executors.values())
    order = [executors[site.site] for site in found.ranking if site.predicted_wait_s is not None]
    return order or list(executors.values())
