"""What all tests share: one real Kafka and one real Redis a session; and that in CI none is skipped."""

import os
from collections.abc import Generator, Iterator
from typing import TypeVar

import hypothesis
import pytest

from deploy.local.stack import LocalStack, StackUnavailable, fetch

# A change is judged by the same examples each time it is checked; new ones are looked for at the developer's desk.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI") == "true":
    hypothesis.settings.load_profile("ci")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, where everything can be had, a test that is skipped has failed."""
    return _not_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole file."""
    return _not_skipped((yield))


def _not_skipped(report: Report) -> Report:
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which in CI is a failure: {report.longreprtext}"
    return report


@pytest.fixture(scope="session")
def require_stack() -> None:
    """Skip, saying why, where Kafka and Redis can't be had."""
    try:
        fetch()
    except StackUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def local_stack(require_stack: None) -> Iterator[LocalStack]:
    """Kafka and Redis in a temporary directory; a test that stops them starts them again."""
    with LocalStack() as stack:
        yield stack
