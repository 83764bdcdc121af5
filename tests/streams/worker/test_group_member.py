"""Members of a consumer group that lose their membership, or their instance name to another."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.errors import ConsumerStoppedError, GroupAuthorizationFailedError, KafkaError
from faust.transport.drivers import aiokafka
from faust.types import TP

from streams.errors import Unreachable
from streams.worker import kafka_compat
from streams.worker.kafka_compat import Member, NameTaken


class Coordinator:
    """Stand-in for aiokafka's coordinator: a group of one whose broker forgets members."""

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
def member(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Member:
    async def on_start(_: Any) -> None:
        pass

    monkeypatch.setattr(aiokafka.AIOKafkaConsumerThread, "on_start", on_start)
    monkeypatch.setattr(kafka_compat, "AGAIN_S", 0.0)
    found = Member.__new__(Member)
    found._consumer = SimpleNamespace(_coordinator=coordinator)
    return found


@pytest.mark.parametrize(("code", "is_member"), [(0, True), (27, True), (22, False), (25, False), (15, False)])
def test_membership_is_confirmed_by_the_coordinator(
    member: Member, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, code: int, is_member: bool
) -> None:
    async def answer(request: Any) -> Any:
        assert (request._group, request._generation_id, request._member_id) == ("g", 7, "blue-1")
        return SimpleNamespace(error_code=code)

    monkeypatch.setattr(coordinator, "_send_req", answer)
    coordinator.generation, coordinator.member_id = 7, "blue-1"  # type: ignore[attr-defined]
    with nullcontext() if is_member else pytest.raises(KafkaError):
        asyncio.run(member.confirm())


def test_forgotten_member_rejoins_unless_its_name_is_taken(member: Member, coordinator: Coordinator) -> None:
    holders: list[str | Exception | None] = []

    def holder_of(name: str) -> str | None:
        assert name == "blue"
        holder = holders.pop(0)
        if isinstance(holder, Exception):
            raise holder
        return holder

    async def live() -> None:
        member.holder_of = holder_of
        await member.on_start()
        join: Any = coordinator.ensure_active_group
        assert await join() == "assignment"  # no query the first time
        assert await join() == "assignment"  # and none while the member is known
        for holders[:] in ([None], ["blue-1"], ["blue-2"]):  # forgotten, or under its former name
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
    ("error", "message"),
    [
        (NameTaken("blue"), "another worker was started as 'blue'; give each a worker.instance of its own"),
        (
            GroupAuthorizationFailedError("g"),
            "kafka: this worker may no longer use the group g; docs/howto/secure.md, ",
        ),
        (KafkaError("fenced"), "kafka: this worker has lost its place in the group g: KafkaError('fenced')"),
    ],
)
def test_member_reports_endless_aiokafka_retry_as_lost(
    member: Member, coordinator: Coordinator, error: Any, message: str
) -> None:
    async def live() -> None:
        coordinator._closing = asyncio.get_running_loop().create_future()
        coordinator._coordination_task = asyncio.ensure_future(asyncio.sleep(0))  # type: ignore[attr-defined]
        await member.on_start()
        assert member.lost() is None
        pushing = asyncio.ensure_future(coordinator._push_error_to_user(error))  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        assert str(member.lost()).startswith(message)
        assert not pushing.done()  # no further attempt
        coordinator._closing.set_result(None)
        await pushing

    asyncio.run(live())


def test_member_reports_failed_coordinator_as_lost(member: Member, coordinator: Coordinator) -> None:
    async def dies() -> None:
        raise KafkaError("Unexpected error during coordination")

    async def live() -> None:
        task = coordinator._coordination_task = asyncio.ensure_future(dies())  # type: ignore[attr-defined]
        assert member.lost() is None
        await asyncio.wait([task])
        assert "Unexpected error during coordination" in str(member.lost())

    asyncio.run(live())


def test_member_before_start_is_not_lost(member: Member) -> None:
    member._consumer = None
    assert member.lost() is None


CHANGELOG, EVENTS = TP("changelog", 2), TP("events", 2)


class Fetched:
    """Stand-in for aiokafka's fetcher and its consumer, as far as records are read."""

    def __init__(self) -> None:
        self.fetcher = Fetcher.__new__(Fetcher)
        self.fetcher._records, self.fetcher._fetch_waiters, self.fetcher._closed = {}, set(), False
        self.fetcher._loop, self.fetcher._wait_consume_future = asyncio.get_running_loop(), None
        self.fetcher._subscriptions = SimpleNamespace(
            reassignment_in_progress=False, fetch_context=nullcontext, is_assigned=lambda _: True
        )
        self.consumer = SimpleNamespace(_fetcher=self.fetcher, _closed=False)

    def come(self, *partitions: TP) -> None:
        """Add one record of each partition, as from the broker."""
        for tp in partitions:
            result = FetchResult.__new__(FetchResult)
            result.getall, result.has_more = lambda _, tp=tp: [f"of {tp.topic}"], lambda: False
            self.fetcher._records[tp] = result
        for waiter in list(self.fetcher._fetch_waiters):
            self.fetcher._notify(waiter)


@pytest.mark.parametrize("stopped", [False, True])
def test_records_during_rebalance_stay_for_changelog(member: Member, stopped: bool) -> None:
    async def live() -> None:
        fetched, active = Fetched(), {EVENTS}
        member.consumer = SimpleNamespace(flow_active=True)
        taking = asyncio.create_task(member._fetch_records(fetched.consumer, active, timeout=0.2))
        await asyncio.sleep(0)
        active.clear()  # the partitions are revoked
        member.consumer.flow_active = not stopped
        fetched.come(CHANGELOG, EVENTS)  # those assigned next are fetched already
        assert await taking == {}
        active.add(CHANGELOG)
        member.consumer.flow_active = True
        found = await member._fetch_records(fetched.consumer, active, timeout=0.2)
        assert found == {CHANGELOG: ["of changelog"]}

    asyncio.run(live())


def test_records_of_newly_active_partitions_are_consumed(member: Member) -> None:
    async def live() -> None:
        fetched, active = Fetched(), {CHANGELOG}
        member.consumer = SimpleNamespace(flow_active=True)
        taking = asyncio.create_task(member._fetch_records(fetched.consumer, active, timeout=60.0))
        await asyncio.sleep(0)
        active.add(EVENTS)
        fetched.come(EVENTS)
        assert await taking == {EVENTS: ["of events"]}
        assert await member._fetch_records(fetched.consumer, active) == {}
        fetched.fetcher._closed = True
        with pytest.raises(ConsumerStoppedError):
            await member._fetch_records(fetched.consumer, active)

    asyncio.run(live())
