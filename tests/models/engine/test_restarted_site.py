"""Restart a site whose machine was replaced: its history is dropped and its live jobs stay."""

from models.engine.engine import Engine
from models.engine.operator_commands import restarted
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Hold
from models.site.job import Phase
from tests.support.events import capacity, end, start, submit
from tests.support.stories import applied, assert_sound, outcomes, predictions

SETTINGS = EngineSettings(method="median", shadows=())


def test_restarted_site_keeps_only_its_size_and_live_jobs() -> None:
    engine = Engine("s", SETTINGS)
    past: list[AnyEvent] = [
        event(f"p{n}", 100.0 * n + more) for n in range(40) for event, more in ((submit, 0), (start, 30), (end, 60))
    ]
    now: list[AnyEvent] = [
        submit("1", 9000.0, cpus=8, qos="high", walltime=600.0),
        submit("1", 9000.0, attempt=1),
        start("1", 9100.0),
    ]
    applied(
        engine, [capacity(64), *past, *now, submit("2", 9200.0, array_size=3), Hold(site="s", time=9300.0, job="2")]
    )
    *_, fresh = restarted(engine)
    assert (fresh.context.cpus, fresh.context.history.count, fresh.scores.predictions["median"]) == (64, 0, 0)
    phases = {key: job.phase for key, job in fresh.context.state.jobs.items()}
    assert phases == {("1", 0): Phase.RUNNING, ("1", 1): Phase.QUEUED, ("2", 0): Phase.QUEUED}
    old, new = (one.context.state.jobs["1", 0] for one in (engine, fresh))
    assert (new.request, new.start) == (old.request, old.start)
    assert_sound(fresh)
    records = applied(fresh, [start("1", 9400.0, attempt=1), end("1", 9500.0), submit("3", 9600.0)])
    assert not outcomes(records)
    assert [prediction.reason for prediction in predictions(records)] == ["no history"]
