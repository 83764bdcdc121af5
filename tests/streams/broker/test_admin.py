from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError, TopicAlreadyExistsError

from streams.broker import admin as topics_admin
from streams.broker.admin import check_group, check_topics, create_topics
from streams.broker.topics import IN_SYNC, Topics, configurations
from streams.errors import UserError
from streams.settings import KafkaSettings, Settings

SETTINGS = Settings(kafka=KafkaSettings(security="sasl_tls", username="ada", password="hunter2"))
EVENTS, PREDICTIONS, OUTCOMES = "queuecast.events", "queuecast.predictions", "queuecast.outcomes"


class Broker:
    """Describe topics and a group as a broker does."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, Any]] = {}
        self.group: list[str] | Exception | None = None
        self.topic(EVENTS, 3, "READ", "WRITE")
        self.topic(PREDICTIONS, 3, "READ")

    def topic(self, name: str, partitions: int, *allowed: str, error: int = 0) -> None:
        found = {"name": name, "error_code": error, "partitions": [{}] * partitions, "authorized_operations": allowed}
        self.topics[name] = found

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [self.topics[name] for name in names]

    def describe_groups(self, names: list[str]) -> dict[str, Any]:
        if isinstance(self.group, Exception):
            raise self.group
        return {name: {"authorized_operations": self.group} for name in names}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()

    @contextmanager
    def admin(_: KafkaSettings) -> Iterator[Broker]:
        yield found

    monkeypatch.setattr(topics_admin, "admin", admin)
    return found


def test_check_topics_accepts_existing_topics(broker: Broker) -> None:
    check_topics(SETTINGS, {EVENTS: "read and write", PREDICTIONS: "read"})


def test_check_topics_names_missing_topics(broker: Broker) -> None:
    broker.topic(PREDICTIONS, 0, error=3)
    with pytest.raises(
        UserError, match=r"topics are missing: queuecast.predictions; create them with `queuecast topics create`"
    ):
        check_topics(SETTINGS, {EVENTS: "read", PREDICTIONS: "read"})


def test_check_topics_rejects_different_partition_counts(broker: Broker) -> None:
    broker.topic(PREDICTIONS, 4, "READ")
    with pytest.raises(UserError, match=r"differ in their number of partitions: .*events': 3.*predictions': 4"):
        check_topics(SETTINGS, {EVENTS: "read", PREDICTIONS: "read"})


def test_check_topics_names_missing_permission(broker: Broker) -> None:
    with pytest.raises(UserError, match=r"user 'ada' may not write to queuecast.predictions; .* Permissions"):
        check_topics(SETTINGS, {EVENTS: "write", PREDICTIONS: "read and write"})
    broker.topic(EVENTS, 0, error=29)
    with pytest.raises(UserError, match=r"user 'ada' may not see queuecast.events"):
        check_topics(SETTINGS, {EVENTS: "read"})


@pytest.mark.parametrize("group", [["READ"], None, CoordinatorNotAvailableError()])
def test_check_group_accepts_readable_or_new_group(broker: Broker, group: Any) -> None:
    broker.group = group
    check_group(SETTINGS)


@pytest.mark.parametrize("group", [["DESCRIBE"], [], GroupAuthorizationFailedError()])
def test_check_group_without_permission_raises_user_error(broker: Broker, group: Any) -> None:
    broker.group = group
    with pytest.raises(UserError, match=r"user 'ada' may not use the group queuecast.worker"):
        check_group(SETTINGS)


def test_topics_of_worker_are_all_topics() -> None:
    found = Topics("x.")
    assert set(found.uses) == set(found)


class Cluster(Broker):
    """A cluster of topics with two partitions and `copies` replicas that records changes."""

    def __init__(self, copies: int, in_sync: str | None) -> None:
        super().__init__()
        self.made: dict[str, int] = {}
        self.changed: dict[str, dict[str, str]] = {}
        self.in_sync = in_sync
        partition = {"replica_nodes": [*range(copies)]}
        self.there = {name: [partition] * 2 for name in configurations(SETTINGS) if name != OUTCOMES}

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [{"name": name, "partitions": self.there.get(name, [])} for name in names]

    def create_topics(self, wanted: dict[str, Any], wait_for_metadata: bool) -> None:
        for name, values in wanted.items():
            if name in self.there:
                raise TopicAlreadyExistsError
            self.made[name] = values["num_partitions"]

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        configs = {} if self.in_sync is None else {IN_SYNC: {"value": self.in_sync}}
        return {"topic": {resource.name: configs for resource in resources}}

    def alter_configs(self, resources: list[Any]) -> None:
        self.changed |= {resource.name: resource.configs for resource in resources}


@pytest.mark.parametrize(
    ("copies", "in_sync", "is_updated"), [(3, "1", True), (3, "2", False), (3, None, False), (2, "1", False)]
)
def test_create_topics_sets_acknowledgements_by_replicas(
    monkeypatch: pytest.MonkeyPatch, copies: int, in_sync: str | None, is_updated: bool
) -> None:
    cluster = Cluster(copies, in_sync)

    @contextmanager
    def admin(_: KafkaSettings) -> Iterator[Cluster]:
        yield cluster

    monkeypatch.setattr(topics_admin, "admin", admin)
    made = create_topics(SETTINGS)
    assert cluster.made == {OUTCOMES: 2}  # as many partitions as the others have
    assert made == {name: name == OUTCOMES for name in configurations(SETTINGS)}
    assert cluster.changed == ({name: {IN_SYNC: "2"} for name in cluster.there} if is_updated else {})
