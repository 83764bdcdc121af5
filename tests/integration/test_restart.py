"""A worker that is stopped, killed or joined by another gives the same outputs."""

from pathlib import Path

import msgspec
import pytest

from deploy.local.stack import Redis
from deploy.local.up import WorkerProcess
from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.records import AnyEvent, Prediction
from tests.support.deployment import Deploy, Deployment, busy_sites, metrics, parts, simulated, sites, unique, until
from tests.support.sizes import is_thorough

SITES = ("alder", "birch", "cedar", "hazel", "oak")  # over all partitions, two of them in one


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return busy_sites(SITES, 110)


def count(here: Deployment, events: list[AnyEvent]) -> int:
    """Return the number of predictions and outcomes of the events."""
    return sum(map(len, here.expected(events).values()))


def as_if_nothing_had_happened(here: Deployment, events: list[AnyEvent]) -> int:
    """Check that distinct outputs and stored entries equal a replay; return the number of repeats."""
    records = here.records()
    assert {where: unique(values) for where, values in records.items()} == here.expected(events)
    for site in SITES:
        assert here.stored(site) == here.expected_in_redis(events, site)
    return sum(len(values) - len(set(values)) for values in records.values())


def stopped_in_time(here: Deployment) -> bool:
    """Return True if each stop completed its last checkpoint; on a busy machine, events are repeated."""
    return "no checkpoint within" not in here.log and "not stopped within" not in here.log


@pytest.mark.long
def test_restarted_worker_restores_sites_before_new_events(deploy: Deploy, events: list[AnyEvent]) -> None:
    here = deploy(history=80)
    first, second = parts(events, 2)
    here.send(first)
    here.worker.start()
    here.await_outputs(count(here, first) // 2)
    here.stop()
    here.worker.start()
    here.await_outputs(count(here, first))
    here.stop()

    here.worker.start()
    # Events after the last checkpoint are read again, so sites may be present before all of their events.
    applied = {(site,): sum(event.site == site for event in first) for site in SITES}
    until(lambda: metrics(here.worker).get("queuecast_events_total") == applied)
    assert all(metrics(here.worker)["queuecast_history_jobs"][site,] > 0 for site in SITES)
    here.send(second)
    here.await_outputs(count(here, events))
    here.stop()
    assert as_if_nothing_had_happened(here, events) == 0 or not stopped_in_time(here)


def test_killed_worker_repeats_records_to_the_byte(deploy: Deploy, events: list[AnyEvent]) -> None:
    here = deploy(worker={"checkpoint_events": len(events) // 8, "checkpoint_seconds": 1e9}, history=80)
    sent: list[AnyEvent] = []
    for part in parts(events, 4 if is_thorough() else 2):  # a kill after each but the last
        here.send(part)
        sent += part
        here.worker.start()
        here.await_outputs(count(here, sent))
        if sent != events:
            here.worker.kill()  # events since the last checkpoint are in no state yet
    here.stop()
    repeats = as_if_nothing_had_happened(here, events)
    assert repeats > 0
    for site in SITES:
        rows = here.stored(site)[f"{here.settings.redis.prefix}:{{{site}}}:history"]
        identities = {tuple(msgspec.msgpack.decode(row)[1:3]) for row in rows.values()}
        assert len(identities) == len(rows) == 80


@pytest.mark.long
def test_second_worker_gets_share_of_sites(deploy: Deploy, events: list[AnyEvent], tmp_path: Path) -> None:
    here = deploy(history=80)
    first, second = parts(events, 2)
    here.worker.start()
    here.send(first)
    here.await_outputs(count(here, first) // 2)
    with WorkerProcess(tmp_path / "second", here.settings) as other:
        until(lambda: bool(sites(other)))
        here.send(second)
        here.await_outputs(count(here, events))
        assert sites(here.worker) | sites(other) == set(SITES)
        assert not sites(here.worker) & sites(other)
    here.stop()
    as_if_nothing_had_happened(here, events)


@pytest.mark.long
def test_empty_redis_resets_histories_and_degrades_predictions(deploy: Deploy) -> None:
    here, events = deploy(), simulated("alder", 250)
    first, second = parts(events, 2)
    here.send(first)
    here.worker.start()
    here.await_outputs(count(here, first))
    here.stop()
    here.redis.delete(*here.redis.scan_iter(f"{here.settings.redis.prefix}:*"))

    before = Engine("alder", here.settings.engine)
    records = [record for event in first for record in before.apply(event)]
    predicted = sum(isinstance(record, Prediction) for record in records)
    after = Engine.load(before.checkpoint()[0], None, None, here.settings.engine)
    records += [record for event in second for record in after.apply(event)]
    expected = [r for r in records if isinstance(r, Prediction)]

    here.worker.start()
    here.send(second)
    here.await_outputs(sum(not isinstance(record, Anomaly) for record in records))
    here.stop()
    values = here.records()[here.topics.predictions, "alder"]
    predictions = [msgspec.json.decode(value, type=Prediction) for value in values]
    assert predictions == expected
    assert {one.degraded for one in predictions[:predicted]} == {None}
    assert {one.degraded for one in predictions[predicted:]} == {"history lost: learning restarted"}
    assert "Redis lost all entries" in here.log


@pytest.mark.long
def test_worker_waits_for_unreachable_redis_without_loss(
    deploy: Deploy, events: list[AnyEvent], tmp_path: Path
) -> None:
    with Redis(tmp_path / "own-redis") as own:
        here = deploy(redis=own.url, history=80)
        first, second = parts(events, 2)
        here.worker.start()
        here.send(first)
        here.await_outputs(count(here, first) // 2)
        own.kill()
        here.send(second)
        until(lambda: "redis: " in here.log)
        own.start()
        here.await_outputs(count(here, events))
        here.stop()
        assert as_if_nothing_had_happened(here, events) == 0 or not stopped_in_time(here)
