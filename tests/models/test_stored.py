"""Stored values, arrays included, round-trip; invalid values are rejected with a reason."""

import zlib
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.arrays import Floats, Singles
from models.stored_values import check_alike, decompress, encode, reader


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


def test_decoded_arrays_have_values_shapes_and_are_writable() -> None:
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
        ((ARRAY, ("i4,(", (1,), bytes(4))), {}, 5.0),
        ((ARRAY, ("<U2", (1,), bytes(8))), {}, 5.0),
        ((ARRAY, ("<f8", (-1,), bytes(8))), {}, 5.0),
        ((ARRAY, ("<f8", (1 << 40, 0), b"")), {}, 5.0),
        ((ARRAY, ("<f8", 1, bytes(8))), {}, 5.0),
        ((ARRAY, ("<f8", (1, 1, 1, 1, 1), bytes(8))), {}, 5.0),
        ((ARRAY, 5), {}, 5.0),
    ],
)
def test_read_rejects_invalid_values(value: object) -> None:
    with pytest.raises(ValueError, match=r"^not what was kept: "):
        read(value if isinstance(value, bytes) else msgspec.msgpack.encode(value))


def test_encode_names_the_unsupported_type() -> None:
    with pytest.raises(TypeError, match="cannot store object"):
        encode(object())


ENCODED = encode(Kept(Learnt(np.arange(6.0).reshape(2, 3), np.ones(4, np.float32)), {"a": np.ones(2)}, 5.0))


@given(st.integers(0, len(ENCODED) - 1), st.binary(max_size=9))
def test_read_of_changed_bytes_raises_or_returns_arrays(place: int, other: bytes) -> None:
    changed = ENCODED[:place] + other + ENCODED[place + len(other) :]
    try:
        kept = read(changed)
    except ValueError:
        return
    assert all(isinstance(array, np.ndarray) and array.dtype.kind in "fiub" for array in arrays_of(kept))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (np.zeros(2), np.zeros(3)),
        (np.zeros((1, 2)), np.zeros(2)),
        (np.zeros(2, np.float32), np.zeros(2)),
        ((np.zeros(2), np.zeros(1)), (np.zeros(2), np.zeros(2))),
        (Learnt(np.zeros(2), np.zeros(2)), Learnt(np.zeros(2), np.zeros(2, np.float32))),
        (5.0, np.zeros(1)),
    ],
)
def test_check_alike_rejects_other_types_and_shapes(found: object, expected: object) -> None:
    with pytest.raises(ValueError, match="; expected "):
        check_alike(found, expected)
    check_alike(expected, expected)


def test_decompress_rejects_invalid_and_too_large_bytes() -> None:
    compressed = zlib.compress(bytes(1000))
    assert decompress(compressed, 1000) == bytes(1000)
    for value, most in ((compressed, 999), (compressed[:-1], 1000), (b"x", 1000), (b"", 1000)):
        with pytest.raises(ValueError):
            decompress(value, most)
