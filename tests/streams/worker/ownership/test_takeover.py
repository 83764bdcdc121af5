"""Takeover of a partition, and loss of a partition during the isolation of a crash."""

import asyncio

import pytest

from models.engine.settings import EngineSettings
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint import owned_table
from streams.worker.checkpoint.crashes import ExclusiveWork
from streams.worker.checkpoint.owned_table import Revoked
from tests.support.fakes import Process
from tests.support.memory_servers import World

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=()),
    worker=WorkerSettings(checkpoint_events=7, checkpoint_seconds=1e9),
)


def test_messages_wait_until_membership_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_table, "RETRY_S", (0.0, 0.0))
    world, is_member = World(), True
    for event in run(generate(3, 12, 32, 0.9), 32, "alder"):
        world.publish_events([event])

    async def confirm() -> None:
        await asyncio.sleep(0)
        if not is_member:
            raise ConnectionError("not a member of the group")

    async def scenario() -> None:
        nonlocal is_member
        process = Process(world, SETTINGS, confirm=confirm)
        await process.take_over(0)
        is_member = False  # the group removes the worker after its claims
        await process.take_all()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not world.outputs
        is_member = True
        await process.done()
        assert world.outputs
        await process.hand_over(0)

    asyncio.run(scenario())


def test_exclusive_work_after_revocation_releases_lock() -> None:
    async def scenario() -> None:
        exclusive = ExclusiveWork()
        exclusive.careful.add(0)
        with pytest.raises(Revoked):
            async with exclusive.turn():
                raise Revoked("the partition is handed over")
        async with asyncio.timeout(5), exclusive.turn():
            pass

    asyncio.run(scenario())


def test_exclusive_work_after_error_blocks_all_work() -> None:
    async def scenario() -> None:
        exclusive = ExclusiveWork()
        exclusive.careful.add(0)
        with pytest.raises(ZeroDivisionError):
            async with exclusive.turn():
                raise ZeroDivisionError
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), exclusive.turn():
                raise AssertionError("the process ends")

    asyncio.run(scenario())


def test_recovery_during_tracked_work_does_not_wait() -> None:
    """An operation waits for a checkpoint while it is tracked; a recovery of this checkpoint must not wait for it."""

    async def scenario() -> None:
        process = Process(World(), SETTINGS)
        await process.take_over(0)
        sites, exclusive = process.owner._partitions[0].sites, process.means.exclusive
        exclusive.careful.add(0)
        async with asyncio.timeout(5), exclusive.turn(), sites.loader.doing(("recovery alder", 7, 0)) as may:
            assert may
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), exclusive.turn(), sites.restorer.doing(("recovery alder", 7, 0)):
                raise AssertionError("it is tracked")
        await process.hand_over(0)

    asyncio.run(scenario())
