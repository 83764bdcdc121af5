"""Messages keep their order within a site, whoever waits."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.worker.ownership.lanes import Allowance, Lanes
from tests.support.fakes import Message, World

SITES = ("alder", "birch", "cedar")


def messages(*sites: str) -> list[Any]:
    world = World()
    for site in sites:
        world.publish(site.encode(), b"{}")
    return world.delivered() if sites else []


def lanes_with(room: int, given: list[Message]) -> Lanes:
    lanes = Lanes(Allowance(room - len(given)))
    for message in given:
        lanes.put(message)  # type: ignore[arg-type]
    return lanes


@given(st.lists(st.tuples(st.sampled_from(SITES), st.booleans()), max_size=30), st.randoms())
def test_each_site_keeps_its_order_and_each_place_in_the_room_is_free_in_the_end(
    drawn: list[tuple[str, bool]], random: Any
) -> None:
    given = messages(*(site for site, _ in drawn))
    last = {one.message.offset for one, (site, _) in zip(given, drawn, strict=True) if site == "cedar"}
    held = {one.message.offset for one, (_, held) in zip(given, drawn, strict=True) if held} - last
    done: list[Any] = []

    async def scenario() -> None:
        lanes, waiting = lanes_with(100, given), list[asyncio.Future[None]]()
        while len(done) < len(given):
            if waiting and random.random() < 0.4:
                waiting.pop(random.randrange(len(waiting))).set_result(None)
                await asyncio.sleep(0)
            try:
                async with asyncio.timeout(0):
                    message: Any = await lanes.next()
            except TimeoutError:
                assert waiting
                continue
            offset = message.message.offset
            if offset in held:
                held.discard(offset)
                waiting.append(asyncio.get_running_loop().create_future())
                lanes.hold(message, waiting[-1])
            elif offset in last and lanes.waiting:
                lanes.hold_all(message)
            else:
                if offset in last:
                    assert {one.message.offset for one in done} >= set(range(offset))
                done.append(message)
                lanes.done()
        assert len(lanes) == 0 and lanes._room.places == 100

    asyncio.run(scenario())
    for site in SITES:
        offsets = [one.message.offset for one in done if one.message.key == site.encode()]
        assert offsets == sorted(offsets)


def test_a_site_that_waits_again_at_once_keeps_its_order() -> None:
    async def scenario() -> list[int]:
        lanes, found = lanes_with(10, messages("alder", "alder", "alder")), list[int]()
        for _ in range(2):
            awaited = asyncio.get_running_loop().create_future()
            lanes.hold(await lanes.next(), awaited)
            awaited.set_result(None)
            await asyncio.sleep(0)
            found.append((await lanes.next()).message.offset)
            lanes.done()
        return [*found, (await lanes.next()).message.offset]

    assert asyncio.run(scenario()) == [0, 1, 2]


@pytest.mark.parametrize("taken", [False, True])
def test_what_is_forgotten_gives_its_places_back_once(taken: bool) -> None:
    async def scenario() -> None:
        given = messages("alder", "alder", "birch", "cedar")
        lanes = lanes_with(10, given)
        lanes.hold(await lanes.next(), asyncio.get_running_loop().create_future())
        if taken:
            assert (await lanes.next()).message.key == b"birch"
        lanes.clear()
        lanes.done()
        assert len(lanes) == 0 and lanes._room.places == 10

    asyncio.run(scenario())


def test_a_large_message_takes_the_places_of_many() -> None:
    world = World()
    for length in (10, 60_000, 10):
        world.publish(b"alder", b"x" * length)
    small, large, last = world.delivered()

    async def scenario() -> None:
        room = Allowance(100)
        lanes = Lanes(room)
        for message in (small, large):
            await room.take(message)
            lanes.put(message)
        waiting = asyncio.ensure_future(room.take(last))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        for _ in range(2):
            await lanes.next()
            lanes.done()
        await waiting
        assert room.places == 99

    asyncio.run(scenario())
