"""The engine of one site: an event goes in, predictions and outcomes come out.

`state(n) = apply(state(n-1), event n)`. There is no clock here and no chance, so whoever applies the same events from
the same state says the same, to the last bit. The stream, the replay and the tests all come in through `Engine.apply`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import tee
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from models.measures import Accuracy, RunAccuracy, Tally
from models.method import Method, SiteContext, WaitMethod
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    Event,
    Hold,
    JobEvent,
    JobKey,
    Outcome,
    Prediction,
    Release,
    Requeue,
    Start,
    Submit,
)
from models.registry import (
    DEFAULT,
    DEFAULT_BOUNDS,
    DEFAULT_RUN,
    DEFAULT_WHAT_IF,
    TRIVIAL,
    method_named,
    run_method_named,
)
from models.site.expiry import WEEK_S, Expiry
from models.site.features import COUNT, features_of
from models.site.history import History, Started
from models.site.rows import Row, Rows
from models.site.runs import Run, RunHistory
from models.site.state import Estimate, Job, Phase, RunEstimate, Shared, SiteState

STATE_VERSION = 2
"""Version of what `Engine.checkpoint` writes. Those before it are read too: what they lack has its default."""

EVENTS_PER_SWEEP = 64
"""Events between two looks for jobs to give up."""

SKEW_S = 60.0
"""Clocks differ: a start at most this long before its submit counts as one at it, an end before its start likewise."""

MAX_LIVE_BYTES = 60_000_000
"""What the live jobs may take in a stored state, which is one message: about 150,000 jobs with ordinary names."""

MAX_WEEKS = 8
"""So many weeks the accuracy is kept by week."""

MAX_QUEUES = 256
"""Queues that are known by name; the one that has been silent for longest goes first."""

MIN_STARTED_JOBS = 10
"""A site of which fewer jobs have started is hardly known; answers about it say so."""

MIN_JOBS_TO_RECOVER = 1000
"""Jobs that must have started after the histories were lost before predictions are said to be as good as before."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a site is predicted.

    `method` is the one whose predictions go out; `shadows` run beside it, for their accuracy, and their predictions go
    out too where `publish_shadows`. `runtimes` predicts the run times that go out and that waits are simulated with;
    `run_shadows` are to it what `shadows` are to `method`. `bounds` names the method whose bounds go with predictions
    that have none of their own ("": nobody's). `what_if` answers for jobs that are only considered, and at the sites in
    `policies` the method named there, for one that simulates the site's own policy is best (`[engine.policies]`).
    `history` and `remembered` count jobs: those compared with, and those that have left and are still known by name, so
    that an event that comes twice is not taken for a new job. No wait is predicted while more than the share
    `withhold_down` of the site's nodes is down (Murali and Vadhiyar 2015, section 5). `parameters` are those of
    methods, by the method's name, where they are not to be its defaults.
    """

    method: str = DEFAULT
    shadows: tuple[str, ...] = TRIVIAL
    runtimes: str = DEFAULT_RUN
    run_shadows: tuple[str, ...] = ()
    bounds: str = DEFAULT_BOUNDS
    what_if: str = DEFAULT_WHAT_IF
    policies: dict[str, str] = {}
    publish_shadows: bool = False
    history: Annotated[int, Meta(ge=2, le=1_000_000)] = 6000
    remembered: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    withhold_down: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    parameters: dict[str, dict[str, bool | int | float | str | list[str]]] = {}

    @property
    def methods(self) -> tuple[str, ...]:
        """Every method for waits that runs, the one that counts first."""
        return tuple(dict.fromkeys((self.method, *self.shadows, *filter(None, [self.bounds]))))

    @property
    def run_methods(self) -> tuple[str, ...]:
        """Every method for run times that runs, the one that counts first."""
        return tuple(dict.fromkeys((self.runtimes, *self.run_shadows)))


class Anomaly(msgspec.Struct, frozen=True):
    """An event that did not fit what was known. A `rejected` one changed nothing; the others had a defined effect."""

    reason: str
    detail: str
    rejected: bool = False


class Changes(msgspec.Struct):
    """What was learnt since the stores were last written: rows that are new, and entries that fell out.

    `rows` are the methods' own, by their key (`Engine.rows`); `oldest` says which of each are kept.
    """

    started: list[Started] = msgspec.field(default_factory=list)
    runs: list[Run] = msgspec.field(default_factory=list)
    forgotten_runs: list[Run] = msgspec.field(default_factory=list)
    rows: dict[str, list[Row]] = msgspec.field(default_factory=dict)
    oldest: dict[str, int] = msgspec.field(default_factory=dict)


class KeptRows(msgspec.Struct, array_like=True, frozen=True):
    """Which rows of a method a state includes: those from number `oldest`, and before number `count`."""

    count: int
    oldest: int


class Week(msgspec.Struct, array_like=True):
    """The methods' sums, started and cancelled jobs together, as they stood when a week began (Unix seconds)."""

    begin: float
    tallies: dict[str, Tally]


class QueueSeen(msgspec.Struct, array_like=True):
    """A queue: how many jobs were submitted to it, and when the last one was (Unix seconds)."""

    jobs: int = 0
    last: float = 0.0


class Saved(msgspec.Struct):
    """An engine's state but for the history's rows and the runs, of which it holds the counts.

    `forgotten` are the numbers of the runs that fell out since the state before: the stores delete them only once this
    state is durable, so whoever reads it may still find them.
    """

    v: int
    site: str
    jobs: list[Job]
    remembered: list[JobKey]
    times: list[float]
    capacity: Capacity | None
    started: int
    first: int
    history: int
    runs: int
    runs_kept: int
    forgotten: list[int]
    events: int
    anomalies: dict[str, int]
    predictions: dict[str, int]
    lost: bool
    accuracy: dict[str, Accuracy]
    cancelled: dict[str, Accuracy]
    methods: dict[str, bytes]
    run_accuracy: dict[str, RunAccuracy] = {}
    run_predictions: dict[str, int] = {}
    run_methods: dict[str, bytes] = {}
    rows: dict[str, KeptRows] = {}
    most_cpus: int = 0
    weeks: list[Week] = []
    queues: dict[str, QueueSeen] = {}


class SavedVersion(msgspec.Struct):
    """The one field of a saved state that every version has."""

    v: int


Record = Prediction | Outcome | Anomaly


class Engine:
    """One site's state, history and methods.

    `accuracy` measures each method over the jobs that started; `cancelled` over those cancelled in the queue, scored as
    the literature does: as if they had started then and run for no time.

    >>> engine = Engine("ctc", Settings(method="median"))
    >>> engine.apply(Submit(site="ctc", time=100.0, job="1", user="ada", cpus=8, walltime=3600.0))[0].reason
    'no history'
    >>> engine.apply(Start(site="ctc", time=160.0, job="1"))[0].actual_wait_s
    60.0
    """

    def __init__(self, site: str, settings: Settings | None = None) -> None:
        self.site = site
        self.settings = settings or Settings()
        parameters = self.settings.parameters
        self.methods = {name: method_named(name, parameters.get(name)) for name in self.settings.methods}
        self.what_if_method = self._what_if_method()
        self.run_methods = {name: run_method_named(name, parameters.get(name)) for name in self.settings.run_methods}
        runs = RunHistory(template for method in self.run_methods.values() for template in method.templates)
        runtimes = self.run_methods[self.settings.runtimes]
        self.context = SiteContext(SiteState(), History(self.settings.history), runs, runtimes)
        self.rows: dict[str, Rows] = self._rows()
        self.accuracy = {name: Accuracy() for name in self.methods}
        self.cancelled = {name: Accuracy() for name in self.methods}
        self.run_accuracy = {name: RunAccuracy() for name in self.run_methods}
        self.events = 0
        self.anomalies: dict[str, int] = {}
        self.predictions = dict.fromkeys(self.methods, 0)
        self.run_predictions = dict.fromkeys(self.run_methods, 0)
        self.lost = False
        self.weeks: deque[Week] = deque(maxlen=MAX_WEEKS)
        self.queues: dict[str, QueueSeen] = {}
        self._remembered: dict[JobKey, None] = {}
        self._expiry = Expiry()
        self._changes = Changes()
        self._handlers: dict[type, Callable[[Any], Iterable[Record]]] = {
            Submit: self._submit,
            Start: self._start,
            End: self._end,
            Cancel: self._cancel,
            Hold: self._hold,
            Release: self._release,
            Alter: self._alter,
            Requeue: self._requeue,
            Capacity: self._take_capacity,
        }

    def _what_if_method(self) -> WaitMethod:
        """The method that answers for jobs that are only considered: one that runs, or one of its own."""
        name = self.settings.policies.get(self.site, self.settings.what_if)
        return self.methods.get(name) or method_named(name, self.settings.parameters.get(name))

    @property
    def _learning(self) -> dict[str, WaitMethod]:
        """The methods for waits that are shown what happens: those that run, and the one that is asked."""
        return (
            self.methods | {self.what_if_method.name: self.what_if_method}
            if self.what_if_method.learns
            else self.methods
        )

    def _learning_from(self, job: Job) -> list[WaitMethod]:
        """Those of them that learn what became of a job: of those that run, the ones that predicted it."""
        learning = self._learning.items()
        return [method for name, method in learning if name in job.estimates or name not in self.methods]

    def _rows(self) -> dict[str, Rows]:
        """The methods' own rows, by the key under which they are stored."""
        waits = {name: method.rows for name, method in self._learning.items()}
        runs = {f"run.{name}": method.rows for name, method in self.run_methods.items()}
        return {key: rows for key, rows in (waits | runs).items() if rows is not None}

    def apply(self, event: AnyEvent) -> list[Record]:
        """Take one event in; gives the records it leads to. O(1) in the live jobs, plus what the methods cost."""
        self.events += 1
        records = list(self._handlers[type(event)](event))
        self._expiry.tick(event.time)
        if self.events % EVENTS_PER_SWEEP == 0:
            records.extend(self._give_up())
            self._begin_week()
        for record in records:
            if isinstance(record, Anomaly):
                self.anomalies[record.reason] = self.anomalies.get(record.reason, 0) + 1
        return records

    # What an event does. Each handler is a small story; the README tells them as a table.

    def _submit(self, event: Submit) -> Iterator[Record]:
        yield from self._admit(Job.of(event))

    def _admit(self, job: Job) -> Iterator[Record]:
        """A job comes into the queue, unless it is known already."""
        known = self.context.state.jobs.get(job.key)
        if known is not None and not known.requested:
            self._fill_in(known, job)
            yield Anomaly("submit_after_start", f"job {job.id} was submitted after it had started")
        elif known is not None or job.key in self._remembered:
            yield Anomaly("duplicate_submit", f"job {job.id} was submitted before")
        elif self._full():
            yield self._no_room(job.id)
        else:
            yield from self._enter(job)

    def _full(self) -> bool:
        """Whether the live jobs are as many as can be stored."""
        state = self.context.state
        job_bytes = 128 + 48 * (len(self.methods) + len(self.run_methods))  # measured: less than half of it
        return state.text_bytes + len(state) * job_bytes > MAX_LIVE_BYTES

    def _no_room(self, job: str) -> Anomaly:
        return Anomaly("state_full", f"job {job} comes on top of {len(self.context.state)} live ones", rejected=True)

    def _enter(self, job: Job) -> Iterator[Record]:
        """A new job: predict it from the state it finds, then let it in."""
        context = self.context
        self._predict_run(job)
        job.planned_run_s = _planned_run_s(job.walltime, job.run_s)
        job.features = features_of(job, context.state, job.submit)
        for name, method in self.methods.items():
            job.estimates[name] = method.predict(job, context)
            self.predictions[name] += 1
        if self.what_if_method.name not in self.methods and self.what_if_method.learns:
            self.what_if_method.notice(job, context)
        self._withhold(job, self._nodes_down())
        context.state.enter(job)
        self._expiry.watch(job)
        self._see_queue(job)
        for name in (*self._published(), *self._published_runs()):
            yield self._prediction(job, name)

    def _see_queue(self, job: Job) -> None:
        if job.queue is None:
            return
        seen = self.queues.pop(job.queue, None) or QueueSeen()
        seen.jobs, seen.last = seen.jobs + 1, max(job.submit, seen.last)
        self.queues[job.queue] = seen  # last in the order: the one heard of most lately
        if len(self.queues) > MAX_QUEUES:
            del self.queues[next(iter(self.queues))]

    def _predict_run(self, job: Job) -> None:
        for name, method in self.run_methods.items():
            job.run_estimates[name] = method.predict(job, self.context.runs)
            self.run_predictions[name] += 1
        job.run_s = job.run_estimates[self.settings.runtimes].run_s

    def bounds_of(self, job: Job, name: str) -> dict[str, float] | None:
        """The bounds that go with a method's estimate: its own, else those of the method that lends them."""
        estimate = job.estimates.get(name)
        if estimate is None or estimate.wait_s is None or name in TRIVIAL:
            return None
        lender = job.estimates.get(self.settings.bounds)
        return estimate.bounds or (None if lender is None else lender.bounds)

    def _fill_in(self, job: Job, request: Job) -> None:
        """A submit that comes after its start: the request is known now, the wait stays unscored."""
        self._predict_run(request)
        self.context.state.alter(
            job,
            submit=min(request.submit, job.submit),
            **request.request,
            run_estimates=request.run_estimates,
            run_s=request.run_s,
            planned_run_s=_planned_run_s(request.walltime, request.run_s),
            requested=True,
        )
        self._expiry.watch(job)

    def _start(self, event: Start) -> Iterator[Record]:
        job = self._live(event)
        if job is None and event.key in self._remembered:
            yield Anomaly("duplicate_start", f"job {event.job} has left already")
        elif job is None and self._full():
            yield self._no_room(event.job)
        elif job is None:
            yield self._first_seen_running(event)
        elif job.phase is Phase.RUNNING:
            yield Anomaly("duplicate_start", f"job {event.job} is running already")
        elif job.end is not None and event.time > job.end + SKEW_S:
            yield Anomaly("start_after_end", f"job {event.job}: start {event.time} > end {job.end}", rejected=True)
        elif event.time < job.submit - SKEW_S:
            yield self._begin_unscored(job, event)
        else:
            yield from self._begin(job, event)

    def _first_seen_running(self, event: Start) -> Anomaly:
        job = Job(id=event.job, attempt=event.attempt, submit=event.time, cpus=event.cpus or 1)
        job.phase, job.start = Phase.RUNNING, event.time
        job.unscored, job.requested = True, False
        self._predict_run(job)
        job.planned_run_s = _planned_run_s(None, job.run_s)
        self.context.state.enter(job)
        self.context.see_cpus()
        self._expiry.watch(job)
        return Anomaly("start_without_submit", f"job {event.job} was never seen submitted")

    def _begin_unscored(self, job: Job, event: Start) -> Anomaly:
        """A start long before its submit: it runs, as we are told, but nobody can say how long it waited."""
        job.unscored = True
        self._forget(job)
        if job.end is not None:
            self.context.state.leave(job)
        else:
            self.context.state.move(job, Phase.RUNNING, event.time)
            self.context.see_cpus()
            self._expiry.watch(job)
        return Anomaly("start_before_submit", f"job {event.job}: start {event.time} < submit {job.submit}")

    def _begin(self, job: Job, event: Start) -> Iterator[Record]:
        """A queued job starts: its wait is known, and everybody learns from it."""
        self.context.state.move(job, Phase.RUNNING, event.time)
        self.context.see_cpus()
        self._expiry.watch(job)
        wait_s = max(event.time - job.ready, 0.0)
        for method in self._learning_from(job):
            method.learn(job, wait_s, self.context)
        for name, estimate in job.estimates.items():
            if name in self.methods:
                self.accuracy[name].add_wait(estimate.wait_s, wait_s, self.bounds_of(job, name))
        self._changes.started.append(self.context.history.learn(job, wait_s))
        self.lost = self.lost and self.context.history.count < MIN_JOBS_TO_RECOVER
        yield from self._outcomes(job, event.time, wait_s)
        if job.end is not None:
            yield from self._finish(job, job.end)

    def _end(self, event: End) -> Iterator[Record]:
        job = self._live(event)
        if job is None and event.key in self._remembered:
            yield Anomaly("duplicate_end", f"job {event.job} has left already")
        elif job is None:
            self._remember(event.key)
            yield Anomaly("end_without_start", f"job {event.job} was never seen submitted or started")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("duplicate_end", f"job {event.job} has ended already")
        elif job.phase is not Phase.RUNNING:
            yield from self._end_before_start(job, event)
        elif job.start is not None and event.time < job.start - SKEW_S:
            self.context.state.leave(job)
            self._remember(job.key)
            yield Anomaly("end_before_start", f"job {event.job}: end {event.time} < start {job.start}")
        else:
            yield from self._finish(job, event.time)

    def _end_before_start(self, job: Job, event: End) -> Iterator[Record]:
        """The end of a job that is queued as far as we know: it leaves the queue, and its start may still come."""
        self.context.state.move(job, Phase.ENDED_BEFORE_START)
        job.end = event.time
        self._remember(job.key)
        yield Anomaly("end_seen_before_start", f"job {event.job} ended and its start has not been seen")

    def _finish(self, job: Job, end: float) -> Iterator[Record]:
        """A running job has ended: its run time is known."""
        assert job.start is not None
        run_s = max(end - job.start, 0.0)
        self.context.state.leave(job)
        self._remember(job.key)
        if job.start >= job.submit - SKEW_S:  # else nobody knows which of its times to believe
            for run_method in self.run_methods.values():
                run_method.learn(job, run_s, self.context.runs)
            new, gone = self.context.runs.learn(job, run_s)
            self._changes.runs.extend(new)
            self._changes.forgotten_runs.extend(gone)
        if not job.unscored:
            wait_s = max(job.start - job.ready, 0.0)
            for method in self._learning_from(job):
                method.ended(job, wait_s, run_s, self.context)
            self._count_response(job, wait_s, run_s)
            yield from self._outcomes(job, end, wait_s, run_s)

    def _cancel(self, event: Cancel) -> Iterator[Record]:
        job = self._live(event)
        if job is None:
            known = event.key in self._remembered
            self._remember(event.key)
            yield Anomaly("duplicate_cancel" if known else "cancel_without_submit", f"job {event.job} is not here")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("cancel_after_end", f"job {event.job} has ended already")
        elif job.phase is Phase.RUNNING:
            yield Anomaly("cancel_while_running", f"job {event.job} is running: taken for its end")
            yield from self._end(End(site=event.site, time=event.time, job=event.job, attempt=event.attempt))
        elif event.time < job.submit - SKEW_S:
            self.context.state.leave(job)
            self._remember(job.key)
            self._forget(job)
            yield Anomaly("cancel_before_submit", f"job {event.job}: cancel {event.time} < submit {job.submit}")
        else:
            yield from self._abandon(job, event.time)

    def _abandon(self, job: Job, at: float) -> Iterator[Record]:
        """A queued job leaves without having started: its wait is censored, and history for nobody."""
        self.context.state.leave(job)
        self._remember(job.key)
        self._forget(job)
        waited_s = max(at - job.ready, 0.0)
        for name in self.methods:
            if name in job.estimates:
                estimate = job.estimates[name]
                self.cancelled[name].add_wait(estimate.wait_s, waited_s, self.bounds_of(job, name))
                self.cancelled[name].add_response(estimate.wait_s, waited_s, 0.0)
        yield from self._outcomes(job, at, waited_s, censored=True)

    def _hold(self, event: Hold) -> Iterator[Record]:
        job = self._live(event)
        overtaken = job is not None and _overtaken(job, "hold_time", event.time)
        if job is None or job.phase is not Phase.QUEUED:
            yield Anomaly("hold_of_job_not_queued", f"job {event.job} is not queued")
        elif overtaken:
            yield _stale(event)
        else:
            self.context.state.move(job, Phase.HELD)

    def _release(self, event: Release) -> Iterator[Record]:
        job = self._live(event)
        overtaken = job is not None and _overtaken(job, "hold_time", event.time)
        if job is None or job.phase is not Phase.HELD:
            yield Anomaly("release_of_job_not_held", f"job {event.job} is not held")
        elif overtaken:
            yield _stale(event)
        else:
            self.context.state.move(job, Phase.QUEUED)
            job.eligible = max(event.time, job.ready)

    def _alter(self, event: Alter) -> Iterator[Record]:
        job = self._live(event)
        if job is None:
            yield Anomaly("alter_of_unknown_job", f"job {event.job} is not here")
            return
        if _overtaken(job, "alter_time", event.time):
            yield _stale(event)
            return
        if event.queue is not None and self._full():
            yield self._no_room(event.job)
            return
        wanted = {name: getattr(event, name) for name in ("queue", "cpus", "nodes", "walltime", "eligible")}
        changes = {name: value for name, value in wanted.items() if value is not None}
        if job.start is not None:
            changes.pop("eligible", None)  # its wait is over and told
        if event.walltime is not None:
            changes["planned_run_s"] = _planned_run_s(event.walltime, job.run_s)
        self.context.state.alter(job, **changes)
        self._expiry.watch(job)

    def _requeue(self, event: Requeue) -> Iterator[Record]:
        job = self._live(event)
        if job is None:
            known = event.key in self._remembered
            self._remember(event.key)
            yield Anomaly("duplicate_requeue" if known else "requeue_of_unknown_job", f"job {event.job} is not here")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("requeue_after_end", f"job {event.job} has ended already")
        elif event.time < (job.submit if job.start is None else job.start) - SKEW_S:
            yield Anomaly("requeue_before_start", f"job {event.job}: requeue at {event.time}", rejected=True)
        else:
            yield from self._enter_again(job, event.time)

    def _enter_again(self, job: Job, at: float) -> Iterator[Record]:
        """This attempt is over, whether or not we saw its start; the next one comes into the queue."""
        if job.phase is not Phase.RUNNING:
            self._forget(job)
            yield Anomaly("requeue_seen_before_start", f"job {job.id} was requeued and its start has not been seen")
        self.context.state.leave(job)
        self._remember(job.key)
        again = Job(job.id, job.attempt + 1, at, **job.request)
        yield from self._admit(again)

    def _take_capacity(self, event: Capacity) -> Iterator[Record]:
        if self.context.capacity is not None and event.time < self.context.capacity.time:
            yield _stale(event)
        else:
            self.context.capacity = event

    def _give_up(self) -> Iterator[Record]:
        """Jobs whose end was never reported leave: unscored, and history for nobody."""
        for job in self._expiry.overdue(self.context.state):
            if job.key not in self.context.state.jobs:
                continue  # forgotten while another was remembered
            self.context.state.leave(job)
            self._remember(job.key)
            if job.phase is not Phase.RUNNING:
                self._forget(job)
            yield Anomaly(f"gave_up_{job.phase}", f"job {job.id} has been {job.phase} for too long to be true")

    def _begin_week(self) -> None:
        """Note how the sums stand, if the last events agree that a week has passed."""
        now = min(self._expiry.times)
        if not self.weeks or now >= self.weeks[-1].begin + WEEK_S:
            self.weeks.append(Week(now, self.tallies()))

    # What may be asked. Asking changes nothing.

    @property
    def time(self) -> float:
        """The site's time: that of its last event, Unix seconds; 0 before the first."""
        return self._expiry.times[-1] if self._expiry.times else 0.0

    def tallies(self) -> dict[str, Tally]:
        """The methods' sums, started and cancelled jobs together."""
        return {name: self.accuracy[name].tally() + self.cancelled[name].tally() for name in self.methods}

    def open_queues(self, most: int) -> list[str]:
        """The queues with live jobs or with a submission in the last week; of more than `most`, the busiest."""
        since = self.time - WEEK_S
        found = [
            name
            for name, seen in self.queues.items()
            if seen.last >= since or any(self.context.state.totals(("queue", name), phase).count for phase in Phase)
        ]
        return sorted(sorted(found, key=lambda name: (-self.queues[name].jobs, name))[:most])

    def consider(self, jobs: Iterable[Job]) -> Iterator[Prediction]:
        """What would be predicted of jobs that came at their `submit`, each as if it alone did.

        They have a key that no submitted job has, and are taken one by one, as their predictions are. What simulates
        looks at the site once for all jobs of one moment, so events may come in between.
        """
        asked = {self.what_if_method.name: self.what_if_method}
        if self.settings.bounds:
            asked.setdefault(self.settings.bounds, self.methods[self.settings.bounds])
        considered, *copies = tee(map(self._considered, jobs), 1 + len(asked))
        answers = [method.what_ifs(copy, self.context) for method, copy in zip(asked.values(), copies, strict=True)]
        for job, *estimates in zip(considered, *answers, strict=True):
            job.estimates = dict(zip(asked, estimates, strict=True))
            self._withhold(job, self._too_large(job) or self._nodes_down())
            doubts = "; ".join(filter(None, (self.degraded, *self._guessed())))
            yield msgspec.structs.replace(self._prediction(job, self.what_if_method.name), degraded=doubts or None)

    def _considered(self, job: Job) -> Job:
        """A job that is only considered, with its run time and features."""
        runtimes = self.settings.runtimes
        job.run_estimates = {runtimes: self.context.runtimes.predict(job, self.context.runs)}
        job.run_s = job.run_estimates[runtimes].run_s
        job.planned_run_s = _planned_run_s(job.walltime, job.run_s)
        job.features = features_of(job, self.context.state, job.submit)
        return job

    # What goes out.

    def _published(self) -> Sequence[str]:
        return tuple(self.methods) if self.settings.publish_shadows else (self.settings.method,)

    def _published_runs(self) -> Sequence[str]:
        """Shadows for run times alone: their records go out under their own names, without a wait."""
        names = self.settings.run_methods[1:] if self.settings.publish_shadows else ()
        return [name for name in names if name not in self.methods]

    def _prediction(self, job: Job, name: str) -> Prediction:
        run = job.run_estimates.get(name, job.run_estimates[self.settings.runtimes])
        estimate = job.estimates.get(name) or Estimate(None, run.reason)
        return Prediction(
            site=self.site,
            job=job.id,
            attempt=job.attempt,
            made_at=job.submit,
            predicted_wait_s=estimate.wait_s,
            predicted_run_s=run.run_s,
            predicted_start=None if estimate.wait_s is None else job.ready + estimate.wait_s,
            bounds=self.bounds_of(job, name),
            run_interval=run.interval,
            method=name,
            reason=estimate.reason,
            degraded=self.degraded,
        )

    def _outcomes(
        self, job: Job, at: float, wait_s: float, run_s: float | None = None, censored: bool = False
    ) -> Iterator[Outcome]:
        only_run = self._published_runs() if run_s is not None else ()
        for name in (*self._published(), *only_run):
            estimate = job.estimates.get(name)
            if estimate is None and name not in job.run_estimates:
                continue  # submitted before this method ran
            estimate = estimate or Estimate(None, "")
            run = job.run_estimates.get(name) or job.run_estimates.get(self.settings.runtimes)
            run = run or RunEstimate(job.run_s, "")
            yield Outcome(
                site=self.site,
                job=job.id,
                attempt=job.attempt,
                made_at=job.submit,
                method=name,
                predicted_wait_s=estimate.wait_s,
                predicted_run_s=run.run_s,
                bounds=self.bounds_of(job, name),
                run_interval=run.interval,
                observed_at=at,
                actual_wait_s=wait_s,
                actual_run_s=run_s,
                error_s=(estimate.wait_s or 0.0) - wait_s,
                run_error_s=None if run_s is None or run.run_s is None else run.run_s - run_s,
                wait_from=job.wait_from,
                censored=censored,
            )

    def _count_response(self, job: Job, wait_s: float, run_s: float) -> None:
        for name, estimate in job.estimates.items():
            if name in self.methods:
                self.accuracy[name].add_response(estimate.wait_s, wait_s, run_s)
        for name, run_estimate in job.run_estimates.items():
            if name in self.run_methods:
                self.run_accuracy[name].add(run_estimate.run_s, run_s, run_estimate.interval)

    @staticmethod
    def _withhold(job: Job, reason: str | None) -> None:
        """Take the estimates back, if there is a reason to."""
        if reason is not None:
            for name, estimate in job.estimates.items():
                job.estimates[name] = msgspec.structs.replace(estimate, wait_s=None, bounds=None, reason=reason)

    def _too_large(self, job: Job) -> str | None:
        cpus = self.context.cpus
        if not 0 < cpus < job.cpus:
            return None
        if self.context.capacity is None:
            return f"larger than the site, as far as is known: no more than {cpus} processors were in use at once"
        return f"larger than the site: {job.cpus} of {cpus} processors"

    def _guessed(self) -> Iterator[str]:
        """What an answer about a site rests on that is hardly known yet."""
        if self.context.capacity is None:
            yield "size guessed from the jobs that ran"
        if self.context.history.count < MIN_STARTED_JOBS:
            yield f"only {self.context.history.count} of its jobs have started so far"

    def _nodes_down(self) -> str | None:
        capacity = self.context.capacity
        if capacity is None or not capacity.nodes:
            return None
        return "nodes down" if capacity.down_nodes > self.settings.withhold_down * capacity.nodes else None

    @property
    def degraded(self) -> str | None:
        """Why predictions are worse than usual now, if they are."""
        found = []
        if self.lost:
            found.append("history lost: begun anew")
        if self.context.capacity is not None and self.context.capacity.down_nodes:
            found.append(f"{self.context.capacity.down_nodes} of {self.context.capacity.nodes or 'unknown'} nodes down")
        return "; ".join(found) or None

    def _live(self, event: JobEvent) -> Job | None:
        return self.context.state.jobs.get(event.key)

    def _remember(self, key: JobKey) -> None:
        self._remembered[key] = None
        if len(self._remembered) > self.settings.remembered:
            oldest = next(iter(self._remembered))
            del self._remembered[oldest]
            unseen = self.context.state.jobs.get(oldest)
            if unseen is not None:  # its end came and its start never did
                self.context.state.leave(unseen)
                self._forget(unseen)

    def _forget(self, job: Job) -> None:
        """A job left the queue and its wait will not be known."""
        for method in self._learning.values():
            method.forget(job.key)

    # What is kept.

    def take_changes(self) -> Changes:
        """What was learnt since this was last called; who stores nothing calls it to be rid of it."""
        changes, self._changes = self._changes, Changes()
        for name, rows in self.rows.items():
            changes.rows[name], changes.oldest[name] = rows.take_new(), rows.oldest
        return changes

    def checkpoint(self) -> tuple[bytes, Changes]:
        """The state now, and what was learnt since the last checkpoint, which the state does not repeat.

        O(live jobs), 1 µs each, and O(jobs that came and went since the last one).
        """
        changes, context = self.take_changes(), self.context
        saved = Saved(
            v=STATE_VERSION,
            site=self.site,
            jobs=list(context.state.jobs.values()),
            remembered=list(self._remembered),
            times=list(self._expiry.times),
            capacity=context.capacity,
            started=context.history.count,
            first=context.history.first,
            history=context.history.size,
            runs=context.runs.count,
            runs_kept=len(context.runs),
            forgotten=[run.number for run in changes.forgotten_runs],
            events=self.events,
            anomalies=self.anomalies,
            predictions=self.predictions,
            lost=self.lost,
            accuracy=self.accuracy,
            cancelled=self.cancelled,
            methods={name: method.save() for name, method in self._learning.items()},
            run_accuracy=self.run_accuracy,
            run_predictions=self.run_predictions,
            run_methods={name: method.save() for name, method in self.run_methods.items()},
            rows={name: KeptRows(rows.count, rows.oldest) for name, rows in self.rows.items()},
            most_cpus=context.most_cpus,
            weeks=list(self.weeks),
            queues=self.queues,
        )
        return msgspec.msgpack.encode(saved, enc_hook=encode_array), changes

    @classmethod
    def load(
        cls,
        saved: bytes | Saved,
        started: list[Started] | None,
        runs: list[Run] | None,
        settings: Settings | None = None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> "Engine":
        """An engine that goes on where the one that was saved stood.

        Rows beyond those the saved state counts are ignored: the stores may be ahead of it. Without rows (None: they
        are lost) it goes on with the live jobs, begins both histories anew, and says so in its predictions until
        `MIN_JOBS_TO_RECOVER` jobs have started.

        Raises:
            ValueError: the state is of a later version, or rows of the history are missing.
        """
        state = read_saved(saved) if isinstance(saved, bytes) else saved
        engine = cls(state.site, settings)
        for job in state.jobs:
            engine.context.state.enter(job)
        if started is None or runs is None:
            engine.lost = True
        else:
            engine._restore(state, started, runs, rows or {})
        engine.context.capacity, engine.context.most_cpus = state.capacity, state.most_cpus
        engine.events = state.events
        engine.anomalies = state.anomalies
        engine.lost = engine.lost or state.lost
        engine.predictions |= {name: count for name, count in state.predictions.items() if name in engine.methods}
        engine._remembered = dict.fromkeys(state.remembered)
        engine._expiry = Expiry(state.times)
        engine._expiry.watch_all(engine.context.state)
        engine.accuracy |= {name: kept for name, kept in state.accuracy.items() if name in engine.methods}
        engine.cancelled |= {name: kept for name, kept in state.cancelled.items() if name in engine.methods}
        engine.run_accuracy |= {name: kept for name, kept in state.run_accuracy.items() if name in engine.run_methods}
        engine.run_predictions |= {n: count for n, count in state.run_predictions.items() if n in engine.run_methods}
        engine.weeks.extend(state.weeks)
        engine.queues = state.queues
        engine._load_methods(state, with_rows=started is not None and runs is not None)
        return engine

    def _load_methods(self, state: Saved, with_rows: bool) -> None:
        kinds: tuple[tuple[Mapping[str, Method], dict[str, bytes]], ...]
        kinds = ((self._learning, state.methods), (self.run_methods, state.run_methods))
        for methods, saved in kinds:
            for name, method in methods.items():
                if name in saved and (with_rows or method.rows is None):
                    method.load(saved[name])

    def _restore(
        self, state: Saved, started: list[Started], runs: list[Run], rows: Mapping[str, Iterable[Row]]
    ) -> None:
        context = self.context
        context.history.restore(started, state.started, state.first, state.history)
        kept = kept_runs(state, runs)
        if len(kept) != state.runs_kept:
            raise ValueError(f"history of run times has {len(kept)} of {state.runs_kept} entries")
        read: list[Run] = []
        for run in kept:  # what is of templates that no method reads any longer is forgotten
            (read if run.category[0] in context.runs.templates else self._changes.forgotten_runs).append(run)
        context.runs.restore(read, state.runs)
        for name, own in self.rows.items():
            included = state.rows.get(name)
            if included is not None:
                own.restore(rows.get(name, ()), included.count, included.oldest)


def _planned_run_s(walltime: float | None, run_s: float | None) -> float:
    """The estimated run time: the requested walltime (0 is none), else what the job's category ran, else 0 s."""
    return walltime or run_s or 0.0


def _overtaken(job: Job, field: str, time: float) -> bool:
    """Whether a later change of this kind was seen, which this one must not undo; the latest one's time is noted."""
    latest: float = getattr(job, field)
    setattr(job, field, max(latest, time))
    return time < latest


def _stale(event: Event) -> Anomaly:
    """What a change is that was overtaken by a later one."""
    return Anomaly(f"stale_{event.kind}", f"the {event.kind} of {event.time} came after a later change", rejected=True)


def warm_up(settings: Settings | None = None) -> None:
    """Have the methods compile what they compile, so that no event in earnest has to wait for it; up to 20 s."""
    engine = Engine("warm-up", settings)
    for number in range(32):
        job, time = str(number), 100.0 * number
        walltime = 60.0 * (1 + number % 4)
        engine.apply(Submit(site=engine.site, time=time, job=job, user="u", cpus=1 + number % 3, walltime=walltime))
        engine.apply(Start(site=engine.site, time=time + number, job=job))
        engine.apply(End(site=engine.site, time=time + 99.0, job=job))
    state, changes = engine.checkpoint()
    Engine.load(state, changes.started, changes.runs, settings, changes.rows)


def read_saved(saved: bytes) -> Saved:
    """What `Engine.checkpoint` wrote.

    Raises:
        ValueError: it is of another version, or not such a state at all.
    """
    try:
        version = msgspec.msgpack.decode(saved, type=SavedVersion).v
        if version > STATE_VERSION:
            raise ValueError(f"state of version {version}, of a later queuecast; this one reads up to {STATE_VERSION}")
        raw = msgspec.msgpack.decode(saved, type=_Unread, dec_hook=decode_array)
        shared = Shared()
        jobs = [shared.settle(_decode_job(job)) for job in raw.jobs]
        return Saved(**{**msgspec.structs.asdict(raw), "jobs": jobs})
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a saved state: {error}") from error


class _Unread(Saved):
    """A saved state whose jobs are still to be decoded: one at a time they take half as much memory."""

    jobs: list[msgspec.Raw]  # type: ignore[assignment]


def kept_runs(state: Saved, runs: Iterable[Run]) -> list[Run]:
    """Those of the stored runs that the state includes."""
    forgotten = set(state.forgotten)
    return [run for run in runs if run.number <= state.runs and run.number not in forgotten]


def encode_array(value: Any) -> Any:
    """Arrays of features as bytes, for msgspec."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    raise TypeError(f"cannot store {type(value).__name__}")


def decode_array(kind: type, value: Any) -> Any:
    """The inverse of `encode_array`."""
    if kind is np.ndarray:
        features = np.frombuffer(value, dtype=np.float64).copy()
        if len(features) != COUNT:
            raise ValueError(f"{len(features)} features; expected {COUNT}")
        return features
    raise TypeError(f"cannot read {kind.__name__}")


_decode_job = msgspec.msgpack.Decoder(Job, dec_hook=decode_array).decode
