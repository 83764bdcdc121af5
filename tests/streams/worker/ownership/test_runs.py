"""Runs of messages, and the share of each partition."""

from streams.worker.ownership.runs import MAX_MESSAGES, RUNS_S, RunBudget


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def length(runs: RunBudget, clock: Clock, cost_s: float) -> int:
    """Return the number of messages of a run, each of which takes `cost_s`."""
    count = 0
    for _ in runs.run():
        count += 1
        clock.now += cost_s
    return count


def test_run_ends_after_its_time() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active():
        assert length(runs, clock, RUNS_S / 7.9) == 8


def test_run_without_elapsed_time_ends_after_messages() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active():
        assert length(runs, clock, 0.0) == MAX_MESSAGES


def test_active_partitions_share_the_time_of_runs() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active(), runs.active():
        assert length(runs, clock, RUNS_S / 7.9) == 4
    with runs.active():
        assert length(runs, clock, RUNS_S / 7.9) == 8


def test_slow_message_is_a_run() -> None:
    runs = RunBudget(clock := Clock())
    with runs.active():
        assert length(runs, clock, 1.0) == 1
