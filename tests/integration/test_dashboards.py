"""All dashboard queries and recording rules have data from a real worker."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
import pytest
import yaml

from deploy.local.stack import Prometheus, free_port
from deploy.local.stack.servers import RULES
from deploy.local.up import ServeProcess
from models.records import AnyEvent, Capacity, Partition, Pool, Submit, WaitQuestion
from streams.notify.metrics import NotifyCounts
from streams.process.scraping import serve_metrics
from streams.sources.contract import Calls
from streams.sources.live_source import Watch
from tests.support import scraped
from tests.support.dashboards import FILES, panel_queries
from tests.support.deployment import PATIENCE_S, Deploy, Deployment, Message, simulated, until

pytestmark = pytest.mark.long

INTERVAL_S = 0.5
"""Between scrapes, and between evaluations of the rules."""

VARIABLES = {"window": "2m", "__rate_interval": "5s"}

SITE = b"alder"

JOBS = 2500
"""Enough jobs that events continue during the whole test."""


@pytest.fixture
def rules(tmp_path: Path) -> list[Path]:
    """Return the project's rules, evaluated at Prometheus' default interval."""
    for file in RULES:
        document = yaml.safe_load(file.read_text())
        for group in document["groups"]:
            group.pop("interval", None)
        (tmp_path / file.name).write_text(yaml.safe_dump(document))
    return [tmp_path / file.name for file in RULES]


@pytest.fixture
def prometheus(tmp_path: Path, rules: list[Path]) -> Iterator[Prometheus]:
    with scraped.prometheus(tmp_path / "prometheus", INTERVAL_S, rules) as server:
        yield server


def trouble(events: Sequence[AnyEvent]) -> Iterator[Message]:
    """Return an invalid message, an event with an implausible time, and repeated events."""
    yield SITE, b"not an event"
    unbelieved = msgspec.structs.replace(events[0], time=1e11)
    yield from ((SITE, msgspec.json.encode(event)) for event in (unbelieved, *events))


def ask(here: Deployment) -> None:
    question = msgspec.json.encode(WaitQuestion(id="q", site=SITE.decode(), cpus=16, walltime=3600.0, user="u1"))
    here.producer.send(here.topics.questions, key=SITE, value=question)


def look(url: str) -> None:
    """Read a page of the HTTP service, and get a rejection under another host name."""
    for headers in ({}, {"Host": "elsewhere"}):
        request = Request(url, headers=headers)
        with suppress(HTTPError), build_opener(ProxyHandler({})).open(request, timeout=PATIENCE_S) as answer:
            answer.read()


def cluster(time: float) -> Capacity:
    """Return the capacity of another site, with partitions."""
    pool = Pool(name="card", nodes=2, cpus=8, gpus={"a100": 4})
    return Capacity(
        site="cluster", time=time, cpus=16, pools=[pool], partitions=[Partition(name="gpu", pools=["card"])]
    )


def named(event: AnyEvent) -> AnyEvent:
    """Return the event, with an account for submits."""
    return msgspec.structs.replace(event, account="physics") if isinstance(event, Submit) else event


def queries() -> dict[str, str]:
    """Return all queries that must have data, and their places."""
    panels = {query.expr: query.where for file in FILES for query in panel_queries(file, **VARIABLES)}
    rules = (rule for file in RULES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"])
    return panels | {rule["record"]: "a recording rule" for rule in rules if "record" in rule}


@pytest.fixture
def here(deploy: Deploy) -> Deployment:
    return deploy(estimates={"refresh_seconds": 1.0, "cpu_share": 0.5}, run_shadows=("template",))


@pytest.fixture
def web(here: Deployment, tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess(tmp_path / "serve", here.settings) as process:
        yield process


@pytest.fixture
def source() -> Iterator[tuple[str, Calls]]:
    """Return the metrics address of a source that sent events and skipped records, and its calls."""
    watch, port, counts = Watch(lambda _: None), free_port(), {"one": 1.0}
    call = Calls(count=3, failed=1, seconds=0.5, last_s=0.1)
    watch.source = SimpleNamespace(
        name="slurm", sites=(SITE.decode(),), records=5, calls={"squeue": call}, lag=counts, left_out=counts
    )
    watch.sent.update(counts)
    watch.newest = 1.0
    end = serve_metrics(watch, "127.0.0.1", port)
    yield f"127.0.0.1:{port}", call
    end()


@pytest.fixture
def notices() -> Iterator[str]:
    """Return the metrics address of a notifier that read topics and sent notifications."""
    counts, port = NotifyCounts([]), free_port()
    counts.lag["queuecast.predictions"] = 3
    end = serve_metrics(counts, "127.0.0.1", port)
    yield f"127.0.0.1:{port}"
    end()


def test_dashboard_panels_and_rules_have_data(
    here: Deployment, web: ServeProcess, source: tuple[str, Calls], notices: str, prometheus: Prometheus
) -> None:
    events = [named(event) for event in simulated(SITE.decode(), JOBS)]
    early, late, again = [*events[:600], cluster(events[599].time)], iter(events[600:]), events[:5]
    here.send(early)
    here.send_raw(trouble(again))
    here.worker.start()
    shown_at, call = source
    targets = {
        "queuecast": here.worker.address,
        "queuecast-serve": web.address,
        "queuecast-source": shown_at,
        "queuecast-notify": notices,
    }
    prometheus.scrape({job: [address] for job, address in targets.items()})
    until(lambda: scraped.value(prometheus, "sum(queuecast_events_total)") == len(early) + 1 + len(again))
    missing = queries()

    def all_answered() -> bool:
        ask(here)
        look(web.url)
        call.count += 1
        here.send_raw(trouble(again))
        for expr in [expr for expr in missing if scraped.values(prometheus, expr)]:
            del missing[expr]
        return not missing

    with here.fed(late, pace=60):
        try:
            until(all_answered)
        except AssertionError:
            pytest.fail("\n".join(["no data:", *(f"{where}: {expr}" for expr, where in missing.items())]))
    groups = scraped.api_data(prometheus, "rules")["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"] if rule["health"] != "ok"] == []
