"""Priority of work on the event loop."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from streams.worker.answers.time_slicer import CrashingWork, TimeSlicer

SLICE_S = 0.01
TRACKED = ("alder", "question", 1)


def slice_of_work() -> None:
    time.sleep(SLICE_S)


def test_event_waits_for_at_most_one_slice() -> None:
    events: deque[float] = deque()
    turns, waited = TimeSlicer(lambda: bool(events)), list[float]()

    async def work_events() -> None:
        while len(waited) < 20:
            await asyncio.sleep(0)
            if events:
                waited.append(time.perf_counter() - events.popleft())

    async def send_events() -> None:
        for _ in range(20):
            await asyncio.sleep(0.013)
            events.append(time.perf_counter())

    async def flood() -> None:
        while len(waited) < 20:
            await turns.take(slice_of_work, 0.25, TRACKED)

    async def scenario() -> None:
        await asyncio.gather(work_events(), send_events(), *(flood() for _ in range(5)))

    asyncio.run(scenario())
    assert sorted(waited)[-2] < 2.5 * SLICE_S, "five slices would take twice as long"


@pytest.mark.parametrize(("always", "backlog"), [(False, True), (True, False)])
def test_slices_keep_their_share_while_events_wait_or_always(always: bool, backlog: bool) -> None:
    turns = TimeSlicer(lambda: backlog)

    async def scenario() -> float:
        begun = time.perf_counter()
        for _ in range(5):
            await turns.take(slice_of_work, 0.25, TRACKED, always=always)
        return time.perf_counter() - begun

    assert asyncio.run(scenario()) > 4 * 4 * SLICE_S


def test_slices_without_events_run_without_pauses() -> None:
    turns = TimeSlicer()

    async def scenario() -> float:
        begun = time.perf_counter()
        for _ in range(10):
            await turns.take(slice_of_work, 0.05, TRACKED)
        return time.perf_counter() - begun

    assert asyncio.run(scenario()) < 20 * SLICE_S


def test_error_of_a_slice_reaches_only_its_caller() -> None:
    turns = TimeSlicer()

    def broken() -> None:
        raise ValueError("a flaw")

    async def scenario() -> int:
        with pytest.raises(ValueError, match="a flaw"):
            await turns.take(broken, 0.5, TRACKED)
        return await turns.take(lambda: 7, 0.5, TRACKED)

    assert asyncio.run(scenario()) == 7


def test_take_tracks_only_the_work_without_waiting_or_errors() -> None:
    """While a worker isolates a crash, it processes no event during a tracked slice."""
    tracked_s, begun = [], 0.0

    @asynccontextmanager
    async def doing(site: str, what: str, number: int) -> AsyncIterator[bool]:
        nonlocal begun
        assert (site, what, number) == TRACKED
        begun = time.perf_counter()
        try:
            yield True
        except Exception as error:
            raise AssertionError("an error of a slice would count as a crash") from error
        tracked_s.append(time.perf_counter() - begun)

    def broken() -> None:
        raise ValueError("a flaw")

    async def scenario() -> None:
        turns = TimeSlicer(lambda: True, doing=doing)
        for always in (True, False):
            await turns.take(slice_of_work, 0.05, TRACKED, always=always)
        with pytest.raises(ValueError, match="a flaw"):
            await turns.take(broken, 0.5, TRACKED)

    asyncio.run(scenario())
    assert len(tracked_s) == 3
    assert max(tracked_s) < 3 * SLICE_S, "the share costs 20 times as much"


def test_take_of_crashing_work_raises_crashing_work() -> None:
    @asynccontextmanager
    async def doing(site: str, what: str, number: int) -> AsyncIterator[bool]:
        yield False

    async def scenario() -> None:
        with pytest.raises(CrashingWork):
            await TimeSlicer(doing=doing).take(slice_of_work, 0.5, TRACKED)

    asyncio.run(scenario())
