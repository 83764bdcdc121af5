"""Who goes first on the event loop."""

import asyncio
import time
from collections import deque

import pytest

from streams.worker.answers.time_slicer import TimeSlicer

SLICE_S = 0.01


def slice_of_work() -> None:
    time.sleep(SLICE_S)


def test_an_event_waits_for_one_slice_however_many_want_their_turn() -> None:
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
            await turns.take(slice_of_work, 0.25)

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
            await turns.take(slice_of_work, 0.25, always=always)
        return time.perf_counter() - begun

    assert asyncio.run(scenario()) > 4 * 4 * SLICE_S


def test_without_events_they_need_not_wait() -> None:
    turns = TimeSlicer()

    async def scenario() -> float:
        begun = time.perf_counter()
        for _ in range(10):
            await turns.take(slice_of_work, 0.05)
        return time.perf_counter() - begun

    assert asyncio.run(scenario()) < 20 * SLICE_S


def test_what_a_slice_raises_reaches_who_wanted_it_and_stops_no_other() -> None:
    turns = TimeSlicer()

    def broken() -> None:
        raise ValueError("a flaw")

    async def scenario() -> int:
        with pytest.raises(ValueError, match="a flaw"):
            await turns.take(broken, 0.5)
        return await turns.take(lambda: 7, 0.5)

    assert asyncio.run(scenario()) == 7
