"""Queues of sites: order within a site, fair turns, and parked messages."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.broker.fetched import Fetched
from streams.worker.checkpoint.event_logs import MessageBatch
from streams.worker.ownership import site_queues
from streams.worker.ownership.site_queues import MemoryBudget, SiteQueues

SITES = ("alder", "birch", "cedar", "stranger")
TOPIC = "events"


def message(offset: int, site: str, value: bytes = b"{}") -> Fetched:
    return Fetched(TOPIC, 0, offset, site.encode(), value, float(offset))


class Deck:
    """Queues over a log of messages, with a clock that a test sets."""

    def __init__(self, log: list[Fetched], places: int = 1000, **options: Any) -> None:
        self.log, self.now, self.room = log, 0.0, MemoryBudget(places)
        self.tasks: list[asyncio.Future[None]] = []
        self.taken: list[int] = []
        self.queues = SiteQueues(
            self.room,
            lambda key: key != b"stranger",
            self.read,
            self.begin,
            lambda one: self.taken.append(one.offset),
            clock=lambda: self.now,
            **options,
        )

    def begin(self, work: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(asyncio.ensure_future(work()))

    async def read(self, topic: str, key: bytes, first: int, last: int, most: int) -> MessageBatch:
        assert topic == TOPIC
        found = [one for one in self.log if first <= one.offset <= last and one.key == key][:most]
        await asyncio.sleep(0)
        return MessageBatch(found, found[-1].offset + 1 if len(found) == most else last + 1, lost=False)

    def put_all(self) -> None:
        for one in self.log:
            self.queues.put(one)

    async def served(self, count: int, cost: Callable[[Fetched], float] = lambda _: 1.0) -> list[str]:
        found = []
        for _ in range(count):
            one = await self.queues.next()
            self.now += cost(one)
            found.append((one.key or b"").decode())
            self.queues.done()
            await asyncio.sleep(0)
        return found


def test_poll_returns_ready_messages_until_closed() -> None:
    async def scenario() -> None:
        deck = Deck([message(0, "alder"), message(1, "alder"), message(2, "alder")])
        assert deck.queues.poll() is None
        deck.put_all()
        assert deck.queues.poll() == deck.log[0]
        assert deck.queues.poll() is None  # the site's first message is being processed
        deck.queues.done()
        assert deck.queues.poll() == deck.log[1]
        deck.queues.done()
        deck.queues.close()
        assert deck.queues.poll() is None

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.sampled_from(SITES), st.booleans()), max_size=40), st.integers(2, 60), st.randoms())
def test_site_queues_give_each_message_once_in_site_order(
    drawn: list[tuple[str, bool]], places: int, random: Any
) -> None:
    log = [message(offset, site) for offset, (site, _) in enumerate(drawn)]
    held = {offset for offset, (_, held) in enumerate(drawn) if held}
    done: list[Fetched] = []

    async def scenario() -> None:
        deck, waiting, coming = Deck(log, places), list[asyncio.Future[None]](), list(log)
        while len(done) < len(log):
            while coming and random.random() < 0.7:
                deck.queues.put(coming.pop(0))
            if waiting and random.random() < 0.4:
                waiting.pop(random.randrange(len(waiting))).set_result(None)
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(0):
                    one = await deck.queues.next()
            except TimeoutError:
                assert waiting or coming or deck.tasks
                continue
            deck.now += random.random()
            if one.offset in held:
                held.discard(one.offset)
                waiting.append(asyncio.get_running_loop().create_future())
                deck.queues.hold(waiting[-1])
            elif random.random() < 0.2:
                deck.queues.again()
            else:
                done.append(one)
                deck.queues.done()
        assert len(deck.queues) == 0 and deck.room.free == places and sorted(deck.taken) == list(range(len(log)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(site_queues, "REFILL_MESSAGES", 4)
        asyncio.run(scenario())
    for site in SITES:
        assert all(one < other for one, other in pairwise(one.offset for one in done if one.key == site.encode()))


def test_flooding_site_gets_same_turns_as_other_site() -> None:
    log = [message(offset, "alder") for offset in range(100)]
    log += [message(100 + offset, "birch") for offset in range(5)]

    async def scenario() -> list[str]:
        deck = Deck(log)
        deck.put_all()
        return await deck.served(10)

    assert asyncio.run(scenario()) == ["alder", "birch"] * 5


def test_site_turns_are_fair_by_message_cost() -> None:
    log = [message(offset, site) for offset, site in enumerate(("alder", "birch") * 50)]

    async def scenario() -> list[str]:
        deck = Deck(log)
        deck.put_all()
        return await deck.served(22, lambda one: 10.0 if one.key == b"alder" else 1.0)

    found = asyncio.run(scenario())
    assert found.count("alder") == 2 and found.count("birch") == 20


def test_idle_site_saves_no_turns() -> None:
    async def scenario() -> list[str]:
        deck = Deck([message(offset, "alder") for offset in range(50)])
        deck.put_all()
        await deck.served(20)
        for offset in range(50, 70):
            deck.queues.put(message(offset, "birch"))
        return await deck.served(8)

    found = asyncio.run(scenario())
    assert found.count("alder") == 4


def test_flood_is_parked_and_other_sites_stay_in_memory() -> None:
    log = [message(offset, "alder") for offset in range(500)]
    log += [message(500 + offset, "birch") for offset in range(10)]

    async def scenario() -> None:
        deck = Deck(log, places=100)
        deck.put_all()
        assert deck.room.free >= 40 and deck.queues.oldest_parked(TOPIC) == 50 and len(deck.queues) == 510
        assert (await deck.served(20)).count("birch") == 10
        await deck.served(490)
        assert deck.queues.oldest_parked(TOPIC) is None and deck.room.free == 100

    asyncio.run(scenario())


def test_intake_pauses_while_too_many_messages_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_queues, "MAX_PARKED", 20)

    async def scenario() -> None:
        deck = Deck([message(offset, "alder") for offset in range(40)], places=10)
        deck.put_all()
        waiting = asyncio.ensure_future(deck.queues.until_nearer())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await deck.served(40)
        await waiting

    asyncio.run(scenario())


def test_unknown_keys_come_first_if_a_new_site_needs_eviction() -> None:
    log = [message(0, "alder"), message(1, "alder"), message(2, "stranger"), message(3, "alder")]

    async def scenario(full: bool) -> list[str]:
        deck = Deck(log, is_full=lambda: full)
        deck.put_all()
        return await deck.served(4)

    assert asyncio.run(scenario(True)) == ["stranger", "alder", "alder", "alder"]
    assert asyncio.run(scenario(False)) == ["alder", "stranger", "alder", "alder"]


def test_waiting_messages_are_listed_by_site_up_to_offset() -> None:
    async def scenario() -> None:
        deck = Deck([message(offset, site) for offset, site in enumerate(("alder", "birch", "alder", "stranger"))])
        deck.put_all()
        assert deck.queues.waiting(2) == {"alder": 0.0, "birch": 1.0}
        assert deck.queues.waiting(4) == {"alder": 2.0, "birch": 1.0, "stranger": 3.0}

    asyncio.run(scenario())


@pytest.mark.parametrize("taken", [False, True])
def test_cleared_queues_release_places_once(taken: bool) -> None:
    async def scenario() -> None:
        deck = Deck([message(offset, site) for offset, site in enumerate(("alder", "alder", "birch"))], places=10)
        deck.put_all()
        await deck.queues.next()
        deck.queues.hold(asyncio.get_running_loop().create_future())
        if taken:
            assert (await deck.queues.next()).key == b"birch"
        deck.queues.clear()
        deck.queues.done()
        assert len(deck.queues) == 0 and deck.room.free == 10

    asyncio.run(scenario())


def test_large_message_takes_many_places() -> None:
    assert MemoryBudget.places(message(0, "alder", b"x" * 60_000)) == 121
