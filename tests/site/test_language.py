"""The documents keep to the rules of language."""

import pytest

from tests.site.language import findings
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
