"""Cost of grid estimates: event rate of a worker with and without them, in turns on the same events."""

from models.records import AnyEvent, Capacity, Submit
from tests.benchmarks.test_worker_speed import JOBS, SITES, Outputs
from tests.support.deployment import Deploy, Deployment, busy_sites

TURNS = 3
LEAST_RATIO = 0.6
"""Minimum ratio to the rate without estimates; the target is 0.9. Measured values are printed."""

OFTEN = {"refresh_seconds": 1.0, "min_change": 0.0}
"""Thirty times the default frequency, as the events of weeks pass in seconds here."""


def rate(here: Deployment, events: list[AnyEvent]) -> float:
    """Return the events per second, from the first record to the last."""
    here.send(events)
    here.worker.start()
    outputs = Outputs(here, here.topics.predictions, here.topics.outcomes)
    left = sum(not isinstance(event, (Capacity, Submit)) for event in events)  # each has one outcome
    outputs.await_count(left, here.topics.outcomes)
    here.worker.kill()
    return len(events) / outputs.seconds


def test_event_rate_with_estimates_is_near_rate_without(deploy: Deploy) -> None:
    events = busy_sites(SITES, JOBS)
    rates: dict[str, list[float]] = {"without": [], "with": []}
    records = 0
    for _ in range(TURNS):
        rates["without"].append(rate(deploy(history=6000, estimates={"enabled": False}), events))
        here = deploy(history=6000, estimates=OFTEN)
        rates["with"].append(rate(here, events))
        records += Outputs(here, here.topics.estimates).written
    without, with_ = max(rates["without"]), max(rates["with"])
    summary = f"without estimates {without:.0f} events/s, with them {with_:.0f} events/s: ratio {with_ / without:.2f}"
    print(f"\n{summary}; {records / TURNS:.0f} estimates a turn")
    assert records > 0
    assert with_ >= LEAST_RATIO * without
