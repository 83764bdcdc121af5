"""Decoded jobs share equal values in memory; unshared values are released."""

import gc
import sys

from models.site.job import Estimate, Job
from models.site.shared import ValueInterner

JOBS = 25_000


def read_back(number: int) -> Job:
    """Return a job as decoded, with its own copies of all strings."""
    user, name = f"user {number % 7}", "".join(("ble", "nd"))
    return Job(
        str(number), 0, 0.0, user=user, estimates={name: Estimate(1.0, f"reason {number}", {"0.9": 2.0 + number})}
    )


def test_shared_jobs_have_common_names_and_own_values() -> None:
    shared = ValueInterner()
    jobs = [shared.settle(read_back(number)) for number in range(JOBS)]
    assert len({id(job.user) for job in jobs}) < 7 * 10
    assert [job.estimates["blend"].reason for job in jobs] == [f"reason {number}" for number in range(JOBS)]
    assert [job.estimates["blend"].bounds for job in jobs] == [{"0.9": 2.0 + number} for number in range(JOBS)]


def test_interner_releases_values_with_their_last_job() -> None:
    shared, seen = ValueInterner(), shared_reason()
    before = sys.getrefcount(seen)
    job = shared.settle(Job("0", 0, 0.0, estimates={"blend": Estimate(1.0, seen)}))
    assert sys.getrefcount(seen) > before
    for number in range(1, JOBS):
        shared.settle(read_back(number))
    del job
    gc.collect()
    assert sys.getrefcount(seen) == before


def shared_reason() -> str:
    return " ".join(["a", "reason"])
