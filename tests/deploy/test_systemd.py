"""The systemd units: accepted by systemd, hardened, and in step with the settings and the commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from streams.errors import UserError
from streams.settings import Settings, WorkerSettings, load_settings
from streams.worker.faust_compat import STOP_S
from tests.support.deployments import ROOT, check_command, check_variables, section_of

FOLDER = ROOT / "deploy" / "systemd"
PROGRAM = "/opt/queuecast/bin/queuecast"
SERVICES = {
    "topics": "queuecast-topics.service",
    "worker": "queuecast-worker@.service",
    "serve": "queuecast-serve.service",
    "source": "queuecast-source@.service",
    "notify": "queuecast-notify.service",
}
WORKER = "queuecast-worker@6066.service"
SOURCE = "queuecast-source@alder.service"

Unit = dict[str, list[str]]
"""The values of each directive."""


def read(name: str) -> Unit:
    found = defaultdict(list)
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[key].append(value)
    return found


def resolved(text: str) -> str:
    """A value for the worker's unit, its specifiers resolved."""
    return text.replace("%i", "6066").replace("%l", "node1").replace("%C", "/var/cache").replace("%%", "%")


def environment(name: str) -> dict[str, str]:
    """What a service finds in its environment, with the example of its file of passwords."""
    unit = read(name)
    values = dict(resolved(value).split("=", 1) for value in unit["Environment"])
    (optional,) = unit["EnvironmentFile"]
    assert optional.startswith("-/etc/queuecast/")
    lines = (FOLDER / Path(optional).name).read_text(encoding="utf-8").splitlines()
    return values | dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled(found: dict[str, str]) -> dict[str, str]:
    """An environment, filled in as the examples ask for."""
    return {key: value.replace("change-me", "correct horse battery") for key, value in found.items()}


def settings_of(name: str) -> Settings:
    found = filled(environment(name))
    assert found.pop("QUEUECAST_CONFIG") == "/etc/queuecast/queuecast.toml"
    return load_settings(FOLDER / "queuecast.toml", found)


@pytest.mark.parametrize("name", SERVICES.values())
def test_an_example_that_is_not_filled_in_is_refused(name: str) -> None:
    found = environment(name)
    del found["QUEUECAST_CONFIG"]
    with pytest.raises(UserError, match=r"password: this is a public example value"):
        load_settings(FOLDER / "queuecast.toml", found)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units in a directory, with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    folder = tmp_path / "units"
    shutil.copytree(FOLDER, folder)
    for file in folder.glob("*.service"):
        file.write_text(file.read_text(encoding="utf-8").replace(PROGRAM, sys.executable), encoding="utf-8")
    return folder


def analyze(units: Path, *arguments: str) -> str:
    """Everything that systemd-analyze says."""
    done = subprocess.run(
        ["systemd-analyze", *arguments],
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{units}:", "SYSTEMD_COLORS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize(
    "unit", ["queuecast.target", WORKER, SOURCE, *(SERVICES[name] for name in ("serve", "topics", "notify"))]
)
def test_systemd_has_nothing_to_say_against_it(units: Path, unit: str) -> None:
    assert analyze(units, "verify", unit) == ""


def test_systemd_tells_of_a_flaw(units: Path) -> None:
    drop_in = units / "queuecast-.service.d" / "hardening.conf"
    drop_in.write_text(drop_in.read_text(encoding="utf-8").replace("ProtectClock", "ProtectClok"), encoding="utf-8")
    assert "ProtectClok" in analyze(units, "verify", WORKER)


@pytest.mark.parametrize("name", SERVICES.values())
def test_a_service_is_little_exposed(units: Path, name: str) -> None:
    told = analyze(units, "security", "--offline=true", "--no-pager", str(units / name))
    (level,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert float(level) <= 1.5


@pytest.mark.parametrize(("command", "name"), SERVICES.items())
def test_a_service_runs_a_command_that_there_is(command: str, name: str) -> None:
    (line,) = read(name)["ExecStart"]
    program, *arguments = shlex.split(resolved(line))
    assert program == PROGRAM
    assert check_command(arguments) == command


@pytest.mark.parametrize("name", SERVICES.values())
def test_its_variables_and_files_are_settings(name: str) -> None:
    check_variables(environment(name))
    settings = settings_of(name)
    assert settings.kafka.sasl
    assert settings.kafka.security == "sasl_tls"
    assert settings.redis.url.startswith("rediss://")


def test_a_worker_has_a_port_and_a_name_of_its_own() -> None:
    assert settings_of(SERVICES["worker"]).worker.instance == "node1-6066"
    assert f"queuecast-worker@{section_of('worker').web_port}.service" == WORKER


def test_notices_are_signed_and_seen_by_prometheus() -> None:
    own = settings_of(SERVICES["notify"]).notify
    assert own.webhook and own.secret and own.web_port


def test_the_target_wants_all_and_all_stop_with_it() -> None:
    (wanted,) = read("queuecast.target")["Wants"]
    assert set(wanted.split()) == {WORKER, SERVICES["serve"], SERVICES["topics"]}
    for name in SERVICES.values():
        unit = read(name)
        assert unit["PartOf"] == unit["WantedBy"] == ["queuecast.target"]


@pytest.mark.parametrize("name", [SERVICES[name] for name in ("worker", "serve", "source", "notify")])
def test_what_ends_is_started_again_and_has_time_to_stop(name: str) -> None:
    unit = read(name)
    assert unit["Restart"] == ["always"]
    assert float(unit["TimeoutStopSec"][0]) > STOP_S
    interval, burst, pause = (float(unit[key][0]) for key in ("StartLimitIntervalSec", "StartLimitBurst", "RestartSec"))
    # One that waits for a Kafka that is away is started again for ever; one that ends at once is not.
    assert burst * (WorkerSettings().startup_timeout_seconds + pause) > interval > burst * pause


def test_a_source_keeps_how_far_it_is() -> None:
    """Its cursors are in $STATE_DIRECTORY, of each site in one of its own."""
    assert read(SERVICES["source"])["StateDirectory"] == ["queuecast-source-%i"]


def test_what_is_compiled_is_kept_where_it_may_write() -> None:
    hardening = read("queuecast-.service.d/hardening.conf")
    (folder,) = hardening["CacheDirectory"]
    assert f"NUMBA_CACHE_DIR=/var/cache/{folder}" in map(resolved, hardening["Environment"])
    assert "MemoryDenyWriteExecute" not in hardening  # compiled code has to become executable
