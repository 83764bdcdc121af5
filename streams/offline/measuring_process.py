"""Measure a replay in a process of its own, beside the engine.

The process starts without the main module and without the engine. It ends with its parent.
"""

import signal
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Self

import msgspec

from models.engine.settings import EngineSettings
from streams import python_process
from streams.errors import UserError
from streams.offline.replay_measures import MeasureCounts, MeasuredRecord, ReplayMeasures

TOGETHER = 256  # records a message

MAX_WAIT_S = 300
"""Maximum time without progress of the process, seconds; a message normally needs a fraction of a second."""

_encoder = msgspec.msgpack.Encoder()


class MeasuringProcess:
    """A process that measures a replay; it is killed on exit.

    Args:
        begin: Unix time of the first event.
        settings: settings of the replay.

    Raises:
        UserError: the process ended early, or hangs.
        OSError: it cannot be started.
    """

    def __init__(self, begin: float, settings: EngineSettings) -> None:
        self._waiting: list[MeasuredRecord] = []
        ours, theirs = socket.socketpair()
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", MAX_WAIT_S, 0))
        with ours, theirs:
            self._process = subprocess.Popen(
                python_process.command(__name__, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                env=python_process.environment(),
                start_new_session=True,
            )
            self._pipe = Connection(ours.detach())
        try:
            self._pipe.send((begin, settings))
        except OSError:
            self._close()
            raise

    def add(self, record: MeasuredRecord) -> None:
        """Measure a record."""
        self._waiting.append(record)
        if len(self._waiting) == TOGETHER:
            self._send()

    def finish(self) -> MeasureCounts:
        """Return the counts of all records. The process ends."""
        self._send()
        try:
            self._pipe.send_bytes(b"")
            return msgspec.msgpack.decode(self._pipe.recv_bytes(), type=MeasureCounts)
        except BlockingIOError:
            raise _unresponsive() from None
        except (EOFError, OSError):  # also within a message
            raise self._ended() from None

    def _send(self) -> None:
        try:
            self._pipe.send_bytes(_encoder.encode(self._waiting))
        except BlockingIOError:
            raise _unresponsive() from None
        except ConnectionError:
            raise self._ended() from None
        self._waiting.clear()

    def _ended(self) -> UserError:
        try:
            code = self._process.wait(MAX_WAIT_S)
        except subprocess.TimeoutExpired:
            return _unresponsive()
        if code >= 0:
            return _error(f"ended with status {code}; its error is above")
        cause = ", possibly for lack of memory" if code == -signal.SIGKILL else ""
        return _error(f"was killed by {signal.Signals(-code).name}{cause}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def _error(problem: str) -> UserError:
    return UserError(f"the process that measures the replay {problem}; start the replay again")


def _unresponsive() -> UserError:
    return _error(f"has not responded for {MAX_WAIT_S} s")


def main() -> None:
    """Measure the records of the parent until it sends an empty message, or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = Connection(int(sys.argv[1]))
    decode = msgspec.msgpack.Decoder(list[MeasuredRecord]).decode
    try:
        measures = ReplayMeasures(*parent.recv())
        while message := parent.recv_bytes():
            for record in decode(message):
                measures.add(record)
        parent.send_bytes(_encoder.encode(measures.counted))
    except (EOFError, OSError):  # also within a message
        return


if __name__ == "__main__":
    main()
