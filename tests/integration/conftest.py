"""Deployments on the session's servers, each test's apart from the others'."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import LocalStack
from tests.support.deployment import PARTITIONS, Deployment, settings_on

Deploy = Callable[..., Deployment]


@pytest.fixture(scope="module")
def stack(require_stack: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Servers of a module's own, which may be killed without harm to other tests."""
    with LocalStack(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
def deploy(local_stack: LocalStack, tmp_path: Path) -> Iterator[Deploy]:
    """Makes a deployment: `worker`, `estimates` and `engine` are its settings, `redis` another URL than the session's.

    `partitions` are the topics'.
    """
    with ExitStack() as made:

        def make(
            redis: str | None = None,
            worker: dict[str, Any] | None = None,
            partitions: int = PARTITIONS,
            estimates: dict[str, Any] | None = None,
            **engine: Any,
        ) -> Deployment:
            settings = settings_on(
                local_stack.kafka.bootstrap,
                redis or local_stack.redis.url,
                {"checkpoint_events": 200, "checkpoint_seconds": 0.5} | (worker or {}),
                {"history": 150} | engine,
                partitions,
                estimates,
            )
            deployment = Deployment(settings, tmp_path / settings.redis.prefix)
            made.callback(deployment.close)
            return deployment

        yield make
