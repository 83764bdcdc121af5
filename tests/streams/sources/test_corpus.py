"""Corpus of scheduler outputs with the expected events."""

import msgspec
import pytest

from tests.support.corpus import PAGE, Case, cases, page, read_case


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_corpus_input_gives_expected_events(case: Case) -> None:
    assert read_case(case) == msgspec.json.decode(case.expected.read_bytes())


def test_inputs_page_lists_every_case() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.support.corpus"


def test_corpus_has_every_scheduler() -> None:
    folders = {case.folder.parent.name for case in cases()}
    assert folders >= {"slurm", "pbs", "lsf", "gridengine", "htcondor", "flux", "kueue", "tables", "swf", "events"}
