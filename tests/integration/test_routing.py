"""Jobs are routed through a real Kafka to the same sites as by engines in this process."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from models.records import AnyEvent, Capacity, WaitAnswer, WaitQuestion
from models.site.job import REQUEST, Job
from streams.client.client import QuestionClient
from streams.client.pending_questions import new_id
from tests.simulation.grid import GridSite, Load, RoutingResult, route
from tests.simulation.routing import WHAT_IF_SETTINGS, ByWhatIf, ShortestQueue
from tests.support.deployment import Deploy, Deployment, ready, until

pytestmark = pytest.mark.long

SITES = (
    GridSite("alder", 128, 0.60, "easy"),
    GridSite("birch", 64, 0.65, "conservative"),
    GridSite("cedar", 64, 0.45, "lwf"),
)
DAYS, SHARE = 3.0, 0.45

POLICIES = {site.name: site.policy for site in SITES}


class ThroughKafka:
    """Send the sites' events to a worker, and query it for the site with the shortest wait."""

    def __init__(self, here: Deployment, client: QuestionClient, loop: asyncio.AbstractEventLoop) -> None:
        self._here = here
        self._client = client
        self._loop = loop
        self._cpus: dict[str, int] = {}
        self.questions = 0

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Send the events."""
        for event in events:
            if isinstance(event, Capacity):
                self._cpus[event.site] = event.cpus
            value = msgspec.json.encode(event)
            self._here.producer.send(self._here.topics.events, key=event.site.encode(), value=value)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the site with the shortest wait, after its clock has advanced."""
        self.observe([Capacity(site=site, time=job.submit, cpus=self._cpus[site]) for site in sites])
        self._here.producer.flush()
        waits = asyncio.run_coroutine_threadsafe(self._ask_all(job, sites), self._loop).result(timeout=300)
        self.questions += len(sites)
        return min(sites, key=dict(zip(sites, waits, strict=True)).__getitem__)

    async def _ask_all(self, job: Job, sites: Sequence[str]) -> list[float]:
        return await asyncio.gather(*(self._ask(job, site) for site in sites))

    async def _ask(self, job: Job, site: str) -> float:
        while True:
            request = {name: getattr(job, name) for name in REQUEST}
            answer = await self._client.ask(WaitQuestion(id=new_id(), site=site, **request))
            if isinstance(answer, WaitAnswer) and answer.made_at >= job.submit:
                return float("inf") if answer.cautious_wait_s is msgspec.UNSET else answer.cautious_wait_s
            await asyncio.sleep(0.002)


@contextmanager
def querying(here: Deployment) -> Iterator[ThroughKafka]:
    """A client in a separate event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serve = msgspec.structs.replace(here.settings.serve, answer_timeout_seconds=60.0)
    client = QuestionClient(msgspec.structs.replace(here.settings, serve=serve), outcomes=False)
    try:
        asyncio.run_coroutine_threadsafe(client.start(), loop).result(timeout=300)
        yield ThroughKafka(here, client, loop)
    finally:
        asyncio.run_coroutine_threadsafe(client.stop(), loop).result(timeout=300)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def places(routed: RoutingResult) -> list[tuple[str, str]]:
    return [(placed.job.job, placed.site) for placed in routed.routed]


def test_routing_through_kafka_equals_routing_in_process(deploy: Deploy) -> None:
    settings = msgspec.structs.replace(WHAT_IF_SETTINGS, policy_by_site=POLICIES)
    changes = {
        "method": settings.method,
        "shadows": (),
        "bounds": "",
        "policy_by_site": POLICIES,
        "history": settings.history,
    }
    here = deploy(**changes)
    here.worker.start()
    until(lambda: ready(here.worker))
    load = Load.of(SITES, 11, DAYS, SHARE)
    with querying(here) as router:
        through = route(SITES, load, router)
    within, blind = route(SITES, load, ByWhatIf(settings)), route(SITES, load, ShortestQueue())
    assert places(through) == places(within) != places(blind)
    assert len({site for _, site in places(through)}) == len(SITES)
    assert router.questions >= 2 * len(load.routed) > 100
    here.stop()
    assert not here.dead_letters()
