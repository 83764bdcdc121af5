"""Ten days of two sites with users: questions, pages, notices, an upgrade of both workers, and a Redis failover.

They are compressed into `TESTS_DAYS_SECONDS` (600). It prints one page of figures. Every record must equal the replay.

    .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_ten_days.py
"""

import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psutil
import pytest

from deploy.local.stack import LocalStack, free_port
from deploy.local.up import ServeProcess, WorkerProcess, as_toml
from models.durations import DAY_S
from models.records import AnyEvent, Prediction, Submit
from models.simulation import generate, run
from streams.settings import NotifySettings
from tests.support.command import Command
from tests.support.deployment import Deployment, interleaved, meanwhile, ready, settings_on, unique, until
from tests.support.receiver import Receiver, received
from tests.support.sentinels import SERVICE, replicated
from tests.support.topic_messages import messages_of

pytestmark = pytest.mark.timeout(3600)

SECONDS = float(os.environ.get("TESTS_DAYS_SECONDS", "600"))
USERS, THINKS_S = 12, 2.0
SITES = {"alder": "easy", "birch": "fcfs"}
JOBS, CPUS, SPAN_S = 2500, 128, 10 * DAY_S
UPGRADE_AT, FAILOVER_AT = 0.35, 0.65  # shares of the days
SECRET = "a secret of the benchmark"

PATHS = {
    "what-if": "v1/rank?cpus={cpus}&walltime=4h&user={user}",
    "site": "v1/sites/{site}",
    "a user's jobs": "v1/users/{user}/jobs",
    "wait": "v1/sites/{site}/wait?cpus={cpus}&walltime=4h",
    "accuracy": "v1/accuracy",
    "status": "v1/status",
    "page": "",
}


def days() -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Return the events of both sites before the last ten days, and in these."""
    events = interleaved(
        *(run(generate(n, JOBS, CPUS, 0.8), CPUS, site, policy) for n, (site, policy) in enumerate(SITES.items()))
    )
    last: dict[str, float] = {event.site: event.time for event in events if isinstance(event, Submit)}
    end = min(last.values())
    before = [event for event in events if event.time < end - SPAN_S]
    return before, [event for event in events if end - SPAN_S <= event.time < end]


class Users:
    """Users with random queries, each in a thread; `took` has the time of each answer (s) by kind, None on failure."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.took: dict[str, list[float | None]] = defaultdict(list)
        self.failures: dict[str, int] = defaultdict(int)

    @contextmanager
    def querying(self) -> Iterator[None]:
        with ExitStack() as stack:
            for number in range(USERS):
                stack.enter_context(meanwhile(lambda stop, number=number: self._ask(stop, random.Random(number))))  # type: ignore[misc]
            yield

    def _ask(self, stop: threading.Event, chance: random.Random) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not stop.wait(chance.expovariate(1.0 / THINKS_S)):
            kind = chance.choice(list(PATHS))
            site, user = chance.choice(list(SITES)), f"u{chance.randrange(9)}"
            path = PATHS[kind].format(cpus=2 ** chance.randrange(7), user=user, site=site)
            began = time.perf_counter()
            try:
                with opener.open(self._url + path, timeout=30) as answer:
                    answer.read()
                self.took[kind].append(time.perf_counter() - began)
            except OSError as error:
                status = error.code if isinstance(error, urllib.error.HTTPError) else type(error).__name__
                self.took[kind].append(None)
                self.failures[f"{kind}: {status}"] += 1


@contextmanager
def notifying(here: Deployment, directory: Path, receiver: Receiver) -> Iterator[None]:
    """Send the notices of a site to a receiver."""
    notify = NotifySettings(webhook=receiver.url, secret=SECRET, name="people", web_port=free_port(), log_level="debug")
    directory.mkdir()
    config = directory / "notify.toml"
    config.write_text(as_toml(msgspec.structs.replace(here.settings, notify=notify)))
    command = Command(directory, "--config", str(config), "notify", "--site", "alder", "--json")
    try:
        until(lambda: "pending jobs for notices" in command.err)
        yield
    finally:
        command.process.terminate()
        command.process.wait(60)


def timestamps(here: Deployment, topic: str, kind: Any) -> dict[tuple[str, str], float]:
    """Return the broker's time of the first record of this type on a topic, by site and job."""
    found: dict[tuple[str, str], float] = {}
    for message in messages_of(here.settings.kafka.client_options(), topic):
        record = json.loads(message.value)
        if kind is Prediction or record["type"] == "submit":
            found.setdefault((record["site"], record["job"]), message.timestamp / 1000)
    return found


def row(name: str, values: Sequence[float]) -> str:
    ordered = sorted(values)
    p99 = ordered[int(0.99 * len(ordered))]
    return f"  {name:<36}{len(ordered):>8,}{median(ordered):>10.3f}{p99:>10.3f}{ordered[-1]:>10.3f}"


def test_ten_days_of_two_sites_equal_replay(stack: LocalStack, tmp_path: Path) -> None:
    before, day = days()
    marks: dict[str, tuple[float, float]] = {}
    with ExitStack() as running:
        store = running.enter_context(replicated(tmp_path / "redis"))
        worker = {"session_timeout_seconds": 30.0}
        settings = settings_on(stack.kafka.bootstrap, store.url, worker, {})
        client = store.manager.master_for(SERVICE)
        here = running.enter_context(closing(Deployment(settings, tmp_path / "first", client)))
        workers = [here.worker, WorkerProcess(tmp_path / "second", settings)]
        for one in workers:
            running.enter_context(one)
        service = running.enter_context(ServeProcess(tmp_path / "serve", settings))
        here.send(before)
        expected = here.expected([*before, *day])
        until(lambda: all(map(ready, workers)), 600)
        here.await_outputs(sum(map(len, here.expected(before).values())), 600)
        receiver = running.enter_context(received())
        running.enter_context(notifying(here, tmp_path / "notify", receiver))
        users = Users(f"http://{service.address}/")
        began = time.time()

        def at(share: float) -> None:
            time.sleep(max(began + share * SECONDS - time.time(), 0.0))

        def feed(_: threading.Event) -> None:
            for event in day:
                at((event.time - day[0].time) / SPAN_S)
                here.send([event])

        with meanwhile(feed), users.querying():
            at(UPGRADE_AT)
            since = time.time()
            for one in workers:  # one by one, as in a rolling upgrade
                one.stop()
                one.start()
                until(lambda one=one: ready(one), 300)  # type: ignore[misc]
            marks["upgrade of both workers"] = since, time.time()
            at(FAILOVER_AT)
            since = time.time()
            store.primary.kill()
            until(store.has_failed_over)
            marks["Redis failover"] = since, time.time()
            at(1.0)
        here.await_outputs(sum(map(len, expected.values())), 300)
        sizes = [sum(one.memory_info().rss for one in _processes(worker)) / 1e6 for worker in workers]
        report(here, users, receiver, marks, began, sizes)
        assert {where: unique(values) for where, values in here.records().items()} == expected
    assert not users.failures or sum(users.failures.values()) < 0.05 * sum(map(len, users.took.values()))


def _processes(worker: WorkerProcess) -> list[psutil.Process]:
    found = psutil.Process(worker.pid)
    return [found, *found.children(recursive=True)]


def report(
    here: Deployment,
    users: Users,
    receiver: Receiver,
    marks: dict[str, tuple[float, float]],
    began: float,
    sizes: Sequence[float],
) -> None:
    """Print the page of figures."""
    sent = timestamps(here, here.topics.events, Submit)
    predicted = timestamps(here, here.topics.predictions, Prediction)
    took = {key: predicted[key] - at for key, at in sent.items() if at >= began}
    print(f"\nTen days in {SECONDS:g} s{'':<25}{'number':>8}{'median s':>10}{'p99 s':>10}{'longest s':>10}")
    print(row("predictions", list(took.values())))
    for name, (since, until_) in marks.items():
        there = [took[key] for key in took if since - 1.0 <= sent[key] <= until_]
        print(row(f"  in the {name} ({until_ - since:.0f} s)", there) if there else f"  no job in the {name}")
    for kind, answers in sorted(users.took.items()):
        print(row(f"answers, {kind}", [one for one in answers if one is not None]))
    print(f"  failed answers: {dict(users.failures) or 'none'}")
    print(f"  notices delivered: {len(receiver.requests)}")
    print(f"  MB of the workers with their training processes: {', '.join(f'{size:.0f}' for size in sizes)}")
