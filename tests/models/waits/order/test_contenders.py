"""Queued jobs that could have started instead of the job that started."""

import numpy as np
import pytest

from models.waits.order.contenders import chosen, could_start
from models.waits.order.ordered_queue import before
from models.waits.order.pair_preference import Preference
from models.waits.order.schedule import Limits
from models.waits.order.site_view import SiteView
from tests.support.queues import Row, limits_of, people_of, queued_of, running_of

CPUS = 10
HOUR_S = 3600.0


def sight(queued: list[Row], running: list[Row]) -> SiteView:
    """Build a site without a topology; the queued jobs were submitted an hour apart."""
    jobs, on = queued_of(queued, [HOUR_S * (len(queued) - place) for place in range(len(queued))]), running_of(running)
    count = len(queued)
    return SiteView(
        0.0, CPUS, np.arange(count), jobs, on, people_of(9, on), None, np.ones(count), True, np.ones(count, np.int64)
    )


def could(seen: SiteView, started: int, limits: Limits) -> list[int]:
    found = could_start(
        seen.queued, seen.running, seen.people, CPUS, seen.free, started, before(seen), Preference().weights, limits
    )
    return list(chosen(found, seen.tasks)[0].tolist())


def contenders(queued: list[Row], running: list[Row], started: int = -1, limits: Limits | None = None) -> list[int]:
    """Return the contenders of a job of the queue, by default the last one."""
    return could(sight(queued, running), started % len(queued), limits or Limits())


def job(cpus: int, user: int, hours: float = 1.0) -> Row:
    return cpus, hours * HOUR_S, hours * HOUR_S, user


def test_contenders_are_similar_jobs_that_fit() -> None:
    queued = [job(4, 1), job(1, 2), job(4, 3, 0.25), job(4, 4, 2.0), job(7, 5), job(4, 6)]
    assert contenders(queued, [job(4, 7)], started=0) == [3, 5]


def test_contenders_exclude_other_jobs_of_the_same_user() -> None:
    assert contenders([job(4, 1), job(4, 2), job(4, 1)], []) == [1]
    assert contenders([job(4, 0), job(4, 2), job(4, 0)], []) == [0, 1]


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        (Limits(), [0, 1]),
        (Limits(several=6.0), [1]),
        (Limits(jobs=1.0), [1]),
        (Limits(alone=3.0), [0]),  # does not apply to a user with running jobs
    ],
)
def test_contenders_exclude_jobs_kept_by_a_limit(limits: Limits, found: list[int]) -> None:
    assert contenders([job(4, 1), job(4, 2), job(4, 3)], [job(3, 1)], limits=limits) == found


def test_contenders_exclude_jobs_kept_by_a_queue_limit() -> None:
    seen = sight([job(4, 1), job(4, 2), job(4, 3)], [job(3, 4)])
    queued, running = (
        part._replace(queue=np.array(places)) for part, places in ((seen.queued, [40, 41, 41]), (seen.running, [40]))
    )
    seen = seen._replace(queued=queued, running=running)
    for most, others in ((6.0, [1]), (7.0, [0, 1])):
        assert could(seen, 2, limits_of({40: most})) == others


def test_contenders_exclude_jobs_that_delay_the_head() -> None:
    head, running = job(9, 8), [job(6, 7, 3.0)]
    assert contenders([head, job(2, 1, 2.0), job(2, 2, 4.0), job(2, 3, 2.0)], running) == [1]
    assert contenders([head, job(1, 1, 2.0), job(1, 2, 4.0), job(1, 3, 2.0)], running) == [1, 2]  # one CPU remains
    head_last = [job(2, 1, 2.0), job(2, 2, 4.0), job(2, 3, 2.0), head]
    assert contenders(head_last, running, started=2) == [0, 1]  # it is first


def test_contenders_of_a_start_on_reserved_cpus_are_empty() -> None:
    assert contenders([job(9, 8), job(2, 1, 4.0), job(2, 3, 4.0)], [job(6, 7, 3.0)]) == []


def test_job_kept_by_a_limit_has_no_reservation() -> None:
    queued, running = [job(9, 8), job(2, 1, 4.0), job(2, 3, 4.0)], [job(6, 7, 3.0)]
    assert contenders(queued, running, limits=Limits(alone=8.0)) == [1]


def test_contenders_of_a_long_queue_are_sampled_evenly() -> None:
    queued = [job(1, 0) for _ in range(100)]
    found = np.diff(contenders(queued, []))
    assert len(found) == 11 and set(found.tolist()) <= {8, 9}
