"""The method: it learns the order of the queue at each start, and simulates the schedule in that order."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import ClassVar

import msgspec
import numpy as np

from models.arrays import Flags, Floats, Ints, Singles
from models.method import JobTransition, Memory, SiteContext, WaitMethod
from models.records import OrderFit
from models.site.job import Estimate, Job, Phase
from models.site.pending_reasons import is_of_queue, is_of_user_cpus, is_of_user_jobs
from models.stored_values import check_alike, encode, reader
from models.waits.order.arrivals import Arrivals, Ordering, start_with_arrivals
from models.waits.order.compiled_steps import (
    SETTLED_S,
    BlockedMask,
    OrderState,
    SimulatedStart,
    before_task,
    compared,
    foretell,
    refuse,
    see_start,
)
from models.waits.order.contenders import alike, chosen
from models.waits.order.fit import FitSeen, PrioritiesSeen, fit_of
from models.waits.order.inferred_limits import FADING, ONCE, STARTED, LimitsSeen, count_place
from models.waits.order.ordered_queue import OrderedQueue, QueueAhead, before
from models.waits.order.pair_preference import Preference, SavedPreference, count_behind, learn
from models.waits.order.placement import nodes_of
from models.waits.order.queue_limits import QueueLimitsSeen, SavedQueueLimits
from models.waits.order.run_time_errors import RunsSeen
from models.waits.order.same_second import ComparedJobs, SameSecond, StartedJob
from models.waits.order.schedule import Limits
from models.waits.order.site_view import CandidateJob, Columns, SiteView, UsageTotals, refusal_weight, view_of, with_job
from models.waits.order.usage import SavedUsage, Usage
from models.waits.order.withdrawals import SavedWithdrawals, Withdrawals

MOST_USERS, MOST_ACCOUNTS = 200, 50  # users and accounts whose usage is kept

MIN_FIT = 0.9
"""Minimum share of the recent pairs that started in the learned order for a schedule with arrivals."""

CUT_SHORT = "; simulated in part, from there on by the work ahead"
"""Suffix of a reason where `schedule` or `schedule_rooms` ended at its limit of work."""


def wait_of(start: SimulatedStart, job: Job, context: SiteContext) -> float | None:
    """Return the wait of a job with this simulated start, in seconds; None if it cannot start at this site."""
    if context.cpus <= 0 or job.cpus > context.cpus or not math.isfinite(start.start_s):
        return None
    return max(start.start_s - (job.ready - job.submit), 0.0)


class _SavedOrder(msgspec.Struct, array_like=True):
    """Serialized state."""

    users: SavedUsage
    accounts: SavedUsage
    preference: SavedPreference
    limits: Singles
    last_end: float
    runs: RunsSeen
    priorities: PrioritiesSeen
    queue_limits: SavedQueueLimits
    withdrawals: SavedWithdrawals
    fit: FitSeen
    same_second: SameSecond


class LearntOrder(WaitMethod):
    """Waits by EASY backfilling in a learned order of the queue.

    At each start, the job that started is compared with queued jobs that could have started instead (`contenders`).
    These pairs train a preference (`pair_preference`), and the starts show the limits on the running jobs of users and
    queues (`inferred_limits`, `queue_limits`).

    A job's wait is that of a simulated schedule (`schedule`) in the order of preference, which is computed again as
    simulated time passes (`aging`). Run times are as in `models.waits.simulated`. Future jobs are considered in a
    second schedule only, for `blend` (`arrivals`). An area of few nodes is simulated node by node while run times are
    accurate (`RunsSeen`): with inaccurate ones, the exact nodes of jobs do not improve the waits. Where the scheduler
    reports the priority of every queued job, and jobs start in that order (`PrioritiesSeen`), it is the order. The
    priority of a hypothetical job is then estimated from these (`guessed`).
    """

    name: ClassVar[str] = "order"

    @property
    def memory(self) -> Memory:
        """Number of starts that limits follow; priorities and the preference follow fewer."""
        return Memory(round(1 / (1 - FADING)), 0)

    def __init__(self) -> None:
        self.preference = Preference()
        self.limits = LimitsSeen()
        self.queue_limits = QueueLimitsSeen()
        self._sums = UsageTotals(Usage(MOST_USERS), Usage(MOST_ACCOUNTS), Withdrawals())
        self._last_end = 0.0
        self._runs = RunsSeen()
        self._priorities = PrioritiesSeen()
        self._fit = FitSeen.empty()
        self._same_second = SameSecond()
        self._arrivals = Arrivals()
        self.rows = self._arrivals.rows

    @property
    def knows_run_times(self) -> bool:
        """True if the run times predicted for the last jobs were nearly right."""
        return self._runs.has_accurate_run_times

    @property
    def order_fit(self) -> OrderFit | None:
        """Share of recent pairs of jobs that started in the order of the simulated schedule."""
        return fit_of(self._priorities, self._fit)

    @property
    def fit_text(self) -> str:
        """The fit as a suffix of a reason; empty with too few pairs."""
        fit = self.order_fit
        return "" if fit is None else f"; {fit.statement}"

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait; none if the job is larger than the site, or the size of the site is missing."""
        return self._estimate_of(job, context, self.simulate(job, context))

    def simulate(self, job: Job, context: SiteContext) -> SimulatedStart:
        """Simulate and learn as `predict` does, for callers that need no reason."""
        found = None if context.layout is not None else self._foretell(job, context)
        if found is None or found.by_pieces:
            ordered = self.ordered(context, job.submit)
            self._see_refused(ordered, context, refusal_weight(job))
            found = self._start_of(job, context, ordered)
        return found

    def limits_with_arrivals(self, context: SiteContext) -> Limits | None:
        """Return the limits for `wait_with_arrivals` before a submission, which can change them (`_see_refused`).

        None where the learned order explains too few starts, or the queue or the site's nodes are not known as a whole.
        """
        fit = self._fit.site.share
        if fit is None or fit < MIN_FIT or context.layout is not None or not context.state.table.visible_rows().whole:
            return None
        return self.limits_at(context.cpus)

    def wait_with_arrivals(self, job: Job, context: SiteContext, wait_s: float | None, limits: Limits | None) -> float:
        """Return the wait in a schedule in which jobs arrive as they did a week ago, in seconds; nan if there is none.

        `wait_s` is the wait without arrivals; `limits` are those of `limits_with_arrivals`.
        """
        if limits is None or not wait_s:
            return math.nan
        now, preference = job.submit, self.preference
        sight = view_of(context, now, self._sums, preference, by_node=False)
        priorities = sight.queued.priority
        if self._priorities.follows_priorities and len(priorities) and np.isfinite(priorities).all():
            return math.nan
        sight = with_job(sight, job, context, self._sums, preference)
        start_s = start_with_arrivals(sight, job, self._arrivals, context, self._sums, Ordering(preference, limits))
        return max(start_s - (job.ready - now), 0.0) if math.isfinite(start_s) else math.nan

    def _foretell(self, job: Job, context: SiteContext) -> SimulatedStart:
        """Simulate the job's start in one compiled call, for `predict`; it can decline, to be done in steps."""
        now = job.submit
        columns = Columns.of(context, now, self._sums, self.preference)
        new = CandidateJob.of(job, context, now, self._sums, self.preference)
        whole = context.state.table.visible_rows().whole
        settled, trusted = now >= self._last_end + SETTLED_S, self._priorities.follows_priorities
        return SimulatedStart(*foretell(columns, self._learnt, new, whole, trusted, settled))

    @property
    def _learnt(self) -> OrderState:
        preference, of_queues = self.preference, self.queue_limits
        return OrderState(
            preference.weights, preference.squares, self.limits.counts, of_queues.counts, of_queues.places
        )

    def notice(self, job: Job, context: SiteContext) -> None:
        """Count the jobs that could have started and have not, at the submission of an old job."""
        if job.submit >= self._last_end + SETTLED_S:
            self._see_refused(self.ordered(context, job.submit), context, refusal_weight(job))

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Return the wait of each; jobs with the same submission time share one snapshot of the site."""
        for now, same in groupby(jobs, lambda job: job.submit):
            ordered = self.ordered(context, now)
            for job in same:
                yield self._estimate_of(job, context, self._start_of(job, context, ordered))

    def ordered(self, context: SiteContext, now: float) -> OrderedQueue:
        """Return the site and the order of its queue `now` (Unix seconds), for many calls of `ahead`."""
        sight = view_of(context, now, self._sums, self.preference, self._runs.has_accurate_run_times)
        limits, trusted = self.limits_at(context.cpus), self._priorities.follows_priorities
        return OrderedQueue.of(sight, self.preference, limits, trusted)

    def limits_at(self, cpus: int) -> Limits:
        """Return the limits found, at a site of this size."""
        return self.limits.limits(cpus)._replace(queues=self.queue_limits.limits(cpus))

    def ahead(self, job: Job, context: SiteContext, ordered: OrderedQueue) -> QueueAhead:
        """Return the queue ahead of a job that is submitted when the site is `ordered`. Changes nothing."""
        return ordered.ahead(with_job(ordered.sight, job, context, self._sums, self.preference))

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the start times of queued jobs that are ready, fit the site and are simulated, without future jobs."""
        rows, starts_s = self.ordered(context, now).starts()
        seen = context.state.table.visible_rows()
        found = np.full(len(seen.rows), np.nan)
        found[np.searchsorted(seen.rows, rows)] = np.where(np.isfinite(starts_s), now + starts_s, np.nan)
        return found

    def _start_of(self, job: Job, context: SiteContext, ordered: OrderedQueue) -> SimulatedStart:
        found = QueueAhead(np.inf, 0, 0.0) if job.cpus > context.cpus else self.ahead(job, context, ordered)
        queued, running = int(ordered.jobs[-1]), len(ordered.sight.running.cpus)
        return SimulatedStart(found.start_s, found.place, queued, running, False, found.cut_short)

    def _estimate_of(self, job: Job, context: SiteContext, found: SimulatedStart) -> Estimate:
        wait_s = wait_of(found, job, context)
        if wait_s is None and context.cpus <= 0:
            return Estimate(None, "size of the site unknown")
        if wait_s is None and job.cpus > context.cpus:
            return Estimate(None, f"larger than the site: {job.cpus} of {context.cpus} CPUs")
        if wait_s is None:
            return Estimate(None, "order: it never starts within its users' limits")
        where = f"place {found.place + 1} of {found.queued + 1} by the learned order, {found.running} running jobs"
        reason = f"order: {where}, run times by {context.runtimes.name}"
        reason += self.fit_text + context.state.table.visible_rows().bound + self.bound(context)
        reason += CUT_SHORT if found.cut_short else ""
        return Estimate(wait_s, reason)

    def bound(self, context: SiteContext) -> str:
        """Note that the area's nodes are simulated by pool, as a suffix of a reason; else empty."""
        layout = context.layout
        if layout is None or (self._runs.has_accurate_run_times and nodes_of(layout, context.state.table) is not None):
            return ""
        return f"; its {layout.area.nodes:,} nodes are simulated by pool"

    def _see_refused(self, ordered: OrderedQueue, context: SiteContext, looks: int) -> None:
        """Count jobs that could have started before now and have not: one of each user, and one of each queue.

        A job that a user's limit blocks is no evidence about its queue's limit, and vice versa. A job is no evidence
        either if the scheduler reports another pending reason of its own, such as a licence, a reservation, or the
        other tasks of its array.
        """
        sight = ordered.sight
        if sight.now < self._last_end + SETTLED_S:
            return
        due = ordered.due()
        due = due[sight.queued.age_s[due] >= SETTLED_S]
        if len(due):
            limits_of_others = (is_of_user_cpus, is_of_user_jobs, is_of_queue)
            elsewhere = BlockedMask(*(_waiting(sight, due, context, but_for) for but_for in limits_of_others))
            seen, in_rooms = (sight.queued, sight.running, sight.people, sight.cpus), sight.rooms is not None
            by_score = not self._priorities.follows_priorities
            refuse(due, ordered.simulated, *seen, ordered.limits, self._learnt, elsewhere, in_rooms, by_score, looks)

    def observe(self, job: Job, what: JobTransition, at: float, context: SiteContext) -> None:
        """Learn from an attempt that started or released its CPUs."""
        self._learn(self._same_second.take_before(at))
        if what is JobTransition.STARTED or what is JobTransition.TASK_STARTED:
            self._started(job, context, what is JobTransition.TASK_STARTED)
            self._job_dequeued(job, at, False, context)
        elif what is JobTransition.WITHDRAWN:
            self._job_dequeued(job, at, True, context)
        elif what is JobTransition.ENDED or what is JobTransition.INTERRUPTED:
            self._last_end = max(self._last_end, at)
            self._ran(job, what, at)
        elif job.phase is Phase.SUSPENDED:
            self._last_end = max(self._last_end, at)

    def _job_dequeued(self, job: Job, at: float, withdrawn: bool, context: SiteContext) -> None:
        """Record whether a job, or tasks of an array, were withdrawn at this age; those of a burst count as one.

        Jobs that were not eligible were not in the queue.
        """
        if withdrawn and (job.phase is not Phase.QUEUED or at < job.ready):
            return
        others = 0 if job.user is None else context.all_live_jobs.totals(("user", job.user), Phase.QUEUED).tasks
        tasks = job.tasks_remaining
        self._sums.withdrawals.see(job.user, at - job.ready, withdrawn, tasks / (tasks + others), tasks)

    def _started(self, job: Job, context: SiteContext, is_task: bool) -> None:
        """Compare a job that started with those that could have, in the state just before."""
        assert job.start is not None
        self.preference.see(job.queue)
        row = context.state.table.row(job.key)
        if context.layout is not None:
            self._started_in_rooms(job, row, context, is_task)
            return
        if job.counted_cpus > context.cpus:
            return
        if job.queue is not None:
            self.queue_limits.begin(job.queue, self.preference.places.slot_of(job.queue))
        columns = Columns.of(context, job.start, self._sums, self.preference)
        seen = see_start(columns, self._learnt, row, job.counted_cpus, job.queue is not None, is_task)
        self._compare(job, ComparedJobs(*seen), context, is_task)

    def _compare(self, job: Job, seen: ComparedJobs, context: SiteContext, is_task: bool) -> None:
        """Learn the order from a start when its second is over. A task was in the row of its array."""
        assert job.start is not None
        array, keys = job.extras.array if is_task else None, context.state.table.keys
        start = StartedJob.of(job.key if array is None else (array, 0), job.planned_run_s, seen, keys)
        self._learn(self._same_second.add(job.start, start))

    def _learn(self, starts: Iterable[StartedJob]) -> None:
        weights, squares = self.preference.weights, self.preference.squares
        for start in starts:
            if start.place:
                count_place(self.limits.counts[STARTED], start.place, ONCE)
            features = start.features.astype(np.float64)
            behind = count_behind(features, start.places, weights, start.limited)
            learn(features, start.places, weights, squares)
            self._priorities.see(int((start.priorities > 0).sum()), int((start.priorities < 0).sum()))
            self._fit.see(start.planned_s, behind, len(start.others) - behind)

    def _started_in_rooms(self, job: Job, row: int, context: SiteContext, is_task: bool) -> None:
        """Learn from a start at a site that reports its topology."""
        assert job.start is not None
        by_node = self._runs.has_accurate_run_times
        sight = view_of(context, job.start, self._sums, self.preference, by_node, as_queued=row)
        if job.counted_cpus > context.cpus or sight.rooms is None:
            return
        queued, people, started = sight.queued, sight.people, int(np.searchsorted(sight.rows, row))
        user = queued.user[started]
        if user:
            held, runs = int(people.held[user]), int(people.runs[user])
            self.limits.started(held, runs, job.counted_cpus, context.cpus)
        earlier = before(sight)
        if is_task:  # its row is the last; it came with its array
            earlier[started] = before_task(queued, started, sight.stands_for * sight.tasks)
            earlier += (queued.user == user) & (user > 0) & (queued.age_s <= queued.age_s[started])
            earlier[started] -= 1.0 if user else 0.0
        others, nth = chosen(alike(queued, started) & sight.rooms.contenders(started), sight.tasks)
        limited = bool(self.limits_at(context.cpus).several < math.inf)
        features, places, priorities = compared(queued, people, sight.cpus, started, others, nth, earlier)
        seen = ComparedJobs(sight.rows[others], nth, features, places, priorities, 0, limited)
        self._compare(job, seen, context, is_task)

    def _ran(self, job: Job, what: JobTransition, end: float) -> None:
        """Add the usage of an ended attempt to its user and account, without the time that it was suspended."""
        if job.start is None:
            return
        if what is JobTransition.ENDED and job.requested:
            self._arrivals.ended(job, job.ran_s(end), end)
            self._runs.see(job.expected_run_s, job.ran_s(end))
        for usage, name in ((self._sums.users, job.user), (self._sums.accounts, job.account)):
            if name is not None:
                usage.add(name, job.counted_cpus, job.start + job.total_suspended_s(end), end)

    def save(self) -> bytes:
        """Serialize the learned state; 21 kB at most, and 57 kB more while 30 jobs start in the same second."""
        users, accounts, withdrawals = self._sums
        saved = _SavedOrder(
            users.saved(),
            accounts.saved(),
            self.preference.saved(),
            self.limits.counts,
            self._last_end,
            self._runs,
            self._priorities,
            self.queue_limits.save(),
            withdrawals.saved(),
            self._fit,
            self._same_second,
        )
        return encode(saved)

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`."""
        kept = _read(saved)
        check_alike(kept.limits, self.limits.counts, "limits")
        kept.same_second.check()
        self._sums.users.restore(kept.users)
        self._sums.accounts.restore(kept.accounts)
        self.preference.restore(kept.preference)
        self.limits.counts = kept.limits
        self._last_end = kept.last_end
        self._runs = kept.runs
        self._priorities = kept.priorities
        self._fit = kept.fit
        self._same_second = kept.same_second
        self.queue_limits.load(kept.queue_limits)
        self._arrivals.load()
        self._sums.withdrawals.restore(kept.withdrawals)


def _waiting(sight: SiteView, due: Ints, context: SiteContext, but_for: Callable[[str], bool]) -> Flags:
    """Return the due jobs whose pending reason is of their own, except reasons for which `but_for` is true."""
    found, table, jobs = np.zeros(len(sight.rows), np.bool_), context.state.table, context.state.jobs
    for place in due[sight.queued.barred[due]].tolist():
        key = table.keys[sight.rows[place]]
        reason = None if key is None else jobs[key].extras.pending_reason
        found[place] = reason is None or not but_for(reason)
    return found


_read = reader(_SavedOrder, "what the order saved")
