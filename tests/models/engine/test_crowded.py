"""Running jobs that were never submitted are given up if the site has no CPUs for all."""

import msgspec
import pytest

from models.durations import DAY_S
from models.engine.engine import Engine
from models.records import Alter, AnyEvent, Capacity, End, Start, Submit, Suspend
from models.site.job import Phase
from models.site.shapes import HOUR_S
from models.site.size import MIN_STARTED_JOBS
from models.site.state import SITE
from tests.support.stories import SETTINGS, anomalies, applied, assert_sound, new_engine

CPUS = 100


def ordinary(first: int, count: int, time: float) -> list[AnyEvent]:
    """Return events of one-CPU jobs that start one second after their submit."""
    submits = [Submit(site="s", time=time, job=str(number), cpus=1) for number in range(first, first + count)]
    starts = [Start(site="s", time=time + 1.0, job=submit.job) for submit in submits]
    return [*submits, *starts]


def busy(started: int = MIN_STARTED_JOBS) -> Engine:
    """Build a site with `started` running jobs and two of 30 CPUs each that were never submitted."""
    engine = new_engine()
    applied(engine, [Capacity(site="s", time=0.0, cpus=CPUS), *ordinary(0, started, 0.0)])
    lost = [Start(site="s", time=10.0, job=f"lost-{number}", cpus=30) for number in range(2)]
    applied(engine, lost)
    return engine


def given_up(engine: Engine, events: list[AnyEvent]) -> list[str]:
    found = anomalies(applied(engine, events))
    assert_sound(engine)
    return [anomaly.detail.split()[1] for anomaly in found if anomaly.reason == "gave_up_unsubmitted"]


@pytest.mark.parametrize(("count", "gone"), [(8, []), (9, ["lost-0"]), (39, ["lost-0", "lost-1"])])
def test_unsubmitted_jobs_are_given_up_until_the_site_fits(count: int, gone: list[str]) -> None:
    engine = busy()
    assert given_up(engine, ordinary(100, count, 2 * HOUR_S)) == gone
    assert all(key[0] not in gone for key in engine.context.state.jobs)


def test_unsubmitted_job_is_kept_for_an_hour() -> None:
    engine = busy()
    assert given_up(engine, ordinary(100, 20, 1000.0)) == []
    late = [Submit(site="s", time=5.0, job="lost-0", cpus=30)]
    assert given_up(engine, late) == [] and given_up(engine, ordinary(200, 1, 2 * HOUR_S)) == ["lost-1"]


def test_unsubmitted_jobs_never_exceed_the_site_cpus() -> None:
    engine = busy()
    more = [Start(site="s", time=20.0 + number, job=f"more-{number}", cpus=30) for number in range(2)]
    assert given_up(engine, more) == ["lost-0"]
    grown = [Alter(site="s", time=30.0, job="more-0", cpus=45)]
    assert given_up(engine, grown) == [] and given_up(engine, ordinary(100, 1, 40.0)) == ["lost-1"]
    known = [Submit(site="s", time=5.0, job="more-0", cpus=45)]
    assert given_up(engine, [*known, Start(site="s", time=50.0, job="last", cpus=60)]) == []


def test_unsubmitted_start_in_far_future_is_given_up_early() -> None:
    engine = busy()
    applied(engine, [Start(site="s", time=40 * DAY_S, job="ahead", cpus=90)])
    events = [event for turn in range(40) for event in ordinary(1000 * turn, 1, 2 * HOUR_S + turn)]
    assert given_up(engine, events) == ["ahead"]


def test_unsubmitted_jobs_are_kept_if_few_jobs_started() -> None:
    assert given_up(busy(started=1), ordinary(100, 30, 2 * HOUR_S)) == []


def test_unsubmitted_jobs_given_up_are_equal_after_restart() -> None:
    engine = busy()
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    events = ordinary(100, 9, 2 * HOUR_S)
    encode = msgspec.json.encode
    assert encode(applied(again, events)) == encode(applied(engine, events))
    assert again.checkpoint()[0] == engine.checkpoint()[0]


def doubtful() -> Engine:
    """Build a site where five starts without a submit were refuted."""
    engine = busy()
    applied(engine, [Start(site="s", time=20.0 + number, job=f"made-up-{number}", cpus=CPUS) for number in range(4)])
    assert engine.anomalies["gave_up_unsubmitted"] == 5
    return engine


def cpus_in_use(engine: Engine) -> int:
    return engine.context.state.totals(SITE, Phase.RUNNING).cpus


def test_start_after_refuted_starts_uses_no_cpus_until_submit() -> None:
    engine = doubtful()
    applied(engine, [Start(site="s", time=50.0, job="late", cpus=30)])
    assert cpus_in_use(engine) == MIN_STARTED_JOBS and engine.context.state.jobs["late", 0].phase is Phase.UNCONFIRMED
    applied(engine, [Submit(site="s", time=45.0, job="late", cpus=30)])
    assert cpus_in_use(engine) == MIN_STARTED_JOBS + 30
    assert_sound(engine)


def test_ends_of_unsubmitted_jobs_restore_the_trust_in_starts() -> None:
    engine = doubtful()
    for number in range(6):
        job = f"without-submit-{number}"
        applied(engine, [Start(site="s", time=50.0 + number, job=job), End(site="s", time=90.0 + number, job=job)])
    before = cpus_in_use(engine)
    applied(engine, [Start(site="s", time=200.0, job="late", cpus=1)])
    assert cpus_in_use(engine) == before + 1
    assert_sound(engine)


def test_unconfirmed_starts_claim_no_more_than_the_site_has() -> None:
    engine = doubtful()
    starts: list[AnyEvent] = [Start(site="s", time=50.0 + n, job=f"late-{n}", cpus=30) for n in range(9)]
    gone = given_up(engine, starts)
    unconfirmed = [job for job in engine.context.state.jobs.values() if job.phase is Phase.UNCONFIRMED]
    assert len(gone) > 5 and sum(job.cpus for job in unconfirmed) <= CPUS


def test_unconfirmed_start_is_restored_and_cannot_be_suspended() -> None:
    engine = doubtful()
    applied(engine, [Start(site="s", time=50.0, job="late", cpus=30), Suspend(site="s", time=51.0, job="late")])
    assert engine.anomalies["suspend_of_job_not_running"] == 1
    state, changes = engine.checkpoint()
    again = Engine.load(state, changes.started, changes.runs, SETTINGS, changes.rows)
    assert again.context.state.jobs["late", 0].phase is Phase.UNCONFIRMED
    assert again.parts.live.unsubmitted_starts == engine.parts.live.unsubmitted_starts
    assert again.checkpoint()[0] == engine.checkpoint()[0]
