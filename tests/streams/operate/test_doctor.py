from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kafka import TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import CoordinatorNotAvailableError, KafkaTimeoutError, TopicAuthorizationFailedError
from redis.exceptions import NoPermissionError

from streams.broker.topics import IN_SYNC, Topics, configurations
from streams.cli.app import main
from streams.errors import UserError
from streams.operate import doctor
from streams.operate.checks import CheckResult, fields, freshness
from streams.operate.doctor import MAX_CLOCK_DIFFERENCE_S, MAX_LAG_EVENTS
from streams.settings import KafkaSettings, Settings, SitesSettings

SETTINGS = Settings()
NOW = 1.8e9
TOPICS = Topics("queuecast.")
Offset = namedtuple("Offset", "offset timestamp")


class Broker:
    """A healthy cluster: two partitions per topic, one worker, no lag."""

    def __init__(self) -> None:
        self.partitions = dict.fromkeys(TOPICS, 2)
        self.configs = {name: dict(values) for name, values in configurations(SETTINGS).items()}
        self.ends, self.committed, self.members = [500, 700], [500, 700], [{}]
        self.first_of_day = -1
        self.copies, self.in_sync = 1, 1
        self.latest_s = NOW - 60

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"broker_id": 1}]}

    def get_broker_version_data(self, _: int) -> Any:
        return namedtuple("Data", "broker_version")((4, 1))

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        partition = {"replica_nodes": [*range(self.copies)]}
        return [{"name": name, "partitions": [partition] * self.partitions.get(name, 2)} for name in names]

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        assert config_filter == "all"
        names = [resource.name for resource in resources]
        known = {name: self.configs[name] | {IN_SYNC: str(self.in_sync)} for name in names if self.configs[name]}
        return {"topic": {name: {key: {"value": v} for key, v in found.items()} for name, found in known.items()}}

    def describe_groups(self, names: list[str]) -> dict[str, Any]:
        return {name: {"members": self.members} for name in names}

    def list_group_offsets(self, groups: dict[str, None]) -> dict[str, Any]:
        places = {topic: enumerate(self.committed) for topic in (TOPICS.events, TOPICS.own_events("alder"))}
        found = {TopicPartition(topic, n): Offset(at, -1) for topic, done in places.items() for n, at in done}
        return dict.fromkeys(groups, found)

    def list_partition_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        return {place: self._offset(place.partition, spec) for place, spec in wanted.items()}

    def _offset(self, partition: int, spec: int) -> Offset:
        if spec == OffsetSpec.MAX_TIMESTAMP:
            return Offset(0, int(self.latest_s * 1000))
        if spec == OffsetSpec.EARLIEST:
            return Offset(100, -1)
        return Offset(self.ends[partition] if spec == OffsetSpec.LATEST else self.first_of_day, -1)


class Store:
    """A healthy Redis."""

    def __init__(self) -> None:
        self.version, self.ahead_s = "7.0.15", 0.0
        self.config = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        self.hidden = False
        self.partitions: int | None = 2

    async def info(self, _: str) -> dict[str, Any]:
        return {"redis_version": self.version}

    async def time(self) -> tuple[int, int]:
        now = NOW + self.ahead_s
        return int(now), int(now % 1 * 1e6)

    async def config_get(self, _: str) -> dict[str, str]:
        if self.hidden:
            raise NoPermissionError("no permission for config|get")
        return self.config

    async def aclose(self) -> None:
        pass


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the doctor's clock."""
    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: NOW))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()

    @contextmanager
    def admin(_: KafkaSettings) -> Iterator[Broker]:
        yield found

    monkeypatch.setattr(doctor, "admin", admin)
    monkeypatch.setattr(doctor, "check_sites", lambda _: iter([freshness([]), fields([])]))
    return found


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store()

    async def answers(_: Any) -> None:
        pass

    async def remembered(*_: Any) -> int | None:
        return found.partitions

    monkeypatch.setattr(doctor, "check_redis", answers)
    monkeypatch.setattr(doctor, "remembered_partitions", remembered)
    monkeypatch.setattr(doctor, "partition_count", lambda *_: 2)
    monkeypatch.setattr(doctor, "connect", lambda _: found)
    return found


def looked(settings: Settings = SETTINGS) -> dict[str, CheckResult]:
    return {result.check: result for result in doctor.examine(settings)}


def test_doctor_of_healthy_deployment_is_ok(broker: Broker, store: Store) -> None:
    found = looked()
    assert {result.state for result in found.values()} == {"ok"}
    assert found["topics"].found == "9 with 2 partitions each"
    assert found["workers"].found == "1 running, nothing to do"
    assert found["stamps"].found == "the latest event came 1m ago"


def test_missing_and_uneven_topics_fail(broker: Broker, store: Store) -> None:
    broker.partitions[TOPICS.outcomes] = 3
    assert looked()["topics"].state == "fail"
    broker.partitions[TOPICS.outcomes] = 0
    found = looked()["topics"]
    assert (found.state, found.advice) == ("fail", "run `queuecast topics create`")
    assert TOPICS.outcomes in found.found


@pytest.mark.parametrize(
    ("topic", "key", "value", "state"),
    [
        (TOPICS.events, "retention.ms", "1000", "warn"),
        (TOPICS.state, "cleanup.policy", "delete", "fail"),
        (TOPICS.state, "max.message.bytes", "1048588", "fail"),
        (TOPICS.events, "max.message.bytes", "99999999", "warn"),
    ],
)
def test_doctor_names_topics_with_wrong_settings(
    broker: Broker, store: Store, topic: str, key: str, value: str, state: str
) -> None:
    broker.configs[topic][key] = value
    found = looked()["topic settings"]
    assert found.state == state
    assert f"{topic} has {key}={value} instead of " in found.found


def test_doctor_warns_of_invisible_topic_settings(broker: Broker, store: Store) -> None:
    broker.configs[TOPICS.events] = {}
    assert looked()["topic settings"].found == "not visible: queuecast.events"
    assert looked()["topic settings"].state == "warn"


def test_doctor_reports_added_partitions(broker: Broker, store: Store) -> None:
    store.partitions = 1
    found = looked()["partitions"]
    assert found.state == "fail"
    assert "has 2 partitions, and the sites' states are for 1" in found.found
    store.partitions = None
    assert looked()["partitions"].state == "ok"


def test_doctor_reports_events_deleted_unread(broker: Broker, store: Store) -> None:
    broker.committed = [50, 600]
    found = looked()["workers"]
    assert (found.state, found.found) == ("fail", "events were deleted before they were read: partition 0: 50")


def test_doctor_checks_replicas_and_min_in_sync_replicas(broker: Broker, store: Store) -> None:
    assert looked()["copies"].found == "1 of each topic"
    settings = Settings(topics=msgspec.structs.replace(SETTINGS.topics, replication=3))
    found = looked(settings)["copies"]
    assert (found.state, found.advice) == ("warn", "add some with kafka-reassign-partitions.sh")
    assert f"fewer than the 3 of the settings: {TOPICS.events}: 1" in found.found
    broker.copies = 3
    found = looked(settings)["copies"]
    assert (found.state, found.advice) == ("warn", "run `queuecast topics create`, which sets 2")
    broker.in_sync = 2
    assert looked(settings)["copies"] == CheckResult("copies", "ok", "3 of each topic")
    assert looked(settings)["topic settings"].state == "ok"
    broker.copies = 1
    assert looked()["copies"].state == "fail"
    assert "nothing can be written" in looked()["copies"].found


def test_doctor_checks_dedicated_topics(broker: Broker, store: Store) -> None:
    settings = Settings(sites=SitesSettings(dedicated_topics=("alder",)))
    own = TOPICS.own_events("alder")
    broker.partitions[own], broker.configs[own] = 0, dict(broker.configs[TOPICS.events])
    assert looked(settings)["topics"].found == f"topics missing or not visible to this user: {own}"
    broker.partitions[own] = 2
    assert looked(settings)["topics"].state == "ok"
    broker.ends = [500, 800]
    assert looked(settings)["workers"].found == (f"1 running, events to do: partition 1: 100, {own} partition 1: 100")


def test_doctor_reports_lag_by_partition(broker: Broker, store: Store) -> None:
    broker.committed = [450]
    found = looked()["workers"]
    assert (found.state, found.found) == ("ok", "1 running, events to do: partition 0: 50, partition 1: 600")
    broker.ends[1] += MAX_LAG_EVENTS
    assert looked()["workers"].state == "warn"


def test_doctor_warns_of_recreated_topic(broker: Broker, store: Store) -> None:
    broker.committed = [500, 700]
    assert looked()["workers"].state == "ok"
    broker.ends[1] = 12
    found = looked()["workers"]
    assert (found.state, found.found) == ("warn", "more events done than the topic queuecast.events has: partition 1")
    assert found.advice


def test_doctor_without_worker_gives_advice(broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.members = []
    assert looked()["workers"].advice == "start one with `queuecast worker`"

    def no_group_ever(_: Any) -> None:
        raise CoordinatorNotAvailableError

    monkeypatch.setattr(broker, "describe_groups", no_group_ever)
    assert looked()["workers"].found == "0 running, events to do: partition 0: 400, partition 1: 600"


def test_doctor_warns_of_event_timestamps_in_future(broker: Broker, store: Store) -> None:
    broker.latest_s = NOW + 100
    assert looked()["stamps"].state == "warn"
    broker.latest_s = -0.001
    assert looked()["stamps"].found == "no events yet"


def test_dead_letters_of_the_day_are_counted(broker: Broker, store: Store) -> None:
    broker.first_of_day = 490
    assert looked()["dead letters"].found == "220 within a day"


def test_doctor_reports_replication_above_broker_count(broker: Broker, store: Store) -> None:
    settings = Settings(topics=msgspec.structs.replace(SETTINGS.topics, replication=3))
    assert looked(settings)["brokers"].advice == "topics with 3 copies need as many brokers"


@pytest.mark.parametrize(
    ("error", "state"), [(TopicAuthorizationFailedError("x"), "warn"), (KafkaTimeoutError("x"), "fail")]
)
def test_doctor_with_failed_check_runs_other_checks(
    broker: Broker, store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception, state: str
) -> None:
    well = looked()

    def fails(_: Any) -> None:
        raise error

    monkeypatch.setattr(broker, "describe_topics", fails)
    found = looked()
    assert list(found) == list(well)
    assert {name for name, result in found.items() if result.state == state} == {
        "topics",
        "copies",
        "stamps",
        "workers",
        "dead letters",
    }


@pytest.mark.parametrize(
    ("check", "changed"),
    [
        ("redis version", {"version": "5.0.3"}),
        ("redis clock", {"ahead_s": 2 * MAX_CLOCK_DIFFERENCE_S}),
        ("redis clock", {"ahead_s": -2 * MAX_CLOCK_DIFFERENCE_S}),
        ("redis durability", {"config": {"appendonly": "no", "appendfsync": "always"}}),
        ("redis durability", {"config": {"appendonly": "yes", "appendfsync": "everysec"}}),
        ("redis memory", {"config": {"maxmemory-policy": "volatile-lru"}}),
    ],
)
def test_doctor_warns_of_redis_misconfiguration(
    broker: Broker, store: Store, check: str, changed: dict[str, Any]
) -> None:
    vars(store).update({"config": store.config | changed.pop("config", {})} | changed)
    found = looked()
    assert {name for name, result in found.items() if result.state != "ok"} == {check}
    assert found[check].state == "warn"
    assert found[check].advice


def test_doctor_warns_of_redis_without_permission(broker: Broker, store: Store) -> None:
    store.hidden = True
    found = looked()
    assert found["redis memory"].state == found["redis durability"].state == "warn"
    assert "no permission" in found["redis memory"].found


def test_doctor_without_broker_still_checks_redis(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def away(_: KafkaSettings) -> Iterator[None]:
        raise UserError("no broker answers")
        yield

    def none_answers(*_: object) -> int:
        raise UserError("no broker answers")

    monkeypatch.setattr(doctor, "admin", away)
    monkeypatch.setattr(doctor, "partition_count", none_answers)
    assert main(["doctor"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]  # continued lines
    assert lines[1] == "fail  brokers: no broker answers"
    assert [line.partition(":")[0] for line in lines[2:]] == [
        "ok    redis version",
        "ok    redis clock",
        "ok    redis durability",
        "ok    redis memory",
    ]


def test_doctor_without_redis_still_checks_broker(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away(_: Any) -> None:
        raise UserError("redis at h:1: gone")

    monkeypatch.setattr(doctor, "check_redis", away)
    assert main(["doctor", "--json"]) == 1
    results = [msgspec.json.decode(line, type=CheckResult) for line in capsys.readouterr().out.splitlines()]
    assert [result.state for result in results] == ["ok"] * 10 + ["fail"]
    assert results[-1] == CheckResult("redis version", "fail", "redis at h:1: gone")


def test_doctor_with_only_warnings_exits_with_zero(
    broker: Broker, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.version = "6.0.1"
    assert main(["doctor"]) == 0
    assert "warn  redis version: 6.0.1; use 6.2 or newer" in capsys.readouterr().out
