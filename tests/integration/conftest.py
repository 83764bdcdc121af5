"""Servers that let in nobody without a password."""

from collections.abc import Iterator

import pytest

from tests.support.doors import Doors, locked_doors


@pytest.fixture(scope="module")
def doors(require_stack: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """The locked servers, and the commands that are run at them."""
    with locked_doors(tmp_path_factory.mktemp("doors")) as found:
        yield found
