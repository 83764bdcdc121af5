"""Tasks in the background: one after another, at a lower priority, and no obstacle to the end of the process."""

import os
import subprocess
import sys
import threading

import pytest

from models.waits.boosted import background


def test_tasks_come_one_after_another_and_errors_are_told() -> None:
    gate, done = threading.Event(), list[int]()

    def first() -> None:
        gate.wait(30)
        done.append(1)

    background.run(first)
    failing = background.run(lambda: [][0])
    last = background.run(lambda: done.append(2))
    gate.set()
    last.result(30)
    assert done == [1, 2]
    with pytest.raises(IndexError):
        failing.result(30)


def test_a_task_that_was_cancelled_is_left_out() -> None:
    gate, done = threading.Event(), list[int]()
    background.run(lambda: gate.wait(30))
    cancelled = background.run(lambda: done.append(1))
    assert cancelled.cancel()
    gate.set()
    background.run(lambda: None).result(30)
    assert done == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there has a thread a priority of its own")
def test_the_priority_is_lower() -> None:
    def mine() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = mine()
    found = background.run(mine).result(30)
    assert found == min(before + background.NICENESS, 19) and mine() == before


def test_a_process_that_exits_waits_for_no_training() -> None:
    program = """
import threading
import numpy as np
from models.waits.boosted import background
from models.waits.boosted.forest import Boosting, Forest
features = np.random.default_rng(1).normal(size=(20_000, 20)).astype(np.float32)
begun = threading.Event()
def train():
    begun.set()
    Forest.fit(features, features[:, 0] * 1.0, 0.5, Boosting(trees=1_000_000), [str(n) for n in range(20)])
background.run(train)
begun.wait(60)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
