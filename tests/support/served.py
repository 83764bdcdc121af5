"""The HTTP service with its page on a real worker, whose sites have all that a page may have to show."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from deploy.local.stack import LocalStack
from deploy.local.up import ServeProcess
from models.records import AnyEvent, Capacity, End, Partition, Pool, Start, Submit
from streams.settings import Settings
from tests.support.browser import Browser
from tests.support.deployment import Deployment, interleaved, settings_on, simulated, until

HOSTILE = "<img src=x onerror=\"document.title='had'\">"
JOB = {"cpus": 16, "walltime": "4h"}
ROWS = "#ranking tbody tr:not(.about)"
SLASHED = "ro ss/ä"
LIVE = ("queued_jobs", "running_jobs", "free_cpus")


def hostile_site() -> list[AnyEvent]:
    """A site whose every name is markup, with a job that runs and two that queue."""
    made: list[AnyEvent] = [Capacity(site=HOSTILE, time=0.0, cpus=8)]
    made += [
        Submit(site=HOSTILE, time=10.0 + n, job=f"<b>{n}</b>", user=HOSTILE, queue="<i>q</i>", cpus=8, walltime=3600.0)
        for n in range(3)
    ]
    return [*made, Start(site=HOSTILE, time=20.0, job="<b>0</b>")]


def slashed_site() -> list[AnyEvent]:
    """A site whose name has a slash in it, with GPUs, and a job that has queued for a day although there is room."""
    made: list[AnyEvent] = [
        Capacity(
            site=SLASHED,
            time=0.0,
            cpus=64,
            nodes=4,
            pools=[Pool(name="card", nodes=4, cpus=16, gpus={"a100": 2})],
            partitions=[Partition(name="gpu", pools=["card"], default=True)],
        )
    ]
    for number in range(40):
        key: dict[str, Any] = {"site": SLASHED, "job": str(number)}
        at = 3000.0 * number
        made.append(Submit(**key, time=at, user="bob", queue="gpu", cpus=4, gpus=1, walltime=3600.0))
        made.append(Start(**key, time=at + 5.0))
        if number < 38:
            made.append(End(**key, time=at + 1000.0))
    held = Submit(site=SLASHED, time=100.0, job="held", user="ada", queue="gpu", cpus=4, gpus=1, walltime=3600.0)
    return sorted([*made, held], key=lambda event: event.time)


ALDER, BIRCH = simulated("alder", 200), simulated("birch", 200, seed=2, policy="fcfs")
FIRST = interleaved(ALDER[: len(ALDER) * 2 // 3], BIRCH[: len(BIRCH) * 2 // 3])
LATER = ALDER[len(ALDER) * 2 // 3 :][:40]


def with_serve(settings: Settings, **serve: Any) -> Settings:
    """The settings with others in the section `serve`."""
    return msgspec.structs.replace(settings, serve=msgspec.structs.replace(settings.serve, **serve))


class Served:
    """A deployment and the HTTP service on it."""

    def __init__(self, here: Deployment, directory: Path) -> None:
        self.here = here
        self.process = ServeProcess(directory, with_serve(here.settings, answer_timeout_seconds=25.0))

    @property
    def url(self) -> str:
        return f"http://{self.process.address}/"

    def get(self, path: str, **parameters: object) -> Any:
        """The service's own answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        query = f"?{urlencode(parameters)}" if parameters else ""
        with opener.open(f"{self.url}v1/{path}{query}", timeout=120) as answer:
            return json.load(answer)

    def settled(self, site: str, time: float) -> bool:
        """Whether the worker and the grid estimates know the site's events up to this time."""
        with suppress(OSError):
            stands = {known["site"]: known["live"] for known in self.get("sites")["sites"]}
            knows = self.get(f"sites/{quote(site, safe='')}")
            return bool(stands.get(site) == knows["live"] and knows["made_at"] == time)
        return False


@contextmanager
def serving(stack: LocalStack, directory: Path) -> Iterator[Served]:
    """Four sites with queued and running jobs, one of them with hostile names, one with a slash in its name."""
    fresh = {"refresh_seconds": 0.5, "cpu_share": 0.5, "min_change": 0.0}
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, {}, {"history": 150}, estimates=fresh)
    here = Deployment(settings, directory / "worker")
    served = Served(here, directory / "serve")
    try:
        here.worker.start()
        here.send(interleaved(FIRST, hostile_site(), slashed_site()))
        served.process.start()
        last = {event.site: event.time for event in (*FIRST, *hostile_site(), *slashed_site())}
        until(lambda: all(served.settled(site, time) for site, time in last.items()))
        yield served
    finally:
        served.process.kill()
        here.close()


def sites_shown(browser: Browser) -> None:
    """Wait until every site has been queried, too."""
    browser.until(lambda: len(browser.all(".one")) == 4)
    browser.run("document.querySelectorAll('details.one').forEach(details => details.open = true)")
    browser.until(lambda: len(browser.all(".one .facts")) == 4)
