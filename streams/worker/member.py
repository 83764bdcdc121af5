"""The program of one of a worker's several processes (`crew` starts it): told on standard input what to do.

It ends when that is closed: then the process that started it was killed.
"""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from streams.errors import UserError
from streams.process import program_log
from streams.training.processes import processes
from streams.worker.crew import Orders
from streams.worker.process import run_process

log = logging.getLogger(__name__)


def main() -> int:
    """Run the process; gives its exit code."""
    # A terminal's Ctrl-C goes to all its processes; this one is told to stop by the one that started it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    orders = msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=Orders)
    threading.Thread(target=_stop_at_end, name="lifeline", daemon=True).start()
    logging_config = program_log.configure(orders.settings.worker, one_of_several=True)
    processes().turns = Path(orders.turns)
    try:
        run_process(orders.settings, orders.partitions, logging_config, Path(orders.socket))
    except UserError as error:
        log.critical("%s", error)
        return 1
    return 0


def _stop_at_end() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
