"""Notifications of a job after a query to its site's worker."""

import asyncio
from types import SimpleNamespace

import msgspec

from models.records import Notice
from streams.notify.metrics import NotifyCounts
from streams.notify.notifier import Notifier
from streams.settings import Settings
from tests.streams.client.test_job import KNOWN, LIVE
from tests.streams.notify.test_watching import HOUR_S, NOW, prediction, watching


async def _nothing(*_: object) -> None:
    """Discard the notification."""


def test_blocked_job_is_notified_once_after_release() -> None:
    clock = [NOW]
    found = watching(clock)
    notices: list[Notice] = []
    held = msgspec.structs.replace(LIVE, blocked_by="held back by a limit")
    answered = msgspec.structs.replace(KNOWN, live=held, made_at=NOW + 60, expected_start=None)

    async def ask(*_: object) -> object:
        return {"kth": answered}

    grid, producer = SimpleNamespace(job=ask), SimpleNamespace(send_and_wait=_nothing)
    notifier = Notifier(Settings(), found, NotifyCounts(found.jobs), grid, producer, None, notices.append)  # type: ignore[arg-type]

    def look() -> int:
        """Process the due jobs and return the number of queries to the worker."""
        due = list(found.due())
        for job in due:
            asyncio.run(notifier._one(job))
        return len(due)

    found.predicted(prediction("4711", 2 * HOUR_S), NOW)
    clock[0] = NOW + 2 * HOUR_S - 600
    assert [look(), look()] == [1, 0] and notices == []
    found.predicted(prediction("4711", 300.0, clock[0]), clock[0])
    assert [look(), look()] == [1, 0] and notices == []  # still blocked according to the worker
    answered = msgspec.structs.replace(KNOWN, made_at=clock[0] + 60, expected_start=clock[0] + 360)
    found.predicted(prediction("4711", 300.0, clock[0] + 60), clock[0] + 60)
    assert look() == 1
    assert [one.kind for one in notices] == ["about_to_start"]
