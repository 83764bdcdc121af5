"""A worker with a growing queue at a site: latency of predictions, bytes stored, and time to recover.

Each depth has a separate site with 50 submits a second, a request for its page every 20 seconds, and five what-if
queries a second. Then the worker is killed and restarted. The deepest queue has 100,000 jobs by default; the
environment sets others. A million takes half an hour and 5 GB:

    TESTS_DEPTHS=1000000 .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_depth.py
"""

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaConsumer, TopicPartition

from deploy.local.up import ServeProcess
from models.records import AnyEvent, Capacity, Prediction, Start, Submit
from tests.benchmarks.test_event_cost import submitted
from tests.benchmarks.test_grid import bytes_on_topics
from tests.support.deployment import PARTITIONS, Deploy, Deployment, meanwhile, metrics, until

pytestmark = pytest.mark.timeout(7200)

DEPTHS = tuple(map(int, os.environ.get("TESTS_DEPTHS", "100 10000 100000").split()))
PACE, PACED_S = 50, 30.0
QUESTIONS_A_SECOND, PAGE_EVERY_S = 5, 20.0
MOST_RATIO, MOST_WRITTEN_RATIO = 1.5, 3.0
"""Targets of the deepest to the shallowest queue: ratios of the 99th percentile and of changelog bytes per second."""

SLACK = 3.0
"""Factor allowed over the target, as other work may share the machine. Measured values are printed."""

BEGIN = 1_700_000_000.0
RUNNING = 200


class Depth(msgspec.Struct):
    """Measurements at a depth: milliseconds, megabytes per second, seconds."""

    p50: float
    p99: float
    longest_stall: float
    written: float
    questions: int
    refused: int
    back_s: float


def filling(site: str, queued: int) -> Iterator[AnyEvent]:
    """Yield the events of a full machine and of queued jobs."""
    yield Capacity(site=site, time=BEGIN, cpus=1000)
    for number in range(RUNNING):
        name, at = f"r{number}", BEGIN + number
        yield Submit(site=site, job=name, time=at, user=f"u{number % 20}", cpus=5, walltime=7200.0, queue="a")
        yield Start(site=site, job=name, time=at + 30.0)
    for number in range(queued):
        job = submitted(f"q{number}", BEGIN + 300.0 + number * 0.01, number)
        yield msgspec.structs.replace(job, site=site)


def one_more(site: str, name: str, at: float) -> Submit:
    return Submit(site=site, job=name, time=at, user="ada", cpus=8, walltime=3600.0, queue="a")


class Arrivals:
    """Return the time of each job's first prediction (Unix seconds), by job."""

    def __init__(self, here: Deployment) -> None:
        self.at: dict[str, float] = {}
        self._here = here

    @contextmanager
    def watched(self) -> Iterator["Arrivals"]:
        options = self._here.settings.kafka.client_options()
        with closing(KafkaConsumer(**options, auto_offset_reset="latest")) as consumer:
            places = [TopicPartition(self._here.topics.predictions, part) for part in range(PARTITIONS)]
            consumer.assign(places)
            for place, end in consumer.end_offsets(places).items():
                consumer.seek(place, end)

            def read(stop: threading.Event) -> None:
                while not stop.is_set():
                    for batch in consumer.poll(timeout_ms=100).values():
                        for message in batch:
                            prediction = msgspec.json.decode(message.value, type=Prediction)
                            self.at.setdefault(prediction.job, time.time())

            with meanwhile(read):
                yield self


def status_of(address: str, path: str) -> int:
    """Return the status of a response, or 0 without one."""
    host, _, port = address.partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as connection, suppress(OSError):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    return 0


def every(seconds: float, do: Callable[[int], object]) -> AbstractContextManager[None]:
    """Run a function repeatedly in the background, with this interval between starts (s)."""

    def run(stop: threading.Event) -> None:
        number, begin = 0, time.monotonic()
        while not stop.wait(max(begin + number * seconds - time.monotonic(), 0.0)):
            do(number)
            number += 1

    return meanwhile(run)


def measured(here: Deployment, serve: ServeProcess, queued: int) -> Depth:
    """Fill a site and measure it."""
    site, statuses, stalls = f"depth-{queued}", list[int](), list[float]()
    here.send(filling(site, queued))
    events = 1 + 2 * RUNNING + queued
    until(lambda: metrics(here.worker)["queuecast_events_total"].get((site,), 0) >= events, 7000.0)
    time.sleep(5.0)

    def page(_: int) -> None:
        for part in ("", "/outcomes", "/trends"):
            status_of(serve.address, f"/v1/sites/{site}{part}")
        status_of(serve.address, "/v1/status")

    def question(number: int) -> None:
        shape = f"cpus={1 + number % 64}&walltime={1 + number % 20}h&user=u{number % 50}"
        why = "&why=true" if number % 5 == 0 else ""
        statuses.append(status_of(serve.address, f"/v1/sites/{site}/wait?{shape}{why}"))

    def pulse(_: int) -> None:
        begun = time.perf_counter()
        status_of(here.worker.address, "/healthz")
        stalls.append(time.perf_counter() - begun)

    sent: dict[str, float] = {}
    at, before, begun = BEGIN + 300.0 + queued * 0.01, _written(here), time.monotonic()
    with Arrivals(here).watched() as arrivals:
        with every(PAGE_EVERY_S, page), every(1 / QUESTIONS_A_SECOND, question), every(0.02, pulse):
            for number in range(int(PACE * PACED_S)):
                time.sleep(max(begun + number / PACE - time.monotonic(), 0.0))
                name = f"p{number}"
                sent[name] = time.time()
                here._send(one_more(site, name, at))
                at += 1 / PACE
            until(lambda: sent.keys() <= arrivals.at.keys())
        written = (_written(here) - before) / 1e6 / (time.monotonic() - begun)
        late = sorted(1000 * (arrivals.at[name] - moment) for name, moment in sent.items())
        back_s = _killed(here, site, arrivals, at)
    return Depth(
        p50=late[len(late) // 2],
        p99=late[int(len(late) * 0.99)],
        longest_stall=1000 * max(stalls),
        written=written,
        questions=statuses.count(200),
        refused=len(statuses) - statuses.count(200),
        back_s=back_s,
    )


def _written(here: Deployment) -> int:
    return bytes_on_topics(here)["worker-sites-changelog"]


def _killed(here: Deployment, site: str, arrivals: Arrivals, at: float) -> float:
    """Kill and restart the worker; return the time until the next prediction of the site (s)."""
    killed = time.time()
    here.worker.kill()
    here.send([one_more(site, "after", at)])
    here.worker.start()
    until(lambda: "after" in arrivals.at, 300.0)
    return arrivals.at["after"] - killed


def test_deep_queue_keeps_prediction_latency(deploy: Deploy, tmp_path: Path) -> None:
    here = deploy(history=6000)
    with here.worker, ServeProcess(tmp_path / "serve", here.settings) as serve:
        found = {queued: measured(here, serve, queued) for queued in DEPTHS}
    show(found)
    assert all(one.questions for one in found.values())
    least, most = found[min(DEPTHS)], found[max(DEPTHS)]
    assert most.p99 < SLACK * MOST_RATIO * least.p99
    assert most.written < SLACK * MOST_WRITTEN_RATIO * least.written


def show(found: dict[int, Depth]) -> None:
    rows: Sequence[tuple[str, Callable[[Depth], str]]] = (
        ("event to prediction: p50, ms", lambda one: f"{one.p50:.1f}"),
        ("the same: p99", lambda one: f"{one.p99:.1f}"),
        ("longest answer of /healthz, ms", lambda one: f"{one.longest_stall:.0f}"),
        ("to the changelog, MB/s", lambda one: f"{one.written:.3f}"),
        ("what-ifs that were answered", lambda one: f"{one.questions}"),
        ("what-ifs that were refused", lambda one: f"{one.refused}"),
        ("killed and back, s", lambda one: f"{one.back_s:.1f}"),
    )
    print(f"\n{'jobs in the queue':<34}" + "".join(f"{queued:>12,}" for queued in found))
    for name, text in rows:
        print(f"{name:<34}" + "".join(f"{text(one):>12}" for one in found.values()))
