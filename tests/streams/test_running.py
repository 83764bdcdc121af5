import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streams.broker.admin import _away, _refused
from streams.cli.app import main
from streams.client import listing
from streams.errors import UserError
from streams.running import (
    announced,
    config_here,
    curl_config,
    kafka_properties,
    note_path,
    running_config,
    service_url,
    starting,
    starting_since_s,
)
from streams.settings import KafkaSettings, ServeSettings, Settings
from tests.support.command import PATIENCE_S

LOCKED = KafkaSettings(
    bootstrap="127.0.0.1:9", security="sasl_plaintext", mechanism="PLAIN", username="me", password='a"b\\c'
)
HOLD = """
import sys, time
from pathlib import Path
from streams.running import announced
with announced(Path(sys.argv[1])) as found:
    print(found, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set an empty home directory, without settings of the user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("QUEUECAST_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "it runs.toml"
    path.write_text('[kafka]\nbootstrap = "127.0.0.1:4711"\n')
    return path


def test_broker_error_reports_that_up_is_starting() -> None:
    assert starting_since_s() is None
    with starting():
        assert 0 <= (starting_since_s() or 0.0) < 60
        for message in (_away(KafkaSettings()), _refused(KafkaSettings())):
            assert "`queuecast up` has been starting here for" in message and "start one with" not in message
        assert "starting" not in _away(LOCKED)
    assert starting_since_s() is None
    assert "start one with `queuecast up`" in _away(KafkaSettings())


def test_running_config_is_found_while_announced(config: Path) -> None:
    assert running_config() is None
    with announced(config) as found:
        assert found
        assert running_config() == config
        assert config_here() == config
        assert note_path().stat().st_mode & 0o077 == 0
    assert running_config() is None
    assert not note_path().exists()


def test_running_config_of_killed_process_is_replaced(config: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert running_config() == config
        with announced(config.with_name("other.toml")) as found:
            assert not found
            assert running_config() == config
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert note_path().exists()
    assert running_config() is None
    with announced(config) as found:
        assert found and running_config() == config


def test_announce_without_writable_state_home_is_ignored(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(config))  # a file
    with announced(config) as found:
        assert not found


@pytest.mark.parametrize("name", ["QUEUECAST_KAFKA_BOOTSTRAP", "QUEUECAST_REDIS_URL"])
def test_running_config_is_ignored_with_servers_in_environment(
    config: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with announced(config):
        monkeypatch.setenv(name, "elsewhere:9092")
        assert config_here() is None


def test_named_settings_precede_running_config(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with announced(config):
        assert config_here(Path("given.toml")) == Path("given.toml")
        (tmp_path / "queuecast.toml").write_text("")
        assert config_here() == Path("queuecast.toml")
        monkeypatch.setenv("QUEUECAST_CONFIG", "named.toml")
        assert config_here() == Path("named.toml")


@pytest.mark.parametrize("command", [["ask"], ["job", "1"], ["jobs"], ["sites"]])
@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://127.0.0.1:6067", "its-own-token"),
        ("http://localhost:6067/", "its-own-token"),
        ("http://127.0.0.1:6068", None),
        ("https://elsewhere.org:6067", None),
        ("http://127.0.0.1:no", None),
    ],
)
def test_token_of_running_stack_is_sent_only_to_its_service(
    config: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], url: str, sent: str | None
) -> None:
    tokens = list[str | None]()

    def client_for(settings: Settings, _: str, token: str | None) -> None:
        tokens.append(token or settings.serve.token)
        raise UserError("enough")

    monkeypatch.setattr(listing, "client_for", client_for)
    config.write_text(config.read_text() + '[serve]\ntoken = "its-own-token"\n')
    with announced(config):
        assert main([*command, "--url", url]) == 1
    assert tokens == [sent]


def test_credentials_print_running_stack(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with announced(config):
        assert main(["credentials"]) == 0
        output = capsys.readouterr()
    assert output.err == ""
    assert output.out.splitlines() == [
        "Kafka    127.0.0.1:4711  PLAINTEXT",
        "service  http://127.0.0.1:6067  no token",
        f"settings {config}",
    ]


def test_credentials_accept_one_output_format(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--config", str(config), "credentials"]
    assert main([*named, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bootstrap_servers"] == ["127.0.0.1:4711"]
    assert main([*named, "--kcat"]) == 0
    assert capsys.readouterr().out == "bootstrap.servers=127.0.0.1:4711\nsecurity.protocol=PLAINTEXT\n"
    assert main([*named, "--java", "--curl"]) == 2


def test_kafka_properties_have_password_for_java_and_kcat() -> None:
    java = kafka_properties(Settings(kafka=LOCKED), java=True).splitlines()
    assert java[-1] == (
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="me" password="a\\"b\\\\c";'
    )
    kcat = kafka_properties(Settings(kafka=LOCKED), java=False).splitlines()
    assert kcat[1:] == [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=PLAIN",
        "sasl.username=me",
        'sasl.password=a"b\\c',
    ]
    with pytest.raises(UserError, match="key stores"):
        kafka_properties(Settings(kafka=KafkaSettings(security="tls")), java=True)
    tls = Settings(kafka=KafkaSettings(security="tls", ca_file="ca.pem"))
    assert kafka_properties(tls, java=False).endswith("ssl.ca.location=ca.pem\n")


def test_curl_config_has_token_if_configured() -> None:
    assert curl_config(Settings()).startswith("#")
    token = Settings(serve=ServeSettings(token="correct horse"))
    assert curl_config(token) == 'header = "Authorization: Bearer correct horse"\n'
    assert service_url(ServeSettings(web_host="0.0.0.0", web_port=80)) == "http://127.0.0.1:80"
    assert service_url(ServeSettings(web_host="::1")) == "http://[::1]:6067"
