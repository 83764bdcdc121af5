from pathlib import Path

import pytest

from streams.errors import UserError
from streams.offline.files import save


def test_a_profile_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        save("", Path())
