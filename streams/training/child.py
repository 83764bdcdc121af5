"""Child process for training. It holds neither the GIL nor memory of the event process.

A thread would delay events whenever it runs Python code. On a busy machine a low-priority thread may even be suspended
while it holds the GIL. The process starts for the first training, without the main module, and ends with its parent.
While it works it sends a heartbeat every second.

Work and result are written, one after the other, to a file that both processes have open. The pipe carries only short
messages, so neither process blocks on the other, even if it hangs. The file has no name, so nothing remains if a
process is killed.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

from models import trainer
from streams import python_process

NICENESS = 5
"""Niceness of the child; moderate, because an event may have to wait for a training on a busy machine."""

BEAT_S = 1.0  # heartbeat interval

DEADLINE_S = 900.0
"""Maximum duration of a training, seconds, even with heartbeats."""

TOGETHER = 256  # items per write: faster than single ones, and other threads run in between

ALIVE, DONE, FAILED = "alive", "done", "failed"  # messages of the process


class ChildDied(Exception):
    """The process ended without a result: it was killed, or memory ran out."""


class ChildUnresponsive(Exception):
    """The process sends no heartbeat, or no result."""


class WorkFailed(Exception):
    """The work raised an error; the message is its traceback."""


class Child:
    """The child process; it runs one training at a time.

    Args:
        threads: Maximum number of threads of a training.

    Raises:
        OSError: The process cannot be started.
    """

    def __init__(self, threads: int = 1) -> None:
        self.cpu_s = 0.0
        """CPU time of the process, seconds, from its last heartbeat."""
        self._pipe, theirs = Pipe()
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # open as long as the process runs
        with theirs:
            files = [theirs.fileno(), self._file.fileno()]
            self._process = subprocess.Popen(
                python_process.command(__name__, *map(str, files), str(threads)),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=files,
                env=python_process.environment(),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def call(self, work: bytes, items: Iterable[bytes], patience_s: float) -> bytes:
        """Run the pickled work on the items in the child process and return its result.

        Args:
            patience_s: Maximum time without a heartbeat, seconds.

        Raises:
            WorkFailed: The work raised an error.
            ChildDied: The process ended without a result.
            ChildUnresponsive: There was no heartbeat or result in time.
            OSError: The items cannot be written to the file.
        """
        file = self._file.fileno()
        with _opened(file, "wb") as writer:
            writer.write(work)
            remaining = iter(items)
            while some := [*islice(remaining, TOGETHER)]:
                pickle.dump(some, writer)
        outcome = self._answer(patience_s)
        with _opened(file, "rb") as reader:
            result: bytes = reader.read()
        if outcome == FAILED:
            raise WorkFailed(result.decode())
        return result

    def _answer(self, patience_s: float) -> str:
        end, outcome = time.monotonic() + DEADLINE_S, ALIVE
        try:
            self._pipe.send(ALIVE)
            while outcome == ALIVE:
                seconds = max(min(patience_s, end - time.monotonic()), 0.0)
                # Poll twice: this process may have been suspended itself.
                if not self._pipe.poll(seconds) and not self._pipe.poll():
                    raise ChildUnresponsive(f"process {self.pid} has not answered for {seconds:.0f} s")
                outcome, self.cpu_s = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise ChildDied(f"it ended with {self._process.wait()}") from None
        return outcome

    def kill(self) -> None:
        """Kill the process; other threads may call this."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and release its resources."""
        self.kill()
        self._process.wait()
        self._pipe.close()
        self._file.close()


def _opened(file: int, mode: str) -> IO[Any]:
    """Open the file of work and result at its start, truncated for writing; the descriptor stays open."""
    os.lseek(file, 0, os.SEEK_SET)
    if mode == "wb":
        os.ftruncate(file, 0)
    return open(file, mode, closefd=False)


def _items(file: IO[bytes]) -> Iterator[bytes]:
    while file.peek(1):  # type: ignore[attr-defined]
        yield from pickle.load(file)


def _done(file: int) -> str:
    """Run the work in a file, write its result there, and return DONE or FAILED."""
    try:
        with _opened(file, "rb") as reader:
            outcome, result = DONE, pickle.load(reader)(_items(reader))
    except Exception:
        outcome, result = FAILED, traceback.format_exc().encode()
    with _opened(file, "wb") as writer:
        writer.write(result)
    return outcome


def _beat(parent: Connection, over: threading.Event) -> None:
    """Send heartbeats until the work is over."""
    while not over.wait(BEAT_S):
        try:
            parent.send((ALIVE, time.process_time()))
        except ConnectionError:  # the parent was killed
            os._exit(0)


def main() -> None:
    """Run the parent's work until the parent ends."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe, file, threads = map(int, sys.argv[1:])
    parent = Connection(pipe)
    trainer.use(trainer.SynchronousTrainer(threads))
    try:
        while parent.recv():
            over = threading.Event()
            beats = threading.Thread(target=_beat, args=(parent, over), daemon=True)
            beats.start()
            outcome = _done(file)
            over.set()
            beats.join()
            parent.send((outcome, time.process_time()))
    except (EOFError, ConnectionError):
        return


if __name__ == "__main__":
    main()
