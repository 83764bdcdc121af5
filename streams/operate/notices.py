"""Checks what tells notices: how it is set, and by what it shows Prometheus whether they arrive."""

from collections.abc import Iterator

from models.durations import duration
from streams.operate.result import CheckResult
from streams.operate.shown import shown_at, url_of
from streams.settings import NotifySettings

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
    """Whether the notices arrive of the `queuecast notify` whose web port this is.

    Parameters:
        address: `HOST:PORT`, or the page's whole URL.

    Raises:
        NotUnderstood: it is neither.
    """
    url = url_of(address)
    try:
        values = shown_at(url, "queuecast_notify_")
    except (OSError, ValueError) as error:
        return CheckResult("notify", "fail", f"{url}: {error}", "see whether it runs: `queuecast notify`, --web-port")
    if "jobs" not in values:
        return CheckResult("notify", "fail", f"{url}: shows nothing of notices", "name the port of `queuecast notify`")
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
