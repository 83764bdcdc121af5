"""Docstrings follow the rules of language."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.site.language import HEADLESS, REJECTED
from tests.site.pages import ROOT

CODE = ("models", "streams", "deploy", "queuecast")
MAX_HEADLESS = 0.02  # share of docstrings
MAX_WORDS = 0.001  # rejected words by words


@cache
def docstrings() -> list[tuple[str, str]]:
    """Return the location of each docstring, and its text without literals and examples."""
    return list(_docstrings())


def _docstrings() -> Iterator[tuple[str, str]]:
    """Yield the location of each docstring, and its text without literals and examples."""
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                prose = re.sub(r"`[^`]*`", "X", re.sub(r"^>>> .*?(?:\n\n|\Z)", "", text, flags=re.S | re.M))
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", prose


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = [text for _, text in docstrings() if text]
    headless = [f"{where}: {text.splitlines()[0]}" for where, text in docstrings() if HEADLESS.match(text)]
    assert len(found) > 1000
    assert len(headless) <= MAX_HEADLESS * len(found), "\n".join(headless)


def test_docstrings_use_the_fields_verbs() -> None:
    words = sum(len(text.split()) for _, text in docstrings())
    rejected = [(where, word) for where, text in docstrings() for word in REJECTED.findall(text)]
    assert len(rejected) <= MAX_WORDS * words, rejected
