"""Sizes of memory as people and schedulers write them."""

import re

import pytest

from streams.text.quantities import SAFE_SIZE_PATTERN, bytes_of


@pytest.mark.parametrize("text", ["64G", "64g", "64GB", "64GiB", "64Gi", "65536Mi", "68719476736", "68719476736B"])
def test_sizes(text: str) -> None:
    assert bytes_of(text) == 64 << 30
    assert re.fullmatch(SAFE_SIZE_PATTERN, text)
