"""Documents and the newest commit message follow the rules of language."""

import shutil
import subprocess

import pytest

from tests.site.language import commit_findings, findings
from tests.site.pages import DOCS, READMES, ROOT

GENERATED = "docs/reference/inputs.md"
PAGES = sorted({*READMES, *(path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*.md"))} - {GENERATED})


@pytest.mark.parametrize("path", PAGES)
def test_page_uses_plain_language(path: str) -> None:
    assert not list(findings((ROOT / path).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("The worker reads events.", []),
        ("- It tells the user.\n", ["rejected word"]),
        ("What the end of an attempt is.", ["headless clause"]),
        ("## What does it cost?\n\nIt costs nothing.", []),
        ("One " + "word " * 25 + "more.", ["long sentence"]),
        ("See `ask` and [the page](asked.md).\n\n```\nit says\n```\n", []),
    ],
)
def test_findings_of_a_text_name_its_rules(text: str, rules: list[str]) -> None:
    assert [finding.rule for finding in findings(text)] == rules


def test_newest_commit_message_uses_plain_language() -> None:
    """A shallow clone of a merge and a source release have no commit message."""
    if shutil.which("git"):
        command = ["git", "log", "-1", "--no-merges", "--format=%B"]
        message = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        assert not message or not list(commit_findings(message))


@pytest.mark.parametrize(
    ("message", "rules"),
    [
        ("engine: accept late submits\n\nThe error falls by 1 %.", []),
        ("engine, docs: accept late submits", []),
        ("Accept late submits", ["not `area: imperative`"]),
        ("engine: Accept late submits.", ["not `area: imperative`"]),
        ("engine: accept late submits " + "x" * 50, ["long subject"]),
        ("engine: accept late submits\n\nIt tells the user.", ["rejected word"]),
    ],
)
def test_findings_of_a_commit_name_its_rules(message: str, rules: list[str]) -> None:
    assert [finding.rule for finding in commit_findings(message)] == rules
