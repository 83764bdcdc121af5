r"""Logging of the processes: one line per record, as text or JSON, with a rate limit for lines about an unreachable
Kafka.

A call passes the subject as fields, `extra={"site": …, "partition": …, "offset": …}`. Characters that are not printable
are escaped. So a name in an event can neither start a new line nor control a terminal. An example of each format:

    [2026-01-02 03:04:05,678] [INFO] streams.worker.checkpoint.loader: Restored site site="alder" partition=3
    {"time": "2026-01-02T03:04:05.678+00:00", "level": "info", "logger": "streams.worker.startup", "message": …}
"""

import json
import logging
import logging.config
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from aiokafka.errors import KafkaError

from streams.errors import UserError
from streams.settings import NotifySettings, ServeSettings, WorkerSettings
from streams.text.terminal import printable

log = logging.getLogger(__name__)

FIELDS = ("site", "partition", "offset", "client", "address", "path", "user", "status")
"""Fields of a record that identify its message or request."""

PAUSES_S = (3.0, 6.0, 12.0, 30.0)  # seconds between two lines about an unreachable broker; the last value is repeated
CALM_S = 10.0  # seconds without a problem after which the next problem is a new one


def configure(
    settings: WorkerSettings | ServeSettings | NotifySettings, name: str, one_of_several: bool = False
) -> dict[str, Any]:
    """Configure logging of this process and its libraries to stderr.

    Args:
        settings: Provide the log level and format.
        name: Name of this process.
        one_of_several: Whether several processes share one log; text lines then contain the name too.

    Returns:
        The configuration passed to `dictConfig`.
    """
    instance = name if one_of_several or settings.log_format == "json" else None
    lines = {"()": LogFormatter, "log_format": settings.log_format, "instance": instance}
    quiet = settings.log_level == "info" and not isinstance(settings, WorkerSettings)
    # kafka-python reports problems as exceptions too; at debug numba logs every step of a compilation, with tracebacks;
    # at info aiokafka logs every partition assignment.
    loggers: dict[str, Any] = {"kafka": {"propagate": False, "handlers": ["nowhere"]}, "numba": {"level": "WARNING"}}
    configuration = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": lines},
        "filters": {"calm": {"()": RateLimitFilter}, "once": {"()": DeduplicateFilter}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "lines", "filters": ["calm", "once"]},
            "nowhere": {"class": "logging.NullHandler"},
        },
        "loggers": loggers | ({"aiokafka": {"level": "WARNING"}} if quiet else {}),
        "root": {"level": settings.log_level.upper(), "handlers": ["stderr"]},
    }
    logging.config.dictConfig(configuration)
    return configuration


@contextmanager
def exit_on_errors(log_format: str) -> Iterator[None]:
    """Log an error that ends the program as a JSON line and raise SystemExit; re-raise it if the log is text."""
    try:
        yield
    except UserError as error:
        if log_format == "text":
            raise
        log.critical("%s", error)
        raise SystemExit(1) from None


class LogFormatter(logging.Formatter):
    """Format each record as one line, as `text` or `json`; `instance`, if given, identifies the process.

    JSON lines omit keys without a value. A `UserError` has no traceback, because its message contains the remedy.
    """

    def __init__(self, log_format: str, instance: str | None = None) -> None:
        super().__init__()
        self._json, self._instance = log_format == "json", instance

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; in text, indented lines of the traceback follow."""
        about = {"instance": self._instance} | {name: getattr(record, name, None) for name in FIELDS}
        about = {name: value for name, value in about.items() if value is not None}
        error = record.exc_info
        trace = "" if not error or isinstance(error[1], UserError | None) else self.formatException(error)
        message = record.getMessage()
        if self._json:
            time_ = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
            line = {"time": time_, "level": record.levelname.lower(), "logger": record.name, "message": message}
            return json.dumps(line | about | ({"exception": trace} if trace else {}), default=str)
        head = f"[{self.formatTime(record)}] [{record.levelname}] {record.name}: {printable(message)}"
        fields = (f" {name}={json.dumps(value, default=str)}" for name, value in about.items())
        return "".join((head, *fields, *(f"\n    {printable(line)}" for line in trace.splitlines())))


class DeduplicateFilter(logging.Filter):
    """Drop Faust's messages about an error that ended the worker, because the worker logs the error and the remedy."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        error, message = record.exc_info[1] if record.exc_info else None, str(record.msg)
        by_faust = "Crashed reason" in message or "Error: %r" in message
        return not (by_faust and isinstance(error, UserError | KafkaError)) and "Reraising" not in message


class RateLimitFilter(logging.Filter):
    """Limit the rate of aiokafka's messages about an unreachable broker.

    It classifies records by their error; the filters of libraries use the text and the rate only.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged = 0  # lines logged about this problem
        self._withheld = 0
        self._last = self._next = -sys.float_info.max

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; append the number of records dropped before it."""
        if not _broker_away(record):
            return True
        now = self._clock()
        if now - self._last > CALM_S:
            self._logged, self._next = 0, now
        self._last = now
        if now < self._next:
            self._withheld += 1
            return False
        self._next = now + PAUSES_S[min(self._logged, len(PAUSES_S) - 1)]
        self._logged += 1
        if self._withheld:
            record.msg, record.args = "%s (and %d like it)", (record.getMessage(), self._withheld)
        self._withheld = 0
        return True


_AWAY = ("Unable to update metadata", "Marking the coordinator dead", "Heartbeat session expired")


def _broker_away(record: logging.LogRecord) -> bool:
    if record.levelno < logging.WARNING or record.exc_info or record.name.partition(".")[0] != "aiokafka":
        return False
    errors = record.args if isinstance(record.args, tuple) else ()
    return str(record.msg).startswith(_AWAY) or any(
        isinstance(error, OSError) or (isinstance(error, KafkaError) and error.retriable) for error in errors
    )
