"""Compose files: valid, hardened, and consistent with settings, commands and local stack."""

import ast
import importlib.util
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from streams.serve.http_server import check_closed
from streams.settings import load_settings
from streams.worker.faust_compat import STOP_S
from tests.support.deployments import (
    PROGRAMS,
    ROOT,
    check_command,
    check_image,
    check_kafka,
    check_redis,
    check_variables,
    pages,
    seconds,
    section_of,
)

FOLDER = ROOT / "deploy" / "compose"
FILES = ("compose.yaml", "production.yaml")
SYSTEMD = ROOT / "deploy" / "systemd"
PORTS = {"source": 6070, "notify": 6069}

Services = dict[str, dict[str, Any]]


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(params=FILES)
def compose(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read(request.param)


@pytest.fixture
def services(compose: dict[str, Any]) -> Services:
    found: Services = compose["services"]
    return found


@pytest.fixture
def trial() -> Services:
    found: Services = read("compose.yaml")["services"]
    return found


def ours(services: Services) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the services that run a command of queuecast."""
    found = [(name, service) for name, service in services.items() if service["image"].startswith("queuecast:")]
    assert {name for name, _ in found} == {"topics", "worker", "serve"}
    yield from found


def test_compose_file_is_valid_by_specification(compose: dict[str, Any]) -> None:
    PyCompose.from_json(json.dumps(compose)).validate()


def test_compose_runs_programs_of_up(trial: Services) -> None:
    assert set(trial) - {"topics", "grafana"} == PROGRAMS  # `up` creates the topics itself


def test_compose_dependencies_exist_and_have_health_checks(services: Services) -> None:
    for service in services.values():
        for name in (waits := service.get("depends_on", {})):
            assert name in services
            if isinstance(waits, dict) and waits[name]["condition"] == "service_healthy":
                assert "healthcheck" in services[name]


def test_compose_volumes_are_declared_and_files_exist(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            if isinstance(volume, dict):  # a host file; Docker must not create a directory for it
                assert volume["source"].startswith("/etc/queuecast/")
                assert volume["source"] == volume["target"]
                assert volume["bind"] == {"create_host_path": False}
                continue
            source = volume.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in compose["volumes"]


def test_ports_are_published_on_loopback_only(services: Services) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_images_are_pinned(services: Services) -> None:
    for service in services.values():
        check_image(service["image"])


def test_compose_commands_exist(services: Services) -> None:
    for name, service in ours(services):
        assert check_command(service["command"]) == name


def test_compose_variables_are_valid_settings(trial: Services) -> None:
    for _, service in ours(trial):
        check_variables(service["environment"])
        settings = load_settings(environment=given(service["environment"]))
        assert settings.kafka.bootstrap == "kafka:9092"
        assert settings.redis.url == "redis://redis:6379/0"


def given(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment, with a value for each required secret, without variables of the host."""
    return {
        name: re.sub(r"^\$\{(\w+):\?.*\}$", r"value of \1", str(value))
        for name, value in environment.items()
        if value is not None
    }


def test_variables_of_the_compose_guide_reach_a_service(trial: Services) -> None:
    guide = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8").split("## Docker Compose")[1].split("\n## ")[0]
    own = {"QUEUECAST_KAFKA_BOOTSTRAP", "QUEUECAST_WORKER"}  # of the command on the host, of production.yaml
    named = set(re.findall(r"QUEUECAST_[A-Z_]*[A-Z]", guide)) - own
    assert named <= {name for _, service in ours(trial) for name in service["environment"]}
    assert trial["worker"]["environment"]["QUEUECAST_WORKER_PROCESSES"] is None  # of the host, if it has it


def test_compose_secrets_have_no_defaults(trial: Services) -> None:
    redis, worker, serve = (trial[name]["environment"] for name in ("redis", "worker", "serve"))
    assert given(redis)["REDISCLI_AUTH"] == given(worker)["QUEUECAST_REDIS_PASSWORD"]
    assert worker["QUEUECAST_REDIS_PASSWORD"].startswith("${QUEUECAST_REDIS_PASSWORD:?")
    assert serve["QUEUECAST_SERVE_TOKEN"].startswith("${QUEUECAST_SERVE_TOKEN:?")
    check_closed(load_settings(environment=given(serve)).serve, requires_token=True)


def test_production_compose_reads_settings_from_files() -> None:
    for name, service in ours(read("production.yaml")["services"]):
        check_variables(service["environment"])
        (passwords,) = service["env_file"]
        assert passwords == f"/etc/queuecast/{ {'topics': 'admin'}.get(name, name) }.env"
        assert (SYSTEMD / Path(passwords).name).exists()
        mounted = {volume["target"] for volume in service["volumes"] if isinstance(volume, dict)}
        settings = load_settings(SYSTEMD / "queuecast.toml", {"QUEUECAST_KAFKA_SECURITY": "tls"})
        assert mounted == {service["environment"]["QUEUECAST_CONFIG"], settings.kafka.ca_file}
        assert settings.kafka.ca_file == settings.redis.ca_file
    assert "PASSWORD" not in (FOLDER / "production.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", ["worker", "serve"])
def test_compose_health_check_uses_port_of_program(services: Services, program: str) -> None:
    service = services[program]
    code = service["healthcheck"]["test"][-1]
    port, page = re.search(r'"127\.0\.0\.1", (\d+).*"GET", "([^"]+)"', code, re.DOTALL).groups()  # type: ignore[union-attr]
    compile(code, program, "exec")
    assert page in pages(program)
    assert int(port) == section_of(program).web_port
    assert service["environment"][f"QUEUECAST_{program.upper()}_WEB_HOST"] == "0.0.0.0"
    assert program == "worker" or service["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_compose_services_are_hardened_and_have_time_to_stop(services: Services) -> None:
    for name, service in ours(services):
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "cache:/var/cache/queuecast" in service["volumes"]  # needed to import numba
        assert name == "topics" or seconds(service["stop_grace_period"]) > STOP_S


def test_compose_kafka_and_redis_are_durable(trial: Services, tmp_path: Path) -> None:
    check_kafka(trial["kafka"]["environment"], tmp_path)
    check_redis(trial["redis"]["command"], tmp_path)


def test_compose_prometheus_scrapes_programs_and_loads_rules(trial: Services) -> None:
    source, target = trial["prometheus"]["volumes"][0].split(":")[:2]
    config_file = Path(trial["prometheus"]["command"][0].removeprefix("--config.file="))
    assert config_file.parent == Path(target)
    folder = FOLDER / source
    config = yaml.safe_load((folder / config_file.name).read_text(encoding="utf-8"))
    targets = {
        target for job in config["scrape_configs"] for static in job["static_configs"] for target in static["targets"]
    }
    assert targets == {f"{program}:{section_of(program).web_port}" for program in ("worker", "serve")}
    assert all((folder / name).exists() for name in config["rule_files"])


def test_grafana_finds_its_dashboards(trial: Services) -> None:
    places = dict(volume.split(":")[1::-1] for volume in trial["grafana"]["volumes"])
    provisioning = FOLDER / places["/etc/grafana/provisioning"]
    providers = [
        provider
        for file in (provisioning / "dashboards").glob("*.yaml")
        for provider in yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    ]
    assert providers
    for provider in providers:
        assert list((FOLDER / places[provider["options"]["path"]]).glob("*.json"))
    sources = [
        source
        for file in (provisioning / "datasources").glob("*.yaml")
        for source in yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
    ]
    assert [source["url"] for source in sources] == ["http://prometheus:9090"]


@pytest.fixture(scope="module")
def image() -> str:
    return (FOLDER / "Dockerfile").read_text(encoding="utf-8")


def test_image_copies_all_packages_and_runs_unprivileged(image: str) -> None:
    assert {"models", "streams", "deploy", "queuecast"} <= set(re.findall(r"^COPY (\w+) ", image, re.M))
    assert re.search(r"^USER 10001:10001$", image, re.M)
    assert re.findall(r"^FROM (\S+)", image, re.M) == ["${PYTHON}"] * 2  # accepts a digest
    (base,) = re.findall(r"^ARG PYTHON=(\S+)", image, re.M)
    check_image(base)
    assert image.index("ARG PYTHON") < image.index("FROM")
    assert all("--require-hashes" in line for line in image.splitlines() if "install" in line and " -r " in line)


def test_image_has_kernel_cache_in_configured_directory(image: str) -> None:
    places = set(re.findall(r"NUMBA_CACHE_DIR=(\S+)", image))
    assert places == {"/var/cache/queuecast"}
    assert re.search(
        r"^COPY --from=build --chown=queuecast:queuecast /var/cache/queuecast /var/cache/queuecast$", image, re.M
    )


def test_image_build_commands_exist(image: str) -> None:
    """Its Python lines import names that exist in the modules of the wheel."""
    lines = re.findall(r"python -c '([^']+)'", image)
    imported = [node for line in lines for node in ast.walk(ast.parse(line)) if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in imported} == {"queuecast.models.engine.warm_up"}
    for node in imported:
        module = importlib.import_module(str(node.module).removeprefix("queuecast."))
        for name in node.names:
            inspect.signature(getattr(module, name.name)).bind()
    (entry,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', image, re.M)
    (command,) = re.findall(r'^CMD \["(\w+)"\]$', image, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert entry in project["scripts"]
    assert check_command([command]) == "worker"
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.M):
        assert all((ROOT / file).exists() for file in copied.split()), copied


def test_makefile_modules_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    modules = set(re.findall(r"python -m (\w+(?:\.\w+)+)", makefile))
    assert modules == {
        "deploy.local.stack.class_cache",
        "deploy.sbom",
        "streams.process.early_start",
        "tests.benchmarks.slurm",
        "tests.drawn",
        "tests.prior.train",
        "tests.prior.waiting",
        "tests.support.compiled",
        "tests.worker_simulation",
    }
    assert all(importlib.util.find_spec(module) for module in modules)


@pytest.mark.parametrize("joins", ["source", "notify"])
def test_compose_source_and_notify_extend_base_project(joins: str) -> None:
    """Their files extend compose.yaml: the same project and Kafka, hardened as the others."""
    found, trial = read(f"{joins}.yaml"), read("compose.yaml")
    PyCompose.from_json(json.dumps(found)).validate()
    ((name, service),) = found["services"].items()
    assert found["name"] == trial["name"]
    assert check_command(service["command"]) == name == joins
    check_image(service["image"])
    check_variables(service["environment"])
    assert service["environment"]["QUEUECAST_KAFKA_BOOTSTRAP"] == "kafka:9092"
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert {volume.split(":")[0] for volume in service["volumes"]} == set(found["volumes"])
    assert seconds(service["stop_grace_period"]) > STOP_S
    assert service["mem_limit"] == "1g"
    code = service["healthcheck"]["test"][-1]
    compile(code, joins, "exec")
    assert f'"127.0.0.1", {PORTS[joins]},' in code and '"/metrics"' in code


def test_compose_source_has_volume_for_cursor() -> None:
    (source,) = read("source.yaml")["services"].values()
    assert f"--web-port={PORTS['source']}" in source["command"]
    assert "--cursors=/var/lib/queuecast" in source["command"]
    assert "source:/var/lib/queuecast" in source["volumes"]


def test_compose_notify_is_signed_and_health_checked() -> None:
    (service,) = read("notify.yaml")["services"].values()
    environment = service["environment"]
    filled = given(environment) | {"QUEUECAST_NOTIFY_WEBHOOK": "https://chat.example.org/hook"}
    own = load_settings(environment=filled).notify
    assert own.webhook and own.secret and own.web_host == "0.0.0.0"
    assert all(environment[f"QUEUECAST_NOTIFY_{name}"].startswith("${") for name in ("WEBHOOK", "SECRET"))
    assert own.web_port == PORTS["notify"]
