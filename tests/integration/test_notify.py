"""Notifications from a real Kafka and worker to a real receiver, with a kill in between."""

from pathlib import Path

import msgspec
import pytest

from deploy.local.stack import free_port
from deploy.local.up import as_toml
from models.records import Notice
from queuecast import verify_notice
from streams.operate.checks import check_notifier, shown_at
from streams.settings import NotifySettings
from tests.support.command import Command
from tests.support.deployment import Deploy, Deployment, until
from tests.support.fake_client import FRESH_ESTIMATES, two_sites
from tests.support.receiver import Receiver, received
from tests.support.topic_messages import messages_of

pytestmark = pytest.mark.stack

SECRET = "a secret of the tests"

QUEUED = 700
"""Number of events after which tens of jobs exceed their bounds, so that notifications are due."""


def notices(here: Deployment) -> list[Notice]:
    """Return the messages of the topic."""
    found = messages_of(here.settings.kafka.client_options(), here.topics.notices)
    return [msgspec.json.decode(message.value, type=Notice) for message in found]


def notify(here: Deployment, tmp_path: Path, receiver: Receiver, port: int, name: str = "people") -> Command:
    settings = msgspec.structs.replace(
        here.settings,
        notify=NotifySettings(
            webhook=receiver.url, secret=SECRET, before_seconds=1e6, name=name, web_port=port, log_level="debug"
        ),
    )
    directory = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
    directory.mkdir()
    config = directory / "notify.toml"
    config.write_text(as_toml(settings))
    return Command(directory, "--config", str(config), "notify", "--site", "alder", "--json")


def shown(port: int) -> dict[str, float]:
    """Return the Prometheus metrics of a notifier."""
    found = shown_at(f"127.0.0.1:{port}", "notify", "queuecast_notify_")
    assert isinstance(found, dict), found
    return found


@pytest.mark.long
def test_notifications_after_kill_are_not_repeated(deploy: Deploy, tmp_path: Path) -> None:
    here, events = deploy(estimates=FRESH_ESTIMATES), two_sites()[:QUEUED]
    with received() as receiver:
        receiver.statuses = [503, 200]
        here.worker.start()
        here.send(events[: len(events) // 2])
        port = free_port()
        first = notify(here, tmp_path, receiver, port)
        until(lambda: "pending jobs for notices" in first.err)
        here.send(events[len(events) // 2 :])
        until(lambda: len(notices(here)) > 0)
        until(lambda: shown(port)["sent_total"] > 0 and shown(port)["retries_total"] > 0)
        until(lambda: check_notifier(f"127.0.0.1:{port}").state == "ok")
        first.process.kill()
        first.process.wait(60)
        again = notify(here, tmp_path, receiver, port)
        until(lambda: "pending jobs for notices" in again.err)
        until(lambda: _quiet(here))
        again.process.terminate()
        assert again.process.wait(60) == 143
    notified = notices(here)
    assert {one.site for one in notified} == {"alder"} and all(one.undelivered is None for one in notified)
    assert len({one.id for one in notified}) >= len(notified) - 1  # the notification in flight at the kill
    verified = {verify_notice(SECRET, headers, body).id for headers, body in receiver.requests}
    assert {one.id for one in notified} <= verified


def _quiet(here: Deployment) -> bool:
    """Return True if no further notification arrives for a while."""
    import time

    before = len(notices(here))
    time.sleep(6.0)
    return len(notices(here)) == before
