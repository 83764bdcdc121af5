"""The doctor on real servers, healthy and misconfigured."""

from typing import Any

import msgspec
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from deploy.local.up import as_toml
from streams.cli.app import main
from tests.support.deployment import Deploy, Deployment, simulated, until

pytestmark = pytest.mark.long


@pytest.fixture
def here(deploy: Deploy, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    found = deploy()
    file = tmp_path_factory.mktemp("settings") / "queuecast.toml"
    file.write_text(as_toml(found.settings))
    monkeypatch.setenv("QUEUECAST_CONFIG", str(file))
    return found


def looked(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, dict[str, Any]]:
    """Return the doctor's results by check."""
    assert main(["doctor", "--json"]) == code
    return {found["check"]: found for found in map(msgspec.json.decode, capsys.readouterr().out.splitlines())}


def test_doctor_on_real_servers_finds_lag_and_misconfiguration(
    here: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    found = looked(capsys)
    assert {name for name, result in found.items() if result["state"] != "ok"} == {"workers"}
    assert found["workers"]["found"] == "0 running, nothing to do"
    assert found["brokers"]["found"].startswith("1 of Kafka 4.")

    here.send(simulated("alder", 60))
    assert "0 running, events to do: partition " in looked(capsys)["workers"]["found"]

    here.worker.start()
    here.send_raw([(b"alder", b"what")])
    here.await_outputs(sum(map(len, here.expected(simulated("alder", 60)).values())) + 1)
    found = looked(capsys)
    assert found["workers"]["state"] == "ok"
    assert found["workers"]["found"].startswith("1 running")
    assert found["dead letters"]["found"] == "1 within a day"

    with KafkaAdminClient(**here.settings.kafka.client_options()) as client:
        changed = {"cleanup.policy": "delete"}
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, here.topics.state, changed)])
    here.redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        found = looked(capsys, 1)
    finally:
        here.redis.config_set("maxmemory-policy", "noeviction")
    assert found["topic settings"]["state"] == "fail"
    assert "cleanup.policy=delete instead of compact" in found["topic settings"]["found"]
    assert found["redis memory"]["state"] == "warn"

    here.worker.stop()
    with KafkaAdminClient(**here.settings.kafka.client_options()) as client:
        client.delete_topics([here.topics.events])
    until(lambda: here.topics.events in looked(capsys, 1)["topics"]["found"])
    assert looked(capsys, 1)["dead letters"]["state"] == "warn"
