"""What a check finds, and the checks of processes by the page that each shows Prometheus."""

import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from http.client import HTTPException
from typing import Literal

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from models.durations import duration
from streams.errors import NotUnderstood
from streams.settings import NotifySettings


class CheckResult(msgspec.Struct, frozen=True):
    """What a check found and, unless all is well, what to do."""

    check: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.check}: {self.found}" + (f"; {self.advice}" if self.advice else "")


def url_of(address: str) -> str:
    """The page of metrics at `HOST:PORT`, or at a whole URL. Raises NotUnderstood: it is neither."""
    if "://" in address:
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise NotUnderstood(f"{address!r}: expected HOST:PORT")
    return f"http://{address}/metrics"


def shown_at(address: str, process: str, prefix: str, advice: str | None = None) -> dict[str, float] | CheckResult:
    """What a process shows: the sums of the metrics whose names begin so; a result where the page cannot be read.

    The names are without this beginning; 0 for what is not shown. `advice` is for a page that cannot be read.

    Raises:
        NotUnderstood: as `url_of`.
    """
    url = url_of(address)
    found: dict[str, float] = defaultdict(float)
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            page = answer.read().decode()
        for sample in (one for family in text_string_to_metric_families(page) for one in family.samples):
            if sample.name.startswith(prefix):
                found[sample.name.removeprefix(prefix)] += sample.value
    except (OSError, ValueError, HTTPException) as error:
        why = f"the answer broke off: {error}" if isinstance(error, HTTPException) else str(error)
        usual = f"see whether it runs: `queuecast {process}`, --web-port"
        return CheckResult(process, "fail", f"{url}: {why}", advice or usual)
    return found


CALLING_S, READING_S = 900.0, 21_600.0
"""Seconds without a record after which a source that calls a scheduler, and one that reads a log, get a warning."""

MAX_FAILED = 0.1
"""The share of calls that may fail."""


def check_source(address: str) -> CheckResult:
    """Whether the source whose web port this is (as of `url_of`) reads what there is. Raises as that."""
    values = shown_at(address, "source", "queuecast_source_")
    if isinstance(values, CheckResult):
        return values
    if not values["records_total"]:
        return CheckResult("source", "warn", f"{address}: has not begun to read", "it waits for Kafka: see its log")
    age = values["last_record_age_seconds"]
    calls, failed = values["calls_total"], values["failed_calls_total"]
    found = f"{address}: {values['records_total']:.0f} records, the last {duration(age)} ago"
    if calls:
        each = values["call_seconds_total"] / calls
        found += f"; {calls:.0f} calls of {each:.2f} s each, {failed:.0f} failed"
    if age > (CALLING_S if calls else READING_S):
        return CheckResult("source", "warn", found, "see its log for what it cannot read")
    if failed > MAX_FAILED * calls:
        return CheckResult("source", "warn", found, "see its log for why they fail")
    return CheckResult("source", "ok", found)


MAX_LAG = 10_000
"""With more messages than these to read, what is told comes late."""


def check_notify_settings(settings: NotifySettings) -> Iterator[CheckResult]:
    """Whether a webhook's receiver can tell that a notice is genuine; nothing where no webhook is set."""
    if settings.webhook is None:
        return
    if settings.secret is None:
        text = "what goes to the webhook is not signed: its receiver cannot tell who sends it"
        yield CheckResult("notices", "warn", text, "set notify.secret, and have the receiver verify it")
    else:
        yield CheckResult("notices", "ok", "what goes to the webhook is signed")


def check_notifier(address: str) -> CheckResult:
    """Whether the notices arrive of the `queuecast notify` whose web port this is (as of `url_of`). Raises as that."""
    values = shown_at(address, "notify", "queuecast_notify_")
    if isinstance(values, CheckResult):
        return values
    if "jobs" not in values:
        advice = "name the port of `queuecast notify`"
        return CheckResult("notify", "fail", f"{address}: shows nothing of notices", advice)
    found = (
        f"{address}: {values['sent_total']:.0f} notices sent, {values['failed_total']:.0f} given up, "
        f"{values['waiting']:.0f} waiting; {values['jobs']:.0f} jobs queue"
    )
    if failing := values["webhook_failing_seconds"]:
        text = f"{found}; the webhook has taken nothing for {duration(failing)}"
        return CheckResult("notify", "warn", text, "see its log for the webhook's answers, and notify.webhook")
    if (lag := values["lag"]) > MAX_LAG:
        return CheckResult(
            "notify", "warn", f"{found}; {lag:.0f} messages are unread", "what it tells meanwhile is late"
        )
    return CheckResult("notify", "ok", found)
