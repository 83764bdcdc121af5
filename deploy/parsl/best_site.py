"""Parsl: run an app at the site where its pilot job starts first.

Needs the package queuecast-client.
"""

from collections.abc import Mapping

from queuecast import HttpClient, UserError


def executors_by_start(
    client: HttpClient, executors: Mapping[str, str], cpus: int, walltime: str, home: str | None = None
) -> list[str]:
    """The labels of executors, that of the site where a pilot job is done first in front.

    Parameters:
        client: asks the service.
        executors: the labels by site, as `Config(executors=[...])` has them.
        cpus: those of a block (`nodes_per_block` times the CPUs of a node).
        walltime: a block's, such as "4h".
        home: this site goes first unless another starts 30 minutes sooner.
    """
    try:
        found = client.rank(
            cpus=cpus, walltime=walltime, sites=list(executors), prefer=home, unless_sooner="30m" if home else None
        )
    except UserError:  # the service does not answer: as they are
        return list(executors.values())
    return [executors[site.site] for site in found.ranking if site.predicted_wait_s is not None]
