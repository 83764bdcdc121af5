"""The examples of the documentation that are marked to run: a comment `<!-- runs -->` stands before each."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_MARKED = re.compile(r"^<!-- runs -->\n\n(?:```(\w+)\n(.*?)^```$|((?: {4}[^\n]*\n)+))", re.DOTALL | re.MULTILINE)


class Snippet(NamedTuple):
    """An example: its language, `python` or `shell`, and its text."""

    document: str
    language: str
    text: str


def snippets() -> list[Snippet]:
    """All of them, in the order in which they are read."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for language, fenced, indented in _MARKED.findall(text):
            lines = [line.removeprefix("    ") for line in indented.splitlines()]
            found.append(Snippet(document.name, language or "shell", fenced or "\n".join(lines)))
        assert len(_MARKED.findall(text)) == text.count("<!-- runs -->"), document
    return found
