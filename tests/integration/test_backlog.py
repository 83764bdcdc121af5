"""A worker processes the backlog of events, and the lag metric reaches zero."""

import pytest

from models.records import AnyEvent, Cancel, Submit
from tests.support.deployment import Deploy, jobs_predicted, metrics, until

pytestmark = pytest.mark.long

SITES = ("alder", "birch", "cedar", "hazel", "oak")  # over all partitions, two of them in one
JOBS = 1500


def brief_jobs() -> list[AnyEvent]:
    """Return jobs that are cancelled a second after their submit."""
    events: list[AnyEvent] = []
    for number in range(JOBS):
        site, job, time_s = SITES[number % len(SITES)], str(number), float(number)
        events.append(Submit(site=site, time=time_s, job=job, queue="batch", cpus=8, walltime=3600.0))
        events.append(Cancel(site=site, time=time_s + 1.0, job=job))
    return events


def test_worker_processes_backlog_until_lag_is_zero(deploy: Deploy) -> None:
    here, events = deploy(worker={"checkpoint_events": 1000}), brief_jobs()
    here.send(events)
    here.worker.start()
    lags: list[float] = []

    def worked_off() -> bool:
        shown = metrics(here.worker)
        lags.append(sum(shown["queuecast_consumer_lag_messages"].values()))
        return shown["queuecast_messages_read_total"][()] == len(events) and lags[-1] == 0

    until(worked_off)
    assert max(lags) <= len(events)
    here.stop()
    assert jobs_predicted(here) == JOBS
