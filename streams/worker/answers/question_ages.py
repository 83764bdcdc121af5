"""How old questions are, without any of our clocks: askers' and workers' clocks may be hours apart."""

import time
from collections.abc import Callable, Iterable

from aiokafka import ConsumerRecord


class QuestionAges:
    """The age of each question, as far as it is certain.

    Two things bound it. A question came after its partition had last been read to the end, by this process's steady
    clock. And it is older than the newest question of its partition by the difference of their stamps, which are the
    broker's. So a question is old only where this process was away and a newer question came meanwhile; one that is
    taken for younger than it is costs an answer that nobody reads.

    Parameters:
        clock: a steady clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read_to_end: dict[int, float] = {}
        self._newest: dict[int, tuple[float, float]] = {}

    def begin(self, partitions: Iterable[int]) -> None:
        """These partitions are read from now on, from their ends."""
        now = self._clock()
        self._read_to_end = dict.fromkeys(partitions, now)
        self._newest = {}

    def ages(self, partition: int, questions: list[ConsumerRecord], to_end: bool) -> list[float]:
        """The age (s) of each of the questions that one look at a partition brought.

        Parameters:
            to_end: whether there are no further questions in the partition.
        """
        now = self._clock()
        longest = now - self._read_to_end.get(partition, now)
        if to_end:
            self._read_to_end[partition] = now
        if not questions:
            return []
        newest = max(question.timestamp for question in questions) / 1000
        stamped, seen = self._newest.get(partition, (newest, now))
        broker_now = max(newest, stamped + now - seen)
        self._newest[partition] = (broker_now, now)
        return [min(longest, broker_now - question.timestamp / 1000) for question in questions]
