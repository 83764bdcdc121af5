"""State of single users or queues: those with the latest scored jobs."""

from typing import TypeVar

import numpy as np

from models.arrays import Floats

USERS = 200
"""Maximum number of users or queues."""


K = TypeVar("K", str, int)


def user_state(users: dict[K, Floats], user: K | None, shape: tuple[int, ...]) -> Floats:
    """Return a user's state and make it the latest; zeros of this shape for a new user, or for None."""
    found = None if user is None else users.pop(user, None)
    found = np.zeros(shape) if found is None else found
    if user is not None:
        users[user] = found
        if len(users) > USERS:
            del users[next(iter(users))]
    return found
