"""Program log: one line per record, and rate-limited lines about an unreachable broker."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, NodeNotReadyError

from streams.errors import UserError
from streams.process.program_log import CALM_S, PAUSES_S, DeduplicateFilter, LogFormatter, RateLimitFilter, configure
from streams.settings import WorkerSettings

NASTY = "x\n[2026-01-01 00:00:00,000] [ERROR] forged: y\r\x1b[2J\x7f\x9b\u2028\ud800"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tested")
    logger.propagate, logger.handlers = False, []
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers = []


def written(log: logging.Logger, formatter: logging.Formatter) -> io.StringIO:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    log.addHandler(handler)
    return out


def fail_with(log: logging.Logger, error: Exception) -> None:
    try:
        raise error
    except Exception:
        log.exception("what %s", NASTY, extra={"site": NASTY, "partition": 3, "offset": 0})


def test_json_log_line_has_all_fields(log: logging.Logger) -> None:
    out = written(log, LogFormatter("json", "w-1"))
    fail_with(log, ValueError(NASTY))
    log.info("plain")
    failed, plain = map(json.loads, out.getvalue().splitlines())
    assert out.getvalue().isascii()
    assert failed.pop("time").endswith("+00:00")
    trace = failed.pop("exception")
    assert trace.startswith("Traceback")
    assert "ValueError: x\n" in trace
    assert failed == {
        "level": "error",
        "logger": "tested",
        "message": f"what {NASTY}",
        "instance": "w-1",
        "site": NASTY,
        "partition": 3,
        "offset": 0,
    }
    assert set(plain) == {"time", "level", "logger", "message", "instance"}


def test_text_log_escapes_line_breaks_in_names(log: logging.Logger) -> None:
    out = written(log, LogFormatter("text", "w-1"))
    fail_with(log, ValueError(NASTY))
    first, *trace = out.getvalue().split("\n")[:-1]
    assert " [ERROR] tested: what x\\u000a[2026-01-01" in first
    assert first.endswith(" partition=3 offset=0")
    assert ' site="x\\n[2026' in first
    assert trace[0] == "    Traceback (most recent call last):"
    assert all(line.isprintable() for line in [first, *trace])
    assert all(line.startswith("    ") for line in trace)
    assert any("forged" in line for line in trace)


def test_log_of_user_error_has_no_traceback(log: logging.Logger) -> None:
    text, lines = written(log, LogFormatter("text", "w-1")), written(log, LogFormatter("json", "w-1"))
    fail_with(log, UserError("start one"))
    assert text.getvalue().count("\n") == 1
    assert "exception" not in json.loads(lines.getvalue())


@pytest.mark.parametrize(
    ("message", "error", "shown"),
    [
        ("[^-App]: Crashed reason=%r", UserError("it stood still"), False),
        ("[^-App]: Crashed reason=%r", RuntimeError("a fault"), True),
        ("[^Worker]: Error: %r", NodeNotReadyError(), False),
        ("[^Worker]: We experienced a crash! Reraising original exception...", None, False),
        ("Stopping the worker: %s", None, True),
    ],
)
def test_deduplicate_filter_drops_repeated_worker_error(message: str, error: Exception | None, shown: bool) -> None:
    trace = (type(error), error, None) if error else None
    assert (
        DeduplicateFilter().filter(logging.LogRecord("mode", logging.ERROR, "", 0, message, (error,), trace)) is shown
    )


class Times:
    """A clock, and a filter that uses it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.filter = RateLimitFilter(lambda: self.now)

    def output_of(
        self, message: str, *arguments: Any, name: str = "aiokafka.client", level: int = logging.ERROR
    ) -> str:
        """Return the text of a record, or an empty string if it is filtered."""
        record = logging.LogRecord(name, level, "", 0, message, arguments, None)
        return record.getMessage() if self.filter.filter(record) else ""


AWAY = ConnectionRefusedError(111, "refused")


def test_lost_broker_log_lines_are_rate_limited() -> None:
    times, lines = Times(), []
    for _ in range(600):
        for line in (
            times.output_of("Unable connect: %s", AWAY),
            times.output_of("Failed fetch: %s", NodeNotReadyError(1)),
        ):
            lines += [(times.now - 1000.0, line)] if line else []
        times.now += 0.1
    assert [round(at) for at, _ in lines] == [0, 3, 9, 21, 51]
    assert lines[0][1] == f"Unable connect: {AWAY}"
    assert lines[1][1] == f"Unable connect: {AWAY} (and 59 like it)"
    assert PAUSES_S == (3.0, 6.0, 12.0, 30.0)


def test_rate_limit_after_calm_logs_next_error_immediately() -> None:
    times = Times()
    assert times.output_of("Unable to update metadata from %s", [1])
    assert not times.output_of("Unable to update metadata from %s", [1])
    times.now += CALM_S + 0.1
    assert times.output_of("Unable to update metadata from %s", [1]).endswith("(and 1 like it)")


def test_rate_limit_keeps_all_other_messages() -> None:
    times = Times()
    times.output_of("Unable connect: %s", AWAY)
    for _ in range(3):
        assert times.output_of("Discovered coordinator %s", 1, level=logging.INFO)
        assert times.output_of("Heartbeat failed: %s", GroupAuthorizationFailedError("g"))
        assert times.output_of(
            "redis: writing failed (%s)", AWAY, name="streams.worker.checkpoint.owned_table", level=logging.WARNING
        )


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    found, kafka = logging.getLogger(), logging.getLogger("kafka")
    before = found.handlers[:], found.level, kafka.propagate, kafka.handlers[:]
    yield found
    found.handlers[:], kafka.propagate, kafka.handlers[:] = before[0], before[2], before[3]
    found.setLevel(before[1])


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_library_logs_use_configured_format_and_level(
    root: logging.Logger, log_format: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(WorkerSettings(log_format=log_format, log_level="warning", instance="w-9"), "w-9")
    logging.getLogger("faust.app").warning("a table\n%s", "+--+")
    logging.getLogger("faust.app").info("not this")
    logging.getLogger("kafka.conn").error("which comes as an error")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("{" if log_format == "json" else "[2")
    assert "faust.app" in shown.err


def test_debug_level_leaves_out_the_compiler(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure(WorkerSettings(log_level="debug", instance="w-9"), "w-9")
    logging.getLogger("numba.core.typeinfer").debug("Traceback")
    logging.getLogger("faust.app").debug("a step")
    shown = capsys.readouterr().err
    assert "a step" in shown and "Traceback" not in shown
