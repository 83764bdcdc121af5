"""The method: query the experts, combine their estimates, and learn from the outcomes."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import tee
from typing import Any, ClassVar

import msgspec
import numpy as np

from models.arrays import Floats
from models.durations import AT_ONCE_S
from models.method import JobTransition, Memory, Method, SiteContext, WaitMethod
from models.records import JobKey, OrderFit
from models.site.job import Estimate, Job, Phase
from models.site.rows import PerJob
from models.site.size import MIN_STARTED_JOBS
from models.stored_values import check_alike, encode, reader
from models.waits.blend.deadlines import Deadline, Deadlines
from models.waits.blend.deficits import DEFICIT_JOBS
from models.waits.blend.guard import CHOICES, Choice, Guard, GuardState
from models.waits.blend.immediate_start import ImmediateStartModel, ImmediateStartState
from models.waits.blend.known import MARKS, exceeded, score_departure
from models.waits.blend.mixture import KIND_JOBS, SITE_JOBS
from models.waits.blend.mixture_snapshot import (
    BOUND,
    BOUNDS,
    MEDIAN,
    PROBABILITIES,
    QUANTILES,
    MixtureSnapshot,
)
from models.waits.blend.note import HEAD, Note, check_note
from models.waits.blend.published import QueuedEstimates
from models.waits.blend.quantiles import Quantiles, QuantilesState
from models.waits.blend.remaining.remaining_wait import RemainingWait
from models.waits.blend.site_policy import SitePolicy
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.forests import ForestsSnapshot
from models.waits.boosted.recent import code_of
from models.waits.order import LearntOrder
from models.waits.order.learnt_order import CUT_SHORT, wait_of
from models.waits.qespera import Qespera

TRIVIAL = ("zero", "recent")
"""The baselines: no wait, and the recent waits."""

ORDER = len(TRIVIAL) + 1
"""The place of the simulated schedule among the experts."""

FORESTS = {"boosted by logs": "log", "boosted by roots": "root"}
"""The two estimates of `Boosted`, by the scale on which its forests were trained."""

FIRST_WEIGHTS = {
    "zero": 0.3,
    "recent": 0.3,
    "qespera": 1.0,
    "order": 1.0,
    "policy": 1.0,
    "boosted by logs": 3.0,
    "boosted by roots": 3.0,
}
"""Initial weight of each expert at a new site, by its accuracy in the first 1000 jobs of seven others."""

RIVALS = {"qespera": [len(TRIVIAL)], "order": [ORDER], "boosted": [-2, -1]}
"""The experts of the medians, and their places. The policy is excluded: it is useless if it is not the site's own."""

JUDGED = range(MEDIAN, QUANTILES)
"""Marks that give a lower bound of the choices' errors when a queued job exceeds them."""

MIN_NAMED = 0.05
"""Minimum weight of an expert to be named in the reason."""

HOOKS = ("observe", "learn", "cancelled", "ended", "forget", "degraded", "pending")
"""Hooks that are called for the experts that override them; for the others a call would do nothing."""

_NOBODY = np.zeros(len(CHOICES))


def _has(method: WaitMethod, hook: str) -> bool:
    """Return True if a method overrides this hook."""
    return getattr(type(method), hook) is not getattr(WaitMethod, hook)


class _SavedBlend(msgspec.Struct, array_like=True, frozen=True):
    experts: dict[str, bytes]
    quantiles: QuantilesState
    at_once: ImmediateStartState
    guard: GuardState
    reached: Deadline


class Blend(WaitMethod):
    """Waits from several methods, combined by their recent accuracy; see the package."""

    name: ClassVar[str] = "blend"
    re_estimates: ClassVar[bool] = True

    def __init__(self) -> None:
        self._boosted = Boosted()
        self._order, self.site_policy = LearntOrder(), SitePolicy(lambda: self._quantiles.schedule_is_near)
        self._points: dict[str, WaitMethod] = {"qespera": Qespera(), "order": self._order, "policy": self.site_policy}
        self._experts: dict[str, WaitMethod] = {**self._points, "boosted": self._boosted}
        self._remaining = RemainingWait(self._order, self._boosted)
        self._experts_with = {hook: [part for part in self._experts.values() if _has(part, hook)] for hook in HOOKS}
        names = [*TRIVIAL, *self._points, *FORESTS]
        self._quantiles = Quantiles(names, [FIRST_WEIGHTS[name] for name in names], schedules=("policy", "order"))
        self._guard = Guard(range(len(TRIVIAL)), RIVALS, ORDER)
        self._at_once = ImmediateStartModel(len(names) + QUANTILES)
        self._nothing = np.full((QUANTILES, len(names)), np.nan)  # estimates of experts without one
        self._published = QueuedEstimates(self.name)
        self._learnt = self._kernel_arrays()
        self.per_job = self._notes = PerJob(bytes, lambda value: check_note(value, self._quantiles.experts))
        """The `Note`s of queued jobs."""

        self._deadlines = Deadlines(self._notes)

    @property
    def memory(self) -> Memory:
        """Number of jobs that weights and bounds follow."""
        return Memory(0, round(max(SITE_JOBS, KIND_JOBS, DEFICIT_JOBS)))

    @property
    def parts(self) -> Mapping[str, Method]:
        """The experts that are methods, and the model of remaining waits."""
        return {**self._experts, self._remaining.name: self._remaining}

    @property
    def order_fit(self) -> OrderFit | None:
        """The fit of the order of the simulated schedule."""
        return self._order.order_fit

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait, its bounds, and the probability of an immediate start.

        Before the first job has started the wait is that of the simulated schedule, if the size of the site is
        registered. Bounds are available once `MIN_STARTED_JOBS` have started.
        """
        limits = self._order.limits_with_arrivals(context)
        start = self._order.simulate(job, context)
        order_s = wait_of(start, job, context)
        points_s = [
            self._points["qespera"].predict(job, context).wait_s,
            order_s,
            self.site_policy.wait_by_policy(job, context, order_s).wait_s,
        ]
        forests = self._boosted.estimate_given_schedule(job, context, order_s)
        arrivals_s = self._order.wait_with_arrivals(job, context, order_s, limits)
        mixed = self._mixed(job, points_s, forests, arrivals_s, context)
        estimate = self._estimate(mixed, forests, context, order_s, start.cut_short)
        if mixed is not None:
            snapshot, choice = mixed
            note = Note(0, job.ready, self._deadlines.begin, code_of(job.queue), choice.waits_s, snapshot)
            self._notes.put(job.key, note.encode())
            self._deadlines.add(job.key, note.deadlines)
            self._remaining.submitted(job, context)
        self._pass(job.submit, context)  # last, so that a hypothetical job gets the same prediction
        return estimate

    def notice(self, job: Job, context: SiteContext) -> None:
        """Note an old job for the forests and their order only; the other experts would drop it again."""
        self._boosted.see(job, context, wait_of(self._order.simulate(job, context), job, context))
        self._pass(job.submit, context)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Return what `predict` would return for each job, with the wait in the simulated schedule."""
        originals, *copies = tee(jobs, 1 + len(self._points))
        points = [expert.what_ifs(copy, context) for expert, copy in zip(self._points.values(), copies, strict=True)]
        limits = self._order.limits_with_arrivals(context)
        for job, *estimates in zip(originals, *points, strict=True):
            order, points_s = estimates[ORDER - len(TRIVIAL)], [estimate.wait_s for estimate in estimates]
            forests, cut_short = self._boosted.consider(job, context, order.wait_s), order.reason.endswith(CUT_SHORT)
            arrivals_s = self._order.wait_with_arrivals(job, context, order.wait_s, limits)
            mixed = self._mixed(job, points_s, forests, arrivals_s, context)
            estimate = self._estimate(mixed, forests, context, order.wait_s, cut_short)
            yield msgspec.structs.replace(estimate, schedule_s=order.wait_s)

    def _mixed(
        self,
        job: Job,
        points_s: Iterable[float | None],
        forests: ForestsSnapshot | None,
        arrivals_s: float,
        context: SiteContext,
    ) -> tuple[MixtureSnapshot, Choice] | None:
        """Mix and guard the experts' estimates, in the order of their names; None if there are none.

        The baselines have no estimate before a job has started.
        """
        waits_s = self._nothing.copy()
        if latest := context.history.latest:
            waits_s[:, 0], waits_s[:, 1] = 0.0, [latest[int(share * len(latest))] for share in PROBABILITIES]
        for place, point_s in enumerate(points_s, len(TRIVIAL)):
            if point_s is not None:
                waits_s[MEDIAN, place] = point_s
        if forests is not None:
            waits_s[:, -2] = [forests.quantiles[probability] for probability in PROBABILITIES]
            waits_s[MEDIAN, -2:] = [forests.medians[scale] for scale in FORESTS.values()]
        if context.layout is not None:
            self._by_topology(waits_s, job, context)
        if all(map(math.isnan, waits_s[MEDIAN].tolist())):
            return None
        may_be_alone = context.layout is not None and self._order.knows_run_times
        snapshot = self._quantiles.mix(waits_s, may_be_alone, evidence(job, context), job.user, code_of(job.queue))
        choice = self._guard.choose(snapshot.table.item(MEDIAN, BOUND), waits_s[MEDIAN], job.user, arrivals_s)
        return snapshot.with_estimate(choice.wait_s, choice.most_s), choice

    def _by_topology(self, waits_s: Floats, job: Job, context: SiteContext) -> None:
        """Adjust the estimates to the site's topology, where it is registered.

        Until some jobs have started, only the simulated schedule has an estimate. No estimate is below the wait that
        the site's reservations cause.
        """
        if context.history.count < MIN_STARTED_JOBS and not np.isnan(waits_s[MEDIAN, ORDER]):
            others = np.arange(waits_s.shape[1]) != ORDER
            waits_s[:, others] = np.nan
        np.maximum(waits_s, context.earliest(job, job.submit) - job.ready, out=waits_s)

    def _estimate(
        self,
        mixed: tuple[MixtureSnapshot, Choice] | None,
        forests: ForestsSnapshot | None,
        context: SiteContext,
        order_s: float | None,
        cut_short: bool,
    ) -> Estimate:
        if mixed is None:
            return Estimate(None, "no history")
        snapshot, choice = mixed
        weights = self._quantiles.weights(snapshot)
        first = [
            name for name in sorted(weights, key=weights.__getitem__, reverse=True)[:3] if weights[name] >= MIN_NAMED
        ]
        shares = {name: weights[name] for name in first} | {"others": 1.0 - math.fsum(weights[name] for name in first)}
        reason = ", ".join([f"{name} {100 * share:.0f} %" for name, share in shares.items() if share >= 0.005])
        fit = self._order.fit_text if order_s is not None and self._quantiles.schedule_share else ""
        reason = f"mixed of {reason}{fit}{context.state.table.visible_rows().bound}"
        reason = f"{reason}{self._order.bound(context)}{CUT_SHORT if cut_short and order_s is not None else ''}"
        if forests is not None and forests.elsewhere:
            reason = f"{reason}; forests trained on other sites only"
        if context.history.count < MIN_STARTED_JOBS and (forests is None or snapshot.alone):
            return Estimate(snapshot.wait_s, f"{reason}; too few jobs have started for bounds")
        if choice.reason and not snapshot.alone and context.history.count >= MIN_STARTED_JOBS:
            reason = f"{reason}; guarded by {choice.reason}"
        bounds_s = snapshot.bounds_s
        bounds = dict(zip(BOUNDS, bounds_s, strict=True))
        at_once = consistent(self._at_once.probability(snapshot.inputs), bounds_s)
        return Estimate(snapshot.wait_s, reason, bounds, at_once, None if forests is None else forests.unlike)

    def _pass(self, now: float, context: SiteContext) -> None:
        """Advance the time: jobs that still queue beyond a mark exceed it."""
        for time, key, place in self._deadlines.take_due(now):
            job, value = context.all_live_jobs.jobs.get(key), self._notes.get(key)
            if job is None or value is None or job.phase is not Phase.QUEUED:
                continue
            put_off, ready, watched, queue = HEAD.unpack_from(value)
            if ready != job.ready or time < watched:
                continue
            note = np.frombuffer(value, np.uint8), self._quantiles.experts
            kept = self._quantiles.kept(job.user, queue, MixtureSnapshot.weight_of(value))
            far = self._quantiles.max_scored_shift
            judged, waited_s = exceeded(*note, ready, watched, float(time), place, far, *kept, *self._learnt)
            if place in JUDGED:
                self._guard.waited(waited_s)
            if not judged:
                self._notes.put(key, HEAD.pack(put_off | 1 << place, ready, watched, queue) + value[HEAD.size :])

    def _kernel_arrays(self) -> tuple[Any, ...]:
        """Arrays that the kernels read and update in place."""
        return *self._quantiles.learnt, *self._guard.learnt, *self._at_once.learnt

    def _job_dequeued(self, job: Job, wait_s: float, at: float, context: SiteContext, started: bool) -> None:
        """Score a job that has left the queue after `wait_s` seconds: all marks that are not scored yet.

        A bound that has another value by now is scored by that.
        """
        value = self._notes.pop(job.key)
        if value is not None:
            put_off, ready, watched, queue = HEAD.unpack_from(value)
            (reached, other, place), key, known = self._deadlines.reached, job.key, job.ready == ready
            before = place if key == other else MARKS if key < other else 0
            faded, own = self._guard.begin_to_leave(wait_s, at, job.user) if known else (1.0, _NOBODY)
            note = np.frombuffer(value, np.uint8), self._quantiles.experts, ready, watched, float(reached), before
            exceeded_bounds = put_off if started else self._exceeded_bounds(value, put_off, wait_s)
            now = exceeded_bounds, known, float(wait_s), faded, own
            kept = self._quantiles.kept(job.user, queue, MixtureSnapshot.weight_of(value))
            score_departure(*note, *now, *kept, *self._learnt)
        self._pass(at, context)

    def _exceeded_bounds(self, value: bytes, put_off: int, waited_s: float) -> int:
        """Return, as bits, the deferred bounds that a cancelled job has exceeded at their current values."""
        found = 0
        for place in range(put_off.bit_length()):
            if put_off >> place & 1:
                bound_s = self._quantiles.bound_now(Note.decode(value, self._quantiles.experts).snapshot, place)
                found |= (bound_s is None or waited_s > bound_s) << place
        return found

    def observe(self, job: Job, what: JobTransition, at: float, context: SiteContext) -> None:
        """Process a transition of an attempt."""
        for expert in self._experts_with["observe"]:
            expert.observe(job, what, at, context)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Learn from a job that started."""
        for expert in self._experts_with["learn"]:
            expert.learn(job, wait_s, context)
        assert job.start is not None
        self._remaining.job_dequeued(job, job.estimates.get(self.name), wait_s, cancelled=False)
        self._job_dequeued(job, wait_s, job.start, context, started=True)

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """Score a job that was cancelled in the queue as if it had started then, as in the accuracy measures."""
        for expert in self._experts_with["cancelled"]:
            expert.cancelled(job, waited_s, context)
        self._remaining.job_dequeued(job, job.estimates.get(self.name), waited_s, cancelled=True)
        self._job_dequeued(job, waited_s, job.ready + waited_s, context, started=False)

    def ended(self, job: Job, wait_s: float, run_s: float, context: SiteContext) -> None:
        """Learn from a job that ended."""
        for expert in self._experts_with["ended"]:
            expert.ended(job, wait_s, run_s, context)

    def forget(self, key: JobKey) -> None:
        """Drop a job whose wait will stay unknown."""
        for expert in self._experts_with["forget"]:
            expert.forget(key)
        self._remaining.forget(key)
        self._notes.pop(key)

    @property
    def degraded(self) -> str | None:
        """Reason why an expert is degraded, such as a lost model; the others still predict."""
        parts: list[WaitMethod | RemainingWait] = [*self._experts_with["degraded"], self._remaining]
        found = (part.degraded for part in parts)
        return next((reason for reason in found if reason is not None), None)

    def pending(self) -> Future[Any] | None:
        """The training that the next event would have to wait for, if there is one."""
        parts: list[WaitMethod | RemainingWait] = [*self._experts_with["pending"], self._remaining]
        found = (part.pending() for part in parts)
        return next((future for future in found if future is not None), None)

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the start times of the queued jobs by the estimates in force, Unix seconds."""
        return self._published.starts(context, now)

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        """Return the estimate in force: the latest published one, of which nothing lies in the past."""
        return self._published.in_force(job, now)

    def refresh(self, jobs: Sequence[Job], context: SiteContext, now: float) -> list[Estimate | None]:
        """Estimate the whole waits of queued jobs from the state of the site now (`models.waits.blend.remaining`)."""
        self._published.forget()
        return self._remaining.refresh(jobs, [job.estimates.get(self.name) for job in jobs], context, now)

    def save(self) -> bytes:
        """Serialize the learned state and that of the experts; 30 KB, up to 90 KB while many jobs start together."""
        experts = {name: expert.save() for name, expert in self.parts.items()}
        learnt = self._quantiles.state, self._at_once.learnt, self._guard.state
        return encode(_SavedBlend(experts, *learnt, self._deadlines.reached))

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`.

        Raises:
            ValueError: it is not such a state.
        """
        found = _read(saved)
        if missing := self.parts.keys() - found.experts.keys():
            raise ValueError(f"the state of the blend lacks {', '.join(sorted(missing))}")
        self._quantiles.check(found.quantiles)
        self._guard.check(found.guard)
        check_alike(found.at_once, self._at_once.learnt)
        for name, expert in self.parts.items():
            expert.load(found.experts[name])
        self._quantiles.state, self._at_once.learnt, self._guard.state = found.quantiles, found.at_once, found.guard
        self._learnt = self._kernel_arrays()
        noted = ((key, Note.decode(self._notes.get(key) or b"", self._quantiles.experts)) for key in self._notes)
        self._deadlines.restore(found.reached, ((key, note.deadlines) for key, note in noted))


_read = reader(_SavedBlend, "what the blend saved")


def evidence(job: Job, context: SiteContext) -> float:
    """Return a job's weight as evidence: it shares one with its user's jobs in the queue at its submission."""
    if job.user is None:
        return 1.0
    return 1.0 / (1.0 + context.all_live_jobs.totals(("user", job.user), Phase.QUEUED).count)


def consistent(at_once: float, bounds_s: Iterable[float]) -> float:
    """Limit the probability of an immediate start so that it agrees with the bounds."""
    for probability, bound_s in zip(PROBABILITIES, bounds_s, strict=True):
        at_once = max(at_once, probability) if bound_s < AT_ONCE_S else min(at_once, probability)
    return at_once
