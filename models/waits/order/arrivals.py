"""Jobs that arrived a week ago, as the later jobs of a simulated schedule.

A schedule of the present jobs only is too short where the order lets later jobs overtake: by fairshare, by size, by
tiers. The jobs of the same hours of the week before arrive in it instead, with the run times that they had. Without a
week of history it is those of the day before.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats, Ints
from models.durations import DAY_S
from models.method import SiteContext
from models.records.events import Seconds, Size, Time
from models.site.job import Finite, Job
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

MOST_NAMES: Final = 20_000
"""Number of names of users, accounts and queues from which those of dropped jobs are removed."""


class Ordering(NamedTuple):
    """How the queue is ordered."""

    preference: Preference
    limits: Limits


class EndedJob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An ended job: when its wait began and it ended (Unix seconds), its request, and its run time in seconds."""

    ready: Time
    end: Time
    cpus: Size
    run_s: Seconds
    planned_s: Finite
    user: str | None
    account: str | None
    queue: str | None


_read = reader(EndedJob, "an ended job")


class LaterJobs(NamedTuple):
    """Jobs that may arrive, the next one first: columns as in `QueuedJobs`, and the seconds until each arrives.

    `users`, `accounts` and `queues` are numbers of `names`.
    """

    cpus: Ints
    run_s: Floats
    planned_s: Floats
    users: Ints
    accounts: Ints
    queues: Ints
    arrive_s: Floats
    names: Sequence[str | None]


class Arrivals:
    """The last ended jobs, and those of them whose like may arrive next. The rows contain the complete state.

    >>> arrivals = Arrivals()
    >>> for hour in range(48):
    ...     job = Job(id="1", attempt=0, submit=3600.0 * hour, cpus=hour + 1, walltime=60.0)
    ...     arrivals.ended(job, run_s=30.0, end=job.submit + 30.0)
    >>> later = arrivals.after(now=3600.0 * 46.5, most_cpus=64)
    >>> later.cpus[:3].tolist(), later.arrive_s[:3].tolist()
    ([24, 25, 26], [1800.0, 5400.0, 9000.0])
    """

    def __init__(self) -> None:
        self.rows = Rows(KEPT)
        self._clear()

    def _clear(self) -> None:
        # By the number of the row, modulo their size.
        self._times, self._cpus = np.full((KEPT, 4), np.inf), np.zeros(KEPT, np.int64)
        self._numbers = np.zeros((KEPT, 3), np.int64)
        self._names: dict[str | None, int] = {}

    def ended(self, job: Job, run_s: float, end: float) -> None:
        """Add a job that has ended after this run time, in seconds, at `end` (Unix seconds)."""
        planned_s = float(job.walltime or job.expected_run_s)
        ended = EndedJob(
            float(job.ready), float(end), job.counted_cpus, float(run_s), planned_s, job.user, job.account, job.queue
        )
        if len(self._names) > MOST_NAMES:
            self.load()
        self._put(self.rows.count, ended)
        self.rows.append(encode(ended))

    def _put(self, number: int, job: EndedJob) -> None:
        place, names = number % KEPT, self._names
        self._times[place], self._cpus[place] = (job.ready, job.run_s, job.planned_s, job.end), job.cpus
        self._numbers[place] = [names.setdefault(name, len(names)) for name in (job.user, job.account, job.queue)]

    def load(self) -> None:
        """Lay out the rows.

        Raises:
            ValueError: one of them is not a job.
        """
        self._clear()
        for number, job in enumerate(self.rows.read(_read), self.rows.count - len(self.rows.values)):
            self._put(number, job)

    def after(self, now: float, most_cpus: int) -> LaterJobs | None:
        """Return the jobs of at most `most_cpus` CPUs that arrived after `now` (Unix seconds) some time ago.

        None if there are none, or the rows do not reach back far enough. O(`KEPT`).
        """
        ready = self._times[:, 0]
        oldest = self._times[(self.rows.count - len(self.rows.values)) % KEPT, 3]  # all that arrived since is kept
        for age_s in AGES_S:
            if oldest <= now - age_s:
                since_s = ready - (now - age_s)
                places = np.flatnonzero((since_s > 0.0) & (since_s <= age_s) & (self._cpus <= most_cpus))
                places = places[np.lexsort((places, since_s[places]))][:MOST]
                if not len(places):
                    return None
                run_s, planned_s = self._times[places, 1], self._times[places, 2]
                users, accounts, queues = self._numbers[places].T
                names = [*self._names]
                return LaterJobs(self._cpus[places], run_s, planned_s, users, accounts, queues, since_s[places], names)
        return None


def start_with_arrivals(
    sight: SiteView, job: Job, arrivals: Arrivals, context: SiteContext, sums: UsageTotals, ordering: Ordering
) -> float:
    """Return the seconds until a job starts, if jobs arrive meanwhile as they did; infinity for never.

    As in `schedule`, in the order of all these jobs. The result is nan if there are no such arrivals, or if more than
    `MAX_SIMULATED` jobs are before it.

    Args:
        sight: a site without a topology whose whole queue is known; the job is the last in it.
    """
    later, last = arrivals.after(sight.now, sight.cpus), len(sight.queued.cpus) - 1
    if later is None:
        return np.nan
    view = _with_arrivals(sight, job, later, context, sums, ordering.preference)
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
    sight: SiteView, job: Job, later: LaterJobs, context: SiteContext, sums: UsageTotals, preference: Preference
) -> SiteView:
    """Return the site with these jobs at the end of its queue; each has a negative age until it arrives."""
    queued, people, table, size = sight.queued, sight.people, context.state.table, len(later.cpus)
    last, now = len(queued.cpus) - 1, sight.now
    users = _Codes({job.user: int(queued.user[last])}, partial(table.code, "user"), len(people.users))
    accounts = _Codes({job.account: int(queued.account[last])}, partial(table.code, "account"), len(people.accounts))
    more = QueuedJobs(
        later.cpus,
        later.run_s,
        later.planned_s,
        -later.arrive_s,
        _mapped(later.users, later.names, users.of),
        _mapped(later.accounts, later.names, accounts.of),
        _mapped(later.queues, later.names, preference.places.slot_of),
        np.full(size, np.nan),
        np.zeros(size, np.bool_),
        np.full(size, np.inf),
    )
    idle = np.zeros(len(users.new), np.int64)
    return sight._replace(
        queued=QueuedJobs(*(np.concatenate(both) for both in zip(queued, more, strict=True))),
        people=DecayedUsage(
            np.concatenate((people.users, sums.users.of(users.new, now))),
            np.concatenate((people.accounts, sums.accounts.of(accounts.new, now))),
            np.concatenate((people.held, idle)),
            np.concatenate((people.runs, idle)),
        ),
        stands_for=np.concatenate((sight.stands_for, np.ones(size))),
        tasks=np.concatenate((sight.tasks, np.ones(size, np.int64))),
    )


def _mapped(numbers: Ints, names: Sequence[str | None], of: Callable[[str | None], int]) -> Ints:
    """Return the code of the name of each number, in the order in which the names come first."""
    found, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    codes = np.zeros(len(found), np.int64)
    for place in np.argsort(first, kind="stable").tolist():
        codes[place] = of(names[found[place]])
    return codes[places]


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
