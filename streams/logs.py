r"""How a worker logs: one line a record, as text for people or as JSON for programs, calm while Kafka is away.

A call gives what it speaks of as fields, `extra={"site": …, "partition": …, "offset": …}`. What is not printable comes
out escaped, so that a name in an event can neither begin a line of its own nor steer a terminal:

    [2026-01-02 03:04:05,678] [INFO] streams.worker.ledger: goes on, 12 live jobs site="alder" partition=3 offset=41
    {"time": "2026-01-02T03:04:05.678+00:00", "level": "info", "logger": "streams.worker.ledger", "message": …}
"""

import json
import logging
import logging.config
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiokafka.errors import KafkaError

from streams.errors import UserError
from streams.settings import WorkerSettings
from streams.terminal import printable

FIELDS = ("site", "partition", "offset")
"""What a record may say of the message that it is about."""

PAUSES_S = (3.0, 6.0, 12.0, 30.0)
"""Between two lines about a broker that is away; the last one is repeated."""

CALM_S = 10.0
"""After so long without trouble the next trouble is a new one."""


def configure(settings: WorkerSettings) -> dict[str, Any]:
    """Let all in this process, libraries too, log to stderr as the settings say; gives what `dictConfig` took."""
    as_json, as_text = {"()": JsonLines, "instance": settings.name}, {"()": TextLines}
    configuration = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": as_json if settings.log_format == "json" else as_text},
        "filters": {"calm": {"()": Calm}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "lines", "filters": ["calm"]},
            "nowhere": {"class": "logging.NullHandler"},
        },
        "loggers": {"kafka": {"propagate": False, "handlers": ["nowhere"]}},  # what it has to say comes as errors
        "root": {"level": settings.log_level.upper(), "handlers": ["stderr"]},
    }
    logging.config.dictConfig(configuration)
    return configuration


class TextLines(logging.Formatter):
    """A record as a line for people, then its exception's, each further in."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        fields = "".join(f" {name}={json.dumps(value, default=str)}" for name, value in _fields(record).items())
        head = f"[{self.formatTime(record)}] [{record.levelname}] {record.name}: "
        trace = (f"\n    {printable(line)}" for line in (_trace(record) or "").splitlines())
        return f"{head}{printable(record.getMessage())}{fields}{''.join(trace)}"


class JsonLines(logging.Formatter):
    """A record as a JSON object in a line."""

    def __init__(self, instance: str) -> None:
        super().__init__()
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, in ASCII."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "instance": self._instance,
            **_fields(record),
        }
        if trace := _trace(record):
            found["exception"] = trace
        return json.dumps(found, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: record.__dict__[name] for name in FIELDS if record.__dict__.get(name) is not None}


def _trace(record: logging.LogRecord) -> str | None:
    if record.exc_info and isinstance(record.exc_info[1], UserError):
        return None  # whose message says all
    if record.exc_info and record.exc_info[0]:
        return logging.Formatter().formatException(record.exc_info)
    return record.exc_text


class Calm(logging.Filter):
    """Lets a line through now and then of the many in which aiokafka tells that a broker is away."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said = 0  # lines about this trouble so far
        self._withheld = 0
        self._last = self._next = -sys.float_info.max

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be shown; it then tells how many were not."""
        if not _broker_away(record):
            return True
        now = self._clock()
        if now - self._last > CALM_S:
            self._said, self._next = 0, now
        self._last = now
        if now < self._next:
            self._withheld += 1
            return False
        self._next = now + PAUSES_S[min(self._said, len(PAUSES_S) - 1)]
        self._said += 1
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
