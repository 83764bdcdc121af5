"""Members of a group that lose their place, or their name to another."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from faust.transport.drivers import aiokafka

from streams.errors import Unreachable
from streams.worker import group
from streams.worker.group import ConsumerThread, NameTaken


class Coordinator:
    """aiokafka's, as far as it is looked at: a group of one, whose broker forgets members."""

    def __init__(self) -> None:
        self.group_id, self._group_instance_id, self.member_id = "g", "blue", ""
        self._pending_exception: Exception | None = None
        self._closing: Any = None
        self.joins = 0

    async def _send_req(self, request: Any) -> Any:
        return SimpleNamespace(member_id=f"blue-{request}")

    async def ensure_active_group(self, *_: Any) -> str:
        self.joins += 1
        self.member_id = (await self._send_req(self.joins)).member_id
        return "assignment"


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def thread(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> ConsumerThread:
    async def on_start(_: Any) -> None:
        pass

    monkeypatch.setattr(aiokafka.AIOKafkaConsumerThread, "on_start", on_start)
    monkeypatch.setattr(group, "AGAIN_S", 0.0)
    found = ConsumerThread.__new__(ConsumerThread)
    found._consumer = SimpleNamespace(_coordinator=coordinator)
    return found


def test_a_member_that_was_forgotten_joins_again_unless_another_has_its_name(
    thread: ConsumerThread, coordinator: Coordinator
) -> None:
    holders: list[str | Exception | None] = []

    def holder_of(name: str) -> str | None:
        assert name == "blue"
        holder = holders.pop(0)
        if isinstance(holder, Exception):
            raise holder
        return holder

    async def live() -> None:
        thread.holder_of = holder_of
        await thread.on_start()
        join: Any = coordinator.ensure_active_group
        assert await join() == "assignment"  # the first time nobody is asked
        assert await join() == "assignment"  # nor while it is known
        for holders[:] in ([None], ["blue-1"], ["blue-2"]):  # forgotten, or what it was called before
            coordinator.member_id = ""
            assert await join() == "assignment"
            assert holders == []
        coordinator.member_id = ""
        holders[:] = [Unreachable("away"), "green"]
        joins = coordinator.joins
        assert await join() is None
        with pytest.raises(NameTaken):
            await join()
        assert coordinator.joins == joins

    asyncio.run(live())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NameTaken("blue"), "another worker was started as 'blue'; give each a worker.instance of its own"),
        (GroupAuthorizationFailedError("g"), "kafka: this worker may no longer use the group g; what each needs "),
        (KafkaError("fenced"), "kafka: this worker has lost its place in the group g: KafkaError('fenced')"),
    ],
)
def test_what_aiokafka_would_wait_over_for_ever_is_told(
    thread: ConsumerThread, coordinator: Coordinator, error: Any, said: str
) -> None:
    async def live() -> None:
        coordinator._closing = asyncio.get_running_loop().create_future()
        coordinator._coordination_task = asyncio.ensure_future(asyncio.sleep(0))  # type: ignore[attr-defined]
        await thread.on_start()
        assert thread.lost() is None
        pushing = asyncio.ensure_future(coordinator._push_error_to_user(error))  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        assert str(thread.lost()).startswith(said)
        assert not pushing.done()  # nothing more is tried
        coordinator._closing.set_result(None)
        await pushing

    asyncio.run(live())


def test_a_coordinator_that_died_is_told(thread: ConsumerThread, coordinator: Coordinator) -> None:
    async def dies() -> None:
        raise KafkaError("Unexpected error during coordination")

    async def live() -> None:
        task = coordinator._coordination_task = asyncio.ensure_future(dies())  # type: ignore[attr-defined]
        assert thread.lost() is None
        await asyncio.wait([task])
        assert "Unexpected error during coordination" in str(thread.lost())

    asyncio.run(live())


def test_before_it_has_begun_nothing_is_lost(thread: ConsumerThread) -> None:
    thread._consumer = None
    assert thread.lost() is None
