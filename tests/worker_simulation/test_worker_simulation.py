"""Seeds of the simulation, and proof that it detects earlier defects of workers."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest

from streams.worker.checkpoint.checkpoint import Checkpoint
from streams.worker.checkpoint.event_logs import ChangelogRecords
from streams.worker.ownership.processing import Processing
from tests.worker_simulation.checker import Difference
from tests.worker_simulation.loop import Livelock
from tests.worker_simulation.simulation import Simulation, check
from tests.worker_simulation.workers import ReadEvents, Worker

SEEDS = (0, 1, 2, 4, 5)
CLEARED_SEED = 159  # a checkpoint ends during such a rebuild, which must keep its crash marker
RENEWED_SEED = 9  # a fenced worker restores a site after its successor has claimed it
REBUILD_SEED = 31  # a rebuild reaches an event that crashed workers
GENERATION_SEED = 199  # Redis loses the entries of a generation that a state counts
REFUSED_SEED = 302  # a rejected operation is redelivered after a reset of its site
SEARCHED = 60  # number of seeds in which a defect must be found


@pytest.mark.parametrize("seed", [*SEEDS, REBUILD_SEED, CLEARED_SEED, RENEWED_SEED, GENERATION_SEED, REFUSED_SEED])
def test_simulation_with_faults_equals_undisturbed_run(seed: int) -> None:
    check(seed)


def test_simulation_of_one_seed_repeats_exactly() -> None:
    first, second = Simulation(REBUILD_SEED), Simulation(REBUILD_SEED)
    first.run()
    second.run()
    assert first.faults.trace == second.faults.trace
    assert first.kafka.outputs == second.kafka.outputs and first.kafka.changelog == second.kafka.changelog


def assert_found(likely: Iterable[int]) -> None:
    """Check that a seed fails, starting with seeds that failed before."""
    for seed in chain(likely, range(SEARCHED)):
        try:
            check(seed)
        except (Difference, Livelock):
            return
    raise AssertionError(f"none of {SEARCHED} seeds finds it")


def test_changelog_read_only_before_claims_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    async def unconfirmed(_: Worker) -> None:  # a confirmation would hide the defect in these seeds
        pass

    monkeypatch.setattr(ReadEvents, "late_states", nothing)
    monkeypatch.setattr(Worker, "_confirm", unconfirmed)
    assert_found([403])


@pytest.mark.long
def test_commit_before_outputs_are_durable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Checkpoint.run

    async def early(checkpoint: Checkpoint, table: Any, histories: Any, compressing: Any, acknowledged: Any) -> None:
        acknowledged.durable(checkpoint.batch.messages)
        await run(checkpoint, table, histories, compressing, acknowledged)

    monkeypatch.setattr(Checkpoint, "run", early)
    assert_found([10, 13, 15])


@pytest.mark.long
def test_rebuild_without_crash_mark_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unmarked(processing: Processing, operation: Any, raw: Any, handle: Any) -> Any:
        async with processing.rebuilding:
            fresh, _ = await processing._recreated(operation, raw.offset, handle)
        return fresh

    monkeypatch.setattr(Processing, "_recreate", unmarked)
    monkeypatch.setattr("tests.worker_simulation.loop.MAX_STEPS", 60_000)
    assert_found([REBUILD_SEED, 9, 14])
