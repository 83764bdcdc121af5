"""Errors that the user can fix."""

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

T = TypeVar("T")

UNTRUSTED = re.compile(r"certificate verify failed: (.*?)[.]? \(_ssl")
"""OpenSSL's message for an untrusted certificate, with the reason."""

OWN = ("models", "streams", "deploy", "queuecast")  # our own packages: a missing one is a bug

UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Errors that msgspec raises for undecodable input, for example a thousand nested brackets."""


class UserError(Exception):
    """An external problem. The message states the problem and the expected value or the remedy.

    A command that fails with it returns its `exit_code`.
    """

    exit_code = 1


BROKEN_ZIP = "the zipped file is broken or cut short"


def file_error(file: object, error: Exception, done: str = "read") -> UserError:
    """Return the error for a file that cannot be read, or `written`; a compressed file may be corrupt or truncated.

    >>> str(file_error("a.gz", EOFError("Compressed file ended before ...")))
    'a.gz: cannot be read: the zipped file is broken or cut short'
    >>> str(file_error("b", OSError(13, "Denied")))
    'b: cannot be read: Denied'
    """
    broken = isinstance(error, EOFError | zlib.error) or type(error).__name__ in ("BadGzipFile", "LZMAError")
    why = BROKEN_ZIP if broken else getattr(error, "strerror", None) or error
    return UserError(f"{file}: cannot be {done}: {why}")


class InvalidInput(UserError):
    """The input is not valid: it contains nothing that this program can read."""

    exit_code = 2


def read_as(name: str, read: Callable[[str], T], text: str) -> T:
    """Parse a text with `read`; a parse error then starts with `name`.

    Raises:
        InvalidInput: `read` raised it.
    """
    try:
        return read(text)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None


PACKAGES = {"litestar": "serve", "uvicorn": "serve"}
"""The extra that provides an optional package. The light distribution contains few packages."""


@contextmanager
def needing(extra: str | None = None, instead: str = "") -> Iterator[None]:
    """Convert a failed import in the block to an error with the install command.

    Args:
        extra: The extra that provides the package; by default derived from the missing package.
        instead: Text about an alternative, appended to the message.

    Raises:
        UserError: The package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in OWN:
            raise
        wanted = extra or PACKAGES.get(missing)
        package = f"'queuecast[{wanted}]'" if wanted else "queuecast"
        raise UserError(f"{missing} is not installed; install it with pip install {package}{instead}") from None


class Unreachable(UserError):
    """A server does not answer now; it may later."""


def place_and_problem(error: msgspec.ValidationError) -> tuple[str, str]:
    """Split a validation error into the location, as `section.field` (empty for the whole value), and the problem."""
    problem, _, where = str(error).partition(" - at `$")
    return where.rstrip("`").removeprefix("."), f"{problem[0].lower()}{problem[1:]}"


KINDS = {"`str` of length >= 1": "text, not an empty one", "`int`": "a whole number", "`float`": "a number"}
KINDS |= {"`str`": "text", "`bool`": "true or false", "`array`": "a list", "`null`": "nothing"}
"""Plain words for msgspec's names of types."""


def in_words(problem: str) -> str:
    """Replace type names in a validation problem with plain words.

    >>> in_words("expected `int` >= 1")
    'expected a whole number >= 1'
    """
    for kind, words in KINDS.items():
        problem = problem.replace(kind, words)
    return problem
