"""Unit tests of the engine's components with plain values."""

import pytest

from models.durations import WEEK_S
from models.engine.asking.what_if import KNOWN_JOBS, SETTLED_JOBS, guesses, low_confidence, too_large
from models.engine.components import EngineComponents
from models.engine.live_jobs import LiveJobs
from models.engine.methods import planned_run_s
from models.engine.outgoing import bounds_of, nodes_down, withhold
from models.engine.queues import MAX_QUEUES, Queues
from models.engine.scores import MAX_WEEKS, Scores
from models.engine.settings import EngineSettings
from models.method import SiteContext
from models.records import Capacity
from models.runtimes.closest import Closest
from models.site.history import History
from models.site.job import Estimate, Job, RunEstimate
from models.site.runs import RunHistory
from models.site.size import SizeSeen
from models.site.state import SiteState


def job(name: str = "1", cpus: int = 1, queue: str | None = None, submit: float = 0.0) -> Job:
    return Job(name, 0, submit, cpus=cpus, queue=queue)


def context(capacity: Capacity | None = None, max_cpus: int = 0) -> SiteContext:
    return SiteContext(SiteState(), History(10), RunHistory(), Closest(), capacity, SizeSeen(max_cpus))


@pytest.mark.parametrize(
    ("walltime", "run_s", "planned"), [(60.0, 10.0, 60.0), (0.0, 10.0, 10.0), (None, 10.0, 10.0), (None, None, 0.0)]
)
def test_planned_run_is_time_limit_or_predicted_run_time(
    walltime: float | None, run_s: float | None, planned: float
) -> None:
    assert planned_run_s(walltime, run_s) == planned


def test_bounds_are_own_or_borrowed_and_missing_for_baselines() -> None:
    own, lent = {"0.5": 1.0}, {"0.5": 2.0}
    predicted = job()
    predicted.estimates = {
        "mine": Estimate(1.0, "", own),
        "bare": Estimate(1.0, ""),
        "qbets": Estimate(1.0, "", lent),
        "median": Estimate(1.0, "", own),
        "silent": Estimate(None, ""),
    }
    found = {name: bounds_of(predicted, name, "qbets") for name in (*predicted.estimates, "absent")}
    assert found == {"mine": own, "bare": lent, "qbets": lent, "median": None, "silent": None, "absent": None}
    assert bounds_of(predicted, "bare", "") is None


def test_withhold_replaces_estimate_with_the_reason_only() -> None:
    predicted = job()
    predicted.estimates = {"mine": Estimate(1.0, "why", {"0.5": 1.0})}
    withhold(predicted, None)
    assert predicted.estimates["mine"].wait_s == 1.0
    withhold(predicted, "nodes down")
    assert predicted.estimates["mine"] == Estimate(None, "nodes down", None)


def test_nodes_that_are_down_withhold_and_degrade() -> None:
    half, unknown = (Capacity(site="s", time=0.0, cpus=8, nodes=nodes, down_nodes=2) for nodes in (4, None))
    assert (nodes_down(half, 0.5), nodes_down(half, 0.4)) == (None, "nodes down")
    assert nodes_down(unknown, 0.0) is nodes_down(None, 0.0) is None
    parts = EngineComponents("s", EngineSettings(method="zero"))
    assert parts.degraded is None
    parts.context.resize(half)
    parts.gaps.lost = True
    assert parts.degraded == "history lost: learning restarted; 2 of 4 nodes down"
    parts.context.resize(unknown)
    parts.gaps.lost = False
    assert parts.degraded == "2 of unknown nodes down"


def test_too_large_and_guesses_depend_on_evidence_of_site_size() -> None:
    declared, seen = context(Capacity(site="s", time=0.0, cpus=8)), context(max_cpus=4)
    assert too_large(job(cpus=8), declared) is None
    assert too_large(job(cpus=9), declared) == "larger than the site: 9 of 8 CPUs"
    assert too_large(job(cpus=5), seen) == (
        "larger than the site, as far as known: no more than 4 CPUs were in use at once"
    )
    assert too_large(job(cpus=5), context()) is None, "nothing is known"
    assert list(guesses(declared)) == ["none of its jobs started so far"]
    declared.history.count = KNOWN_JOBS
    assert list(guesses(declared)) == []
    assert next(guesses(seen)) == "size guessed from the jobs that ran"


def test_low_confidence_ends_after_enough_started_jobs() -> None:
    declared, seen, bounds = context(Capacity(site="s", time=0.0, cpus=8)), context(max_cpus=4), {"0.9": 60.0}
    assert low_confidence(declared, bounds) == "none of its jobs started so far"
    declared.history.count = 19
    assert low_confidence(declared, bounds) == "only 19 of its jobs started so far"
    declared.history.count = seen.history.count = KNOWN_JOBS
    assert (low_confidence(declared, bounds), low_confidence(declared, None)) == (None, "it has no bounds")
    assert low_confidence(seen, bounds) == "size guessed from the jobs that ran"
    seen.history.count = SETTLED_JOBS
    assert low_confidence(seen, bounds) is None


def test_queues_at_limit_drop_the_least_recently_used() -> None:
    queues = Queues()
    for number in range(MAX_QUEUES):
        queues.see(job(queue=f"q{number}"))
    queues.see(job(queue="q0"))
    queues.see(job(queue=None))
    queues.see(job(queue="new", submit=2 * WEEK_S))
    assert len(queues.seen) == MAX_QUEUES
    assert "q1" not in queues.seen and queues.seen["q0"].jobs == 2
    assert queues.open(SiteState(), now=2 * WEEK_S, most=8) == ["new"]
    assert queues.open(SiteState(), now=WEEK_S, most=2) == ["new", "q0"], "the busiest"


def test_scores_count_methods_that_run_and_no_others() -> None:
    scores = Scores.of("alder", EngineSettings(method="median", shadows=(), bounds="", runtimes="closest"))
    done = job()
    done.estimates = {"median": Estimate(60.0, "", degraded="unlike any"), "gone": Estimate(1.0, "")}
    done.run_estimates = {"closest": RunEstimate(50.0, ""), "gone": RunEstimate(1.0, "")}
    scores.count_waits(done)
    scores.add_started(done, 120.0)
    scores.add_ended(done, 120.0, 60.0)
    scores.add_cancelled(done, 30.0)
    assert scores.predictions == scores.degraded == {"median": 1} and scores.run_predictions == {"closest": 0}
    assert scores.accuracy["median"].error.total == 60.0
    assert scores.run_accuracy["closest"].error.total == 10.0
    tally = scores.tallies()["median"]
    assert (tally.jobs, tally.error_s, tally.responses) == (2, 90.0, 2)


def test_scores_begin_a_week_and_keep_the_last_weeks() -> None:
    scores = Scores.of("alder", EngineSettings(method="median", shadows=(), bounds=""))
    for now in (0.0, 1.0, WEEK_S, WEEK_S + 1.0, *((2.0 + week) * WEEK_S for week in range(MAX_WEEKS))):
        scores.begin_week(now)
    begins = [week.begin for week in scores.weeks]
    assert begins == [(2.0 + week) * WEEK_S for week in range(MAX_WEEKS)]


def test_live_jobs_report_departed_and_noted_jobs() -> None:
    live = LiveJobs(context(), most=3, per_job={})
    for name in ("a", "b"):
        live.enter(job(name))
        found = live.get((name, 0))
        assert found is not None and not live.full
        live.leave(found)
    live.note_departure(("c", 0))
    live.note_departure(("c", 0))
    assert [live.has_departed((name, 0)) for name in "abcd"] == [True, True, True, False]
    assert len(live.learnt.state.tail) == 3
