"""Segments of sites: crashes between segments and heads, lost segments, orphaned segments."""

import asyncio
import zlib
from typing import Any

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.records import Rebuild
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.job_log import keys_of, segment_key, site_of
from streams.worker.checkpoint.stored_site import StoredSegment, decode_stored, encode_stored
from tests.support.changelog import Changelog
from tests.support.fakes import Process
from tests.support.memory_servers import Crash, World
from tests.support.stored import saved_state, whole

EVENTS = list(run(generate(3, 60, 32, 0.95), 32, "alder"))
SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=(), history=20),
    worker=WorkerSettings(checkpoint_events=10, checkpoint_seconds=1e9),
)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TAIL_BYTES": 800, "SEGMENT_BYTES": 700, "SLACK_BYTES": 500, "MIN_MOVED_BYTES": 300}.items():
        monkeypatch.setattr(f"streams.worker.checkpoint.job_log.{name}", value)


def begun(events: int = len(EVENTS)) -> World:
    world = World()
    world.publish_events(EVENTS[:events])
    return world


def live(world: World, **fakes: Any) -> Process:
    process = Process(world, SETTINGS, **fakes)
    asyncio.run(process.live())
    return process


def segments(world: World) -> set[bytes]:
    return {key for key in world.table if site_of(key) != key}


def named(world: World) -> set[bytes]:
    return {*keys_of("alder", decode_stored(world.table[b"alder"]).runs)}


def test_remaining_segments_are_those_that_the_head_names() -> None:
    world = begun(len(EVENTS) - 5)  # some jobs are still live
    live(world)
    assert segments(world) == named(world) != set()
    writes = [what for what in world.log if what.startswith("table ")]
    assert len(writes) > 2 * world.log.count("table alder") > 20


def test_crash_at_any_step_gives_same_outputs_and_state() -> None:
    undisturbed = begun()
    live(undisturbed)
    state = whole(saved_state(undisturbed.table))
    table_steps = [place for place, what in enumerate(undisturbed.log) if what.startswith("table")]
    for steps in [*table_steps[::7], *table_steps[-6:]]:
        world = begun()
        world.steps = steps
        with pytest.raises(Crash):
            live(world)
        world.steps = None
        live(world)
        assert list(dict.fromkeys(world.outputs)) == undisturbed.outputs
        assert whole(saved_state(world.table)) == state
        assert segments(world) >= named(world)  # the next checkpoint deletes the remaining old segments


def test_lost_segment_is_rebuilt_from_earlier_state_and_events() -> None:
    """Lose a segment written last: Redis already deleted entries of earlier states."""
    undisturbed = begun()
    live(undisturbed)
    steps = [what.replace("alder", "") for what in undisturbed.log]
    heads = [
        place for place, what in enumerate(steps) if what == "table " and steps[place - 1].startswith("table \ufffd")
    ]
    world = begun()
    world.steps = heads[len(heads) // 2] + 1
    table = Changelog(world)
    with pytest.raises(Crash):
        live(world, table=table)
    world.steps = None
    lost = next(key for key, _ in reversed(table.states) if key in named(world))
    del world.table[lost]
    table.states = [one for one in table.states if one[0] != lost]
    live(world, table=table, events=table)
    assert list(dict.fromkeys(world.outputs)) == undisturbed.outputs
    assert whole(saved_state(world.table)) == whole(saved_state(undisturbed.table))
    assert segments(world) == named(world)


def test_unrecoverable_segment_keeps_other_jobs_and_is_reported() -> None:
    world = begun(80)
    live(world)
    for key in named(world):
        del world.table[key]
    world.publish_events(EVENTS[80:])
    live(world)
    last = msgspec.json.decode(world.records("predictions")[-1])
    assert last["degraded"] is not None
    assert segments(world) == named(world)


def test_orphaned_segments_are_deleted() -> None:
    world = begun(80)
    live(world)
    segment = encode_stored(StoredSegment(1, 0, zlib.compress(b"")))
    orphan, lonely = segment_key("alder", "01234567", 3), segment_key("birch", "01234567", 0)
    world.table |= {orphan: segment, lonely: segment}
    world.publish_events(EVENTS[80:90])
    live(world)
    assert segments(world) == named(world)


def test_rebuilt_site_keeps_no_segments_of_before() -> None:
    world = begun(80)
    live(world)
    before = named(world)
    world.arrived = 1e9
    world.publish(b"alder", msgspec.json.encode(Rebuild(site="alder", time=1e9, by="ada")))
    table = Changelog(world)
    live(world, table=table, events=table)
    assert segments(world) == named(world) and not named(world) & before
