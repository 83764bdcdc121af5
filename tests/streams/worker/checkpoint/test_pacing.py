"""Slow work keeps its share of the event loop, by its own use of time."""

import asyncio
import time

import pytest

from streams.worker.checkpoint.pacing import SHARE, TURN_S, Pacer


class Clock:
    """A clock that advances only with work and pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1000.0, list[float]()
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def work(clock: Clock, is_busy: bool, turns_s: list[float]) -> None:
    pacer = Pacer(lambda: is_busy)
    for turn_s in turns_s:
        clock.now += turn_s
        await pacer.pause()


def test_pacer_of_busy_worker_limits_work_to_its_share(clock: Clock) -> None:
    asyncio.run(work(clock, True, [2 * TURN_S, TURN_S / 4, TURN_S]))
    assert clock.slept == pytest.approx([2 * TURN_S * (1 / SHARE - 1), 1.25 * TURN_S * (1 / SHARE - 1)])


def test_pacer_of_idle_worker_only_yields(clock: Clock) -> None:
    asyncio.run(work(clock, False, [2 * TURN_S]))
    assert clock.slept == [0]


def test_pacer_ignores_idle_time_and_waits(clock: Clock) -> None:
    async def scenario() -> None:
        await work(clock, True, [])
        clock.now += 36_000.0  # idle for hours
        await work(clock, True, [0.0])
        pacer = Pacer(lambda: True)
        clock.now += 60.0  # a training
        pacer.begin_turn()
        await pacer.pause()

    asyncio.run(scenario())
    assert clock.slept == []
