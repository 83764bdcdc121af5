"""Read time of a Slurm poll loop: all events up to it are read."""

from collections.abc import Iterator
from itertools import islice

import pytest

from streams.sources.contract import refuse
from streams.sources.slurm import source as slurm_source
from streams.sources.slurm.calls import Commands
from streams.sources.slurm.polling import Poller, PollResult, QueuePolling, SlurmCursor
from streams.sources.slurm.source import SlurmSource


class FixedPolls(QueuePolling):
    """Return prepared poll results, one per step; None is a failed poll."""

    def __init__(self, results: list[PollResult | None]) -> None:
        super().__init__(Commands({}), refuse, 1.0, 1.0)
        self._results = results

    def results(self, place: SlurmCursor) -> Iterator[PollResult]:
        result = self._results.pop(0) if self._results else None
        return iter(() if result is None else (result,))


def read_until(monkeypatch: pytest.MonkeyPatch, *results: PollResult | None) -> list[float | None]:
    poller: Poller = FixedPolls([*results])
    monkeypatch.setattr(SlurmSource, "_pollers", lambda _: [poller])
    monkeypatch.setattr(slurm_source, "PAUSE_S", 0.0)
    source = SlurmSource("squeue", "here")
    return [source.read_until for _ in islice(source.events(), len(results))]


def poll(began: float, **fields: bool) -> PollResult:
    return PollResult([], began - 100.0, began=began, queue=True, **fields)


def test_polls_of_a_silent_queue_advance_the_read_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_until(monkeypatch, poll(1000.0), poll(1030.0)) == [1000.0, 1030.0]


def test_failed_poll_does_not_advance_the_read_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_until(monkeypatch, poll(1000.0), None, None, poll(1090.0)) == [1000.0, 1000.0, 1000.0, 1090.0]


def test_recorded_polls_have_no_read_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_until(monkeypatch, poll(0.0)) == [None]
