"""Jobs that arrived a week ago, as the later jobs of a simulated schedule.

A schedule of the present jobs only is too short where the order lets later jobs overtake: by fairshare, by size, by
tiers. The jobs of the same hours of the week before arrive in it instead, with the run times that they had. Without a
week of history it is those of the day before.
"""

from collections.abc import Callable
from functools import partial
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats
from models.durations import DAY_S
from models.method import SiteContext
from models.records.events import Seconds, Size, Time
from models.site.job import Job
from models.site.rows import Rows
from models.stored_values import encode, reader
from models.waits.order.aging import FIRST_S, Aging
from models.waits.order.order_features import DecayedUsage, QueuedJobs
from models.waits.order.ordered_queue import MAX_SIMULATED, before, scores_in
from models.waits.order.pair_preference import Preference
from models.waits.order.schedule import Limits, line_of, schedule
from models.waits.order.site_view import SiteView, UsageTotals

KEPT: Final = 3000
"""Number of ended jobs that are kept."""

AGES_S: Final = (7 * DAY_S, DAY_S)
"""How long ago the jobs arrived whose like may arrive next: the first for which the kept jobs go back as far."""

MOST: Final = 500
"""Maximum number of arrivals of one schedule."""


class Ordering(NamedTuple):
    """How the queue is ordered."""

    preference: Preference
    limits: Limits


class EndedJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An ended job: when its wait began (Unix seconds), its request, and its run time in seconds."""

    ready: Time
    cpus: Size
    run_s: Seconds
    planned_s: Seconds
    user: str | None
    account: str | None
    queue: str | None


_read = reader(EndedJob, "an ended job")


class Arrivals:
    """The last ended jobs, and those of them whose like may arrive next. The rows contain the complete state.

    >>> arrivals = Arrivals()
    >>> for hour in range(48):
    ...     arrivals.ended(Job(id="1", attempt=0, submit=3600.0 * hour, cpus=hour + 1, walltime=60.0), run_s=30.0)
    >>> jobs, arrive_s = arrivals.after(now=3600.0 * 46.5)
    >>> [job.cpus for job in jobs][:3], arrive_s[:3].tolist()
    ([24, 25, 26], [1800.0, 5400.0, 9000.0])
    """

    def __init__(self) -> None:
        self.rows = Rows(KEPT)
        self._ready = np.full(KEPT, np.inf)  # by the number of the row, modulo its size

    def ended(self, job: Job, run_s: float) -> None:
        """Add a job that has ended after this run time, in seconds."""
        planned_s = float(job.walltime or job.expected_run_s)
        ended = EndedJob(float(job.ready), job.counted_cpus, float(run_s), planned_s, job.user, job.account, job.queue)
        self._ready[self.rows.count % KEPT] = ended.ready
        self.rows.append(encode(ended))

    def load(self) -> None:
        """Lay out the restored rows.

        Raises:
            ValueError: one of them is not a job.
        """
        self._ready[:] = np.inf
        for number, job in enumerate(self.rows.read(_read), self.rows.count - len(self.rows.values)):
            self._ready[number % KEPT] = job.ready

    def after(self, now: float) -> tuple[list[EndedJob], Floats]:
        """Return the jobs that arrived after `now` (Unix seconds) some time ago, and the seconds until their like may
        arrive, ascending; O(`KEPT`).
        """
        first = self.rows.count - len(self.rows.values)
        oldest = self._ready[first % KEPT]
        for age_s in AGES_S:
            if oldest <= now - age_s:
                since_s = self._ready - (now - age_s)
                places = np.flatnonzero((since_s > 0.0) & (since_s <= age_s))
                places = places[np.lexsort((places, since_s[places]))][:MOST]
                rows = (places - first) % KEPT
                return [_read(self.rows.values[row]) for row in rows.tolist()], since_s[places]
        return [], np.zeros(0)


def start_with_arrivals(
    sight: SiteView, job: Job, arrivals: Arrivals, context: SiteContext, sums: UsageTotals, ordering: Ordering
) -> float:
    """Return the seconds until a job starts, if jobs arrive meanwhile as they did; infinity for never.

    As in `schedule`, in the order of all these jobs. The result is nan if there are no such arrivals, or if more than
    `MAX_SIMULATED` jobs are before it.

    Args:
        sight: a site without a topology whose whole queue is known; the job is the last in it.
    """
    (later, arrive_s), last = arrivals.after(sight.now), len(sight.queued.cpus) - 1
    fits = [job.cpus <= sight.cpus for job in later]
    later, arrive_s = [*compress(later, fits)], arrive_s[fits]
    if not later:
        return np.nan
    view = _with_arrivals(sight, job, later, arrive_s, context, sums, ordering.preference)
    preference, limits = ordering
    scores = scores_in(view, np.arange(len(view.queued.cpus)), before(view), preference, limits)
    order = np.argsort(-scores, kind="stable")[:MAX_SIMULATED]
    place = np.flatnonzero(order == last)
    if not len(place):
        return np.nan
    line = line_of(view.queued, order)._replace(arrives_s=np.maximum(-view.queued.age_s[order], 0.0))
    line.arrives_s[place] = 0.0  # it is there, even if it is not eligible yet
    limited = bool(limits.several < np.inf)
    aging = Aging(view.queued, order, view.people, view.cpus, preference.weights, limited, FIRST_S)
    starts_s, _ = schedule(view.free, view.running, line, aging, limits, int(place[0]), False)
    return float(starts_s[place[0]])


def _with_arrivals(
    sight: SiteView,
    job: Job,
    later: list[EndedJob],
    arrive_s: Floats,
    context: SiteContext,
    sums: UsageTotals,
    preference: Preference,
) -> SiteView:
    """Return the site with these jobs at the end of its queue; each has a negative age until it arrives."""
    queued, people, table, size = sight.queued, sight.people, context.state.table, len(later)
    last = len(queued.cpus) - 1
    users = _Codes({job.user: int(queued.user[last])}, partial(table.code, "user"), len(people.users))
    accounts = _Codes({job.account: int(queued.account[last])}, partial(table.code, "account"), len(people.accounts))
    more = QueuedJobs(
        np.array([one.cpus for one in later], np.int64),
        np.array([one.run_s for one in later]),
        np.array([one.planned_s for one in later]),
        -arrive_s,
        np.array([users.of(one.user) for one in later], np.int64),
        np.array([accounts.of(one.account) for one in later], np.int64),
        np.array([preference.places.slot_of(one.queue) for one in later], np.int64),
        np.full(size, np.nan),
        np.zeros(size, np.bool_),
        np.full(size, np.inf),
    )
    idle = np.zeros(len(users.new), np.int64)
    return sight._replace(
        queued=QueuedJobs(*(np.concatenate(both) for both in zip(queued, more, strict=True))),
        people=DecayedUsage(
            np.concatenate((people.users, sums.users.of(users.new, sight.now))),
            np.concatenate((people.accounts, sums.accounts.of(accounts.new, sight.now))),
            np.concatenate((people.held, idle)),
            np.concatenate((people.runs, idle)),
        ),
        stands_for=np.concatenate((sight.stands_for, np.ones(size))),
        tasks=np.concatenate((sight.tasks, np.ones(size, np.int64))),
    )


class _Codes:
    """Codes of users or accounts: those of the table plus 1, and others from `first` on for the `new` names."""

    def __init__(self, known: dict[str | None, int], find: Callable[[str | None], int], first: int) -> None:
        self._codes: dict[str | None, int] = {**known, None: 0}
        self._find, self._first = find, first
        self.new: list[str] = []

    def of(self, name: str | None) -> int:
        """Return the code of a name; it is new if the table does not have it."""
        code = self._codes.get(name)
        if code is None:
            code = self._find(name) + 1
            if not code:
                code = self._first + len(self.new)
                self.new.append(name or "")
            self._codes[name] = code
        return code
