"""What is kept, as bytes and back: MessagePack; of arrays the kind of their numbers, their shape and the numbers."""

import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

MAX_DECOMPRESSED_BYTES: Final = 64 * 2**20
"""What is decompressed may be no larger than this, unless the caller expects less."""

T = TypeVar("T")


def encode(value: object) -> bytes:
    """The value as bytes; of numbers, texts, containers, msgspec's structs, named tuples and arrays."""
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def reader(kind: type[T], what: str) -> Callable[[bytes], T]:
    """Gives the inverse of `encode` for values of this kind, which raises ValueError where it is not `what`.

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
    """Return what zlib compressed, without ever holding more than `max_bytes` of it.

    Raises:
        ValueError: it was not compressed by zlib, is cut off, or is larger.

    >>> decompress(zlib.compress(b"forest"))
    b'forest'
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(compressed, max_bytes)
    except zlib.error as error:
        raise ValueError(f"not compressed by zlib: {error}") from error
    if not inflater.eof:
        raise ValueError(f"cut off, or more than {max_bytes:,} bytes when decompressed")
    return found


def _plain(value: object) -> tuple[str, tuple[int, ...], bytes]:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    raise TypeError(f"cannot store {type(value).__name__}")


def _array(kind: type, value: Any) -> Any:
    """A copy, which may be changed."""
    numbers, shape, encoded = value
    return np.frombuffer(encoded, numbers).reshape(shape).copy()
