"""Prometheus metrics of the notifier, and the doctor's check of them."""

import asyncio
import urllib.request
from collections.abc import Callable, Iterator

import aiohttp
import pytest

from deploy.local.stack import free_port
from streams.errors import UserError
from streams.notify import notifier
from streams.notify.metrics import NotifyCounts
from streams.notify.notifier import Webhook
from streams.operate.checks import MAX_LAG, check_notifier, check_notify_settings
from streams.process.scraping import serve_metrics
from streams.settings import NotifySettings
from tests.support.receiver import NOTICE, received

JOBS = ["one", "two"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counts(clock: Clock) -> NotifyCounts:
    return NotifyCounts(JOBS, clock)


def shown(counts: NotifyCounts) -> dict[tuple[str, ...], float]:
    """Return the values by metric name (without its prefix) and labels."""
    return {
        (sample.name.removeprefix("queuecast_notify_"), *sample.labels.values()): sample.value
        for metric in counts.collect()
        for sample in metric.samples
    }


def test_notify_metrics_count_sent_and_failed_notifications(counts: NotifyCounts) -> None:
    before = shown(counts)
    assert before["sent_total", "slipped"] == before["dropped_total", "gone"] == before["failed_total", "sooner"] == 0
    assert before["jobs",] == 2
    counts.count_sent("slipped", None)
    counts.count_sent("slipped", "status 410")
    counts.lag["queuecast.predictions"] = 7
    found = shown(counts)
    assert found["sent_total", "slipped"] == found["failed_total", "slipped"] == 1
    assert found["lag", "queuecast.predictions"] == 7


def test_webhook_failing_seconds_count_until_success(counts: NotifyCounts, clock: Clock) -> None:
    counts.tried(False, False)
    clock.now += 20
    counts.tried(False, True)
    assert (shown(counts)["webhook_failing_seconds",], shown(counts)["retries_total",]) == (20, 1)
    counts.tried(True, True)
    assert (shown(counts)["webhook_failing_seconds",], shown(counts)["retries_total",]) == (0, 2)


def test_webhook_counts_each_request(counts: NotifyCounts, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "MAX_PAUSE_S", 0.01)

    async def deliver(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            await Webhook(session, url, None, 60.0, counts.tried).deliver(NOTICE)

    with received() as receiver:
        receiver.statuses = [503, 503, 200, 410]
        asyncio.run(deliver(receiver.url))
        assert (shown(counts)["retries_total",], shown(counts)["webhook_failing_seconds",]) == (2, 0)
        asyncio.run(deliver(receiver.url))  # rejected permanently
    clock.now += 5
    assert (shown(counts)["retries_total",], shown(counts)["webhook_failing_seconds",]) == (2, 5)


@pytest.fixture
def address(counts: NotifyCounts) -> Iterator[str]:
    port = free_port()
    end = serve_metrics(counts, "127.0.0.1", port)
    yield f"127.0.0.1:{port}"
    end()


def failing(counts: NotifyCounts, clock: Clock) -> None:
    counts.tried(False, False)
    clock.now += 720


def behind(counts: NotifyCounts, _: Clock) -> None:
    counts.lag["queuecast.outcomes"] = MAX_LAG + 1


@pytest.mark.parametrize(
    ("happens", "state", "message"),
    [
        (lambda *_: None, "ok", "0 notices sent, 0 given up, 0 waiting; 2 jobs queue"),
        (failing, "warn", "the webhook has taken nothing for 12m"),
        (behind, "warn", "10001 messages are unread"),
    ],
)
def test_check_notifier_reports_problem(
    counts: NotifyCounts,
    clock: Clock,
    address: str,
    happens: Callable[[NotifyCounts, Clock], None],
    state: str,
    message: str,
) -> None:
    happens(counts, clock)
    found = check_notifier(address)
    assert (found.state, found.found.startswith(f"{address}: "), message in found.found) == (state, True, True)


class Nothing:
    """A collector without metrics."""

    def collect(self) -> Iterator[object]:
        return iter(())


def test_check_notifier_reports_missing_or_other_process() -> None:
    assert check_notifier(f"127.0.0.1:{free_port()}").advice == "see whether it runs: `queuecast notify`, --web-port"
    end = serve_metrics(Nothing(), "127.0.0.1", port := free_port())
    try:
        assert check_notifier(f"127.0.0.1:{port}").found.endswith("shows nothing of notices")
    finally:
        end()


def test_notify_metrics_port_in_use_raises_user_error(address: str) -> None:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "process_start_time_seconds" in text and "queuecast_notify_waiting" in text
    host, _, port = address.rpartition(":")
    with pytest.raises(UserError, match=r"web port \d+ of 127\.0\.0\.1: .*; choose another with --web-port"):
        serve_metrics(Nothing(), host, int(port))


def test_doctor_unsigned_webhook_warns() -> None:
    url = "https://chat.example.org/hook"
    assert list(check_notify_settings(NotifySettings())) == []
    (unsigned,) = check_notify_settings(NotifySettings(webhook=url))
    assert (unsigned.state, unsigned.advice) == ("warn", "set notify.secret, and have the receiver verify it")
    (signed,) = check_notify_settings(NotifySettings(webhook=url, secret="0123456789abcdef"))
    assert signed.state == "ok"
