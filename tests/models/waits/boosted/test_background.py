"""Tasks in the background: one after another, in a process of lower priority, and no obstacle to the program's end."""

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from models.waits.boosted import background
from models.waits.boosted.child import ITEMS_PER_MESSAGE, NICENESS, ChildDied, Item, Work, WorkFailed


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


def priority_and_items(items: Iterable[Item]) -> bytes:
    return repr((os.getpid(), os.getpriority(os.PRIO_PROCESS, 0), list(items))).encode()


def refuse(items: Iterable[Item]) -> bytes:
    print("this goes elsewhere")
    raise ValueError(f"nothing can be learnt from {next(iter(items))}")


def die_once(parent: int, place: Path, items: Iterable[Item]) -> bytes:
    if not place.exists():
        place.touch()
        die(parent, items)
    return b"%d" % len(list(items))


def die(parent: int, items: Iterable[Item]) -> bytes:
    assert os.getpid() != parent
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def in_child(work: Work, items: list[Item]) -> bytes:
    return background.run(lambda: background.in_child(work, items)).result(120)


ITEMS = [(b"note %d" % n, bytes(n % 300)) for n in range(3 * ITEMS_PER_MESSAGE + 7)]


def test_work_is_done_in_a_process_of_lower_priority() -> None:
    process, priority, items = ast.literal_eval(in_child(priority_and_items, ITEMS).decode())
    assert items == ITEMS and process != os.getpid()
    assert priority == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
    assert ast.literal_eval(in_child(priority_and_items, []).decode())[::2] == (process, [])


def test_an_error_there_is_told_and_the_next_work_goes_on() -> None:
    with pytest.raises(WorkFailed, match=r"nothing can be learnt from \(b'note 0'"):
        in_child(refuse, ITEMS)
    assert ast.literal_eval(in_child(priority_and_items, ITEMS).decode())[2] == ITEMS


def test_work_is_done_again_where_the_process_was_killed(tmp_path: Path) -> None:
    assert in_child(partial(die_once, os.getpid(), tmp_path / "once"), ITEMS) == b"%d" % len(ITEMS)
    with pytest.raises(ChildDied):
        in_child(partial(die, os.getpid()), ITEMS)


def test_what_cannot_be_sent_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_child(lambda items: b"%d" % os.getpid(), ITEMS) == b"%d" % os.getpid()
    background.run(background._let_go).result(60)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert ast.literal_eval(in_child(priority_and_items, ITEMS).decode())[::2] == (os.getpid(), ITEMS)


@pytest.mark.parametrize("task", ["slow.train", "lambda: background.in_child(slow.work, [])"])
def test_a_program_that_exits_waits_for_no_training(task: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    slow = f"""
import pathlib, time
import numpy as np
from models.waits.boosted.forest import Boosting, Forest
features = np.random.default_rng(1).normal(size=(20_000, 20)).astype(np.float32)
def train():
    pathlib.Path({str(begun)!r}).touch()
    Forest.fit(features, features[:, 0] * 1.0, 0.5, Boosting(trees=1_000_000), [str(n) for n in range(20)])
def work(items):
    pathlib.Path({str(begun)!r}).touch()
    time.sleep(1000.0)
"""
    (tmp_path / "slow.py").write_text(slow)
    program = f"""
import sys, time, pathlib
sys.path.insert(0, {str(tmp_path)!r})
import slow
from models.waits.boosted import background
background.run({task})
while not pathlib.Path({str(begun)!r}).exists():
    time.sleep(0.01)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
