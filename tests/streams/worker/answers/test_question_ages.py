"""The age of questions, with clocks of brokers, askers and workers that are far apart."""

from types import SimpleNamespace
from typing import Any

import pytest

from streams.worker.answers.question_ages import QuestionAges
from streams.worker.answers.questions import STALE_S


class Partition:
    """A partition of questions, and a worker that looks at it; `apart_s` is the broker's clock minus the worker's."""

    def __init__(self, apart_s: float) -> None:
        self.now = 5000.0
        self.apart_s = apart_s
        self.waiting: list[Any] = []
        self.reader = QuestionAges(lambda: self.now)
        self.reader.begin([3])

    def ask(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.waiting.append(SimpleNamespace(timestamp=(self.now + self.apart_s) * 1000))

    def ages(self, most: int = 100) -> list[float]:
        """The ages of the questions that one look brings, at most so many."""
        found, self.waiting = self.waiting[:most], self.waiting[most:]
        return self.reader.ages(3, found, to_end=not self.waiting)


APART = pytest.mark.parametrize("apart_s", [0.0, 10.0, -10.0, 600.0, -600.0, 1e9])


@APART
def test_whatever_the_clocks_say_a_new_question_is_new(apart_s: float) -> None:
    partition = Partition(apart_s)
    for _ in range(5):
        partition.ages()
        partition.ask(after_s=1.0)
        partition.now += 0.1
        (age,) = partition.ages()
        assert age < STALE_S


@APART
def test_questions_that_waited_while_the_worker_was_away_are_old(apart_s: float) -> None:
    partition = Partition(apart_s)
    partition.ask()
    partition.ask(after_s=20.0)
    partition.ask(after_s=40.0)
    assert partition.ages() == pytest.approx([60.0, 40.0, 0.0])


@APART
def test_also_where_one_look_does_not_bring_all(apart_s: float) -> None:
    partition = Partition(apart_s)
    for _ in range(3):
        partition.ask(after_s=15.0)
    partition.ask(after_s=15.0)
    partition.ages(1)
    partition.now += 12.0  # answering took that long
    ages = partition.ages()
    assert ages[-1] < STALE_S and ages[0] > STALE_S


def test_a_brokers_clock_that_goes_back_silences_nobody() -> None:
    partition = Partition(0.0)
    partition.ask()
    partition.ages()
    partition.apart_s = -600.0  # another broker leads the partition now
    for _ in range(3):
        partition.ask(after_s=1.0)
        (age,) = partition.ages()
        assert age < STALE_S


def test_one_askers_wrong_clock_harms_no_other_where_the_topic_is_not_stamped_by_the_broker() -> None:
    partition = Partition(0.0)
    for apart_s in (600.0, 0.0, -600.0, 0.0):
        partition.apart_s = apart_s
        partition.ask(after_s=1.0)
    assert max(partition.ages()) < STALE_S
