"""The demo as a process, with its own Kafka and Redis."""

import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.local.demo.scenario import PARTITIONED, PLAIN_SITES
from models.method_registry import DEFAULT
from tests.support.command import PATIENCE_S, Command

SITES = [*(site.name for site in PLAIN_SITES), PARTITIONED]

pytestmark = [pytest.mark.usefixtures("require_stack"), pytest.mark.long]

Run = Callable[..., Command]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        started.append(Command(tmp_path, "demo", *arguments, **environment))
        return started[-1]

    yield start
    for command in started:
        command.__exit__()


def test_demo_prints_all_sites_and_removes_its_files(run: Run) -> None:
    demo = run("--jobs", "200", "--seconds", "8")
    demo.until("waited")
    assert demo.child("kafka.Kafka")
    assert demo.child("queuecast", "worker")
    (page,) = re.findall(r"http://127\.0\.0\.1:\d+/", demo.out)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(page, timeout=PATIENCE_S) as answer:
        assert b"queuecast" in answer.read()
    assert demo.ended() == 0, demo.err
    for site in SITES:
        assert len(re.findall(rf"^ *{site} ", demo.out, re.MULTILINE)) > 1, "at the head, and in the table"
    table = re.findall(rf"^(zero|median|{DEFAULT}) +\d", demo.out.split("Measured:")[0], re.MULTILINE)
    assert table == ["zero", "median", DEFAULT] * 3
    assert "Traceback" not in demo.out + demo.err
    assert not list(demo.tmp.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_demo_signal_stops_all_processes(run: Run, number: signal.Signals, code: int) -> None:
    demo = run("--jobs", "600", QUEUECAST_ENGINE_METHOD="median")
    demo.until("running")
    assert len(demo.children()) >= 3
    assert demo.ended(number) == code
    assert "Traceback" not in demo.out + demo.err
    assert not list(demo.tmp.iterdir())


def test_demo_with_crashed_worker_ends_with_its_log(run: Run) -> None:
    demo = run("--jobs", "600", QUEUECAST_ENGINE_METHOD="median")
    demo.until("running")
    demo.child("queuecast", "worker").kill()
    assert demo.ended() == 1
    assert demo.err.splitlines()[-1] == "queuecast: worker ended; see its last log lines above"
    assert "Worker ready" in demo.err
    assert not list(demo.tmp.iterdir())
