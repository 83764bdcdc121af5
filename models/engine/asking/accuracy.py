"""Accuracy of a site's methods and answers, for queries."""

from collections.abc import Mapping
from itertools import pairwise
from math import isnan

from models.engine.engine import Engine
from models.engine.scores import Week
from models.measures import Accuracy, Tally
from models.records import (
    AnswerAccuracy,
    MethodAccuracy,
    WaitingAgeAccuracy,
    WeekAccuracy,
)


def _acted(engine: Engine) -> list[AnswerAccuracy]:
    """Return the accuracy of the estimates that users act on, as far as the engine can measure it."""
    return [answer_accuracy(kind, *both) for kind, both in acted_on(engine).items()]


def acted_on(engine: Engine) -> dict[str, tuple[Accuracy, Accuracy]]:
    """Return the accuracy of estimates made at other times than submission, by the kinds of `AnswerAccuracy`.

    "expected" is the last estimate of jobs that were estimated again while pending. "what-if" is the answer that a
    what-if question would have received immediately before the submission. Kinds without a job are left out.

    Returns:
        By kind, the accuracy of these estimates, and of the predictions at submission for the same jobs.
    """
    scores = engine.scores
    ours = scores.accuracy[scores.method]
    considered = (ours, ours) if scores.what_if == scores.method else (scores.considered, scores.considered_first)
    found = {"expected": (scores.later, scores.later_first), "what-if": considered}
    return {kind: (published, predicted) for kind, (published, predicted) in found.items() if published.jobs}


def answer_accuracy(
    kind: str, published: Accuracy, predicted: Accuracy, regret_s: float | None = None
) -> AnswerAccuracy:
    """Compare the accuracy of a kind of answer with that of the predictions for the same jobs (at least one)."""
    return AnswerAccuracy(
        kind=kind,
        jobs=published.jobs,
        mean_error_s=published.error.total / published.jobs,
        predicted_error_s=predicted.error.total / max(predicted.jobs, 1),
        within_factor_2=published.within_x2 / published.jobs,
        regret_s=regret_s,
        coverage={q: published.bounds[q].held / published.bounds[q].jobs for q in sorted(published.bounds, key=float)},
    )


def recent(engine: Engine) -> MethodAccuracy:
    """Return the accuracy of the default method in the current week and the previous one, or since it started."""
    return _accuracy(engine.settings.method, engine.scores.lately(weeks=2))


def while_waiting(engine: Engine) -> list[WaitingAgeAccuracy]:
    """Return the accuracy of the estimates in force at each age that a job has reached."""
    return [_at_age(age_s, row) for age_s, row in engine.scores.waiting.rows().items()]


def _at_age(age_s: float, row: Mapping[str, float]) -> WaitingAgeAccuracy:
    return WaitingAgeAccuracy(
        age_s=age_s,
        jobs=int(row["jobs"]),
        mean_error_s=3600.0 * row["in_force_h"],
        first_error_s=3600.0 * row["first_h"],
        now_error_s=3600.0 * row["now_h"],
        recent_error_s=3600.0 * row["recent_h"],
        ratio=None if isnan(row["ratio"]) else row["ratio"],
        coverage={key.removeprefix("cov_"): share for key, share in row.items() if key.startswith("cov_")},
        expired=row.get("expired"),
    )


def weeks(engine: Engine, now: float) -> list[WeekAccuracy]:
    """Return the accuracy of each method by week, the oldest first; the last week ends `now`."""
    names = [engine.settings.method, *(name for name in engine.scores.accuracy if name != engine.settings.method)]
    measured = []
    for week, after in pairwise([*engine.scores.weeks, Week(now, engine.scores.tallies())]):
        both = [name for name in names if name in week.tallies and name in after.tallies]
        methods = [_accuracy(name, after.tallies[name].since(week.tallies[name])) for name in both]
        measured.append(WeekAccuracy(begin=week.begin, end=max(after.begin, week.begin), methods=methods))
    return measured


def _accuracy(method: str, tally: Tally) -> MethodAccuracy:
    return MethodAccuracy(
        method=method,
        jobs=tally.jobs,
        mean_error_s=tally.error_s / tally.jobs if tally.jobs else None,
        mean_error_share=tally.ppe / tally.responses if tally.responses else None,
        within_factor_2=tally.within_x2 / tally.jobs if tally.jobs else None,
        coverage={
            q: held / jobs for q, (jobs, held) in sorted(tally.bounds.items(), key=lambda b: float(b[0])) if jobs
        },
    )
