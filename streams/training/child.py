"""A process of its own for training: it takes neither the interpreter's lock nor memory from the events' process.

A thread would: events feel each stretch of Python in it, most of all on a busy machine, where a thread of lower
priority may be put aside while it holds the lock. The process is started for the first training, without the program's
main module, and ends when its input does. While it works it says every second that it is alive.
"""

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

NICENESS = 5
"""By how much its priority is lower; not by more, for on a busy machine an event may have to wait for a training."""

ITEMS_PER_MESSAGE = 500
"""So that encoding them takes less than a millisecond."""

BEAT_S = 1.0
"""Seconds between two signs of life."""

DEADLINE_S = 900.0
"""Seconds after which a training hangs, whatever it says; one of 30,000 jobs takes some 5 s of a core."""

FAILED, DONE, ALIVE = range(3)
"""What a message of the process says."""

_HEAD = struct.Struct("<BQ")  # what it says, and how many bytes follow
_encode = msgspec.msgpack.Encoder().encode
_decode_items = msgspec.msgpack.Decoder(list[bytes]).decode


class ChildDied(Exception):
    """The process has ended without an answer: somebody killed it, or there was no memory left."""


class ChildHangs(Exception):
    """The process gives no sign of life, or no answer."""


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
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment, start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def call(self, work: bytes, items: Iterable[bytes], patience_s: float) -> bytes:
        """What the work, pickled, makes of the items.

        Parameters:
            patience_s: how long it may be silent.

        Raises:
            WorkFailed: it raised an error.
            ChildDied: there is no answer.
            ChildHangs: there is none in time.
        """
        messages, left, heard = _messages(work, items), memoryview(b""), bytearray()
        end = time.monotonic() + DEADLINE_S
        while True:
            left = left or memoryview(next(messages, b""))
            self._await(bool(left), min(patience_s, end - time.monotonic()))
            if left:
                left = left[self._write(left) :]
            for says, message in self._hear(heard):
                if says == DONE:
                    return message
                if says == FAILED:
                    raise WorkFailed(message.decode())

    def _await(self, writes: bool, seconds: float) -> None:
        """Done when the process has said something, or takes something if there is something to be written."""
        for wait_s in (max(seconds, 0.0), 0.0):  # the second look: this process may have stood still itself
            if any(select.select([self._out], [self._in] if writes else [], [], wait_s)):
                return
        raise ChildHangs(f"process {self.pid} has not answered for {seconds:.0f} s")

    def _write(self, left: memoryview) -> int:
        try:
            return os.write(self._in.fileno(), left)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChildDied(f"{error}") from error

    def _hear(self, heard: bytearray) -> Iterator[tuple[int, bytes]]:
        """What the process has said since: whole messages, taken out of what was heard."""
        if not select.select([self._out], [], [], 0.0)[0]:
            return
        found = os.read(self._out.fileno(), 1 << 20)
        if not found:
            raise ChildDied(f"it ended with {self._process.wait()}")
        heard += found
        while len(heard) >= _HEAD.size:
            says, size = _HEAD.unpack_from(heard)
            end = _HEAD.size + size
            if len(heard) < end:
                return
            message = bytes(heard[_HEAD.size : end])
            del heard[:end]
            yield says, message

    def kill(self) -> None:
        """End it, whatever it does; may be called by another thread."""
        self._process.kill()

    def close(self) -> None:
        """Let it go."""
        self.kill()
        self._process.wait()
        for pipe in (self._in, self._out):
            with suppress(BrokenPipeError):  # of what was still to be written
                pipe.close()


def _messages(work: bytes, items: Iterable[bytes]) -> Iterator[bytes]:
    """What is written to the process."""
    yield _message(work)
    left = iter(items)
    while some := list(islice(left, ITEMS_PER_MESSAGE)):
        yield _message(_encode(some))
    yield _message(b"")


def _message(content: bytes, says: int = DONE) -> bytes:
    return _HEAD.pack(says, len(content)) + content


def _read(pipe: IO[bytes]) -> bytes | None:
    """The next message to the process; None at the end."""
    head: bytes = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    _, size = _HEAD.unpack(head)
    message: bytes = pipe.read(size)
    return message if len(message) == size else None


def _items(pipe: IO[bytes]) -> Iterator[bytes]:
    while found := _read(pipe):
        yield from _decode_items(found)


class _Answers:
    """What the process says; also that it is alive, while it has something to do."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._one = threading.Lock()
        self.busy = threading.Event()
        self.busy.set()  # it starts
        threading.Thread(target=self._beat, name="beat", daemon=True).start()

    def _beat(self) -> None:
        while self.busy.wait():
            self.say(b"", ALIVE)
            time.sleep(BEAT_S)

    def say(self, content: bytes, says: int) -> None:
        """Send a message."""
        try:
            with self._one:
                self._pipe.write(_message(content, says))
                self._pipe.flush()
        except BrokenPipeError:  # the parent was killed
            os._exit(0)


def main() -> None:
    """Do what comes on standard input, and answer on standard output, which nobody else may use."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _Answers(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    while (work := _read(questions)) is not None:
        answers.busy.set()
        items = _items(questions)
        try:
            says, said = DONE, pickle.loads(work)(items)
        except Exception:
            says, said = FAILED, traceback.format_exc().encode()
        for _ in items:
            pass
        answers.busy.clear()
        answers.say(said, says)


if __name__ == "__main__":
    main()
