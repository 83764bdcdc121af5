"""Checks of processes, from their Prometheus metrics, and of sites, from the workers' answers."""

import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from typing import Literal

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from models.durations import duration
from models.records import SiteAnswer
from streams.client.blocking import Client
from streams.errors import InvalidInput, UserError
from streams.settings import NotifySettings, Settings
from streams.text.terminal import moment


class CheckResult(msgspec.Struct, frozen=True):
    """Result of a check, with advice unless it succeeded."""

    check: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None

    def __str__(self) -> str:
        return f"{self.state:<4}  {self.check}: {self.found}" + (f"; {self.advice}" if self.advice else "")


def url_of(address: str) -> str:
    """Return the URL of the metrics page at `HOST:PORT`; a full URL is returned unchanged.

    Raises:
        InvalidInput: The address is neither.
    """
    if "://" in address:
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise InvalidInput(f"{address!r}: expected HOST:PORT")
    return f"http://{address}/metrics"


def shown_at(address: str, process: str, prefix: str, advice: str | None = None) -> dict[str, float] | CheckResult:
    """Return the metrics of a process whose names start with `prefix`, summed over labels and without the prefix.

    Missing metrics read as 0. If the page cannot be read, return a failed result with this `advice`.

    Raises:
        InvalidInput: See `url_of`.
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
"""Maximum age of the last record before a warning, seconds: of a source that polls, and of one that reads a log."""

MAX_FAILED = 0.1  # maximum fraction of failed calls


def check_source(address: str) -> CheckResult:
    """Check that the source with this metrics address (see `url_of`) reads all available records.

    Raises:
        InvalidInput: See `url_of`.
    """
    values = shown_at(address, "source", "queuecast_source_")
    if isinstance(values, CheckResult):
        return values
    if not values["records_total"]:
        return CheckResult("source", "warn", f"{address}: has not started to read", "it waits for Kafka: see its log")
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


MAX_LAG = 10_000  # maximum consumer lag; beyond it notifications are late


def check_notify_settings(settings: NotifySettings) -> Iterator[CheckResult]:
    """Check that the webhook's receiver can verify notifications; no result without a webhook."""
    if settings.webhook is None:
        return
    if settings.secret is None:
        text = "webhook requests are not signed: the receiver cannot verify the sender"
        yield CheckResult("notices", "warn", text, "set notify.secret, and have the receiver verify it")
    else:
        yield CheckResult("notices", "ok", "what goes to the webhook is signed")


def check_notifier(address: str) -> CheckResult:
    """Check that the `queuecast notify` with this metrics address (see `url_of`) delivers its notifications.

    Raises:
        InvalidInput: See `url_of`.
    """
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
            "notify", "warn", f"{found}; {lag:.0f} messages are unread", "its notices are late until it has caught up"
        )
    return CheckResult("notify", "ok", found)


MAX_APART, MAX_APART_JOBS = 0.1, 10
"""Allowed difference, because the two counts are taken at different times and Slurm counts job arrays differently."""


def page_of(given: str) -> tuple[str, str]:
    """Split `SITE=HOST:PORT` into the site and the URL of its slurmctld metrics.

    Raises:
        InvalidInput: The text has another form.
    """
    site, equal, address = given.partition("=")
    if not site or not equal:
        raise InvalidInput(f"{given!r}: expected SITE=HOST:PORT")
    return site, url_of(address).rstrip("/")


def check_slurm(settings: Settings, given: str) -> CheckResult:
    """Compare the job and CPU counts of a site with those of its slurmctld.

    Slurm 25.11 and later export counts (`MetricsType=metrics/openmetrics`). The counts cannot replace events: they have
    no job ids, limits or reservations, and do not name the nodes that are down. They show only whether the source sees
    all jobs.

    Raises:
        InvalidInput: See `page_of`.
    """
    site, url = page_of(given)
    counted: dict[str, float] = {}
    for page in ("jobs", "nodes"):
        found = shown_at(f"{url}/{page}", "slurm", "slurm_", "set MetricsType=metrics/openmetrics, and no PrivateData")
        if isinstance(found, CheckResult):
            return found
        counted |= found
    try:
        with Client(settings, patience_s=0) as grid:
            known = grid.site(site)
    except UserError as error:
        return CheckResult("slurm", "warn", f"{site} cannot be queried: {error}")
    pending = known.live.queued_jobs + known.held_jobs  # Slurm also counts jobs that are held or wait for a dependency
    pairs = {
        "jobs queued or held": (pending, counted.get("jobs_pending", 0.0), MAX_APART_JOBS),
        "jobs running": (known.live.running_jobs, counted.get("jobs_running", 0.0), MAX_APART_JOBS),
        "CPUs": (known.cpus, counted.get("node_cpus", 0.0), 0),
    }
    text = ", ".join(f"{mine} {what} where Slurm counts {its:.0f}" for what, (mine, its, _) in pairs.items())
    if any(abs(mine - its) > max(least, MAX_APART * its) for mine, its, least in pairs.values()):
        return CheckResult(
            "slurm", "warn", f"{site}: {text}", "see whether its source sees all jobs: PrivateData, its log"
        )
    return CheckResult("slurm", "ok", f"{site}: {text}")


MAX_LISTED = 8  # maximum number of sites or fields in a result


def check_sites(settings: Settings) -> Iterator[CheckResult]:
    """Query each site's worker for the age of its last event and for unknown event fields."""
    try:
        answers, silent = _query(settings)
    except UserError as error:
        yield CheckResult("sites", "warn", f"cannot be queried: {error}")
        return
    yield freshness(answers, silent)
    yield fields(answers)
    yield changes(answers)


def _query(settings: Settings) -> tuple[list[SiteAnswer], list[str]]:
    with Client(settings, patience_s=0) as grid:
        by_site = grid.every_site()
    answers = [answer for answer in by_site.values() if answer is not None]
    return answers, sorted(site for site, answer in by_site.items() if answer is None)


def freshness(answers: Iterable[SiteAnswer], silent: Iterable[str] = ()) -> CheckResult:
    """Check for stale sites."""
    found = list(answers)
    old = [f"{answer.site}: {answer.stale}" for answer in found if answer.stale is not None]
    if old:
        advice = "check that their sources run; answers are marked `stale`, and rankings list these sites last"
        return CheckResult("sites", "warn", f"{len(old)} of {len(found)} are stale: {_listed(old)}", advice)
    if names := list(silent):
        return CheckResult("sites", "warn", f"no worker answers for {_listed(names)}", "see whether workers run")
    return CheckResult("sites", "ok", f"{len(found)} queried, none is stale" if found else "none has sent events yet")


def fields(answers: Iterable[SiteAnswer]) -> CheckResult:
    """Check for unknown fields in events, for example misspelled ones."""
    unknown = [
        f"{name!r} of {answer.site} {count} times"
        for answer in answers
        for name, count in answer.unknown_fields.items()
    ]
    if unknown:
        advice = "they are ignored; `queuecast schema event` has the names that are read"
        return CheckResult("fields of events", "warn", f"unknown: {_listed(unknown)}", advice)
    return CheckResult("fields of events", "ok", "none is unknown")


def changes(answers: Iterable[SiteAnswer]) -> CheckResult:
    """List the recent operator changes, with the user and the time."""
    found = [(done, answer.site) for answer in answers for done in answer.operations]
    found.sort(key=lambda one: -one[0].at)
    listed = [f"{moment(done.at)} {site}: {done.done}, by {done.by} {done.why}".rstrip() for done, site in found]
    return CheckResult("operators' changes", "ok", _listed(listed) or "none")


def _listed(found: list[str]) -> str:
    more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return ", ".join(found[:MAX_LISTED]) + more
