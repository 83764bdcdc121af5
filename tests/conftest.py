"""What all tests share: one real Kafka and one real Redis a session, and the profiles of CI."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest

import tests.support.compiled  # noqa: F401  # before anything that imports numba
from deploy.local.stack import LocalStack, StackUnavailable, fetch
from streams.training.processes import processes
from tests.support.deployment import PARTITIONS, Deploy, Deployment, settings_on
from tests.support.sizes import MANY

# The same examples each time, whatever the machine: only a change can turn a test red. `make test-all` has more of them
# than `make test`; `--hypothesis-profile=search` looks for new ones. A test with slow examples sets their number.
hypothesis.settings.register_profile("few", derandomize=True, deadline=None, max_examples=15)
hypothesis.settings.register_profile("many", derandomize=True, deadline=None, max_examples=MANY)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000)
hypothesis.settings.load_profile("few")

processes()  # trainings run in parallel with the tests, as in a worker

HERE = Path(__file__).parent

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes of the tests, and give each process of pytest-xdist a separate state directory.

    A shell that runs the tests in the background has them, and all that they start, ignore Ctrl-C. The tests do
    not read the notes of a `queuecast up` that the user runs, and it does not read theirs.
    """
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="queuecast-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark benchmarks, replays of traces and tests that need servers; with several processes, the latter run first."""
    for item in items:
        if HERE / "benchmarks" in item.path.parents:
            item.add_marker("benchmark")
        if item.get_closest_marker("trace"):
            item.add_marker("long")
        if HERE / "integration" in item.path.parents or "require_stack" in getattr(item, "fixturenames", ()):
            item.add_marker("stack")
    if hasattr(config, "workerinput"):  # they take longest, and must not run alone at the end
        items.sort(key=lambda item: item.get_closest_marker("stack") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a skipped test as failed in CI, where all programs are available."""
    report = yield
    # Logs pass between processes in UTF-8, which has no lone surrogates.
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return _not_skipped(report)


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


@pytest.fixture(scope="module")
def stack(require_stack: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Servers of a module's own, which may be killed without harm to other tests."""
    with LocalStack(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
def deploy(local_stack: LocalStack, tmp_path: Path) -> Iterator[Deploy]:
    """Makes deployments on the session's servers, each apart from the others.

    `worker`, `estimates` and `engine` are a deployment's settings, `redis` another URL than the session's, `partitions`
    the number of each topic's partitions, `dedicated_topics` the sites with a topic to themselves.
    """
    with ExitStack() as made:

        def make(
            redis: str | None = None,
            worker: dict[str, Any] | None = None,
            partitions: int = PARTITIONS,
            estimates: dict[str, Any] | None = None,
            dedicated_topics: tuple[str, ...] = (),
            **engine: Any,
        ) -> Deployment:
            settings = settings_on(
                local_stack.kafka.bootstrap,
                redis or local_stack.redis.url,
                {"checkpoint_events": 200, "checkpoint_seconds": 0.5} | (worker or {}),
                {"history": 150} | engine,
                partitions,
                estimates,
                dedicated_topics,
            )
            deployment = Deployment(settings, tmp_path / settings.redis.prefix)
            made.callback(deployment.close)
            return deployment

        yield make
