"""Checks of the documents' language: long sentences, rejected words, clauses without a head."""

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_WORDS = 25

REJECTED = re.compile(
    r"\b(told|tells?|telling|says?|said|anew|whoever|mend(?:s|ed|ing)?|ask(?:s|ed|ing)|look(?:s|ed)? at|nobody|somebody"
    r"|lest|hitherto|befall\w*|goes on|go on|at once|as much as|so many|so much|standing estimates?|trivial rules?)\b",
    re.IGNORECASE,
)
"""Words for which the fields' manuals have a standard term."""

HEADLESS = re.compile(r"(?:What(?!-if)|How(?! to)|Whether|Of|Those|That of|Who|Whose)\b(?!.*\?$)")

_CODE = re.compile(r"^```.*?^```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_LITERAL = re.compile(r'`[^`]*`|"[^"\n]*"')
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:- |\d+\. |\||#))")
_SENTENCE = re.compile(r'(?<=[.!?;])\s+(?=[A-Z"]|queuecast)|(?<=:)\s')
_WORD = re.compile(r"[A-Za-z][\w'-]*")


class Finding(NamedTuple):
    """A violation: the rule, and the sentence or the words around it."""

    rule: str
    text: str


def sentences(document: str) -> Iterator[str]:
    """Yield the sentences of a Markdown document, without code, tables and headings."""
    for block in _BLOCK.split(_plain(document)):
        text = re.sub(r"^\s*(?:- |\d+\. )|\*\*", "", " ".join(block.split()))
        if not text.startswith(("|", "#")):
            yield from _SENTENCE.split(text)


def findings(document: str) -> Iterator[Finding]:
    """Yield the violations of a Markdown document."""
    for match in REJECTED.finditer(_plain(document)):
        yield Finding("rejected word", match.string[max(match.start() - 40, 0) : match.end() + 30])
    for sentence in sentences(document):
        if len(_WORD.findall(sentence)) > MAX_WORDS:
            yield Finding("long sentence", sentence)
        if HEADLESS.match(sentence):
            yield Finding("headless clause", sentence)


def _plain(document: str) -> str:
    text = _LINK.sub(r"\1", _CODE.sub("", document))
    lines = (line for line in text.splitlines() if not line.startswith("    ") or line.lstrip().startswith(("- ", "|")))
    return _LITERAL.sub("X", "\n".join(lines))
