"""Samples in README and the tutorial equal the output of a run."""

import pytest

from tests.samples import each


@pytest.mark.trace
def test_documented_samples_equal_output_of_run() -> None:
    for document, text, wanted in each():
        assert text == wanted, f"{document.name}: `python -m tests.samples` updates it"
