"""What README and the tutorial show is what a run gives."""

import pytest

from tests.samples import each


@pytest.mark.trace
@pytest.mark.long
def test_samples_are_what_a_run_gives() -> None:
    for document, text, wanted in each():
        assert text == wanted, f"{document.name}: `python -m tests.samples` writes it anew"
