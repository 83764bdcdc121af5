"""Partitions owned by this worker, and the lookup of a site's partition."""

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager

import faust

from streams.broker.fetched import Fetched
from streams.errors import UserError
from streams.worker.answers.freshness import Freshness
from streams.worker.checkpoint.owned_table import keys_of_other_partitions, stored_sites
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.ownership.kept_sites import KeptSites
from streams.worker.ownership.partition import OwnedPartition, SharedContext

CHECKPOINT_TURNS = 20  # polls for due checkpoints per `checkpoint_seconds`


class Owner(Mapping[str, SiteHandle]):
    """Dispatch each message to its partition, and follow the assignments of the group.

    As a mapping it contains the sites in memory of the served partitions.
    """

    def __init__(self, context: SharedContext, freshness: Freshness) -> None:
        self._context = context
        context.is_busy = lambda: self.is_busy
        self._freshness = freshness
        self._partitions: dict[int, OwnedPartition] = {}
        self._served: list[OwnedPartition] = []
        self._kept: dict[int, KeptSites] = {}  # of revoked partitions, until the next assignment

    def __getitem__(self, site: str) -> SiteHandle:
        for partition in self._served:
            if (handle := partition.sites.handles.get(site)) is not None:
                return handle
        raise KeyError(site)

    def __iter__(self) -> Iterator[str]:
        return (site for partition in self._served for site in partition.sites.handles)

    def __len__(self) -> int:
        return sum(len(partition.sites.handles) for partition in self._served)

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions whose events and questions this worker serves now."""
        return frozenset(partition.number for partition in self._served)

    @property
    def behind(self) -> int:
        """Number of messages that wait to be processed."""
        return sum(map(len, self._partitions.values()))

    @property
    def is_busy(self) -> bool:
        """True if messages can be processed now."""
        return any(partition.is_busy for partition in self._partitions.values())

    @property
    def obstacle(self) -> str | None:
        """The server that is being retried, and its error; None if there is none."""
        return next(filter(None, (partition.obstacle for partition in self._partitions.values())), None)

    @property
    def age_s(self) -> float:
        """Age of the oldest event that is not durable yet, seconds; 0 without one."""
        since = (partition.checkpoints.since for partition in self._partitions.values())
        return max((self._context.clock() - one for one in since if one is not None), default=0.0)

    @property
    def checkpointed(self) -> float | None:
        """End of the last checkpoint, Unix seconds; None before the first."""
        return max(filter(None, (one.checkpoints.ended for one in self._partitions.values())), default=None)

    def is_restoring(self, site: str) -> bool:
        """Return whether a site is stored but not in memory, or is being recreated; start to restore it.

        Meanwhile its partition continues until `checkpoint_events` events are not durable; then the whole partition
        waits.
        """
        served = (partition for partition in self._served if partition.is_served)
        return any(partition.sites.reading(site) is not None for partition in served)

    async def restore_crash_mark(self) -> None:
        """Record that this worker does not end because of its work, so that the next owners blame no event."""
        await asyncio.gather(*(partition.restore_crash_mark() for partition in self._partitions.values()))

    @asynccontextmanager
    async def doing(self, site: str, what: str, number: int = 0) -> AsyncIterator[bool]:
        """Track work for a site that is not an event; yield False if workers have crashed on it."""
        partition = next((one for one in self._served if site in one.sites.handles), None)
        if partition is None:
            yield True
            return
        async with partition.crashes.doing((f"{what} {site}", number, 0)) as may:
            yield may

    async def take(self, message: faust.EventT) -> None:
        """Queue a message of an events topic. Waits while the queue is full.

        Messages of partitions that another worker owns are ignored: that worker receives them again.
        """
        partition = self._partitions.get(message.message.partition)
        if partition is not None and partition.is_served:
            await partition.put(Fetched.of(message.message))

    async def take_over(self, partitions: Collection[int]) -> None:
        """Start to serve newly assigned partitions, after the release of all earlier ones.

        Returns when each partition is served, or already revoked.

        Raises:
            UserError: A site's state is not in the partition of its key.
        """
        await self.hand_over(list(self._partitions))
        self._context.table.drop(keys_of_other_partitions(self._context.table, partitions))
        stored = stored_sites(self._context.table, partitions)
        for number, found in stored.items():
            for site in found.heads:
                self._check_home(site, number)
        kept, self._kept = self._kept, {}
        taken = {
            number: OwnedPartition(number, self._context, found, kept.get(number)) for number, found in stored.items()
        }
        del kept  # the sites of other partitions are not needed any more
        self._partitions.update(taken)
        await asyncio.gather(*(partition.until_served() for partition in taken.values()))
        self._served = [partition for partition in self._partitions.values() if partition.is_served]

    def _check_home(self, site: str, partition: int) -> None:
        if not self._context.intake.places.is_home(site, partition):
            raise UserError(
                f"the state of {site!r} is in partition {partition}, to which its key does not belong: partitions were "
                "added, or its events were partitioned by another hash than murmur2; stop all workers and sources, "
                "then run `queuecast topics repartition`"
            )

    async def hand_over(self, partitions: Collection[int]) -> None:
        """Release partitions; after the return, nothing more is done for them."""
        given = [self._partitions[number] for number in partitions if number in self._partitions]
        self._served = [partition for partition in self._served if partition not in given]
        await asyncio.gather(*(partition.revoke() for partition in given))
        for partition in given:
            if self._partitions.get(partition.number) is partition:
                del self._partitions[partition.number]
                self._kept[partition.number], partition.kept = partition.kept, {}
        self._freshness.forget(partitions)

    def checkpoint_due(self) -> None:
        """Begin due checkpoints, first those of the partitions with the oldest pending events.

        Call this `CHECKPOINT_TURNS` times per `checkpoint_seconds`. Each partition has its turn in this time, because
        simultaneous checkpoints would delay events.
        """
        due = [partition for partition in self._partitions.values() if partition.is_due]
        due.sort(key=lambda partition: partition.checkpoints.since or 0.0)
        for partition in due[: math.ceil(len(self._partitions) / CHECKPOINT_TURNS)]:
            partition.checkpoints.begin_due()
