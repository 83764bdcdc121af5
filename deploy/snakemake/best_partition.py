"""Snakemake: submit each rule's jobs to the partition where they start first.

Put this file next to the Snakefile. Needs the package queuecast-client.
"""

from collections.abc import Callable, Sequence
from typing import Any

from queuecast import HttpClient, UserError


class BestPartition:
    """The partition where a job starts first; the default partition if the service does not answer.

    Args:
        client: a client of the HTTP service.
        site: the name of the cluster in queuecast.
        partitions: the partitions that jobs may use; the first one is the default.
    """

    def __init__(self, client: HttpClient, site: str, partitions: Sequence[str]) -> None:
        self._client, self._site, self._partitions = client, site, list(partitions)

    def within(self, runtime: float) -> Callable[[Any, int], str]:
        """Return the resource `slurm_partition` of a rule: a function that Snakemake calls for each job.

        Args:
            runtime: the resource `runtime` of the rule, minutes; Snakemake passes it to no function.
        """

        def partition(wildcards: Any, threads: int) -> str:
            return self.choose(threads, 60.0 * runtime)

        return partition

    def choose(self, cpus: int, walltime_s: float) -> str:
        """Return the partition for a job of this size."""
        waits = {
            name: wait_s for name in self._partitions if (wait_s := self._wait_s(name, cpus, walltime_s)) is not None
        }
        return min(waits, key=lambda name: waits[name], default=self._partitions[0])

    def _wait_s(self, partition: str, cpus: int, walltime_s: float) -> float | None:
        try:
            answer = self._client.wait(self._site, cpus=cpus, walltime=walltime_s, partition=partition)
        except UserError:
            return None
        return None if answer.cannot_run or answer.stale else answer.cautious_wait_s or answer.predicted_wait_s
