"""What all tests share: one real Kafka and one real Redis a session."""

import os
from collections.abc import Iterator

import pytest

from deploy.stack import LocalStack, StackUnavailable, fetch


@pytest.fixture(scope="session")
def require_stack() -> None:
    """Skip, saying why, where Kafka and Redis can't be had; in CI that is a failure."""
    try:
        fetch()
    except StackUnavailable as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def local_stack(require_stack: None) -> Iterator[LocalStack]:
    """Kafka and Redis in a temporary directory; a test that stops them starts them again."""
    with LocalStack() as stack:
        yield stack
