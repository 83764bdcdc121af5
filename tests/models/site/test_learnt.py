"""The set of departed jobs is exact within its limit and survives a restart."""

import msgspec
import pytest

from models.site.learnt import CHUNK_JOBS, ROWS_PER_MERGE, LearntJobs, LearntState

MERGE = CHUNK_JOBS * ROWS_PER_MERGE


def added(count: int, most: int = MERGE) -> LearntJobs:
    learnt = LearntJobs(most)
    for job in range(count):
        learnt.add((str(job), 0), float(job))
    return learnt


@pytest.mark.parametrize("count", [1, CHUNK_JOBS, MERGE - 1, MERGE, 3 * MERGE + 200])
def test_learned_jobs_contain_the_last_jobs_and_no_others(count: int) -> None:
    learnt = added(count)
    assert all((str(job), 0) in learnt for job in range(max(count - MERGE, 0), count))
    assert not any((str(job), 1) in learnt or (f"x{job}", 0) in learnt for job in range(count))
    unknown = [job for job in range(count) if (str(job), 0) not in learnt]
    assert all(learnt.may_have_departed(job, now=1e9) for job in unknown)
    assert bool(unknown) is learnt.may_have_departed(1.0, now=1e9)
    assert not learnt.may_have_departed(0.0, now=60.0)


@pytest.mark.parametrize("count", [1, MERGE - 1, MERGE, 2 * MERGE, 3 * MERGE + 200])
def test_restored_learned_jobs_contain_the_same_jobs(count: int) -> None:
    learnt, again = added(count), LearntJobs(MERGE)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(learnt.state), type=LearntState)
    again.restore(state, list(learnt.rows.numbered)[::-1], learnt.rows.count, learnt.rows.oldest)
    for job in range(count, count + MERGE):
        learnt.add((str(job), 0), float(job))
        again.add((str(job), 0), float(job))
        if job % 97 == 0:
            every = range(0, job, 31)
            assert [(str(one), 0) in learnt for one in every] == [(str(one), 0) in again for one in every]
    assert (learnt.state, list(learnt.rows.numbered)) == (again.state, list(again.rows.numbered))


def test_restore_of_learned_jobs_rejects_missing_rows() -> None:
    learnt, again = added(MERGE), LearntJobs(MERGE)
    with pytest.raises(ValueError, match="rows"):
        again.restore(learnt.state, list(learnt.rows.numbered)[1:], learnt.rows.count, learnt.rows.oldest)
