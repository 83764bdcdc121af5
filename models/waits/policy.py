"""Waits by simulating the policy that fits the site best.

A site does not report the policy of its scheduler, but the waits show it. Some submissions are simulated with every
policy. The policy whose waits were closest to the true ones predicts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from models.arrays import Floats
from models.method import Memory, Method, SiteContext, WaitMethod
from models.records import JobKey
from models.site.job import Estimate, Job
from models.site.rows import PerJob
from models.stored_values import encode, reader
from models.waits.simulated import (
    Plans,
    Simulated,
    SimulatedConservative,
    SimulatedEasy,
    SimulatedFcfs,
    SimulatedLwf,
)

POLICIES: tuple[type[Simulated], ...] = (SimulatedEasy, SimulatedConservative, SimulatedLwf, SimulatedFcfs)
"""The policies that are tried. The first is the usual one, which predicts until another has been more accurate."""

SCHEDULES = {kind.name: kind.schedule for kind in POLICIES}

MIN_TRIED_JOBS, FIRST_TRIED_JOBS = 20, 100
"""Tried jobs that must have started before another policy may be chosen; and the number up to which all are tried."""

MAX_ERROR_RATIO = 0.9  # maximum error of a policy, relative to the usual one's, to be preferred to it
ERROR_DECAY = 0.998  # the decay of errors, since schedulers are reconfigured

LIVE_JOBS_PER_STEP, MAX_LIVE_JOBS = 100, 3000
"""Live jobs that double the cost of a trial; and the number above which a trial takes too long."""

WaitsByPolicy = dict[str, float]  # the predicted waits in seconds by each policy


class _PolicyTrials(msgspec.Struct, array_like=True):
    """Submissions since the last that was tried, tried jobs that have started, and the errors of the policies."""

    since: int
    tries: int
    errors: dict[str, float]


class Policy(WaitMethod):
    """The simulated policy with the least recent mean error; see the module.

    Args:
        every: one of this many submissions is tried with every policy. Each `LIVE_JOBS_PER_STEP` live jobs increase the
            number by the same amount, since a trial costs more. The first `FIRST_TRIED_JOBS` submissions are all tried;
            with more than `MAX_LIVE_JOBS` live jobs none is.
        plans: as in `Simulated`.
        decay: the factor by which each trial reduces the weight of earlier errors.
    """

    name: ClassVar[str] = "policy"
    tunable: ClassVar[Mapping[str, Any]] = {**Simulated.tunable, "every": Annotated[int, Meta(ge=1, le=10_000)]}

    def __init__(self, every: int = 8, plans: Plans = "walltime", decay: float = ERROR_DECAY) -> None:
        self.every, self._decay = every, decay
        self._policies: dict[str, Simulated] = {kind.name: kind(plans) for kind in POLICIES}
        self._trial = POLICIES[0](plans)
        self._tried = _PolicyTrials(0, 0, dict.fromkeys(self._policies, 0.0))
        self.per_job: PerJob[WaitsByPolicy] = PerJob(WaitsByPolicy, self._check_tried)
        """The predicted waits by each policy, of the tried jobs that still queue."""

    @property
    def memory(self) -> Memory:
        """Number of jobs within which the errors cover enough trials."""
        tried = round(self.every / (1 - self._decay))
        return Memory(tried, tried)

    @property
    def parts(self) -> Mapping[str, Method]:
        """The policies, and the method for the trials."""
        return {**self._policies, "trial": self._trial}

    @property
    def best(self) -> Simulated:
        """The policy that predicts now."""
        usual = POLICIES[0].name
        tries, errors = self._tried.tries, self._tried.errors
        found = min(errors, key=errors.__getitem__)
        surely = tries >= MIN_TRIED_JOBS and errors[found] <= MAX_ERROR_RATIO * errors[usual]
        return self._policies[found if surely else usual]

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait by the best policy; some jobs are tried with all policies."""
        estimate = self.best.predict(job, context)
        self.notice(job, context)
        return estimate

    def notice(self, job: Job, context: SiteContext) -> None:
        """Try the job with every policy, if it is its turn."""
        self._tried.since += 1
        if self._has_turn(len(context.state)):
            self._tried.since = 0
            waits = self._trial.waits(job, context, SCHEDULES)
            if waits is not None:
                self.per_job.put(job.key, waits)

    def _has_turn(self, live: int) -> bool:
        if live > MAX_LIVE_JOBS:
            return False
        first = self._tried.tries < FIRST_TRIED_JOBS and len(self.per_job) < FIRST_TRIED_JOBS
        return first or self._tried.since >= self.every * (1 + live // LIVE_JOBS_PER_STEP)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Return the estimates of the best policy."""
        return self.best.what_ifs(jobs, context)

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the start times of the queued jobs by the best policy."""
        return self.best.starts(context, now)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Update each policy's error with a job that started, if it was tried."""
        tried = self.per_job.pop(job.key)
        if tried is not None:
            self._tried.tries += 1
            for name, error_s in self._tried.errors.items():
                self._tried.errors[name] = self._decay * error_s + abs(tried[name] - wait_s)

    def forget(self, key: JobKey) -> None:
        """Drop a job whose wait will stay unknown."""
        self.per_job.pop(key)

    def save(self) -> bytes:
        """Serialize the errors."""
        return encode(self._tried)

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`.

        Raises:
            ValueError: it is not such a state.
        """
        found = _read(saved)
        if found.errors.keys() != self._policies.keys():
            raise ValueError(f"errors of {', '.join(sorted(found.errors))}; expected {', '.join(self._policies)}")
        self._tried = found

    def _check_tried(self, waits: WaitsByPolicy) -> None:
        if missing := self._policies.keys() - waits.keys():
            raise ValueError(f"no waits by {', '.join(sorted(missing))}")


_read = reader(_PolicyTrials, "what the policies saved")
