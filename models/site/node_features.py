"""Parse the schedulers' expressions for node features (constraints)."""

import re
from functools import lru_cache
from itertools import product

MAX_NAME = 256
MAX_ALTERNATIVES = 64
MAX_FEATURES = 32
MAX_TOKENS = 200

_OPERATORS = re.compile(r"(\|\|?|&&?|,|[()\[\]])")
_TIMES = re.compile(r"\*\d+$")
_USUAL = re.compile(r"[<>]|== *(?:any|local)$")
"""Conditions on free resources, and conditions that every node meets; they are no node features."""


class _Unreadable(Exception):
    """The text is not a valid expression, or has too many alternatives."""


@lru_cache(4096)
def alternatives(text: str) -> list[list[str]] | None:
    """Return the feature lists of an expression such as `a&(b|c)`, as in a submit; None for no restriction.

    A suitable node has all features of one of the lists. Brackets are parentheses, and a comma is an "and". `a*4&b*2`
    requests nodes of two kinds: each kind is one of the lists, and the counts are ignored. Text that cannot be parsed
    is one feature name. The result is cached and shared: do not modify it.

    >>> alternatives("x86&(big|huge)"), alternatives("[rack1*2|rack2*2]"), alternatives("f(")
    ([['big', 'x86'], ['huge', 'x86']], [['rack1'], ['rack2']], [['f(']])
    >>> alternatives("(type == any && mem > 100)"), alternatives("ib && swp > 10")
    (None, [['ib']])
    """
    if not text.strip():
        return None
    found = _read(text)
    if found is None:
        return [[text.strip()[:MAX_NAME]]]
    return [sorted(one) for one in sorted(found, key=sorted)] if all(found) else None


def is_readable(text: str) -> bool:
    """Return whether the text is a valid expression.

    >>> is_readable("ib&(a100|h100)"), is_readable("ib&")
    (True, False)
    """
    return _read(text) is not None


_Found = set[frozenset[str]]


def _read(text: str) -> _Found | None:
    tokens = [token for part in _OPERATORS.split(text) if (token := part.strip())]
    try:
        found = _any_of(tokens) if len(tokens) <= MAX_TOKENS else None
    except (_Unreadable, IndexError):
        return None
    return None if tokens else found


def _any_of(tokens: list[str]) -> _Found:
    """Parse alternatives up to the end or a closing bracket, and consume their tokens."""
    found = _all_of(tokens)
    while tokens and tokens[0] in ("|", "||"):
        tokens.pop(0)
        found |= _all_of(tokens)
    return _checked(found)


def _all_of(tokens: list[str]) -> _Found:
    found, counted = _operand(tokens)
    while tokens and tokens[0] in ("&", "&&", ","):
        tokens.pop(0)
        other, is_counted = _operand(tokens)
        counted |= is_counted
        found = _checked(found | other if counted else {one | more for one, more in product(found, other)})
    return found


def _checked(found: _Found) -> _Found:
    if len(found) > MAX_ALTERNATIVES or any(len(one) > MAX_FEATURES for one in found):
        raise _Unreadable
    return found


def _operand(tokens: list[str]) -> tuple[_Found, bool]:
    """Parse an operand; also return whether it has a count of nodes."""
    token = tokens.pop(0)
    if token in ("(", "["):
        found = _any_of(tokens)
        if tokens.pop(0) not in (")", "]"):
            raise _Unreadable
        counted = bool(tokens) and _TIMES.fullmatch(tokens[0]) is not None
        del tokens[:counted]
        return found, counted
    if _USUAL.search(token):
        return {frozenset()}, False
    name = _TIMES.sub("", token)
    if not name or _OPERATORS.fullmatch(token):
        raise _Unreadable
    return {frozenset({name[:MAX_NAME]})}, name != token
