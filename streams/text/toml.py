"""Read TOML files; errors name the path."""

import tomllib
from pathlib import Path
from typing import Any

from streams.errors import InvalidInput, file_error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise file_error(path, error) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: is not TOML: {error}") from None
