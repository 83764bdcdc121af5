"""Checks of the language of documents, docstrings and commits: long sentences, rejected words, headless clauses."""

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

SUBJECT = re.compile(r"[a-z][\w./-]*(?:, [\w./-]+)*: [^A-Z\s].*[^.]")
"""A commit's subject: `area: imperative`."""

MAX_SUBJECT = 72

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


def commit_findings(message: str) -> Iterator[Finding]:
    """Yield the violations of a commit message."""
    subject = message.partition("\n")[0]
    if not SUBJECT.fullmatch(subject):
        yield Finding("not `area: imperative`", subject)
    if len(subject) > MAX_SUBJECT:
        yield Finding("long subject", subject)
    yield from (finding for finding in findings(message) if finding.rule == "rejected word")


def _plain(document: str) -> str:
    text = _LINK.sub(r"\1", _CODE.sub("", document))
    lines = (line for line in text.splitlines() if not line.startswith("    ") or line.lstrip().startswith(("- ", "|")))
    return _LITERAL.sub("X", "\n".join(lines))
