"""Work that is spread over several processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain
from multiprocessing import get_context
from signal import SIG_IGN, SIGINT, signal
from typing import Any, TypeVar

from streams.process.compiling import compiling_alone

Item = TypeVar("Item")
Result = TypeVar("Result")

_function: Callable[[Any], Any] | None = None
"""What this process applies, where it is one of the processes of `process_map`."""


def _set_function(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    signal(SIGINT, SIG_IGN)  # the process that began the work ends it


def _applied(item: Any) -> Any:
    assert _function is not None
    return _function(item)


@contextmanager
def process_map(
    function: Callable[[Item], Result], workers: int
) -> Iterator[Callable[[Sequence[Item]], Iterable[Result]]]:
    """Gives what maps the function over items, in order, in `workers` processes; a single one is this process.

    Each process has its own copy of the function, so that what belongs to it is sent once. The very first item is done
    here and alone: what it compiles is in numba's cache, which has no lock, before others look there.
    """
    if workers == 1:
        yield lambda items: map(function, items)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _set_function, (function,))

    compiled = False

    def apply_all(items: Sequence[Item]) -> Iterable[Result]:
        nonlocal compiled
        if compiled or not items:
            return pool.map(_applied, items)
        with compiling_alone():
            first = function(items[0])
        compiled = True
        return chain([first], pool.map(_applied, items[1:]))

    try:
        yield apply_all
    finally:
        pool.shutdown(cancel_futures=True)
