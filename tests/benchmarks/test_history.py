"""CPU time to read, send and process a site's history, and the engine's part of it.

`TESTS_HISTORY_JOBS` is the number of KTH jobs for a worker; `TESTS_LOG_JOBS` that of a dump of sacct.
"""

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import Memory
from models.records import AnyEvent
from streams.bulk.site_history import OpenHistory, marked, needed
from streams.operate.catching_up import unread
from streams.settings import Settings
from streams.sources.contract import refuse
from streams.sources.publisher import OutgoingEvent, publish
from streams.sources.swf import events_of, read_swf
from tests.benchmarks import test_long_log
from tests.support.deployment import Deploy, ready, until
from tests.support.traces import trace_path

pytestmark = pytest.mark.timeout(1800)

JOBS = int(os.environ.get("TESTS_HISTORY_JOBS", "12000"))
LONG = int(os.environ.get("TESTS_LOG_JOBS", "200000"))


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the output of sacct for a long history."""
    path = tmp_path_factory.mktemp("long") / "sacct.txt"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(test_long_log, "JOBS", LONG)
        test_long_log.write_sacct(path)
    return path


def alone(events: list[AnyEvent]) -> float:
    """Return the CPU time of an engine (s)."""
    engine, began = Engine("alder"), time.process_time()
    for number, event in enumerate(events):
        engine.apply(event)
        if number % 1000 == 0:
            engine.take_changes()
    return time.process_time() - began


@pytest.mark.parametrize("predicted", [0, 6000])
def test_worker_history_throughput_is_printed(deploy: Deploy, predicted: int) -> None:
    trace = read_swf(trace_path("KTH")).first(JOBS)
    steps = list(marked(map(OutgoingEvent, events_of(trace, "alder")), predicted))
    here = deploy()
    here.worker.start()
    until(partial(ready, here.worker))
    worker = psutil.Process(here.worker.pid)
    before = sum(worker.cpu_times()[:4])
    began = time.process_time()
    publish(here.settings, steps, lambda _: None, lambda *_: None)
    sent_s = time.process_time() - began
    for _ in unread(here.settings, ["alder"]):
        continue
    taken_s = sum(worker.cpu_times()[:4]) - before
    engine_s = alone([step.event for step in steps if step.event is not None])
    print(
        f"\n{JOBS} jobs, {predicted} predicted: sent {JOBS / sent_s:,.0f} a second, taken in {JOBS / taken_s:,.0f}; "
        f"an engine alone {JOBS / engine_s:,.0f}, so ratio {engine_s / taken_s:.2f}"
    )


def read(path: Path, wanted: Memory) -> tuple[int, float]:
    """Return the number of events of a dump to send, and the jobs read per second of CPU time."""
    began = time.process_time()
    with ExitStack() as stack:
        past = OpenHistory(stack, [path], "alder", Settings(), None, None, refuse, (), wanted)
        events = sum(1 for _ in past.steps())
    return events, LONG / (time.process_time() - began)


def test_last_jobs_of_long_dump_are_read_faster_than_all(dump: Path) -> None:
    most = needed(EngineSettings(), "alder")
    (few, fast), (all_, slow) = (read(dump, wanted) for wanted in (most, most._replace(seen=None)))
    print(f"\n{LONG:,} jobs: {few:,} events at {fast:,.0f} jobs a second; all {all_:,} at {slow:,.0f}")
    assert fast > 2.5 * slow


def test_long_dump_throughput_from_file_to_site_is_printed(deploy: Deploy, dump: Path) -> None:
    here = deploy()
    here.worker.start()
    until(partial(ready, here.worker))
    worker = psutil.Process(here.worker.pid)
    began, busy, before = time.monotonic(), time.process_time(), sum(worker.cpu_times()[:4])
    with ExitStack() as stack:
        most = needed(here.settings.engine, "alder")
        past = OpenHistory(stack, [dump], "alder", here.settings, None, None, refuse, (), most)
        publish(here.settings, past.steps(), lambda _: None, lambda *_: None)
    fed_s, busy = time.monotonic() - began, time.process_time() - busy
    for _ in unread(here.settings, ["alder"]):
        continue
    took_s = time.monotonic() - began
    print(
        f"\n{LONG:,} jobs: read and sent in {fed_s:.0f} s ({busy:.0f} s of a core), taken in after {took_s:.0f} s: "
        f"{LONG / took_s:,.0f} jobs a second ({sum(worker.cpu_times()[:4]) - before:.0f} s of a core at the worker)"
    )
