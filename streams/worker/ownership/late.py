"""Sites that are stored and not in memory yet: read back when they are needed, else one after the other."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress

from streams.worker.checkpoint.stored import SiteHandle

AT_A_TIME = 2
"""Sites that are read back at a time while nothing else is done: one's entries come from Redis meanwhile."""


class TakenAway(Exception):
    """A site's partition was taken away while the site was read back."""


class _Late:
    """One such site: its partition, and the task that reads it back."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.task: asyncio.Task[None] | None = None
        self.dropped = False


class LateSites:
    """Lets a worker serve its partitions before all of their sites are in memory.

    A site is read back at most once at a time, whoever asks for it.

    Parameters:
        read: makes a site's handle from its stored state.
        handles: gets the handles, by the sites' names.
    """

    def __init__(self, read: Callable[[str], Awaitable[SiteHandle]], handles: dict[str, SiteHandle]) -> None:
        self._read = read
        self._handles = handles
        self._late: dict[str, _Late] = {}
        self._given_up: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._late)

    def __contains__(self, site: str) -> bool:
        return site in self._late

    def __iter__(self) -> Iterator[str]:
        return iter(self._late)

    def add(self, sites: Mapping[str, int]) -> None:
        """These sites, with their partitions, are stored; they will be read back in this order."""
        self._late.update((site, _Late(part)) for site, part in sites.items() if site not in self._handles)

    def begin(self, site: str) -> "asyncio.Task[None] | None":
        """Begin to read a site back; gives what has to be waited for, None where nothing has."""
        late = self._late.get(site)
        if late is None:
            return None
        if late.task is None:
            late.task = asyncio.create_task(self._take_back(site, late))
        return None if late.task.done() else late.task

    def is_late(self, site: str) -> bool:
        """Whether a site is not in memory yet; it is read back then."""
        return self.begin(site) is not None

    async def _take_back(self, site: str, late: _Late) -> None:
        try:
            handle = await self._read(site)
        except (Exception, asyncio.CancelledError):
            if not late.dropped:
                raise
            return  # what fails of a site that is another worker's now is no fault
        if not late.dropped:
            self._handles[site] = handle
            del self._late[site]

    async def get(self, site: str) -> None:
        """Read a site back, unless it is in memory already.

        Raises:
            TakenAway: its partition was taken away meanwhile.
            Exception: whatever made that fail.
        """
        late = self._late.get(site)
        if late is not None:
            self.begin(site)
            assert late.task is not None
            await asyncio.wait([late.task])
            if late.dropped:
                raise TakenAway(site)
            late.task.result()

    async def get_all(
        self, partition: int | None = None, seconds: float = math.inf, at_a_time: int = AT_A_TIME
    ) -> None:
        """Read back all of them, or those of a partition; none is begun any more after so many seconds.

        Raises:
            Exception: whatever made that fail.
        """
        names = [site for site, late in self._late.items() if partition in (None, late.partition)]
        names, end = names[::-1], time.monotonic() + seconds

        async def get_some() -> None:
            while names and time.monotonic() < end:
                with suppress(TakenAway):
                    await self.get(names.pop())

        await asyncio.gather(*(get_some() for _ in range(min(at_a_time, len(names)))))

    def drop(self, partitions: Collection[int]) -> None:
        """Those of these partitions are another worker's from now on: whoever waits for one is told `TakenAway`."""
        for site in [site for site, late in self._late.items() if late.partition in partitions]:
            late = self._late.pop(site)
            late.dropped = True
            if late.task is not None and not late.task.done():
                self._given_up.add(late.task)
                late.task.add_done_callback(self._given_up.discard)
                late.task.cancel()

    async def no_longer_read(self) -> None:
        """Done when nothing more is done about sites that were dropped: none of them is claimed any more."""
        while self._given_up:
            await asyncio.wait(self._given_up)
