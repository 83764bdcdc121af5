"""The tokens of the HTTP service and what each may see; which passwords and tokens are none."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from streams.errors import NotUnderstood, place_and_problem
from streams.text.toml import read_toml

S = TypeVar("S")

Rights = Literal["rank", "own", "all"]

PLACEHOLDER = re.compile(
    r"\W*(change[-_ ]?(me|it|this)|(your|my|the|some|a)?[-_ ]?(password|passwd|secret|token)([-_ ]?here)?|placeholder"
    r"|example|default|todo|tbd|none|null|x{3,}|\.{3,}|…+|\*{3,}|0{3,}|1234\d*)\W*|<.*>|\$\w+|\$\{.*\}|\{\{.*\}\}",
    re.IGNORECASE,
)
"""What examples have in the place of a secret, and templates that nobody filled in."""


class ServeToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token. `rights`: `rank` (sites, estimates, waits, rankings, accuracy), `own` (the same, and the jobs of `user`,
    nobody else's), or `all`.
    """

    token: Annotated[str, Meta(min_length=8)]
    rights: Rights = "all"
    user: Annotated[str, Meta(min_length=1, max_length=256)] | None = None

    def __repr__(self) -> str:
        return f"ServeToken(token='***', rights={self.rights!r}, user={self.user!r})"


def check_secret(place: str, value: str | None) -> None:
    """Make sure that a secret is not an example's. Raises UserError: it is; the value is not shown."""
    if value is not None and PLACEHOLDER.fullmatch(value):
        raise NotUnderstood(f"{place}: this is an example's, which everybody knows; set one of your own")


def check_tokens(place: str, tokens: dict[str, ServeToken]) -> None:
    """Make sure that each token is a secret of its own, and that `own` says whose. Raises UserError: one is not so."""
    names: dict[str, str] = {}
    for name, token in tokens.items():
        check_secret(f"{place}.{name}", token.token)
        if (token.rights == "own") != (token.user is not None):
            raise NotUnderstood(f'{place}.{name}: rights = "own" needs a user, and other rights take none')
        if (other := names.setdefault(token.token, name)) != name:
            raise NotUnderstood(f"{place}: {other} and {name} have the same token; nobody could tell them apart")


def read_tokens(path: Path) -> dict[str, ServeToken]:
    """The tokens in a TOML file, a table a name. Raises UserError: it cannot be read or is wrong; none is shown."""
    found = checked_tables(path, "", read_toml(path), ServeToken)
    if not found:
        raise NotUnderstood(f"{path}: there are no tokens in it; expected a table for each, [NAME] token = …")
    return found


def checked_tables(path: Path, place: str, tables: Mapping[str, Any], kind: type[S]) -> dict[str, S]:
    """Each of these tables as what it is to be; by itself msgspec does not name the one that is wrong.

    Raises:
        UserError: names the file, the place in it, the table and the field.
    """
    found = {}
    for name, values in tables.items():
        try:
            found[name] = msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            within, problem = place_and_problem(error)
            raise NotUnderstood(f"{path}: {'.'.join(filter(None, (place, name, within)))}: {problem}") from None
    return found
