"""History in bundles, then live events, with a worker crash: the outputs equal a replay."""

from pathlib import Path

import pytest

from streams.bulk.site_history import marked
from streams.sources.publisher import OutgoingEvent, publish
from streams.sources.swf import events_of, read_swf
from tests.support.deployment import Deploy, Deployment, metrics, unique, until
from tests.support.traces import made_trace, trace_path


def events_read(here: Deployment) -> float:
    return sum(metrics(here.worker).get("queuecast_events_total", {}).values())


@pytest.mark.long
@pytest.mark.parametrize(("name", "jobs", "predicted", "live"), [("", 1500, 100, 200), ("KTH", 3000, 300, 300)])
def test_history_and_live_events_with_crash_equal_replay(
    deploy: Deploy, tmp_path: Path, name: str, jobs: int, predicted: int, live: int
) -> None:
    trace = read_swf(trace_path(name) if name else made_trace(tmp_path / "made.swf", jobs + live))
    events = list(events_of(trace.first(jobs + live), "alder"))
    later = {event.job for event in [event for event in events if event.kind == "submit"][jobs:]}
    rest = [event for event in events if getattr(event, "job", "") in later]
    steps = list(marked((OutgoingEvent(one) for one in events if getattr(one, "job", "") not in later), predicted))
    history = [step.event for step in steps if step.event is not None]
    here = deploy()
    here.worker.start()
    publish(here.settings, steps, lambda _: None, lambda *_: None)
    until(lambda: events_read(here) > len(history) / 3)
    here.worker.kill()
    here.worker.start()
    here.send(rest)
    expected = here.expected([*history, *rest])
    here.await_outputs(sum(map(len, expected.values())), seconds=240)
    here.stop()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    assert here.stored("alder") == here.expected_in_redis([*history, *rest], "alder")
    assert not here.dead_letters()
