"""The table of sites with its changelog, and the topics of events, as the loader reads them."""

from typing import Any

from faust.types import TP

from streams.broker.fetched import Fetched
from streams.worker.checkpoint.event_logs import ChangelogRecords, MessageBatch
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog, SiteHandle
from tests.support.memory_servers import TOPIC, MemoryTable, World


class Changelog(MemoryTable):
    """A table that remembers all that was written to it; `compacted` has it remember the last of it alone."""

    def __init__(self, world: World, compacted: bool = False) -> None:
        super().__init__(world)
        self.states: list[tuple[bytes, bytes]] = []
        self._compacted = compacted

    def arrived(self, key: bytes, value: bytes | None, partition: int) -> None:
        super().arrived(key, value, partition)
        if value is not None:
            self.states.append((key, value))

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        found = [one for one in self.states[::-1][:most] if site_of(one[0]) == key]
        return found[:1] if self._compacted else found

    async def ranges(self, logs: Any) -> dict[PartitionLog, LogOffsets]:
        return {log: LogOffsets(0, len(self._world.messages[log.partition])) for log in logs}

    def place(self, handle: SiteHandle) -> TP:
        return TP(TOPIC, handle.partition)

    async def read(self, log: PartitionLog, first: int, last: int, key: bytes) -> list[Fetched]:
        found = self._world.messages[log.partition][first : last + 1]
        return [Fetched.of(raw) for raw in found if raw.key == key]

    async def read_some(self, place: TP, key: bytes, first: int, last: int, most: int) -> MessageBatch:
        return MessageBatch(await self.read(PartitionLog(None, place.partition), first, last, key), last + 1, False)

    def renewed(self, partition: int) -> None:
        raise AssertionError(partition)

    def lost(self, partition: int, events: int) -> None:
        assert not events
