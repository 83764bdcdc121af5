"""Play the demo's grid on a separate stack with Prometheus, as data for the dashboards."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import yaml
from kafka import KafkaProducer

from deploy.local.demo.demo import DemoProgress, records_from_topics
from deploy.local.demo.scenario import Scenario, simulated_scenario
from deploy.local.stack import LocalStack, Prometheus
from deploy.local.stack.process import LOOPBACK
from deploy.local.stack.servers import RULES
from deploy.local.up import Process, ServeProcess, WorkerProcess, settings_in, startup_progress
from models.engine.settings import EngineSettings
from models.records import Submit
from streams.broker.admin import create_topics
from streams.broker.topics import Topics
from streams.offline.replay import settings_for
from streams.settings import EstimateSettings, Settings, TopicSettings, WorkerSettings

INTERVAL_S = 1.0
"""Scrape interval (s)."""

SOURCE_SITE = "elm"
"""A site with a source that follows a growing file."""

QUESTION = "/v1/rank?cpus=64&walltime=4h"


class SourceProcess(Process):
    """A source that follows a file of events."""

    name = "source"
    page = "/metrics"

    def with_place(self, settings: Settings) -> Settings:
        """Return the settings unchanged, as they contain no address of a source."""
        return settings

    def _prepare(self) -> Sequence[str]:
        place = ["--site", SOURCE_SITE, "--cursors", ".", "--web-port", str(self.port)]
        return [*super()._prepare(), "events", str(self.log_of_events), *place]

    @property
    def log_of_events(self) -> Path:
        """The followed file."""
        return self.directory / "events.ndjson"


class NotifyProcess(Process):
    """Notifications about pending jobs, without a receiver."""

    name = "notify"
    page = "/metrics"

    def with_place(self, settings: Settings) -> Settings:
        """Return the settings with its address; days take minutes, so most jobs are about to start."""
        place = {"web_host": LOOPBACK, "web_port": self.port, "before_seconds": 6 * 3600.0}
        return msgspec.structs.replace(settings, notify=msgspec.structs.replace(settings.notify, **place))


@contextmanager
def played(seconds: float, jobs: int) -> Iterator[tuple[Prometheus, float, float]]:
    """Play the grid; yield Prometheus, and the begin and end of the play (Unix seconds)."""
    scenario = simulated_scenario(jobs)
    base = Settings(
        topics=TopicSettings(partitions=4),
        worker=WorkerSettings(processes=1),
        engine=settings_for(EngineSettings(run_shadows=("template",)), ()),
        estimates=EstimateSettings(refresh_seconds=2.0, cpu_share=0.3),
    )
    with ExitStack() as running:
        with startup_progress() as on_progress:
            stack = running.enter_context(LocalStack(locked=True, on_progress=on_progress))
            settings = settings_in(stack, base)
            create_topics(settings)
            worker = WorkerProcess(stack.data_dir / "worker", settings, on_progress=on_progress)
            serve = ServeProcess(stack.data_dir / "serve", settings, on_progress=on_progress)
            source = SourceProcess(stack.data_dir / "source", settings, on_progress=on_progress)
            notify = NotifyProcess(stack.data_dir / "notify", settings, on_progress=on_progress)
            source.directory.mkdir()
            source.log_of_events.touch()
            targets: dict[str, Process] = {
                "queuecast": worker,
                "queuecast-serve": serve,
                "queuecast-source": source,
                "queuecast-notify": notify,
            }
            prometheus = Prometheus(
                stack.data_dir / "prometheus",
                targets={job: [process.address] for job, process in targets.items()},
                interval=INTERVAL_S,
                rules=list(_quick_rules(stack.data_dir)),
            )
            for server in (worker, serve, source, notify, prometheus):
                running.enter_context(server)
        begin = time.time()
        _play(scenario, settings, seconds, (worker, serve, source))
        time.sleep(3 * INTERVAL_S)
        yield prometheus, begin, time.time()


def _quick_rules(directory: Path) -> Iterator[Path]:
    """Yield the project's rule files with the scrape interval as evaluation interval."""
    for file in RULES:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        for group in document["groups"]:
            group.pop("interval", None)
        written = directory / file.name
        written.write_text(yaml.safe_dump(document), encoding="utf-8")
        yield written


def _play(
    scenario: Scenario, settings: Settings, seconds: float, servers: tuple[WorkerProcess, ServeProcess, SourceProcess]
) -> None:
    """Send the grid's events; about once a second, send a query, a source event and an invalid event."""
    progress = DemoProgress(scenario, settings.engine)
    producer = KafkaProducer(**settings.kafka.client_options())
    topic, (_, serve, source) = Topics(settings.kafka.prefix).events, servers
    lines = [msgspec.json.encode(event) for event in scenario.events if event.site == "birch"]
    elm = iter(line.replace(b'"birch"', f'"{SOURCE_SITE}"'.encode()) for line in lines)
    wrong = [msgspec.json.encode(Submit(site="birch", time=1e11, job="late")), b"not an event", lines[0]]
    due = time.monotonic()
    with source.log_of_events.open("ab") as log:
        for batch in records_from_topics(settings, progress, seconds, servers):
            for record in batch:
                if getattr(record, "site", "") in scenario.sites:
                    progress.add(record)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + INTERVAL_S
            log.write(b"".join(line + b"\n" for _, line in zip(range(40), elm, strict=False)) + b"no event\n")
            log.flush()
            producer.send(topic, key=b"birch", value=wrong[int(due) % len(wrong)])
            for headers in ({}, {"Host": "elsewhere"}):  # the second is rejected
                request = urllib.request.Request(f"{serve.url.rstrip('/')}{QUESTION}", headers=headers)
                with suppress(urllib.error.HTTPError):
                    _opener.open(request, timeout=10).close()
    producer.close()


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
