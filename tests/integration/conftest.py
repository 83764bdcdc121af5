"""Servers that require a password; a browser, and the pages it reads."""

from collections.abc import Iterator

import pytest

from deploy.local.stack import LocalStack
from tests.support.browser import Browser, browsing
from tests.support.doors import Doors, locked_doors
from tests.support.served import Served, serving


@pytest.fixture(scope="module")
def doors(require_stack: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """The locked servers, and the commands that are run at them."""
    with locked_doors(tmp_path_factory.mktemp("doors")) as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without a window."""
    with browsing(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def served(browser: Browser, local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The service with its pages, on a worker with four sites."""
    with serving(local_stack, tmp_path_factory.mktemp("page")) as served:
        yield served
