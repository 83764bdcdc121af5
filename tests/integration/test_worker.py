"""A worker on real servers: what it says is what a replay in this process says."""

from collections.abc import Callable

import pytest
from integration.worker import Deployment, interleaved, simulated
from traces import trace_path

from models.records import AnyEvent
from streams.feed import sources_of, timeline
from streams.swf import read_swf

pytestmark = pytest.mark.stack


def three_simulated_sites() -> list[AnyEvent]:
    return interleaved(simulated("alder", 400, 1), simulated("birch", 300, 2), simulated("cedar", 300, 3, "fcfs"))


def three_real_sites() -> list[AnyEvent]:
    names = ("CTC", "KTH", "SDSC-SP2")
    sources = sources_of([read_swf(trace_path(name)) for name in names], names)
    return [event for _, event in timeline(source.first(1000) for source in sources)]


@pytest.mark.parametrize("workload", [three_simulated_sites, pytest.param(three_real_sites, marks=pytest.mark.trace)])
def test_three_sites_at_once_are_predicted_as_by_a_replay_to_the_byte(
    deploy: Callable[..., Deployment], workload: Callable[[], list[AnyEvent]]
) -> None:
    events, here = workload(), deploy(history=600)
    expected = here.expected(events)
    here.worker.start()
    here.send(events)
    here.await_outputs(sum(map(len, expected.values())))
    here.stop()
    assert here.said() == expected
    assert len(expected) == 6
    assert here.dead_letters() == []
    for site in {event.site for event in events}:
        assert here.stored(site) == here.expected_in_redis(events, site)
