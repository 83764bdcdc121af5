"""Heterogeneous jobs: the members of a group start together, when the last of them can."""

from collections.abc import Iterable

import msgspec

from models.engine.live_jobs import LiveJobs
from models.records import JobKey
from models.site.job import Estimate, Job


class Groups:
    """Tracks the live members of each group. O(members) for each job in a group."""

    def __init__(self, live: LiveJobs) -> None:
        self._live = live
        self._members: dict[str, dict[JobKey, None]] = {}  # some members may have left

    def join(self, job: Job) -> None:
        """Add a submitted job to its group."""
        name = job.extras.het_group
        if name is not None:
            self._members.setdefault(name, {})[job.key] = None

    def watch(self, jobs: Iterable[Job]) -> None:
        """Track restored jobs."""
        self._members = {}
        for job in jobs:
            self.join(job)

    def wait_together(self, job: Job) -> None:
        """Replace each estimate of a new job by the latest one of the known group members."""
        if job.extras.het_group is not None:
            for name, estimate in job.estimates.items():
                job.estimates[name] = self.latest(job, name, estimate)

    def latest(self, job: Job, method: str, own: Estimate, again: bool = False) -> Estimate:
        """Return a method's estimate of a job, or that of the group member with the latest start.

        Args:
            again: whether to use the later estimates of members, which only the default method makes.
        """
        found, start = own, job.ready + (own.wait_s or 0.0)
        if own.wait_s is None:
            return own
        for member in self._other_members(job):
            first = member.estimates.get(method)
            estimate = first if member.later is None or not again else member.later.estimate
            if estimate is not None and estimate.wait_s is not None and member.ready + estimate.wait_s > start:
                start = member.ready + estimate.wait_s
                found = _seen_from(job, member, estimate)
        return found

    def _other_members(self, job: Job) -> list[Job]:
        """Return the other members that have not started."""
        members = self._members.get(job.extras.het_group or "", {})
        known = [(key, self._live.get(key)) for key in members]
        found = [member for _, member in known if member is not None and member.start is None]
        for key, member in known:
            if member is None:
                del members[key]
        if not members:
            self._members.pop(job.extras.het_group or "", None)
        return [member for member in found if member.key != job.key]


def _seen_from(job: Job, member: Job, estimate: Estimate) -> Estimate:
    """Convert the estimate of a member to a wait of the job."""
    later_s = member.ready - job.ready
    bounds = None if estimate.bounds is None else {q: max(s + later_s, 0.0) for q, s in estimate.bounds.items()}
    reason = f"starts with job {member.id} of its group: {estimate.reason}"
    wait_s = (estimate.wait_s or 0.0) + later_s
    return msgspec.structs.replace(estimate, wait_s=wait_s, bounds=bounds, reason=reason)
