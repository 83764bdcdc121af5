"""Quantiles of a job's wait, each mixed from the experts' estimates and shifted to the right coverage."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.stored_values import check_alike
from models.waits.blend.deficits import (
    BURST_DEFICIT,
    BURST_WEIGHT,
    NO_QUEUE,
    NOBODY,
    SUM,
    adjusted_bound,
    aim,
    count,
    in_burst,
)
from models.waits.blend.mixture import MixedEstimate, MixtureState, follow, learn, mix, scaled, seconds, weights
from models.waits.blend.mixture_snapshot import (
    ALONE_FLAG,
    BEHIND,
    BOTH,
    BOUND,
    MEDIAN,
    PROBABILITIES,
    QUANTILES,
    SHIFT,
    MixtureSnapshot,
)
from models.waits.blend.schedule_share import first_schedule, is_near_mixture, score_schedule, share_of_median
from models.waits.blend.users import user_state

STEPS = (0.044, 0.022, 0.07, 0.07)
"""Step of one job for the shift of each bound, on the scale. The median moves less, since its error counts too; the
upper bounds have the longest distance to move."""

FAR = 0.35
"""Largest movement of a shift, on the scale, since a job's prediction at which the job is still scored while it queues.
Thousands of jobs that were submitted within minutes all exceed the same bound: each would move the shift further,
although the first few were enough. Beyond this a job is scored when it has left, by the bound at that time. On KTH 1 %
of the jobs have a shift that has moved by more than half of that, on CTC by more than twice that."""

KIND_EDGES_S = (60.0, 3600.0, 4 * 3600.0)
"""Edges of the kinds of jobs, seconds: the kind is the wait by the site's mixture. Jobs that wait for many hours
dominate the mean error, and other experts are best for these."""

KINDS = len(KIND_EDGES_S) + 1

PRIOR_JOBS = 3000.0
"""After this many jobs the initial weights of the experts count as their square roots, which are closer to each
other."""


FIRST_WIDER, FIRST_JOBS = 0.75, 200.0
"""Widening of the upper bounds of a new site, as a share of them on the scale, and the number of jobs after which half
of it is left; a job counts as its weight. The experts know how waits vary within sites, and a new site may differ from
all of them. Bounds of long waits need more of it: 1 min becomes 2.7 min, and 1 h becomes 4.2 h."""


class QuantilesState(NamedTuple):
    """Learned state of the quantiles.

    Attributes:
        learned: the mixtures.
        schedule_errors: decayed sums of the schedule's errors: with its share, without, and of the schedule alone.
        deficits: deficits in coverage outside of bursts and in them, and `SUM`, (3, quantiles).
        counted: number of jobs behind the deficits, (2, quantiles).
        users: deficits and jobs of the bursts of single users, (2, quantiles).
        queues: shifts of the bounds of single queues outside of bursts, (quantiles,).
    """

    learnt: MixtureState
    schedule_errors: Floats
    deficits: Floats
    counted: Floats
    users: dict[str, Floats]
    queues: dict[int, Floats]


class Quantiles:
    """Mixtures and shifts of the quantiles of one site.

    The mixed median is the last expert for the other quantiles. Where no expert has an estimate of them, they lie at
    the distance of the shift from it.

    Args:
        experts: their names, in the order of their estimates.
        prior: their initial weights, in the same order; they fade (`PRIOR_JOBS`).
        schedules: simulated schedules. The first with an estimate has `SCHEDULE_SHARE` of the median, while that
            increases the error little.
    """

    def __init__(self, experts: Sequence[str], prior: Sequence[float], schedules: Sequence[str] = ()) -> None:
        self._names = [*experts, "median"]
        self._schedules = np.array([self._names.index(name) for name in schedules], np.int64)
        self._first = np.array([*prior, np.mean(prior)], np.float64)
        self._faded = 0.0, self._first
        nothing = MixtureState.empty(1 + KINDS, QUANTILES, len(self._names))
        deficits = np.zeros((SUM + 1, QUANTILES))
        deficits[1, MEDIAN + 1 :] = BURST_DEFICIT
        self.state = QuantilesState(nothing, np.zeros(3), deficits, np.zeros((2, QUANTILES)), {}, {})

    @property
    def experts(self) -> int:
        """Number of experts, the mixed median included."""
        return len(self._names)

    def mix(
        self,
        waits_s: Floats,
        may_be_alone: bool = False,
        weight: float = 1.0,
        user: str | None = None,
        queue: int = 0,
    ) -> MixtureSnapshot:
        """Return the bounds of a job from the experts' estimates.

        Args:
            waits_s: the estimates, (quantiles, experts) in seconds; nan: none.
            may_be_alone: whether the schedule may be the median alone, where it is good enough (`ALONE_HARM`).
            weight: the job's weight as evidence.
            user: the job's user.
            queue: the number of the job's queue.
        """
        table, (learnt, *errors, _, users, queues) = np.empty((QUANTILES, self.experts + BEHIND)), self.state
        errors += [users.get(user or "", NOBODY), queues.get(queue, NO_QUEUE)]
        head = _mix_all(waits_s, self._prior(), self._schedules, may_be_alone, weight, *learnt, *errors, table)
        return MixtureSnapshot(table, head & ~ALONE_FLAG, head >= ALONE_FLAG, weight)

    def _prior(self) -> Floats:
        """Return the initial weights as they have faded by now: after `PRIOR_JOBS` jobs, their square roots."""
        seen = self.state.learnt.seen.item(0, MEDIAN)
        if self._faded[0] != seen:
            self._faded = seen, self._first ** (PRIOR_JOBS / (PRIOR_JOBS + seen))
        return self._faded[1]

    def check(self, found: QuantilesState) -> None:
        """Check that kernels can read a saved state.

        Raises:
            ValueError: they cannot.
        """
        check_alike(found, self.state)
        for name, kept, like in (("users", found.users, NOBODY), ("queues", found.queues, NO_QUEUE)):
            for value in kept.values():
                check_alike(value, like, name)

    @property
    def schedule_share(self) -> float:
        """Share of the median that the schedule has now, in addition to its weight."""
        return float(share_of_median(self.state.schedule_errors))

    @property
    def schedule_is_near(self) -> bool:
        """True if the recent mean error of the schedule alone is little more than the mixture's."""
        return bool(is_near_mixture(self.state.schedule_errors))

    @property
    def max_scored_shift(self) -> float:
        """Largest movement of a shift at which a bound is still scored before its job has left."""
        return FAR

    @property
    def learnt(self) -> tuple[Floats | Ints, ...]:
        """Arrays that the kernels read and update."""
        learnt, *errors, _, _ = self.state
        return *learnt, *errors, self._schedules

    def kept(self, user: str | None, queue: int, weight: float) -> tuple[Floats, Floats]:
        """Return the arrays that kernels update for a job of this weight: its user's if it is in a burst, else its
        queue's.
        """
        if in_burst(weight):
            return user_state(self.state.users, user, NOBODY.shape), NO_QUEUE
        return NOBODY, user_state(self.state.queues, queue, NO_QUEUE.shape)

    def bound_now(self, snapshot: MixtureSnapshot, place: int) -> float | None:
        """Return the bound with the current shift, seconds, if that has moved by `FAR` since; otherwise None."""
        if place >= QUANTILES:
            return None
        bound_s = _bound_now(snapshot.table, snapshot.kind, snapshot.weight, self.state.learnt.shift, place, FAR)
        return None if np.isnan(bound_s) else bound_s

    def weights(self, snapshot: MixtureSnapshot) -> dict[str, float]:
        """Return each expert's weight, by its name, in the median of such a job at the site."""
        total, squares, extent, *_ = self.state.learnt
        found = _weights(snapshot.table, self._prior(), total, squares, extent)
        return dict(zip(self._names, found.tolist(), strict=True))


@njit(cache=True)
def _weights(table: Floats, prior: Floats, total: Floats, squares: Floats, extent: Floats) -> Floats:
    heard = np.zeros(len(prior))
    for k in range(len(prior)):
        if not np.isnan(table[MEDIAN, k]):
            heard[k] = prior[k]
    found: Floats = weights(heard, total[0, MEDIAN], squares[0, MEDIAN], extent[0, MEDIAN])
    return found


@njit(cache=True)
def _row(kind: int, weight: float, q: int) -> int:
    """Return the row of the shift that such a job updates, for this bound."""
    return kind + KINDS if q > MEDIAN and in_burst(weight) else kind


@njit(cache=True)
def _shift(shift: Floats, kind: int, weight: float, q: int) -> float:
    """Return the current shift of the mixture for such a job, on the scale."""
    return float(shift[0, q] + shift[_row(kind, weight, q), q])


@njit(cache=True)
def _bound_now(table: Floats, kind: int, weight: float, shift: Floats, q: int, far: float) -> float:
    """Return the bound with the current shift, seconds, if that has moved by `max_scored_shift`; otherwise nan."""
    moved = _shift(shift, kind, weight, q) - table[q, SHIFT]
    return seconds(scaled(table[q, BOUND]) + moved) if abs(moved) > far else np.nan


@njit(cache=True, nogil=True)
def leave(
    table: Floats,
    kind: int,
    alone: bool,
    weight: float,
    bursts: Floats,
    queue: Floats,
    total: Floats,
    squares: Floats,
    extent: Floats,
    seen: Floats,
    shift: Floats,
    schedule_errors: Floats,
    deficits: Floats,
    counted: Floats,
    schedules: Ints,
    wait_s: float,
    known: bool,
    judged: Flags,
    passed: Flags,
) -> None:
    """Score the predictions of a job that has left the queue: the coverage of its bounds and the schedule's effect.

    Args:
        bursts: the deficits of the bounds in its user's bursts, and the number of jobs behind them, (2, quantiles).
        queue: its queue's shifts of the bounds outside of bursts, (quantiles,).
        known: whether its wait began at the expected time.
        judged: the marks that are scored now. `exceed` scored the others when the job had waited that long, by the
            current bound where there is one. The shift learns from the bound, the weights from the mixture: a shift
            that corrects bad experts must not keep the weights from leaving them.
        passed: the marks for which `exceed` was called.
    """
    learnt, experts = MixtureState(total, squares, extent, seen, shift), table.shape[1] - BEHIND
    row = in_burst(weight)
    if known:
        for q in range(MEDIAN + 1, QUANTILES):
            if not passed[q]:
                count(deficits, counted, bursts, queue, weight, q, table[q, BOUND], wait_s <= table[q, BOUND])
        place = first_schedule(table[MEDIAN], schedules)
        if place >= 0:
            score_schedule(schedule_errors, table[MEDIAN, experts + BOTH], table[MEDIAN, place], wait_s, weight)
    for q in range(QUANTILES):
        published_s = table[q, BOUND]
        if np.isnan(published_s):
            continue
        if judged[q]:
            now_s = _bound_now(table, kind, weight, shift, q, FAR)
            bound_s = published_s if np.isnan(now_s) else now_s
            held = wait_s <= bound_s
            if not (held and bound_s <= 0.0) and not (alone and q == MEDIAN):  # it cannot be lower; or unmoved
                step = STEPS[q] * min(weight / BURST_WEIGHT, 1.0) if q > MEDIAN else STEPS[q]
                follow(learnt, _row(kind, weight, q), q, aim(q, deficits[row]), step, held)
        if judged[QUANTILES + q]:
            whole = MixedEstimate(table[q, experts], table[q, experts + 1], table[q, experts + 2])
            held = wait_s <= seconds(whole.both)
            learn(learnt, kind, q, PROBABILITIES[q], table[q, :experts], whole, held, weight)


@njit(cache=True, nogil=True)
def exceed(
    table: Floats,
    kind: int,
    alone: bool,
    weight: float,
    bursts: Floats,
    queue: Floats,
    total: Floats,
    squares: Floats,
    extent: Floats,
    seen: Floats,
    shift: Floats,
    schedule_errors: Floats,
    deficits: Floats,
    counted: Floats,
    schedules: Ints,
    place: int,
    far: float,
) -> bool:
    """Process a job that has waited longer than the mark at this place.

    The job counts as one that exceeds its bound, in any case: a burst that queues has thousands of them.

    Returns:
        Whether the mark was scored. It is not where the bound would have another value now.
    """
    known = place < 0  # always False; with a literal here numba would compile the called kernels a second time
    if MEDIAN < place < QUANTILES:
        count(deficits, counted, bursts, queue, weight, place, table[place, BOUND], known)
    if place < QUANTILES and not np.isnan(_bound_now(table, kind, weight, shift, place, far)):
        return False
    judged = np.zeros(2 * QUANTILES, np.bool_)
    judged[place] = True
    leave(
        table, kind, alone, weight, bursts, queue, total, squares, extent, seen, shift, schedule_errors, deficits,
        counted, schedules, np.inf, known, judged, judged,
    )  # fmt: skip
    return True


@njit(cache=True)
def _mix_all(
    waits_s: Floats,
    prior: Floats,
    schedules: Ints,
    may_be_alone: bool,
    weight: float,
    total: Floats,
    squares: Floats,
    extent: Floats,
    seen: Floats,
    shift: Floats,
    schedule_errors: Floats,
    deficits: Floats,
    bursts: Floats,
    queue: Floats,
    table: Floats,
) -> int:
    """Fill in the table of a `MixtureSnapshot`; return the job's kind, from 1, with `ALONE_FLAG` where the schedule is
    alone."""
    learnt, experts = MixtureState(total, squares, extent, seen, shift), table.shape[1] - BEHIND
    table[:] = np.nan
    for q in range(QUANTILES):
        for k in range(waits_s.shape[1]):
            if not np.isnan(waits_s[q, k]):
                table[q, k] = np.float32(scaled(max(waits_s[q, k], 0.0)))
    schedule = first_schedule(waits_s[MEDIAN], schedules)
    share = share_of_median(schedule_errors)
    alone = may_be_alone and schedule >= 0 and is_near_mixture(schedule_errors)
    kind = np.int64(1)
    first = mix(table[MEDIAN, :experts], prior, learnt, kind, np.int64(MEDIAN))
    for edge in KIND_EDGES_S:
        kind += seconds(first.site) >= edge
    value = np.full(QUANTILES, np.nan)
    for q in (MEDIAN, 0, 2, 3):
        if q != MEDIAN:
            table[q, experts - 1] = np.float32(value[MEDIAN])
        found = mix(table[q, :experts], prior, learnt, kind, q)
        table[q, experts], table[q, experts + 1], table[q, experts + 2] = found
        value[q] = found.both
        if q == MEDIAN and schedule >= 0:
            value[q] += share * (table[q, schedule] - value[q])
        table[q, SHIFT] = _shift(shift, kind, weight, q)
        value[q] += table[q, SHIFT]
        if q > MEDIAN:
            value[q] *= 1.0 + FIRST_WIDER * FIRST_JOBS / (FIRST_JOBS + seen[0, MEDIAN])
            value[q] = adjusted_bound(value[q], q, deficits, bursts[0, q]) if in_burst(weight) else value[q] + queue[q]
        if q == MEDIAN and alone:
            value[q] = table[q, schedule]
    low, middle, high, highest = value
    table[0, BOUND] = seconds(min(low, middle))
    table[1, BOUND] = seconds(middle)
    table[2, BOUND] = seconds(max(high, middle))
    table[3, BOUND] = seconds(max(highest, high, middle))
    return int(kind) | ALONE_FLAG if alone else int(kind)
