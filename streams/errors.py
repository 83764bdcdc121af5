"""Errors that the user can mend."""

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

T = TypeVar("T")

UNTRUSTED = re.compile(r"certificate verify failed: (.*?)[.]? \(_ssl")
"""How OpenSSL says that a certificate is not trusted, and why."""

OWN = ("models", "streams", "deploy", "queuecast")  # the names of our own modules: one that is missing is a defect

UNDECODABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What msgspec raises for what does not decode, such as a thousand brackets one in another."""


class UserError(Exception):
    """Something outside the program is wrong; the message says what, and what was expected or what to do. A command
    that it ends has its `exit_code`.
    """

    exit_code = 1


BROKEN_ZIP = "the zipped file is broken or cut short"


def of_file(file: object, error: Exception, done: str = "read") -> UserError:
    """The error that a file cannot be read, or `written`; a zipped one may be broken, or cut short.

    >>> str(of_file("a.gz", EOFError("Compressed file ended before ..."))), str(of_file("b", OSError(13, "Denied")))
    ('a.gz: cannot be read: the zipped file is broken or cut short', 'b: cannot be read: Denied')
    """
    broken = isinstance(error, EOFError | zlib.error) or type(error).__name__ in ("BadGzipFile", "LZMAError")
    why = BROKEN_ZIP if broken else getattr(error, "strerror", None) or error
    return UserError(f"{file}: cannot be {done}: {why}")


class NotUnderstood(UserError):
    """What was given is not understood: there is nothing in it that this program reads."""

    exit_code = 2


def read_as(name: str, read: Callable[[str], T], text: str) -> T:
    """What `read` makes of a text that was given under this name; the error names it where it is not understood. Raises
    NotUnderstood: as `read`.
    """
    try:
        return read(text)
    except NotUnderstood as error:
        raise NotUnderstood(f"{name}: {error}") from None


PACKAGES = {"litestar": "serve", "uvicorn": "serve"}
"""Which extra brings a package that commands may lack. The light distribution lacks all but a few."""


@contextmanager
def needing(extra: str | None = None, instead: str = "") -> Iterator[None]:
    """Import what an extra brings, by default told by what is missing; else raises a UserError that says how to install
    it, and, if given, what can be done `instead`.
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
    """Where a value is wrong, as `section.field` (empty: the value as a whole), and what is wrong with it."""
    problem, _, where = str(error).partition(" - at `$")
    return where.rstrip("`").removeprefix("."), f"{problem[0].lower()}{problem[1:]}"


KINDS = {"`str` of length >= 1": "text, not an empty one", "`int`": "a whole number", "`float`": "a number"}
KINDS |= {"`str`": "text", "`bool`": "true or false", "`array`": "a list", "`null`": "nothing"}
"""The kinds of values as msgspec names them, and as people do."""


def in_words(problem: str) -> str:
    """What is wrong with a value, for people who ask.

    >>> in_words("expected `int` >= 1")
    'expected a whole number >= 1'
    """
    for kind, words in KINDS.items():
        problem = problem.replace(kind, words)
    return problem
