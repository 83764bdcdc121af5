"""Runs of messages, and the share of each partition."""

import asyncio
from itertools import pairwise

from models.engine.settings import EngineSettings
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.ownership.runs import MAX_MESSAGES, RUNS_S, RunBudget
from tests.support.fakes import Process
from tests.support.memory_servers import World

ENGINE = EngineSettings(method="zero", shadows=(), history=8)
SETTINGS = Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=1000, checkpoint_seconds=1e9))


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def length(runs: RunBudget, clock: Clock, cost_s: float) -> int:
    """Return the number of messages of a run, each of which takes `cost_s`."""
    count = 0
    for _ in runs.run():
        count += 1
        clock.now += cost_s
    return count


def test_run_ends_after_its_time() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active():
        assert length(runs, clock, RUNS_S / 7.9) == 8


def test_run_without_elapsed_time_ends_after_messages() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active():
        assert length(runs, clock, 0.0) == MAX_MESSAGES


def test_active_partitions_share_the_time_of_runs() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active(), runs.active():
        assert length(runs, clock, RUNS_S / 7.9) == 4
    with runs.active():
        assert length(runs, clock, RUNS_S / 7.9) == 8


def test_slow_message_is_a_run() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active():
        assert length(runs, clock, 1.0) == 1


def test_backlog_is_processed_in_runs_between_loop_turns() -> None:
    async def send(*_: object) -> "asyncio.Future[None]":
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent

    async def scenario() -> list[int]:
        world = World()
        world.publish_events(run(generate(3, 60, cpus=32, load=0.9), 32, "alder"))
        process = Process(world, SETTINGS, now=lambda: 0.0, send=send)
        await process.take_over(0)
        await process.take_all()
        behind = [process.owner.behind]
        while behind[-1]:
            await asyncio.sleep(0)
            behind.append(process.owner.behind)
        await process.hand_over(0)
        return behind

    behind = asyncio.run(scenario())
    assert behind[0] > 2 * MAX_MESSAGES
    assert max(before - after for before, after in pairwise(behind)) == MAX_MESSAGES
