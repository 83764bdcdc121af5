"""Trainings run one after another in a process of lower priority; no program waits for their end."""

import ast
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from models.trainer import SynchronousTrainer, Trainer, Work, trainer
from models.waits.boosted.boosted import warm_up_training
from streams.training import processes as room
from streams.training.child import NICENESS, Child, ChildDied, WorkFailed
from streams.training.processes import Processes
from streams.training.training_slots import POLL_S, TrainingSlots

TRAINER = Processes()


class Site:
    """An object that the trainings of a site share."""


def begin(work: Work, items: list[bytes], first: bool = False, by: Trainer = TRAINER) -> Future[bytes]:
    return by.begin(work, items, bytes, first)


def gated(gate: threading.Event, done: list[str], name: str) -> Work:
    def work(items: Iterable[bytes]) -> bytes:
        assert gate.wait(60)
        done.append(name)
        return name.encode()

    return work


def test_trainings_run_one_by_one_with_first_models_last() -> None:
    gate, done = threading.Event(), list[str]()
    begin(gated(gate, done, "under way"), [])
    new = [begin(gated(gate, done, f"new {n}"), [], first=True) for n in range(3)]
    renewed = begin(gated(gate, done, "renewed"), [])
    assert TRAINER.waiting >= 3
    gate.set()
    assert [one.result(60) for one in new] == [b"new 0", b"new 1", b"new 2"]
    assert renewed.result(0) == b"renewed"
    assert done == ["under way", "renewed", "new 0", "new 1", "new 2"]
    assert TRAINER.waiting == 0


def names_in(folder: str, items: Iterable[bytes]) -> bytes:
    return b",".join([*items, *(one.name.encode() for one in Path(folder).iterdir())])


def test_training_data_have_no_file_name_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill of any process, no file remains."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = Child()
    try:
        for items in ([b"row"] * 1000, [], [b"one"]):  # each independent of earlier content of the file
            work = pickle.dumps(partial(names_in, str(tmp_path)))
            assert child.call(work, items, 60.0) == b",".join(items)
    finally:
        child.close()


def test_child_ignores_packages_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    child = Child()
    try:
        assert child.call(pickle.dumps(b",".join), [b"row"], 60.0) == b"row"
    finally:
        child.close()


def test_cancelled_training_is_skipped() -> None:
    gate, done = threading.Event(), list[str]()
    begin(gated(gate, done, "under way"), [])
    cancelled = begin(gated(gate, done, "cancelled"), [])
    assert cancelled.cancel()
    gate.set()
    begin(gated(gate, done, "last"), []).result(60)
    assert done == ["under way", "last"]


def test_synchronous_trainer_runs_training_immediately() -> None:
    assert begin(lambda items: b"%d" % len(list(items)), ITEMS, by=SynchronousTrainer()).result(0) == b"%d" % len(ITEMS)
    with pytest.raises(ValueError, match="nothing can be learnt"):
        begin(refuse, ITEMS, by=SynchronousTrainer()).result(0)


def priority_and_items(items: Iterable[bytes]) -> bytes:
    return repr((os.getpid(), os.getpriority(os.PRIO_PROCESS, 0), list(items))).encode()


def refuse(items: Iterable[bytes]) -> bytes:
    print("this goes elsewhere")
    raise ValueError(f"nothing can be learnt from {next(iter(items))!r}")


def die_once(parent: int, place: Path, items: Iterable[bytes]) -> bytes:
    if not place.exists():
        place.touch()
        die(parent, items)
    return b"%d" % len(list(items))


def die(parent: int, items: Iterable[bytes]) -> bytes:
    assert os.getpid() != parent
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def hang_once(place: Path, items: Iterable[bytes]) -> bytes:
    if not place.exists():
        place.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return b"%d" % len(list(items))


def in_child(work: Work, items: list[bytes]) -> bytes:
    return begin(work, items).result(120)


ITEMS = [b"note %d" % n + bytes(n % 300) for n in range(1507)]


def test_training_runs_in_process_of_lower_priority() -> None:
    process, priority, items = ast.literal_eval(in_child(priority_and_items, ITEMS).decode())
    assert items == ITEMS and process != os.getpid()
    assert priority == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)
    assert ast.literal_eval(in_child(priority_and_items, []).decode())[::2] == (process, [])


def threads_allowed(items: Iterable[bytes]) -> bytes:
    return b"%d" % trainer().threads


def test_training_process_uses_allowed_threads() -> None:
    assert in_child(threads_allowed, []) == b"1"
    child = Child(threads=3)
    try:
        assert child.call(pickle.dumps(threads_allowed), [], 60.0) == b"3"
    finally:
        child.close()


def burn(items: Iterable[bytes]) -> bytes:
    end = time.process_time() + float(next(iter(items)))
    while time.process_time() < end:
        pass
    return b""


def test_trainer_counts_cpu_time_of_trainings() -> None:
    before = TRAINER.cpu_s
    in_child(burn, [b"0.3"])
    known = TRAINER.cpu_s
    assert before + 0.3 <= known < before + 60.0
    TRAINER._let_go()
    assert TRAINER.cpu_s == known
    in_child(burn, [b"0.1"])
    assert TRAINER.cpu_s >= known + 0.1
    known = TRAINER.cpu_s
    in_child(lambda items: burn(items), [b"0.2"])  # not picklable, so it runs in this process
    assert known + 0.15 <= TRAINER.cpu_s < known + 60.0


def trees_from(module: str, items: Iterable[bytes]) -> bytes:
    return str(module in sys.modules).encode()


def test_training_process_warms_up_before_first_training() -> None:
    """The import takes half a second, so it happens before the first training."""
    trainer = Processes()
    assert begin(warm_up_training, [], first=True, by=trainer).result(60)
    before = trainer.child
    assert begin(partial(trees_from, "lightgbm"), [], by=trainer).result(60) == b"True"
    assert trainer.child == before is not None


def test_training_error_is_raised_and_next_training_runs() -> None:
    with pytest.raises(WorkFailed, match=r"nothing can be learnt from b'note 0'"):
        in_child(refuse, ITEMS)
    assert ast.literal_eval(in_child(priority_and_items, ITEMS).decode())[2] == ITEMS


def test_training_is_repeated_once_after_kill_of_process(tmp_path: Path) -> None:
    assert in_child(partial(die_once, os.getpid(), tmp_path / "once"), ITEMS) == b"%d" % len(ITEMS)
    with pytest.raises(ChildDied):
        in_child(partial(die, os.getpid()), ITEMS)


def test_stopped_training_process_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE_S", 3.0)
    assert in_child(priority_and_items, ITEMS)
    before, stopped = TRAINER.restarts, TRAINER.child
    assert stopped is not None
    assert in_child(partial(hang_once, tmp_path / "once"), ITEMS) == b"%d" % len(ITEMS)
    assert TRAINER.restarts > before and TRAINER.child != stopped
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)


def test_unpicklable_training_runs_in_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_child(lambda items: b"%d" % os.getpid(), ITEMS) == b"%d" % os.getpid()
    TRAINER._let_go()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert ast.literal_eval(in_child(priority_and_items, ITEMS).decode())[::2] == (os.getpid(), ITEMS)


def test_program_exit_waits_for_no_training(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "slow.py").write_text(f"""
import pathlib, time
def work(items):
    pathlib.Path({str(begun)!r}).touch()
    time.sleep(1000.0)
""")
    program = f"""
import sys, time, pathlib
sys.path.insert(0, {str(tmp_path)!r})
import slow
from streams.training.processes import processes
processes().begin(slow.work, [], bytes, False)
while not pathlib.Path({str(begun)!r}).exists():
    time.sleep(0.01)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.parametrize("slots", [1, 2])
def test_processes_with_shared_slots_train_that_many(tmp_path: Path, slots: int) -> None:
    crew, lock = [Processes() for _ in range(4)], threading.Lock()
    running, seen = 0, set[int]()

    def work(items: Iterable[bytes]) -> bytes:
        nonlocal running
        with lock:
            running += 1
            seen.add(running)
        time.sleep(0.3)
        with lock:
            running -= 1
        return b""

    for number, one in enumerate(crew):
        one.slots = TrainingSlots(tmp_path, number, slots)
    futures = [one.begin(work, (), len, first=False) for one in crew * 2]
    assert [future.result(30) for future in futures] == [0] * 8 and seen == set(range(1, slots + 1))
    for one in crew:
        one._end()


def test_site_trained_longest_ago_is_first_among_processes(tmp_path: Path) -> None:
    """Process b trained its site before process a did, and its next training is queued later."""
    a, b, done = Processes(), Processes(), list[str]()
    site_a, site_b, free, gate = Site(), Site(), threading.Event(), threading.Event()
    free.set()
    b.begin(gated(free, done, "b"), (), bytes, False, site_b).result(30)
    a.begin(gated(free, done, "a"), (), bytes, False, site_a).result(30)
    other, a.slots, b.slots = Processes(), TrainingSlots(tmp_path, 0, 1), TrainingSlots(tmp_path, 1, 1)
    other.slots = TrainingSlots(tmp_path, 2, 1)
    held = other.begin(gated(gate, done, "other"), (), bytes, False)
    while not held.running():
        time.sleep(0.01)
    futures = [a.begin(gated(gate, done, "a"), (), bytes, False, site_a)]
    time.sleep(3 * POLL_S)
    futures.append(b.begin(gated(gate, done, "b"), (), bytes, False, site_b))
    time.sleep(3 * POLL_S)
    gate.set()
    for future in futures:
        future.result(30)
    assert done == ["b", "a", "other", "b", "a"]
    for one in (a, b, other):
        one._end()


def test_slots_in_a_missing_directory_do_not_stop_training(tmp_path: Path) -> None:
    trainer = Processes()
    trainer.slots = TrainingSlots(tmp_path / "removed", 0, 1)
    assert begin(lambda items: b"%d" % len(list(items)), ITEMS, by=trainer).result(30) == b"%d" % len(ITEMS)
    trainer._end()


def test_end_cancels_trainings_that_wait_for_a_slot(tmp_path: Path) -> None:
    trainer, slots = Processes(), TrainingSlots(tmp_path, 0, 1)
    trainer.slots = TrainingSlots(tmp_path, 1, 1)
    with slots.take(lambda: (False, 0.0), threading.Event()):
        waiting = begin(priority_and_items, [], by=trainer)
        time.sleep(3 * POLL_S)
        trainer._end()
    assert waiting.cancelled() and trainer.waiting == 0
