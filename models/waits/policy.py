"""Waits by simulating the policy that the site turns out to have.

Nobody tells which policy a site's scheduler follows, but the waits do: now and then a submission is tried with every
simulated policy, and the one whose waits have come nearest since is the one that answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from models.method import SiteContext, WaitMethod
from models.records import JobKey
from models.site.state import Estimate, Job
from models.waits.simulated import (
    Plans,
    Simulated,
    SimulatedConservative,
    SimulatedEasy,
    SimulatedFcfs,
    SimulatedLwf,
)

POLICIES: tuple[type[Simulated], ...] = (SimulatedEasy, SimulatedConservative, SimulatedLwf, SimulatedFcfs)
"""What is tried. The first is the usual one, which answers until another is known to be better."""

SCHEDULES = {kind.name: kind.schedule for kind in POLICIES}

ENOUGH, FIRST = 20, 100
"""Jobs that must have started after being tried with every policy; until so many have, all are tried."""

BETTER = 0.9
"""What a policy's error must be at most, as a share of the usual one's, to be preferred to that."""

KEPT = 0.998
"""What the tries before still count when there is one more: schedulers are configured anew."""

JOBS, MOST_JOBS = 100, 3000
"""Live jobs: so many more make a try dearer by as much as one costs at least, and over so many it takes too long."""

Tried = dict[str, float]
"""The waits in seconds that a job was predicted by each policy."""


class _Kept(msgspec.Struct, array_like=True):
    """What is saved; the first two are what the policies save."""

    policies: dict[str, bytes]
    trial: bytes
    since: int
    tries: int
    errors: dict[str, float]
    pending: list[tuple[JobKey, Tried]]


class Policy(WaitMethod):
    """The simulated policy with the least mean error of late; see the module.

    Parameters:
        every: of so many submissions, and as many again for each `JOBS` live jobs, one is tried with every policy: the
            dearer it is, the less often. The first ones all are; where there are over `MOST_JOBS`, none is.
        plans: as of `Simulated`.
    """

    name: ClassVar[str] = "policy"
    tunable: ClassVar[Mapping[str, Any]] = {**Simulated.tunable, "every": Annotated[int, Meta(ge=1, le=10_000)]}

    def __init__(self, every: int = 8, plans: Plans = "walltime") -> None:
        self.every = every
        self._policies: dict[str, Simulated] = {kind.name: kind(plans) for kind in POLICIES}
        self._trial = POLICIES[0](plans)
        self._since = 0  # submissions since the last that was tried
        self._tries = 0
        self._errors = dict.fromkeys(self._policies, 0.0)
        self._pending: dict[JobKey, Tried] = {}

    @property
    def best(self) -> Simulated:
        """The policy that answers now."""
        usual = POLICIES[0].name
        found = min(self._errors, key=self._errors.__getitem__)
        surely = self._tries >= ENOUGH and self._errors[found] <= BETTER * self._errors[usual]
        return self._policies[found if surely else usual]

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """The wait by the best policy; in its turn the job is tried with the others too."""
        estimate = self.best.predict(job, context)
        self.notice(job, context)
        return estimate

    def notice(self, job: Job, context: SiteContext) -> None:
        """Try the job with every policy, if it is its turn."""
        self._since += 1
        if self._has_turn(len(context.state)):
            self._since = 0
            waits = self._trial.waits(job, context, SCHEDULES)
            if waits is not None:
                self._pending[job.key] = waits

    def _has_turn(self, live: int) -> bool:
        if live > MOST_JOBS:
            return False
        first = self._tries < FIRST and len(self._pending) < FIRST
        return first or self._since >= self.every * (1 + live // JOBS)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """What the best policy would say."""
        return self.best.what_ifs(jobs, context)

    def starts(self, context: SiteContext, now: float) -> Mapping[JobKey, float]:
        """When the queued jobs will start by the best policy."""
        return self.best.starts(context, now)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started: if it was tried, each policy's error is known."""
        tried = self._pending.pop(job.key, None)
        if tried is not None:
            self._tries += 1
            for name, error_s in self._errors.items():
                self._errors[name] = KEPT * error_s + abs(tried[name] - wait_s)

    def forget(self, key: JobKey) -> None:
        """The job's wait will not be known."""
        self._pending.pop(key, None)

    def save(self) -> bytes:
        """The errors so far, and what was tried of jobs that still queue."""
        policies = {name: policy.save() for name, policy in self._policies.items()}
        pending = list(self._pending.items())
        return _encode(_Kept(policies, self._trial.save(), self._since, self._tries, self._errors, pending))

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
        kept = _decode(saved)
        for name, policy in self._policies.items():
            if name in kept.policies:
                policy.load(kept.policies[name])
        self._trial.load(kept.trial)
        self._since, self._tries = kept.since, kept.tries
        self._errors |= {name: error for name, error in kept.errors.items() if name in self._errors}
        self._pending = {key: tried for key, tried in kept.pending if tried.keys() >= self._errors.keys()}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode
