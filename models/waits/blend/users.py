"""What is kept of single users or queues: of those whose jobs became known last."""

from typing import TypeVar

import numpy as np

from models.arrays import Floats

USERS = 200
"""So many are kept."""


K = TypeVar("K", str, int)


def kept_of(users: dict[K, Floats], user: K | None, shape: tuple[int, ...]) -> Floats:
    """What is kept of one, who is the last one now; zeros of this shape, for nothing, of a new one or of nobody."""
    found = None if user is None else users.pop(user, None)
    found = np.zeros(shape) if found is None else found
    if user is not None:
        users[user] = found
        if len(users) > USERS:
            del users[next(iter(users))]
    return found
