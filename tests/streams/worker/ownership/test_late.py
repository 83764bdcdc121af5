"""Sites that are read back after their worker has begun to serve."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streams.worker.ownership.late import LateSites, TakenAway


class Reading:
    """Reads sites back when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Event()
        self.error: Exception | None = None
        self.handles: dict[str, Any] = {}
        self.late = LateSites(self.read, self.handles)

    async def read(self, site: str) -> Any:
        self.begun.append(site)
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return SimpleNamespace(site=site)


def test_who_needs_a_site_first_has_it_read_back_and_it_is_read_once() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.late.add({"alder": 0, "birch": 1, "cedar": 0})
        needed = reading.late.begin("cedar")
        assert needed is not None and reading.late.begin("oak") is None
        rest = asyncio.ensure_future(reading.late.get_all(at_a_time=1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert reading.begun == ["cedar", "alder"] and reading.late.is_late("cedar")
        reading.may_end.set()
        await rest
        assert reading.begun == ["cedar", "alder", "birch"]
        assert set(reading.handles) == {"alder", "birch", "cedar"} and not reading.late

    asyncio.run(scenario())


def test_those_of_a_partition_can_be_had_alone_and_no_more_are_begun_when_time_is_up() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.may_end.set()
        reading.late.add({"alder": 0, "birch": 1, "cedar": 0, "oak": 1})
        await reading.late.get_all(0)
        assert set(reading.handles) == {"alder", "cedar"}
        await reading.late.get_all(seconds=-1.0)
        assert list(reading.late) == ["birch", "oak"]

    asyncio.run(scenario())


def test_a_site_that_is_taken_away_meanwhile_is_not_had() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.late.add({"alder": 0, "birch": 0, "cedar": 1})
        waiting = asyncio.ensure_future(reading.late.get("alder"))
        rest = asyncio.ensure_future(reading.late.get_all(at_a_time=3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.late.drop({0})
        reading.late.add({"alder": 0})  # and comes back: what was read before may be old
        with pytest.raises(TakenAway, match="alder"):
            await waiting
        reading.may_end.set()
        await rest
        assert list(reading.handles) == ["cedar"] and list(reading.late) == ["alder"]
        await reading.late.get("alder")
        assert sorted(reading.handles) == ["alder", "cedar"] and reading.begun.count("alder") == 2

    asyncio.run(scenario())


def test_when_a_partition_has_been_handed_over_nothing_more_is_done_about_its_sites() -> None:
    claimed: list[str] = []

    async def scenario() -> None:
        async def read(site: str) -> Any:
            try:
                await asyncio.sleep(0.01)
            finally:
                claimed.append(site)  # at the latest when it is told to end
            await asyncio.sleep(0)
            claimed.append(f"{site} again")
            raise ValueError("superseded")

        late = LateSites(read, {})
        late.add({"alder": 0, "birch": 0})
        late.begin("alder")
        await asyncio.sleep(0)
        late.begin("birch")  # which has not begun to run
        late.drop({0})
        await late.no_longer_read()
        assert claimed == ["alder"]
        await asyncio.sleep(0.02)
        assert claimed == ["alder"]

    asyncio.run(scenario())


def test_what_fails_is_told_to_whoever_needs_the_site() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.error = ValueError("of a later version")
        reading.may_end.set()
        reading.late.add({"alder": 0})
        for _ in range(2):
            with pytest.raises(ValueError, match="of a later version"):
                await reading.late.get("alder")
        assert reading.late.begin("alder") is None, "nobody waits for it again"

    asyncio.run(scenario())
