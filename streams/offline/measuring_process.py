"""Measure a replay in a process of its own, beside the engine.

The process starts without the main module and without the engine. It ends with its parent.
"""

import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Self

import msgspec

from models.engine.settings import EngineSettings
from streams import python_process
from streams.errors import UserError
from streams.offline.replay_measures import MeasureCounts, MeasuredRecord, ReplayMeasures

TOGETHER = 256  # records a message

_encoder = msgspec.msgpack.Encoder()


class MeasuringProcess:
    """A process that measures a replay; it is killed on exit.

    Args:
        begin: Unix time of the first event.
        settings: settings of the replay.

    Raises:
        UserError: the process ended early.
        OSError: it cannot be started.
    """

    def __init__(self, begin: float, settings: EngineSettings) -> None:
        self._waiting: list[MeasuredRecord] = []
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                env=python_process.environment(),
                start_new_session=True,
            )
        self._pipe.send((begin, settings))

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
        except (EOFError, OSError):  # also within a message
            raise self._ended() from None

    def _send(self) -> None:
        try:
            self._pipe.send_bytes(_encoder.encode(self._waiting))
        except ConnectionError:
            raise self._ended() from None
        self._waiting.clear()

    def _ended(self) -> UserError:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return UserError(f"the process that measures the replay {how}; is there enough memory? Start the replay again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


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
