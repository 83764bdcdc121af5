"""Survey of a log: its jobs, its span, the machine that it shows, and the missing fields that would help."""

from collections import Counter

import msgspec

from models.records import Cancel, Capacity, End, Event, ExpectedStart, JobKey, Requeue, Start, Submit

SIZE_SHARE = 0.01
"""Amounts in use for at least this share of the time are counted as part of the machine.

The very most at once is too much, since logs have jobs that overlap by mistake: on five traces whose machines are known
it is 1.03 to 2.6 times their size, and this 0.95 to 1.06 times (338, 240, 100, 1152 and 128 processors: 341, 228, 100,
1168 and 135).
"""

LONG_S, MOST_BEFORE = 6 * 3600.0, 0.2
"""A log is taken to be cut off on the left where its first job leaves so long after the first event, and at most so
many of its jobs were submitted before that: in a short one they may be all there is."""


class UsageLevel(msgspec.Struct):
    """The amount of a resource in use: now, since when, the largest of one job, and the seconds at each amount.

    Amounts over 10,000 are rounded up to four digits, which bounds the number of distinct amounts.
    """

    now: int = 0
    since: float = 0.0
    largest: int = 0
    seconds: dict[int, float] = {}

    def change(self, by: int, time: float) -> None:
        """Add the amount that a job takes or, if negative, frees."""
        if self.now > 0:
            step = 10 ** max(len(str(self.now)) - 4, 0)
            amount = -(-self.now // step) * step
            self.seconds[amount] = self.seconds.get(amount, 0.0) + time - self.since
        self.now, self.since, self.largest = self.now + by, time, max(self.largest, by)

    @property
    def size(self) -> int:
        """Estimated lower bound of the machine's size: the largest job, or the amount in use for long enough."""
        remaining = SIZE_SHARE * sum(self.seconds.values())
        for amount in sorted(self.seconds, reverse=True):
            remaining -= self.seconds[amount]
            if remaining < 0:
                return max(amount, self.largest)
        return self.largest


class MachineUse(msgspec.Struct):
    """The resources that jobs used on a machine or on one of its partitions."""

    jobs: int = 0
    cpus: UsageLevel = msgspec.field(default_factory=UsageLevel)
    gpus: UsageLevel = msgspec.field(default_factory=UsageLevel)

    def take(self, cpus: int, gpus: int, time: float) -> None:
        """Add a job that has started or, with negative amounts, one that has left."""
        self.jobs += cpus > 0
        self.cpus.change(cpus, time)
        if gpus:
            self.gpus.change(gpus, time)


class FieldCounts(msgspec.Struct):
    """Number of submissions that state each field used for predictions."""

    walltime: int = 0
    user: int = 0
    queue: int = 0
    account: int = 0
    eligible: int = 0
    executable: int = 0


class Survey(msgspec.Struct):
    """Survey of one site in a log; times are Unix seconds.

    `capacity` is the first machine size that the log itself states; `machine`, `partitions` and `gpu_types` describe
    the use. A job's partition is where it ran, else the queue that it named. `first_departure` is when the first job
    left, and `before` is the number of submissions before that.
    """

    site: str
    events: int = 0
    begin: float = 0.0
    end: float = 0.0
    submits: int = 0
    arrays: int = 0
    starts: int = 0
    ends: int = 0
    cancels: int = 0
    requeues: int = 0
    fields: FieldCounts = msgspec.field(default_factory=FieldCounts)
    capacity: Capacity | None = None
    machine: MachineUse = msgspec.field(default_factory=MachineUse)
    partitions: dict[str, MachineUse] = {}
    gpu_types: dict[str, UsageLevel] = {}
    expected_by: dict[str, int] = {}
    states: Counter[str] = msgspec.field(default_factory=Counter)
    unsubmitted: int = 0
    unended: int = 0
    first_departure: float | None = None
    before: int = 0

    @property
    def cut(self) -> float | None:
        """Start of the log (Unix seconds) if it is left-truncated, else None.

        A query for the jobs of a time span also returns jobs submitted before it, but only those that outlived its
        beginning. The span begins at the latest when the first job leaves.
        """
        if self.first_departure is None or self.first_departure - self.begin < LONG_S:
            return None
        return self.first_departure if 0 < self.before <= MOST_BEFORE * self.submits else None


class _SurveyedJob(msgspec.Struct):
    """A job between its submit and its end, as far as the survey needs it."""

    cpus: int
    gpus: int
    partition: str | None
    gpu_types: dict[str, int] | None
    running: bool = False


class Surveyor:
    """Count the events of one site's log in time order; memory grows with the live jobs."""

    def __init__(self, site: str) -> None:
        self.survey = Survey(site)
        self._live: dict[JobKey, _SurveyedJob] = {}

    def add(self, event: Event) -> None:
        """Count an event."""
        survey = self.survey
        survey.begin = survey.begin if survey.events else event.time
        survey.end = event.time
        survey.events += 1
        if isinstance(event, Submit):
            self._submit(event)
        elif isinstance(event, Start):
            self._start(event)
        elif isinstance(event, End | Cancel | Requeue):
            self._leave(event)
        elif isinstance(event, ExpectedStart):
            survey.expected_by[event.by] = survey.expected_by.get(event.by, 0) + 1
        elif isinstance(event, Capacity) and survey.capacity is None:
            survey.capacity = event

    def _submit(self, event: Submit) -> None:
        survey, fields = self.survey, self.survey.fields
        survey.submits += 1
        survey.arrays += event.array_size is not None
        for name in fields.__struct_fields__:
            if getattr(event, name) is not None:
                setattr(fields, name, getattr(fields, name) + 1)
        self._live[event.key] = _SurveyedJob(event.cpus, event.gpus, event.queue, event.gpu_types)

    def _start(self, event: Start) -> None:
        survey = self.survey
        survey.starts += 1
        job = self._live.get(event.key)
        if job is None and event.array is not None:  # a task has its array's request
            row = self._live.get((event.array, event.attempt))
            job = self._live[event.key] = (
                _SurveyedJob(1, 0, None, None) if row is None else msgspec.structs.replace(row)
            )
        if job is None:
            survey.unsubmitted += 1
            job = self._live[event.key] = _SurveyedJob(1, 0, None, None)
        if job.running:
            return
        job.cpus = event.cpus or job.cpus
        job.gpus = job.gpus if event.gpus is None else event.gpus
        job.partition = event.partition or job.partition
        job.running = True
        self._use(job, 1, event.time)

    def _leave(self, event: End | Cancel | Requeue) -> None:
        survey = self.survey
        survey.ends += isinstance(event, End)
        survey.cancels += isinstance(event, Cancel)
        survey.requeues += isinstance(event, Requeue)
        if isinstance(event, End):
            survey.states[event.state] += 1
        if survey.first_departure is None:
            survey.first_departure, survey.before = event.time, survey.submits
        job = self._live.pop(event.key, None)
        if job is None:
            return
        if job.running:
            self._use(job, -1, event.time)
        if isinstance(event, Requeue):  # the next attempt has no submit of its own
            self._live[event.job, event.attempt + 1] = msgspec.structs.replace(job, running=False)

    def _use(self, job: _SurveyedJob, sign: int, time: float) -> None:
        survey = self.survey
        survey.machine.take(sign * job.cpus, sign * job.gpus, time)
        if job.partition is not None:
            survey.partitions.setdefault(job.partition, MachineUse()).take(sign * job.cpus, sign * job.gpus, time)
        for name, count in (job.gpu_types or {}).items():
            survey.gpu_types.setdefault(name, UsageLevel()).change(sign * count, time)

    def done(self) -> Survey:
        """Return the survey once all events have been counted."""
        self.survey.unended = sum(job.running for job in self._live.values())
        return self.survey
