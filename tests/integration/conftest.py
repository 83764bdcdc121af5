"""Deployments on the session's servers, each test's apart from the others'."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from integration.worker import PARTITIONS, Deployment

from deploy.stack import LocalStack
from models.engine import Settings as EngineSettings
from streams.settings import KafkaSettings, RedisSettings, Settings, TopicSettings, WorkerSettings

Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(local_stack: LocalStack, tmp_path: Path) -> Iterator[Deploy]:
    """Makes a deployment: `worker` and `engine` are their settings, `redis` another URL than the session's.

    `partitions` are the topics'.
    """
    with ExitStack() as made:

        def make(
            redis: str | None = None,
            worker: dict[str, Any] | None = None,
            partitions: int = PARTITIONS,
            **engine: Any,
        ) -> Deployment:
            prefix = f"t{uuid.uuid4().hex[:8]}"
            settings = Settings(
                kafka=KafkaSettings(bootstrap=local_stack.kafka.bootstrap, prefix=f"{prefix}."),
                topics=TopicSettings(partitions=partitions),
                redis=RedisSettings(url=redis or local_stack.redis.url, prefix=prefix),
                worker=WorkerSettings(**{"checkpoint_events": 200, "checkpoint_seconds": 0.5} | (worker or {})),
                engine=EngineSettings(**{"history": 150} | engine),
            )
            deployment = Deployment(settings, tmp_path / prefix)
            made.callback(deployment.close)
            return deployment

        yield make
