"""Sites of a partition: each is restored once, on its first use."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from streams.worker.checkpoint.checkpoint import PendingEvents
from streams.worker.checkpoint.event_logs import ChangelogRecords
from streams.worker.checkpoint.owned_table import StoredSites
from streams.worker.checkpoint.stored_site import StoredState, encode_stored
from streams.worker.ownership.partition_sites import PartitionSites


class Reading:
    """A loader that restores sites on command of the test; `alder` has the latest event."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Event()
        self.claim = AsyncMock()
        self.confirm_membership = AsyncMock()

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    async def load(self, site: str, stored: StoredState) -> Any:
        self.begun.append(site)
        await self.may_end.wait()
        return Mock(own=False), False


async def with_sites(story: Callable[[Reading, PartitionSites], Awaitable[None]]) -> None:
    heads = {
        site: StoredState(2, 0, 1, b"", stamp=stamp) for site, stamp in (("oak", 1.0), ("elm", 2.0), ("alder", 3.0))
    }
    table: Any = Mock(get=lambda key: encode_stored(heads[key.decode()]), put=AsyncMock())
    reading, gaps = Reading(), Mock(look=AsyncMock(return_value=set()))
    loader: Any = reading
    async with asyncio.TaskGroup() as scope:
        pending = PendingEvents(1, 1.0, lambda: 0.0)
        sites = PartitionSites(
            0, table, loader, loader, gaps, pending, lambda work: scope.create_task(work()), lambda _: {}, 10, 1.0
        )
        await sites.take_over(StoredSites(heads, {}), asyncio.Semaphore(1))
        assert [call.args[0] for call in reading.claim.await_args_list] == ["alder", "elm", "oak"]
        await story(reading, sites)


def test_first_use_of_a_site_restores_it_once() -> None:
    async def story(reading: Reading, sites: PartitionSites) -> None:
        assert sites.reading("oak") is not None and sites.reading("birch") is None
        rest = asyncio.ensure_future(sites.read_back(asyncio.Semaphore(1)))
        while len(reading.begun) < 2:
            await asyncio.sleep(0)
        assert reading.begun == ["oak", "alder"]
        reading.may_end.set()
        await rest
        assert reading.begun == ["oak", "alder", "elm"]
        assert set(sites.handles) == {"alder", "elm", "oak"} and sites.reading("oak") is None

    asyncio.run(with_sites(story))


def test_restore_after_time_limit_starts_no_site() -> None:
    async def story(reading: Reading, sites: PartitionSites) -> None:
        reading.may_end.set()
        await sites.read_back(asyncio.Semaphore(1), seconds=-1.0)
        assert not sites.handles and sites.knows("elm")

    asyncio.run(with_sites(story))


def test_restore_error_ends_the_partition() -> None:
    async def story(reading: Reading, sites: PartitionSites) -> None:
        reading.load = AsyncMock(side_effect=ValueError("of a later version"))  # type: ignore[method-assign]
        await sites.get("elm", False)

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(with_sites(story))
    assert failed.group_contains(ValueError, match="of a later version")
