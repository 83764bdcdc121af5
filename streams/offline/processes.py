"""Work that is spread over several processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from signal import SIG_IGN, SIGINT, signal
from typing import Any, TypeVar

One = TypeVar("One")
Said = TypeVar("Said")


_judge: Callable[[Any], Any] | None = None
"""What this process judges with, where it is one of those of `judging`."""


def _take(judge: Callable[[Any], Any]) -> None:
    global _judge
    _judge = judge
    signal(SIGINT, SIG_IGN)  # the process that began the search ends it


def _judged(one: Any) -> Any:
    assert _judge is not None
    return _judge(one)


@contextmanager
def judging(judge: Callable[[One], Said], workers: int) -> Iterator[Callable[[Sequence[One]], Iterable[Said]]]:
    """What judges many in their order, in so many processes, each with its own copy of `judge`; one is this one."""
    if workers == 1:
        yield lambda many: map(judge, many)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _take, (judge,))

    def judge_all(many: Sequence[One]) -> Iterable[Said]:
        return pool.map(_judged, many)

    try:
        yield judge_all
    finally:
        pool.shutdown(cancel_futures=True)
