"""A process of its own for training: it takes neither the interpreter's lock nor memory from the events' process.

A thread would: events feel each stretch of Python in it, most of all on a busy machine, where a thread of lower
priority may be put aside while it holds the lock. The process is started for the first training, without the program's
main module, and ends when its parent does. While it works it says every second that it is alive.

Work and result stand, one after the other, in a file that both have open, and only words go through the pipe. So
neither process ever waits for the other to take something, which one that hangs would not do. The file has no name, so
that nothing is left of it whoever is killed.
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
from pathlib import Path
from typing import IO, Any

from models import trainer

NICENESS = 5
"""By how much its priority is lower; not by more, for on a busy machine an event may have to wait for a training."""

BEAT_S = 1.0  # seconds between two signs of life

DEADLINE_S = 900.0
"""Seconds after which a training hangs, whatever it says; one of 30,000 jobs takes some 5 s of a core."""

TOGETHER = 256  # items that are written at once: a third of the time, and other threads still run in between

ALIVE, DONE, FAILED = "alive", "done", "failed"  # what the process says


class ChildDied(Exception):
    """The process has ended without an answer: somebody killed it, or there was no memory left."""


class ChildHangs(Exception):
    """The process gives no sign of life, or no answer."""


class WorkFailed(Exception):
    """The work raised an error, whose traceback this is."""


class Child:
    """The process; it does one thing at a time.

    Parameters:
        threads: how many threads that may take.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, threads: int = 1) -> None:
        self.cpu_s = 0.0
        """Processor time that it has taken, seconds, as it said last."""
        self._pipe, theirs = Pipe()
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # open as long as the process runs
        path = os.pathsep.join(place or str(Path.cwd()) for place in sys.path)
        with theirs:
            files = [theirs.fileno(), self._file.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, files), str(threads)],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=files,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )

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
            OSError: the items cannot be written down.
        """
        file = self._file.fileno()
        with _opened(file, "wb") as writer:
            writer.write(work)
            left = iter(items)
            while some := [*islice(left, TOGETHER)]:
                pickle.dump(some, writer)
        said = self._answer(patience_s)
        with _opened(file, "rb") as reader:
            result: bytes = reader.read()
        if said == FAILED:
            raise WorkFailed(result.decode())
        return result

    def _answer(self, patience_s: float) -> str:
        end, said = time.monotonic() + DEADLINE_S, ALIVE
        try:
            self._pipe.send(ALIVE)
            while said == ALIVE:
                seconds = max(min(patience_s, end - time.monotonic()), 0.0)
                # The second look: this process may have stood still itself.
                if not self._pipe.poll(seconds) and not self._pipe.poll():
                    raise ChildHangs(f"process {self.pid} has not answered for {seconds:.0f} s")
                said, self.cpu_s = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise ChildDied(f"it ended with {self._process.wait()}") from None
        return said

    def kill(self) -> None:
        """End it, whatever it does; may be called by another thread."""
        self._process.kill()

    def close(self) -> None:
        """Let it go."""
        self.kill()
        self._process.wait()
        self._pipe.close()
        self._file.close()


def _opened(file: int, mode: str) -> IO[Any]:
    """The file of work and result from its beginning, empty where it is written; closed, it stays open to both."""
    os.lseek(file, 0, os.SEEK_SET)
    if mode == "wb":
        os.ftruncate(file, 0)
    return open(file, mode, closefd=False)


def _items(file: IO[bytes]) -> Iterator[bytes]:
    while file.peek(1):  # type: ignore[attr-defined]
        yield from pickle.load(file)


def _done(file: int) -> str:
    """Do what is in a file; gives what to say of it."""
    try:
        with _opened(file, "rb") as reader:
            said, result = DONE, pickle.load(reader)(_items(reader))
    except Exception:
        said, result = FAILED, traceback.format_exc().encode()
    with _opened(file, "wb") as writer:
        writer.write(result)
    return said


def _beat(parent: Connection, over: threading.Event) -> None:
    """Say that this process is alive, until the work is over."""
    while not over.wait(BEAT_S):
        try:
            parent.send((ALIVE, time.process_time()))
        except ConnectionError:  # the parent was killed
            os._exit(0)


def main() -> None:
    """Do what the parent says, until it is no more."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe, file, threads = map(int, sys.argv[1:])
    parent = Connection(pipe)
    trainer.use(trainer.AtOnce(threads))
    try:
        while parent.recv():
            over = threading.Event()
            beats = threading.Thread(target=_beat, args=(parent, over), daemon=True)
            beats.start()
            said = _done(file)
            over.set()
            beats.join()
            parent.send((said, time.process_time()))
    except (EOFError, ConnectionError):
        return


if __name__ == "__main__":
    main()
