"""A process of its own for training: it takes neither the interpreter's lock nor memory from the events' process.

A thread would: events feel each stretch of Python in it, most of all on a busy machine, where a thread of lower
priority may be put aside while it holds the lock. The process is started for the first training, without the program's
main module, and ends when its input does.
"""

import os
import pickle
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

NICENESS = 5
"""By how much its priority is lower; not by more, for on a busy machine an event may have to wait for a training."""

ITEMS_PER_MESSAGE = 500
"""So that encoding them takes less than a millisecond."""

Item = tuple[bytes, bytes]
Work = Callable[[Iterable[Item]], bytes]

_HEAD = struct.Struct("<?Q")  # whether all went well, and how many bytes follow
_encode = msgspec.msgpack.Encoder().encode
_decode_items = msgspec.msgpack.Decoder(list[Item]).decode


class ChildDied(Exception):
    """The process has ended without an answer: somebody killed it, or there was no memory left."""


class WorkFailed(Exception):
    """The work raised an error, whose traceback this is."""


class Child:
    """The process; it does one thing at a time.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self) -> None:
        path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
        command = [sys.executable, "-m", __name__]
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )

    def call(self, work: bytes, items: Iterable[Item]) -> bytes:
        """What the work, pickled, makes of the items.

        Raises:
            WorkFailed: it raised an error.
            ChildDied: there is no answer.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            _write(self._process.stdin, work)
            for some in _batches(items):
                _write(self._process.stdin, _encode(some))
            _write(self._process.stdin, b"")
        except OSError as error:
            raise ChildDied(f"{error}") from error
        answer = _read(self._process.stdout)
        if answer is None:
            raise ChildDied(f"it ended with {self._process.wait()}")
        well, said = answer
        if not well:
            raise WorkFailed(said.decode())
        return said

    def kill(self) -> None:
        """End it, whatever it does; may be called by another thread."""
        self._process.kill()

    def close(self) -> None:
        """Let it go."""
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # of what was still to be written
                assert pipe is not None
                pipe.close()


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    found: list[Item] = []
    for item in items:
        found.append(item)
        if len(found) == ITEMS_PER_MESSAGE:
            yield found
            found = []
    if found:
        yield found


def _write(pipe: IO[bytes], message: bytes, well: bool = True) -> None:
    pipe.write(_HEAD.pack(well, len(message)) + message)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[bool, bytes] | None:
    """The next message; None at the end."""
    head: bytes = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    well, size = _HEAD.unpack(head)
    message: bytes = pipe.read(size)
    return (well, message) if len(message) == size else None


def _items(pipe: IO[bytes]) -> Iterator[Item]:
    while (found := _read(pipe)) is not None and found[1]:
        yield from _decode_items(found[1])


def main() -> None:
    """Do what comes on standard input, and answer on standard output, which nobody else may use."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    while (work := _read(questions)) is not None:
        items = _items(questions)
        try:
            well, said = True, pickle.loads(work[1])(items)
        except Exception:
            well, said = False, traceback.format_exc().encode()
        for _ in items:
            pass
        try:
            _write(answers, said, well)
        except BrokenPipeError:  # the parent was killed
            os._exit(0)


if __name__ == "__main__":
    main()
