"""Output files of replays, tuning and searches: pages, profiles, and resumable states."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from models.engine.saved_state import decode_array, encode_array
from streams.errors import UserError, file_error

S = TypeVar("S")


def save(text: str, file: Path) -> None:
    """Write a page or a profile.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise file_error(file, error, "written") from None


def as_profile(engine: Mapping[str, object], name: str, parameters: Mapping[str, object]) -> str:
    """The engine's settings and a method's parameters as TOML that `queuecast --config` reads."""
    return tomli_w.dumps({"engine": {**engine, "parameters": {name: parameters}}})


def read_state(file: Path, kind: type[S], of: str) -> S | None:
    """Read the state that `save_state` wrote; None without a file. `of` names the owner in messages.

    Raises:
        UserError: the file cannot be read, or has other content.
    """
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=kind, dec_hook=decode_array)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise file_error(file, error) from None
    except msgspec.MsgspecError as error:
        raise UserError(f"{file}: is not the state of {of}: {error}") from None


def save_state(state: Any, file: Path) -> None:
    """Replace the file atomically: after a crash it holds either the previous state or this one.

    Raises:
        UserError: the file cannot be written.
    """
    new = file.with_name(f"{file.name}.new")
    try:
        with new.open("wb") as opened:
            opened.write(msgspec.msgpack.encode(state, enc_hook=encode_array))
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except OSError as error:
        raise file_error(file, error, "written") from None
