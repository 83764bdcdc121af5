"""Run one process of a worker until it is stopped, with memory settings for glibc and Python."""

import ctypes
import gc
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from aiokafka.errors import KafkaError
from mode import loop

from models.engine.methods import SiteMethods
from models.waits.boosted.boosted import warm_up_training
from streams.errors import UserError
from streams.process import program_log
from streams.process.first_start import compile_kernels
from streams.settings import Settings
from streams.training.processes import processes
from streams.training.training_slots import TrainingSlots
from streams.worker.app import build_app
from streams.worker.faust_compat import run_until_stopped
from streams.worker.supervisor import StartSettings

log = logging.getLogger(__name__)


def _return_freed_memory() -> None:
    """Make glibc return large freed blocks to the system, such as a state that was sent to the changelog."""
    mmap_threshold, arena_max = -3, -8
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 17)
        libc.mallopt(arena_max, 2)


def _log_sentence(report: str) -> None:
    log.info("%s%s", report[:1].upper(), report[1:])


def collect_seldom() -> None:
    """Run Python's garbage collector rarely and in small steps, without permanent objects.

    By default it scans all live objects each time their number grows by a quarter. This would block the event loop for
    seconds with a million jobs. The objects of sites and jobs contain no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 100, 100)


def run_process(
    settings: Settings, partitions: int, logging_config: dict[str, Any], web_socket: Path | None = None
) -> None:
    """Run a worker in this process until it is stopped.

    Args:
        partitions: Number of partitions of the topics.
        logging_config: Result of `program_log.configure`.
        web_socket: Unix socket for its pages, instead of the web port.

    Raises:
        UserError: The worker ended for another reason.
    """
    _return_freed_memory()
    with suppress(ImportError):  # not available on every system
        loop.use("uvloop")
    started = time.perf_counter()
    trainer = processes()
    compile_kernels(settings.engine, _log_sentence)
    if SiteMethods("", settings.engine).trains:
        # With a backlog, the first training is needed sooner than the process can start.
        trainer.begin(warm_up_training, (), bytes, first=True)
    collect_seldom()
    log.info("Compiled kernels in %.1f s", time.perf_counter() - started)
    with tempfile.TemporaryDirectory(prefix="queuecast-") as directory:
        app = build_app(settings, directory, partitions, web_socket)
        failed = run_until_stopped(app, loglevel=settings.worker.log_level, logging_config=logging_config)
    if failed is None:
        return
    if isinstance(failed, UserError):
        raise failed
    if isinstance(failed, KafkaError):
        raise UserError(f"kafka at {settings.kafka.bootstrap}: the broker closed the connections ({failed!r})")
    raise UserError(f"the worker stopped: {failed!r}; see its log")


def main() -> int:
    """Run one of a worker's processes, as started by `crew`; return its exit code.

    Its argument is the number of an open file with its settings. Its standard input closes when the parent process
    ends.
    """
    # Ctrl-C in a terminal reaches all processes; this one is stopped by its parent.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        orders = msgspec.msgpack.decode(file.read(), type=StartSettings)
    worker = orders.settings.worker
    threading.Thread(target=_stop_at_end, name="lifeline", daemon=True).start()
    logging_config = program_log.configure(worker, worker.name, one_of_several=True)
    processes().slots = TrainingSlots(Path(orders.slots), orders.number, orders.trainings)
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
