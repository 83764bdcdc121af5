"""Systemd units: valid, hardened, and consistent with settings and commands."""

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
    """Resolve the specifiers of a value, for the worker's unit."""
    return text.replace("%i", "6066").replace("%l", "node1").replace("%C", "/var/cache").replace("%%", "%")


def environment(name: str) -> dict[str, str]:
    """Return the environment of a service, with its example file of passwords."""
    unit = read(name)
    values = dict(resolved(value).split("=", 1) for value in unit["Environment"])
    (optional,) = unit["EnvironmentFile"]
    assert optional.startswith("-/etc/queuecast/")
    lines = (FOLDER / Path(optional).name).read_text(encoding="utf-8").splitlines()
    return values | dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled(found: dict[str, str]) -> dict[str, str]:
    """Replace the example values of an environment."""
    return {key: value.replace("change-me", "correct horse battery") for key, value in found.items()}


def settings_of(name: str) -> Settings:
    found = filled(environment(name))
    assert found.pop("QUEUECAST_CONFIG") == "/etc/queuecast/queuecast.toml"
    return load_settings(FOLDER / "queuecast.toml", found)


@pytest.mark.parametrize("name", SERVICES.values())
def test_systemd_example_password_is_rejected(name: str) -> None:
    found = environment(name)
    del found["QUEUECAST_CONFIG"]
    with pytest.raises(UserError, match=r"password: this is a public example value"):
        load_settings(FOLDER / "queuecast.toml", found)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Copy the units to a directory, with an existing program."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    folder = tmp_path / "units"
    shutil.copytree(FOLDER, folder)
    for file in folder.glob("*.service"):
        file.write_text(file.read_text(encoding="utf-8").replace(PROGRAM, sys.executable), encoding="utf-8")
    return folder


def analyze(units: Path, *arguments: str) -> str:
    """Return the output of systemd-analyze."""
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
def test_systemd_units_pass_verify(units: Path, unit: str) -> None:
    assert analyze(units, "verify", unit) == ""


def test_systemd_verify_reports_misspelt_option(units: Path) -> None:
    drop_in = units / "queuecast-.service.d" / "hardening.conf"
    drop_in.write_text(drop_in.read_text(encoding="utf-8").replace("ProtectClock", "ProtectClok"), encoding="utf-8")
    assert "ProtectClok" in analyze(units, "verify", WORKER)


@pytest.mark.parametrize("name", SERVICES.values())
def test_systemd_service_exposure_level_is_low(units: Path, name: str) -> None:
    output = analyze(units, "security", "--offline=true", "--no-pager", str(units / name))
    (level,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert float(level) <= 1.5


@pytest.mark.parametrize(("command", "name"), SERVICES.items())
def test_systemd_service_command_exists(command: str, name: str) -> None:
    (line,) = read(name)["ExecStart"]
    program, *arguments = shlex.split(resolved(line))
    assert program == PROGRAM
    assert check_command(arguments) == command


@pytest.mark.parametrize("name", SERVICES.values())
def test_systemd_service_variables_are_valid_settings(name: str) -> None:
    check_variables(environment(name))
    settings = settings_of(name)
    assert settings.kafka.sasl
    assert settings.kafka.security == "sasl_tls"
    assert settings.redis.url.startswith("rediss://")


def test_systemd_worker_has_own_port_and_name() -> None:
    assert settings_of(SERVICES["worker"]).worker.instance == "node1-6066"
    assert f"queuecast-worker@{section_of('worker').web_port}.service" == WORKER


def test_systemd_notify_is_signed_and_has_metrics_port() -> None:
    own = settings_of(SERVICES["notify"]).notify
    assert own.webhook and own.secret and own.web_port


def test_systemd_target_starts_and_stops_all_services() -> None:
    (wanted,) = read("queuecast.target")["Wants"]
    assert set(wanted.split()) == {WORKER, SERVICES["serve"], SERVICES["topics"]}
    for name in SERVICES.values():
        unit = read(name)
        assert unit["PartOf"] == unit["WantedBy"] == ["queuecast.target"]


@pytest.mark.parametrize("name", [SERVICES[name] for name in ("worker", "serve", "source", "notify")])
def test_systemd_service_restarts_and_has_time_to_stop(name: str) -> None:
    unit = read(name)
    assert unit["Restart"] == ["always"]
    assert float(unit["TimeoutStopSec"][0]) > STOP_S
    interval, burst, pause = (float(unit[key][0]) for key in ("StartLimitIntervalSec", "StartLimitBurst", "RestartSec"))
    # A service that waits for Kafka restarts without limit; one that ends immediately does not.
    assert burst * (WorkerSettings().startup_timeout_seconds + pause) > interval > burst * pause


def test_systemd_source_keeps_cursor_in_state_directory() -> None:
    """Its cursors are in $STATE_DIRECTORY, with a separate directory per site."""
    assert read(SERVICES["source"])["StateDirectory"] == ["queuecast-source-%i"]


def test_systemd_kernel_cache_is_in_cache_directory() -> None:
    hardening = read("queuecast-.service.d/hardening.conf")
    (folder,) = hardening["CacheDirectory"]
    assert f"NUMBA_CACHE_DIR=/var/cache/{folder}" in map(resolved, hardening["Environment"])
    assert "MemoryDenyWriteExecute" not in hardening  # compiled code must become executable


def test_doctor_command_reads_passwords_like_the_worker() -> None:
    """A shell would expand a dollar sign, and split a password at a space or an ampersand."""
    lines = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if PROGRAM in line and "doctor" in line]
    launcher, command = line.split(PROGRAM)
    [file] = read(SERVICES["worker"])["EnvironmentFile"]
    assert launcher.split()[0] == "systemd-run" and f"--property=EnvironmentFile={file[1:]}" in launcher.split()
    assert check_command(shlex.split(command)) == "doctor"
