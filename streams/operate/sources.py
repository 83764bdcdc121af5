"""Checks a source by what it shows Prometheus: whether it reads, and whether its calls succeed."""

from models.durations import duration
from streams.operate.result import CheckResult
from streams.operate.shown import shown_at, url_of

CALLING_S, READING_S = 900.0, 21_600.0
"""Seconds without a record after which a source that calls a scheduler, and one that reads a log, get a warning."""

MAX_FAILED = 0.1
"""The share of calls that may fail."""


def check_source(address: str) -> CheckResult:
    """Whether the source whose web port this is reads what there is.

    Parameters:
        address: `HOST:PORT`, or the page's whole URL.

    Raises:
        NotUnderstood: it is neither.
    """
    url = url_of(address)
    try:
        values = shown_at(url, "queuecast_source_")
    except (OSError, ValueError) as error:
        return CheckResult("source", "fail", f"{url}: {error}", "see whether it runs: `queuecast source`, --web-port")
    if not values["records_total"]:
        return CheckResult("source", "warn", f"{url}: has not begun to read", "it waits for Kafka: see its log")
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
