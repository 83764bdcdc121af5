"""The compose file: well-formed, and in step with the settings and commands that it names."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from streams.settings import SECTIONS, load_settings

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return loaded


def test_every_variable_is_a_setting_and_has_a_valid_value(compose: dict[str, Any]) -> None:
    known = {
        f"QUEUECAST_{name}_{field.name}".upper()
        for name, section in SECTIONS.items()
        for field in msgspec.structs.fields(section)
    }
    worker = compose["services"]["worker"]["environment"]
    assert worker
    assert set(worker) <= known
    assert load_settings(environment=worker).kafka.bootstrap == "kafka:9092"


def test_what_a_service_waits_for_is_there_and_has_the_check_it_waits_for(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name, wanted in service.get("depends_on", {}).items():
            assert name in services
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in services[name]


def test_volumes_are_declared_and_files_are_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in compose["volumes"]


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_commands_are_ones_that_queuecast_has(compose: dict[str, Any]) -> None:
    from streams.cli import app

    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    ours = [service["command"][0] for service in compose["services"].values() if service.get("image") == "queuecast"]
    assert ours
    assert set(ours) <= names


def test_redis_keeps_what_it_acknowledged(compose: dict[str, Any]) -> None:
    command = " ".join(compose["services"]["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--appendfsync always" in command


def test_prometheus_scrapes_the_workers_port() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"worker:{load_settings(environment={}).worker.web_port}"]


def test_the_image_copies_every_package_and_runs_as_nobody_special() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    assert {"models", "streams", "deploy"} <= set(re.findall(r"^COPY (\w+) ", text, re.M))
    assert re.search(r"^USER queuecast$", text, re.M)
