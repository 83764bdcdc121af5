"""The files that replays, tuning and searches leave: pages, and profiles."""

from collections.abc import Mapping
from pathlib import Path

import tomli_w

from streams.errors import UserError


def save(text: str, file: Path) -> None:
    """Write a page or a profile.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None


def as_profile(engine: Mapping[str, object], name: str, parameters: Mapping[str, object]) -> str:
    """The engine's settings and a method's parameters as TOML that `queuecast --config` reads."""
    return tomli_w.dumps({"engine": {**engine, "parameters": {name: parameters}}})
