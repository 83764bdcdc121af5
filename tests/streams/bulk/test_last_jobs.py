"""An engine with only the last jobs of a history predicts as an engine with the full history."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit
from models.simulation import generate, run
from streams.bulk.event_log import EventLog
from streams.bulk.site_history import last, marked, needed
from streams.sources.publisher import OutgoingEvent
from tests.support.stories import applied, predictions


def parted(jobs: int) -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Return a site's events before a submission, and from it on."""
    events = list(run(generate(3, jobs + 100, cpus=32, load=0.6), 32, "s"))
    cut = next(islice((place for place, one in enumerate(events) if isinstance(one, Submit)), jobs, None))
    return events[:cut], events[cut:]


def engine_after(events: Iterable[OutgoingEvent], settings: EngineSettings) -> Engine:
    """Return an engine after this history."""
    engine = Engine("s", settings)
    for step in marked(events, needed(settings, "s").predicted):
        assert step.event is not None
        assert not engine.apply(step.event) or step.event.kind == "capacity"
    return engine


@pytest.mark.parametrize("method", ["median", "qespera", "easy"])
def test_last_jobs_suffice_for_methods_with_job_window(method: str) -> None:
    settings = EngineSettings(method=method, shadows=(), runtimes="walltime", history=400)
    before, rest = parted(1700)
    jobs = needed(settings, "s").seen
    assert jobs == 480
    some = list(last(map(OutgoingEvent, before), jobs))
    assert len(some) < 0.3 * len(before)
    found = [predictions(applied(engine_after(steps, settings), rest)) for steps in (map(OutgoingEvent, before), some)]
    whole, part = ([one.predicted_wait_s for one in predictions] for predictions in found)
    assert len(whole) == 100 and part == pytest.approx(whole, rel=1e-6, abs=1.0)
    assert found[0] == found[1] or method == "qespera", "sums of a window differ in their last bits"


def test_last_jobs_equal_end_of_sorted_event_log(tmp_path: Path) -> None:
    before, _ = parted(1700)
    log = EventLog.of(before, tmp_path)
    assert [step.event for step in last(map(OutgoingEvent, log.events()), 480)] == list(log.after(log.jobs - 480))
