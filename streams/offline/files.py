"""The files that tuning and searches leave: profiles, and states from which a search goes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import tomli_w

from streams.errors import UserError

STATE_VERSION = 1


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
    """What a state file holds, as JSON, so that a search can go on. `workload` identifies the jobs that it is on."""

    v: int = STATE_VERSION
    workload: str


AnyState = TypeVar("AnyState", bound=SearchState)


def read_state(file: Path, kind: type[AnyState], workload: str) -> AnyState | None:
    """What the state file holds; nothing where there is none yet.

    Raises:
        UserError: it cannot be read, or is of another kind of search or of one on other jobs.
    """
    try:
        state = msgspec.json.decode(file.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # msgspec's, and of bytes that are no UTF-8
        raise UserError(f"{file}: is not the state of a search: {error}") from None
    if state.v != STATE_VERSION:
        raise UserError(f"{file}: a state of version {state.v}; this queuecast reads {STATE_VERSION}")
    if state.workload != workload:
        raise UserError(f"{file}: the state of a search on other jobs")
    return state


def write_state(file: Path, state: SearchState) -> None:
    """Replace the file in one step, so that after an interruption it is the old or the new one.

    Raises:
        UserError: it cannot be written.
    """
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
        new.replace(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None


def save(profile: str, file: Path) -> None:
    """Write a profile.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        file.write_text(profile, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None


def as_profile(engine: Mapping[str, object], name: str, parameters: Mapping[str, object]) -> str:
    """The engine's settings and a method's parameters as TOML that `queuecast --config` reads."""
    return tomli_w.dumps({"engine": {**engine, "parameters": {name: parameters}}})
