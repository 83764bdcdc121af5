"""Waits by simulating the policy that the site turns out to have.

Nobody tells which policy a site's scheduler follows, but the waits do: now and then a submission is tried with every
simulated policy, and the one whose waits have come nearest since is the one that answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from models.method import Site, WaitMethod
from models.records import JobKey
from models.simulated import (
    Plans,
    Simulated,
    SimulatedConservative,
    SimulatedEasy,
    SimulatedFcfs,
    SimulatedLwf,
)
from models.state import Estimate, Job

POLICIES: tuple[type[Simulated], ...] = (SimulatedEasy, SimulatedConservative, SimulatedLwf, SimulatedFcfs)
"""What is tried; until enough is known, and of equals, the first."""

ENOUGH = 20
"""Jobs that must have started after being tried with every policy."""

KEPT = 0.998
"""What the tries before still count when there is one more: schedulers are configured anew."""

Tried = dict[str, float]
"""The waits in seconds that a job was predicted by each policy."""


class _Kept(msgspec.Struct, array_like=True):
    """What is saved; the first is what the policies save."""

    policies: dict[str, bytes]
    seen: int
    tries: int
    errors: dict[str, float]
    pending: list[tuple[JobKey, Tried]]


class Policy(WaitMethod):
    """The simulated policy with the least mean error of late; see the module.

    Parameters:
        every: of so many submissions one is tried with every policy, as the first ones all are; for the others only the
            best is simulated.
        plans: as of `Simulated`.
    """

    name: ClassVar[str] = "policy"
    tunable: ClassVar[Mapping[str, Any]] = {**Simulated.tunable, "every": Annotated[int, Meta(ge=1, le=10_000)]}

    def __init__(self, every: int = 8, plans: Plans = "walltime") -> None:
        self.every = every
        self._policies: dict[str, Simulated] = {kind.name: kind(plans) for kind in POLICIES}
        self._seen = 0
        self._tries = 0
        self._errors = dict.fromkeys(self._policies, 0.0)
        self._pending: dict[JobKey, Tried] = {}

    @property
    def best(self) -> Simulated:
        """The policy that answers now."""
        found = min(self._errors, key=self._errors.__getitem__) if self._tries >= ENOUGH else POLICIES[0].name
        return self._policies[found]

    def predict(self, job: Job, site: Site) -> Estimate:
        """The wait by the best policy; in its turn the job is tried with the others too."""
        best, turn = self.best, self._tries < ENOUGH or self._seen % self.every == 0
        self._seen += 1
        if not turn:
            return best.predict(job, site)
        found = {name: policy.predict(job, site) for name, policy in self._policies.items()}
        waits = {name: estimate.wait_s for name, estimate in found.items() if estimate.wait_s is not None}
        if len(waits) == len(found):
            self._pending[job.key] = waits
        return found[best.name]

    def what_ifs(self, jobs: Iterable[Job], site: Site) -> Iterator[Estimate]:
        """What the best policy would say."""
        return self.best.what_ifs(jobs, site)

    def starts(self, site: Site, now: float) -> Mapping[JobKey, float]:
        """When the queued jobs will start by the best policy."""
        return self.best.starts(site, now)

    def learn(self, job: Job, wait_s: float, site: Site) -> None:
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
        return _encode(_Kept(policies, self._seen, self._tries, self._errors, list(self._pending.items())))

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
        kept = _decode(saved)
        for name, policy in self._policies.items():
            if name in kept.policies:
                policy.load(kept.policies[name])
        self._seen, self._tries = kept.seen, kept.tries
        self._errors |= {name: error for name, error in kept.errors.items() if name in self._errors}
        self._pending = {key: tried for key, tried in kept.pending if tried.keys() >= self._errors.keys()}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode
