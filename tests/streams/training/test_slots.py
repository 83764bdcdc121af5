"""Training slots shared by processes: number, order, and crashed processes."""

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from streams.training import training_slots as module
from streams.training.training_slots import POLL_S, Rank, TrainingSlots


def taken(place: TrainingSlots, rank: Rank, order: list[Rank], held: threading.Event) -> threading.Thread:
    """Acquire a slot in a thread, append its rank, and keep it until `held` is set."""

    def run() -> None:
        with place.take(lambda: rank, threading.Event()):
            order.append(rank)
            held.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_free_slot_goes_to_the_lowest_rank(tmp_path: Path) -> None:
    ranks: list[Rank] = [(True, 1.0), (False, 9.0), (False, 3.0), (True, float("-inf")), (False, float("-inf"))]
    order, free = list[Rank](), threading.Event()
    first = taken(TrainingSlots(tmp_path, 9, 1), (True, 99.0), order, free)
    while not order:
        time.sleep(0.01)
    threads = [taken(TrainingSlots(tmp_path, number, 1), rank, order, free) for number, rank in enumerate(ranks)]
    time.sleep(3 * POLL_S)
    free.set()
    for thread in [first, *threads]:
        thread.join(30)
    assert order[1:] == sorted(ranks)


def test_rank_of_a_dead_process_is_ignored_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALE_S", 0.5)
    slots = TrainingSlots(tmp_path, 0, 1)
    dead, began = TrainingSlots(tmp_path, 1, 1), time.monotonic()
    ranks = dead._open("ranks")
    assert dead._is_lowest(ranks, (False, 0.0))
    os.close(ranks)
    with slots.take(lambda: (False, 1.0), threading.Event()):
        assert 0.4 < time.monotonic() - began < 10.0


def test_training_slots_are_limited_to_given_number(tmp_path: Path) -> None:
    with ExitStack() as held:
        for number in range(3):
            held.enter_context(TrainingSlots(tmp_path, number, 3).take(lambda: (False, 0.0), threading.Event()))
        assert TrainingSlots(tmp_path, 3, 3)._free_slot() is None
    slot = TrainingSlots(tmp_path, 3, 3)._free_slot()
    assert slot is not None
    os.close(slot)
