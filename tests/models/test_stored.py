"""What is kept comes back as it was, arrays too, and what is something else is refused by name."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from models.arrays import Floats, Singles
from models.stored import encode, reader


class Learnt(NamedTuple):
    total: Floats
    counts: Singles


class Kept(msgspec.Struct, array_like=True):
    learnt: Learnt
    users: dict[str, Floats]
    at: float


read = reader(Kept, "what was kept")


def arrays_of(kept: Kept) -> list[Any]:
    return [kept.learnt.total, kept.learnt.counts, *kept.users.values()]


def test_arrays_come_back_with_their_numbers_and_shapes_and_may_be_changed() -> None:
    kept = Kept(
        Learnt(np.arange(6.0).reshape(2, 3), np.ones((0, 4), np.float32)), {"b": np.ones(2), "a": np.ones(1)}, 5.0
    )
    again = read(encode(kept))
    for one, other in zip(arrays_of(kept), arrays_of(again), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        other += 1.0
    assert list(again.users) == ["b", "a"] and again.at == 5.0
    assert encode(read(encode(kept))) == encode(kept)


ARRAY = ("<f8", (1,), np.ones(1).tobytes())


@pytest.mark.parametrize(
    "value",
    [
        b"x",
        (1.0, {}, 5.0),
        ((ARRAY, ("<f8", (2,), b"too few")), {}, 5.0),
        ((ARRAY, ("no such numbers", (1,), b"")), {}, 5.0),
        ((ARRAY, ("O", (1,), bytes(8))), {}, 5.0),
        ((ARRAY, ARRAY[:2]), {}, 5.0),
    ],
)
def test_what_is_something_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^not what was kept: "):
        read(value if isinstance(value, bytes) else msgspec.msgpack.encode(value))


def test_what_cannot_be_stored_is_named() -> None:
    with pytest.raises(TypeError, match="cannot store object"):
        encode(object())
