"""Checks before a worker runs."""

import gc
import logging
import time
from typing import Any

import msgspec
import pytest

from streams.errors import Unreachable, UserError
from streams.settings import Settings, WorkerSettings
from streams.worker import process, startup

PARTITIONS = 12


def settings(**worker: Any) -> Settings:
    return Settings(worker=WorkerSettings(**worker))


class Waits:
    """Record the pauses of checks at servers of which some are unreachable at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: UserError) -> None:
        self.now, self.pauses, self.errors = 0.0, list[float](), list(errors)
        monkeypatch.setattr(startup, "check_topics", lambda *_: self.look())
        monkeypatch.setattr(startup, "check_group", lambda _: None)
        monkeypatch.setattr(startup, "check_redis", self.redis)
        monkeypatch.setattr(startup, "check_partitions", lambda _: PARTITIONS)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    async def redis(self, _: Any) -> None:
        self.look()

    def look(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_unreachable_servers_are_retried_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits(monkeypatch, *(Unreachable(f"away {n}") for n in range(6)))
    assert startup.await_servers(settings(), waits.sleep) == PARTITIONS
    assert waits.pauses == [1.0, 2.0, 5.0, 10.0, 10.0, 10.0]
    assert caplog.records[0].getMessage().startswith("Waiting for server: away 0 (next check in 1 s")
    assert len(caplog.records) == 6


def test_await_servers_stops_after_startup_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(monkeypatch, *(Unreachable("away") for _ in range(9)))
    with pytest.raises(Unreachable):
        startup.await_servers(settings(startup_timeout_seconds=4.0), waits.sleep)
    assert waits.pauses == [1.0, 2.0, 1.0]
    waits = Waits(monkeypatch, Unreachable("away"))
    with pytest.raises(Unreachable):
        startup.await_servers(settings(startup_timeout_seconds=0.0), waits.sleep)
    assert waits.pauses == []


def test_await_servers_raises_user_error_without_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(monkeypatch, Unreachable("away"), UserError("refused"))
    with pytest.raises(UserError, match="refused"):
        startup.await_servers(settings(), waits.sleep)
    assert waits.pauses == [1.0]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_worker_error_is_logged_in_log_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    Waits(monkeypatch, UserError("topics are missing"))
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    with pytest.raises(SystemExit if log_format == "json" else UserError):
        startup.run_worker(settings(log_format=log_format))
    lines = [msgspec.json.decode(line)["message"] for line in capsys.readouterr().err.splitlines()]
    assert lines == (["topics are missing"] if log_format == "json" else [])


def test_growing_worker_avoids_repeated_full_gc() -> None:
    full: list[str] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 2:
            full.append(phase)

    before = gc.get_threshold()
    process.collect_seldom()
    gc.callbacks.append(note)
    try:
        grown = [[number] for number in range(1_000_000)]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert len(grown) == 1_000_000 and full == []
