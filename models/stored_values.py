"""Encode stored values as MessagePack, and decode them. An array is stored as its dtype, shape and bytes."""

import math
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

MAX_DECOMPRESSED_BYTES: Final = 64 * 2**20
"""Default limit of the decompressed size."""

KINDS: Final = {kind: np.dtype(kind) for kind in ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "<u8", "|u1", "|b1")}
"""Allowed dtypes of arrays."""

MAX_DIMENSIONS, MAX_SIDE = 4, 2**31

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Encode a value of numbers, strings, containers, msgspec structs, named tuples and arrays."""
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def reader(kind: type[T], what: str) -> Callable[[bytes], T]:
    """Return the inverse of `encode` for values of this kind, which raises ValueError if it is not `what`.

    >>> reader(list[int], "a list")(encode([1, 2]))
    [1, 2]
    """
    decode = msgspec.msgpack.Decoder(kind, dec_hook=_array).decode

    def read(encoded: bytes) -> T:
        try:
            return decode(encoded)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not {what}: {error}") from error

    return read


def decompress(compressed: bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress zlib data, using at most `max_bytes` of memory for the result.

    Raises:
        ValueError: the data is not valid zlib data, is truncated, or is larger.

    >>> decompress(zlib.compress(b"forest"))
    b'forest'
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(compressed, max_bytes)
    except zlib.error as error:
        raise ValueError(f"invalid zlib data: {error}") from error
    if not inflater.eof:
        raise ValueError(f"truncated, or more than {max_bytes:,} bytes when decompressed")
    return found


def _plain(value: object) -> tuple[str, tuple[int, ...], bytes]:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    raise TypeError(f"cannot store {type(value).__name__}")


def _array(kind: type, value: Any) -> Any:
    """Decode an array into a writable copy."""
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError("not an array; expected its dtype, its shape and its bytes")
    numbers, shape, encoded = value
    if not isinstance(numbers, str) or numbers not in KINDS:
        raise ValueError(f"an array of {numbers!r}; expected one of {', '.join(KINDS)}")
    if not isinstance(shape, list | tuple) or not isinstance(encoded, bytes):
        raise ValueError("an array without a shape or bytes")
    if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and 0 <= size <= MAX_SIDE for size in shape):
        raise ValueError(f"an array of shape {shape}, of {len(encoded)} bytes")
    if math.prod(shape) * KINDS[numbers].itemsize != len(encoded):
        raise ValueError(f"{len(encoded)} bytes for an array of {numbers} of shape {shape}")
    return np.frombuffer(encoded, KINDS[numbers]).reshape(shape).copy()


def check_alike(found: Any, expected: Any, what: str = "an array") -> None:
    """Check that arrays have the expected dtypes and shapes, because compiled functions do not check indexes.

    Args:
        found: a decoded array, or a tuple or msgspec struct of arrays; other values are ignored.
        expected: an object with the expected arrays.
        what: its name in error messages.

    Raises:
        ValueError: an array has another shape or dtype.

    >>> check_alike((np.zeros(2), 5), (np.ones(2), 0))
    """
    if isinstance(expected, np.ndarray):
        if not isinstance(found, np.ndarray) or (found.dtype, found.shape) != (expected.dtype, expected.shape):
            shape = (found.dtype.str, found.shape) if isinstance(found, np.ndarray) else type(found).__name__
            raise ValueError(f"{what}: {shape}; expected {(expected.dtype.str, expected.shape)}")
    elif isinstance(expected, msgspec.Struct):
        for name in expected.__struct_fields__:
            check_alike(getattr(found, name), getattr(expected, name), name)
    elif isinstance(expected, tuple):
        names = getattr(expected, "_fields", [f"{what} {place}" for place in range(len(expected))])
        for name, one, other in zip(names, found, expected, strict=True):
            check_alike(one, other, name)
