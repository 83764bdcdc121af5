"""A heartbeat advances the site's time and changes nothing else."""

import msgspec
import pytest

from models.durations import DAY_S
from models.engine.engine import EVENTS_PER_SWEEP, Engine
from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Heartbeat, Prediction
from models.site.clock import MAX_AHEAD_S
from tests.support.engines import MEDIAN, engine_after, workload
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import anomalies, applied, contents

BLEND = EngineSettings(method="blend", shadows=(), bounds="")
NOON = 1e9


def beat(time: float) -> Heartbeat:
    return Heartbeat(site="s", time=time)


def restored(engine: Engine) -> Engine:
    state, changes = engine.checkpoint()
    return Engine.load(state, changes.started, changes.runs, MEDIAN, changes.rows)


def busy(jobs: int = 100) -> list[AnyEvent]:
    """Return jobs that each wait half an hour, and one job that is queued at the end."""
    found: list[AnyEvent] = [capacity(8, NOON)]
    for number in range(jobs):
        time, job = NOON + 3600.0 * number, str(number)
        found += [submit(job, time, cpus=8, walltime=3600.0), start(job, time + 1800.0), end(job, time + 3500.0)]
    last = NOON + 3600.0 * jobs
    return [*found, submit("large", last, cpus=8, walltime=7200.0), start("large", last + 1.0), submit("x", last + 2.0)]


def test_heartbeat_publishes_due_estimates() -> None:
    engine = engine_after(*busy(), settings=BLEND)
    last = engine.time
    found = [record for step in range(1, 40) for record in engine.apply(beat(last + 300.0 * step))]
    assert found
    assert all(isinstance(record, Prediction) and record.job == "x" and record.made_at > last for record in found)


def test_bound_in_force_never_passes_between_heartbeats() -> None:
    engine = engine_after(*busy(), settings=BLEND)
    job, last = engine.context.state.jobs["x", 0], engine.time
    for step in range(1, 200):
        engine.apply(beat(last + 300.0 * step))
        assert job.later is None or (job.later.estimate.bounds or {})["0.9"] > engine.time - job.ready - 300.0


def test_heartbeat_changes_only_the_time() -> None:
    engine = engine_after(*busy(3), settings=MEDIAN)
    before, last = contents(engine), engine.time
    assert engine.apply(beat(last + 60.0)) == []
    assert engine.time == last + 60.0
    assert contents(engine) == before


def test_first_event_as_heartbeat_sets_no_time() -> None:
    engine = engine_after(beat(NOON + 300 * DAY_S))
    assert engine.time == 0.0
    assert engine.trends.kept.hours == []
    assert not anomalies(applied(engine, busy(1)))


@pytest.mark.parametrize("time", [0.0, 60.0])
def test_heartbeat_old_or_repeated_changes_no_state(time: float) -> None:
    engine = engine_after(*busy(3), settings=MEDIAN)
    last = engine.time
    engine.apply(beat(last + 60.0))
    before = contents(engine)
    assert engine.apply(beat(last + time)) == []
    assert engine.time == last + 60.0
    assert contents(engine) == before


@pytest.mark.parametrize("later", [start, cancel])
def test_event_before_a_heartbeat_counts_from_its_own_time(later: object) -> None:
    """The outcome equals the outcome of a site that got no heartbeat."""
    plain, beaten = (engine_after(*busy(3), settings=MEDIAN) for _ in range(2))
    last = plain.time
    beaten.apply(beat(last + 4000.0))
    event = later("x", last + 500.0)  # type: ignore[operator]
    assert beaten.apply(event) == plain.apply(event)
    assert beaten.time == last + 4000.0


def test_late_start_leaves_no_landmark_after_it() -> None:
    engine = engine_after(*busy(3), settings=MEDIAN)
    last = engine.time
    engine.apply(beat(last + 5 * 3600.0))
    engine.apply(start("x", last + 700.0))
    assert [noted.age for noted in engine.parts.landmarks.latest[1]] == [0]


def test_heartbeats_far_ahead_cannot_block_a_live_site() -> None:
    engine = Engine("s", MEDIAN)
    for event in busy(10):
        engine.apply(event, event.time)
    last = engine.time
    for step in range(2000):
        [rejected] = engine.apply(beat(last + DAY_S), last + step)
        assert isinstance(rejected, Anomaly) and rejected.rejected and rejected.implausible
    assert engine.time == last
    engine.apply(beat(last + MAX_AHEAD_S), last + 1.0)
    assert engine.time == last + 1.0  # The broker's timestamp.


def test_heartbeats_far_ahead_cannot_block_a_replayed_site() -> None:
    engine = engine_after(*busy(40), settings=MEDIAN)
    last = engine.time
    for step in range(2000):
        [ignored] = engine.apply(beat(last + 2 * DAY_S + step))
        assert isinstance(ignored, Anomaly) and not ignored.rejected
    assert engine.time == last


def test_wrong_heartbeats_do_not_keep_a_wrong_time() -> None:
    """Jobs that continue a week behind the heartbeats set the site's time again."""
    engine = engine_after(*busy(3), settings=MEDIAN)
    last = engine.time
    for day in range(1, 8):
        engine.apply(beat(last + DAY_S * day))
    for number in range(100):
        engine.apply(submit(f"n{number}", last + number))
        engine.apply(beat(last + 7 * DAY_S + number))
    assert engine.time < last + DAY_S + 100.0


def test_heartbeats_keep_the_fold_deterministic() -> None:
    """Duplicate events and a restored engine give the same state."""
    events = workload(5)
    whole, split = engine_after(*events, settings=MEDIAN), restored(engine_after(*events[:100], settings=MEDIAN))
    for event in events[100:]:
        split.apply(event)
    assert contents(split) == contents(whole)
    assert msgspec.to_builtins(split.clock) == msgspec.to_builtins(whole.clock)


def test_expiry_at_heartbeat_ignores_event_without_effect() -> None:
    later = NOON + 20 * DAY_S
    jobs = [submit(str(number), later + number) for number in range(EVENTS_PER_SWEEP - 4)]
    events = [
        submit("lost", NOON, walltime=60.0),
        start("lost", NOON + 1.0),
        *jobs,
        submit("1", later + 5 * DAY_S, cpus=2),
    ]
    whole = engine_after(*events, settings=MEDIAN)
    split = restored(whole)
    for engine in (whole, split):
        [gave_up] = anomalies(engine.apply(beat(later + 600.0)))
        assert gave_up.reason == "gave_up_running"
    assert contents(split) == contents(whole)
