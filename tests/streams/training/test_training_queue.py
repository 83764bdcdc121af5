"""Queue of trainings: the order between sites."""

import gc
from concurrent.futures import CancelledError, Future

import pytest

from streams.training.training_queue import FIRST_WAITS_S, QueuedTraining, TrainingQueue


class Site:
    """An object that the trainings of a site share."""


def queued(queue: TrainingQueue, name: str, owner: object = None, first: bool = False) -> QueuedTraining:
    training = QueuedTraining(Future(), lambda: name, first, owner)
    queue.put(training)
    return training


def names(queue: TrainingQueue) -> list[str]:
    """Return the trainings in their order; each ends before the next one starts."""
    found = []
    while len(queue):
        training = queue.take()
        found.append(training.run())
        queue.ended(training)
    return found


def test_queue_takes_the_site_trained_longest_ago() -> None:
    now = iter(range(100))
    queue, (alder, birch, cedar) = TrainingQueue(lambda: next(now)), (Site(), Site(), Site())
    for name, site in (("birch", birch), ("alder", alder)):
        queued(queue, name, site)
    assert names(queue) == ["birch", "alder"]
    for name, site in (("alder", alder), ("alder again", alder), ("birch", birch), ("cedar", cedar)):
        queued(queue, name, site)
    assert queue.rank() == (False, float("-inf"))
    assert names(queue) == ["cedar", "birch", "alder", "alder again"]


def test_site_with_many_trainings_alternates_with_others() -> None:
    now = iter(range(100))
    queue, alder, birch = TrainingQueue(lambda: next(now)), Site(), Site()
    for number in range(3):
        queued(queue, f"alder {number}", alder)
    for number in range(2):
        queued(queue, f"birch {number}", birch)
    assert names(queue) == ["alder 0", "birch 0", "alder 1", "birch 1", "alder 2"]


def test_first_models_wait_for_retraining() -> None:
    queue = TrainingQueue()
    queued(queue, "new", Site(), first=True)
    queued(queue, "renewed", Site())
    assert names(queue) == ["renewed", "new"]


def test_first_model_does_not_wait_for_endless_retraining() -> None:
    now = [0.0]
    queue, alder = TrainingQueue(lambda: now[0]), Site()
    queued(queue, "new", Site(), first=True)
    for number in range(2):
        queued(queue, f"renewed {number}", alder)
        now[0] += FIRST_WAITS_S / 2 - 1.0
        assert queue.rank()[0] is False
        queue.ended(queue.take())
    now[0] += 3.0
    queued(queue, "renewed", alder)
    assert names(queue) == ["new", "renewed"]


def test_training_queue_forgets_removed_site() -> None:
    queue = TrainingQueue()
    queued(queue, "alder", Site())
    names(queue)
    gc.collect()
    assert not queue._trained


def test_closed_queue_is_empty_and_cancels() -> None:
    queue = TrainingQueue()
    training = queued(queue, "alder")
    queue.close()
    assert queue.wait(0.0) and training.future.cancelled()
    with pytest.raises(CancelledError):
        queue.take()
