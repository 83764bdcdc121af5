"""Order of two queued jobs, learned from pairs: one that started, and one that could have and did not.

The model is a logistic regression on the differences of their features, by AdaGrad (Duchi, Hazan and Singer 2011).
"""

import msgspec
import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit
from models.site.table import SlotsByCode
from models.slots import Slots
from models.stored_values import check_alike
from models.waits.order.order_features import BEFORE, COUNT, HELD, NAMES, DecayedUsage, QueuedJobs, features_of

MOST_QUEUES = 32
"""Queues that have a weight of their own; the one longest without a start is evicted."""

NO_QUEUE = COUNT + MOST_QUEUES
"""The place of the weight of queues that have none; it is 0."""

STEP = 0.3
"""The learning rate."""

FADING = 0.999
"""Factor of the squared gradients at each pair: sites change their priorities, so steps must stay large."""

FIRST_SQUARES = 0.01
"""Initial squared gradients."""

PRIOR = {"age, days": 1.0}
"""Initial weights: jobs start in the order of submission."""


class SavedPreference(msgspec.Struct, array_like=True):
    """Serialized state: the places of the queues' weights in the order of their last starts, and the weights."""

    queues: dict[str, int]
    weights: Floats
    squares: Floats


class Preference:
    """Scores queued jobs: the higher goes first."""

    def __init__(self) -> None:
        self.weights = np.zeros(NO_QUEUE + 1)
        for name, weight in PRIOR.items():
            self.weights[NAMES.index(name)] = weight
        self.squares = np.full(NO_QUEUE + 1, FIRST_SQUARES)
        self._queues = Slots[str](MOST_QUEUES)
        self.places = SlotsByCode(self._queues, NO_QUEUE, COUNT)
        """Places of the weights of a table's queues."""

    def see(self, queue: str | None) -> None:
        """Assign a weight to this queue, of which a job has started."""
        if queue is None:
            return
        is_new = self._queues.get(queue) is None
        place = COUNT + self._queues.take(queue)
        if is_new:
            self.weights[place], self.squares[place] = 0.0, FIRST_SQUARES

    def saved(self) -> SavedPreference:
        """Return the learned state."""
        places = {queue: COUNT + slot for queue, slot in self._queues.in_order()}
        return SavedPreference(places, self.weights, self.squares)

    def restore(self, saved: SavedPreference) -> None:
        """Restore the state.

        Raises:
            ValueError: it is not such a state.
        """
        check_alike((saved.weights, saved.squares), (self.weights, self.squares), "weights")
        if (
            sorted(saved.queues.values()) != [*range(COUNT, COUNT + len(saved.queues))]
            or len(saved.queues) > MOST_QUEUES
        ):
            raise ValueError(f"weights of queues at the places {sorted(saved.queues.values())}")
        self._queues.restore({queue: place - COUNT for queue, place in saved.queues.items()})
        self.weights, self.squares = saved.weights, saved.squares


@njit(cache=True)
def scores_of(
    queued: QueuedJobs, jobs: Ints, before: Floats, people: DecayedUsage, site_cpus: int, weights: Floats, limited: bool
) -> Floats:
    """Return the scores of some of the queued jobs, (jobs,): the higher goes first.

    Sums have a fixed order, so that a job's score does not depend on the number of jobs scored with it.

    Args:
        before: as in `features_of`.
        limited: whether users' usage is limited by limits that were found, so that it is no matter of preference.
    """
    features, places = features_of(queued, jobs, before, people, site_cpus), queued.queue[jobs]
    found = np.empty(len(features))
    for job in range(len(features)):
        found[job] = _score(features[job], places[job], weights, limited)
    return found


@njit(cache=True)
def _score(features: Floats, place: int, weights: Floats, limited: bool) -> float:
    """Return the score of a job; `limited` is as in `scores_of`."""
    score = weights[place]
    for feature in range(len(features)):
        if not limited or not HELD <= feature < BEFORE:
            score += weights[feature] * features[feature]
    return float(score)


@njit(cache=True)
def count_behind(features: Floats, places: Ints, weights: Floats, limited: bool) -> int:
    """Count the jobs that are not before the first one in the learned order, as `scores_of` orders them."""
    first, behind = _score(features[0], places[0], weights, limited), 0
    for job in range(1, len(features)):
        behind += _score(features[job], places[job], weights, limited) <= first
    return behind


@njit(cache=True, nogil=True)
def learn(features: Floats, places: Ints, weights: Floats, squares: Floats) -> None:
    """Update the weights: the first of these jobs started, and any of the others could have."""
    count = features.shape[1]
    difference = np.empty(count)
    for other in range(1, len(features)):
        margin = weights[places[0]] - weights[places[other]]
        for feature in range(count):
            difference[feature] = features[0, feature] - features[other, feature]
            margin += weights[feature] * difference[feature]
        surprise = 1.0 / (1.0 + np.exp(min(margin, 700.0)))
        for feature in range(count):
            if difference[feature] != 0.0:
                _step(feature, surprise * difference[feature], weights, squares)
        if places[0] != places[other]:
            _step(places[0], surprise, weights, squares)
            _step(places[other], -surprise, weights, squares)
        weights[-1] = 0.0


@njit(cache=True)
def _step(place: int, gradient: float, weights: Floats, squares: Floats) -> None:
    squares[place] = FADING * squares[place] + gradient * gradient
    weights[place] += STEP * gradient / np.sqrt(squares[place])
