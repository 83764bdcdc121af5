"""The parts of `blend` judged one at a time, as `models.waits.blend.known` judges all of them in one call."""

import numpy as np

from models.arrays import Flags, Floats
from models.waits.blend.guard import Guard, judge, judge_for_user
from models.waits.blend.immediate_start import ImmediateStartModel, learn_at_once
from models.waits.blend.mixture_snapshot import QUANTILES, MixtureSnapshot
from models.waits.blend.quantiles import Quantiles, exceed, leave

_NOT_PASSED = np.zeros(2 * QUANTILES, np.bool_)


def bound_exceeded(
    quantiles: Quantiles, snapshot: MixtureSnapshot, place: int, user: str | None = None, queue: int = 0
) -> bool:
    """A job with this snapshot waits for longer than the mark at this place; gives whether that is judged now."""
    known = (
        snapshot.table,
        snapshot.kind,
        snapshot.alone,
        snapshot.weight,
        *quantiles.kept(user, queue, snapshot.weight),
    )
    return bool(exceed(*known, *quantiles.learnt, place, quantiles.max_scored_shift))


def bounds_left(
    quantiles: Quantiles,
    snapshot: MixtureSnapshot,
    wait_s: float,
    known: bool,
    judged: Flags,
    passed: Flags = _NOT_PASSED,
    user: str | None = None,
    queue: int = 0,
) -> None:
    """Such a job has left the queue after so long."""
    of_job = (
        snapshot.table,
        snapshot.kind,
        snapshot.alone,
        snapshot.weight,
        *quantiles.kept(user, queue, snapshot.weight),
    )
    leave(*of_job, *quantiles.learnt, float(wait_s), known, judged, passed)


def choices_exceeded(
    guard: Guard, choices_s: Floats, medians_s: Floats, before_s: float, waited_s: float, weight: float
) -> None:
    """A job with these choices and medians of the experts is still queued after `waited_s` seconds."""
    guard.waited(waited_s)
    judge(*guard.learnt, choices_s, medians_s, before_s, waited_s, False, weight, 1.0)


def choices_left(
    guard: Guard,
    choices_s: Floats,
    medians_s: Floats,
    before_s: float,
    wait_s: float,
    at: float,
    weight: float,
    user: str | None = None,
) -> None:
    """Such a job left the queue at `at` (Unix seconds)."""
    faded, own = guard.begin_to_leave(wait_s, at, user)
    judge(*guard.learnt, choices_s, medians_s, before_s, float(wait_s), True, weight, faded)
    judge_for_user(own, choices_s, float(wait_s))


def learn_whether_at_once(at_once: ImmediateStartModel, waits_s: Floats, started: bool) -> None:
    """It is known whether such a job started at once."""
    learn_at_once(waits_s, *at_once.learnt, started)
