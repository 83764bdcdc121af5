import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.waits.qespera import Qespera, QesperaParameters
from streams.errors import UserError
from streams.settings import Settings, load_settings

SECRET = "hunter2-is-secret"


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def from_file(text: str, **environment: str) -> Settings:
    Path("queuecast.toml").write_text(text)
    return load_settings(environment=environment)


def from_environment(**environment: str) -> Settings:
    return load_settings(environment={f"QUEUECAST_{name}": value for name, value in environment.items()})


def test_settings_without_file_are_defaults() -> None:
    settings = load_settings(environment={})
    assert settings == Settings()
    assert settings.kafka.bootstrap == "127.0.0.1:9092"
    assert settings.worker.web_host == "127.0.0.1"


def test_environment_overrides_file_and_file_the_defaults() -> None:
    settings = from_file(
        '[kafka]\nbootstrap = "a:1"\nprefix = "x."\n[worker]\ncheckpoint_seconds = 5\n', QUEUECAST_KAFKA_BOOTSTRAP="b:2"
    )
    assert (settings.kafka.bootstrap, settings.kafka.prefix) == ("b:2", "x.")
    assert settings.worker.checkpoint_seconds == 5.0
    assert settings.worker.checkpoint_events == Settings().worker.checkpoint_events


def test_settings_file_is_named_by_argument_or_environment() -> None:
    for name in ("one", "other"):
        Path(f"{name}.toml").write_text(f'[redis]\nprefix = "{name}"\n')
    assert load_settings(Path("one.toml"), {"QUEUECAST_CONFIG": "other.toml"}).redis.prefix == "one"
    assert load_settings(environment={"QUEUECAST_CONFIG": "other.toml"}).redis.prefix == "other"


def test_environment_sets_fields_of_all_types() -> None:
    settings = from_environment(
        KAFKA_SECURITY="sasl_tls",
        KAFKA_USERNAME="ada",
        KAFKA_PASSWORD=SECRET,
        TOPICS_PARTITIONS="24",
        REDIS_URL="rediss://h:1/2",
        WORKER_WEB_PORT="7000",
        WORKER_CHECKPOINT_SECONDS="0.5",
        ENGINE_METHOD="median",
        ENGINE_SHADOWS=" zero , median",
        ENGINE_PUBLISH_SHADOWS="true",
        ENGINE_HISTORY="50",
    )
    assert (settings.kafka.security, settings.kafka.username, settings.kafka.password) == ("sasl_tls", "ada", SECRET)
    assert (settings.topics.partitions, settings.worker.web_port) == (24, 7000)
    assert settings.worker.checkpoint_seconds == 0.5
    assert (settings.engine.method, settings.engine.shadows) == ("median", ("zero", "median"))
    assert (settings.engine.publish_shadows, settings.engine.history) == (True, 50)
    assert from_environment(ENGINE_SHADOWS="").engine.shadows == ()


def test_engine_parameters_configure_method() -> None:
    text = "[engine.parameters.qespera]\nwindow = 0.02\nmin_pts = 3\nnested = false\n"
    settings = from_file(text, QUEUECAST_ENGINE_METHOD="qespera", QUEUECAST_ENGINE_HISTORY="50")
    assert settings.engine.parameters == {"qespera": {"window": 0.02, "min_pts": 3, "nested": False}}
    method = Engine("ctc", settings.engine).methods.waits["qespera"]
    assert isinstance(method, Qespera)
    assert method.parameters == QesperaParameters(window=0.02, min_pts=3, nested=False)


def test_service_variables_of_a_platform_are_ignored() -> None:
    platform = {"QUEUECAST_SERVICE_HOST": "10.0.0.1", "QUEUECAST_KAFKA_PORT": "tcp://10.0.0.1:9092", "HOME": "/"}
    platform |= {"QUEUECAST_SERVE_SERVICE_PORT": "80", "QUEUECAST_SERVE_PORT_80_TCP_ADDR": "10.0.0.1"}
    assert load_settings(environment=platform) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[kafka\n", r"queuecast.toml: is not TOML: .*line 1"),
        ("[kafak]\n", r"\[kafak\] is not a section; there are: kafka, topics, sites, redis, worker, engine"),
        ("kafka = 1\n", r"\[kafka\] is not a section"),
        ('[kafka]\nbootstarp = "a:1"\n', r"\[kafka\] bootstarp is not a setting; there are: bootstrap, prefix"),
        ("[kafka]\nbootstrap = 9092\n", r"queuecast.toml: kafka.bootstrap: expected `str`, got `int`"),
        ("[worker]\nweb_port = 0\n", r"worker.web_port: expected `int` >= 1"),
        ('[worker]\nweb_port = "80"\n', r"worker.web_port: expected `int`, got `str`"),
        ('[kafka]\nsecurity = "none"\n', r"kafka.security: invalid enum value 'none'"),
        ('[kafka]\nbootstrap = "localhost"\n', r"kafka: bootstrap is 'localhost'; expected host:port"),
        ('[kafka]\nbootstrap = "a:1, b:2"\n', r"expected host:port, several with commas"),
        ('[redis]\nurl = "localhost:6379"\n', r"redis: url is not one; expected redis://host:port/database"),
        ('[redis]\nurl = "redis://a:1,b:2"\n', r"redis: url is not one; expected .* redis\+cluster://host:port"),
        ('[redis]\nurl = "redis+sentinel://a:1,b:2"\n', r"redis: url is not one; expected .*/service"),
        ('[engine]\nmethod = "oracle"\n', r"engine: 'oracle' is not a method; there are: zero, median"),
        ('[engine]\nshadows = ["zero", "oracle"]\n', r"'oracle' is not a method"),
        ('[engine]\nwhat_if_method = "oracle"\n', r"engine.what_if_method: 'oracle' is not a method; there are: zero"),
        (
            '[engine.policy_by_site]\nkth = "oracle"\n',
            r"engine.policy_by_site.kth: 'oracle' is not a method; there are: zero",
        ),
        ("[serve.sites.kth]\nspeed = 0\n", r"queuecast.toml: serve.sites.kth.speed: expected `float` > 0.0"),
        ("[serve.sites.kth]\nsped = 2\n", r"queuecast.toml: serve.sites.kth: object contains unknown field `sped`"),
        ('[serve]\ntoken = "short"\n', r"queuecast.toml: serve.token: expected `str` of length >= 8"),
        ("[estimates]\nwalltimes = []\n", r"queuecast.toml: estimates.walltimes: expected `array` of length >= 1"),
        ('[kafka]\nsecurity = "sasl_plaintext"\nusername = "ada"\n', r"SASL needs both username and password"),
        ("[engine]\nparameters = 1\n", r"queuecast.toml: engine.parameters: expected a table for each method"),
        ("[engine.parameters]\nwindow = 0.1\n", r"queuecast.toml: engine.parameters: expected a table for each method"),
        ("[engine.parameters.oracle]\n", r"queuecast.toml: engine.parameters: no method 'oracle'; there are: zero"),
        ("[engine.parameters.qespera]\nwidow = 1\n", r"qespera.widow is not a parameter; there are: nearest"),
        ("[engine.parameters.qespera]\nwindow = 2\n", r"qespera.window is 2: expected `float` <= 1.0"),
        ('[engine.parameters.qespera]\nwindow = "wide"\n', r"qespera.window is 'wide': expected `float`, got `str`"),
    ],
)
def test_settings_file_error_names_expected_value(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_file(text)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("WORKER_WEB_PORT", "eighty", "environment: QUEUECAST_WORKER_WEB_PORT: expected `int`"),
        ("WORKER_WEB_PORT", "70000", "environment: QUEUECAST_WORKER_WEB_PORT: expected `int` <= 65535"),
        (
            "ENGINE_PARAMETERS",
            "{}",
            r"environment: QUEUECAST_ENGINE_PARAMETERS: can only be set in a file, as \[engine",
        ),
        ("SERVE_TOKNE", "a-long-secret", "QUEUECAST_SERVE_TOKNE is not a setting; is QUEUECAST_SERVE_TOKEN meant?"),
        ("SERVE_SITES", "{}", r"QUEUECAST_SERVE_SITES: can only be set in a file, as \[serve"),
        ("ESTIMATES_WALLTIMES", "600, soon", r"environment: QUEUECAST_ESTIMATES_WALLTIMES\[1\]: expected `float`"),
        ("ENGINE_PUBLISH_SHADOWS", "perhaps", "environment: QUEUECAST_ENGINE_PUBLISH_SHADOWS: expected `bool`"),
    ],
)
def test_invalid_environment_variable_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_environment(**{name: value})


def test_settings_file_missing_raises_user_error() -> None:
    with pytest.raises(UserError, match=r"gone.toml: cannot be read: No such file"):
        load_settings(Path("gone.toml"), {})
    Path("latin.toml").write_bytes(b'[kafka]\nprefix = "\xe4"\n')
    with pytest.raises(UserError, match=r"latin.toml: is not TOML"):
        load_settings(Path("latin.toml"), {})


@pytest.mark.parametrize("url", ["redis://h", "redis://127.0.0.1:6379/0", "rediss://u:p%20w@[::1]:6379/3?protocol=3"])
def test_valid_redis_url_is_accepted(url: str) -> None:
    assert from_environment(REDIS_URL=url).redis.url == url


@pytest.mark.parametrize("bootstrap", ["a:1", "a.b-c:9092,[::1]:9093", "10.0.0.1:1,10.0.0.2:2"])
def test_valid_bootstrap_addresses_are_accepted(bootstrap: str) -> None:
    settings = from_environment(KAFKA_BOOTSTRAP=bootstrap)
    assert settings.kafka.client_options()["bootstrap_servers"] == bootstrap.split(",")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SEVRE_TOKEN", "is QUEUECAST_SERVE_TOKEN meant[?]"),
        ("KAFAK_PASSWORD", "is QUEUECAST_KAFKA_PASSWORD meant[?]"),
        ("FOO_BAR", "they are QUEUECAST_SECTION_FIELD, of kafka, .*"),
    ],
)
def test_environment_variable_without_section_is_rejected(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"^environment: QUEUECAST_{name} is not a setting; {meant}$"):
        from_environment(**{name: SECRET})


def test_known_non_setting_variables_are_ignored() -> None:
    others = {"CONFIG": "", "CACHE": "/c", "DEBUG": "1", "UP_OPEN": "1", "PAGE_SERVICE_HOST": "h", "PAGE_PORT": "tcp:"}
    assert from_environment(**others) == Settings()


@pytest.mark.parametrize(
    "environment",
    [
        {"REDIS_URL": f"redis://:{SECRET}@h:port/0"},
        {"REDIS_URL": f"http://:{SECRET}@h:1/0"},
        {"REDIS_URL": f"redis://:a/{SECRET}@h:1/0"},
        {"KAFKA_PASSWORD": SECRET, "KAFKA_SECURITY": "sasl_tls"},
        {"REDIS_PASSWORD": SECRET, "KAFKA_PASSWORD": SECRET, "WORKER_WEB_PORT": "x"},
    ],
)
def test_settings_errors_hide_secrets(environment: dict[str, str]) -> None:
    with pytest.raises(UserError) as error:
        from_environment(**environment)
    assert SECRET not in str(error.value)


def test_settings_text_hides_secrets() -> None:
    settings = from_environment(KAFKA_PASSWORD=SECRET, REDIS_PASSWORD=SECRET, REDIS_URL=f"redis://u:{SECRET}@h:1/0")
    for shown in (repr(settings), str(settings.redis), f"{settings.kafka}"):
        assert SECRET not in shown
        assert "***" in shown
    assert "bootstrap='127.0.0.1:9092'" in repr(settings)


def options(**fields: Any) -> dict[str, Any]:
    return msgspec.convert({"kafka": fields}, Settings).kafka.client_options()


def test_kafka_client_options_follow_settings() -> None:
    plain = options(bootstrap="a:1,b:2")
    assert plain["bootstrap_servers"] == ["a:1", "b:2"]
    assert plain["security_protocol"] == "PLAINTEXT"
    assert not {"ssl_context", "sasl_mechanism"} & set(plain)
    sasl = options(security="sasl_plaintext", username="ada", password=SECRET)
    assert (sasl["security_protocol"], sasl["sasl_mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert (sasl["sasl_plain_username"], sasl["sasl_plain_password"]) == ("ada", SECRET)
    both = options(security="sasl_tls", username="ada", password=SECRET)
    assert both["security_protocol"] == "SASL_SSL"
    assert both["ssl_context"].check_hostname
    assert options(security="tls")["security_protocol"] == "SSL"


def test_unusable_certificate_raises_user_error() -> None:
    with pytest.raises(UserError, match="ca_file, cert_file or key_file cannot be used"):
        options(security="tls", ca_file="gone.pem")
    Path("no.pem").write_text("not a certificate")
    with pytest.raises(UserError, match="cannot be used"):
        options(security="tls", cert_file="no.pem")


def test_worker_name_defaults_to_host_and_port() -> None:
    assert from_environment(WORKER_INSTANCE="blue").worker.name == "blue"
    assert from_environment(WORKER_WEB_PORT="7001").worker.name.endswith("-7001")


def test_settings_import_loads_no_heavy_modules() -> None:
    program = """
import sys
from streams.settings import load_settings
load_settings(environment={"QUEUECAST_ENGINE_METHOD": "policy", "QUEUECAST_ENGINE_RUN_SHADOWS": "gibbons"})
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "models.engine.settings" in loaded
    assert not loaded & {"numba", "scipy", "models.method", "models.engine.engine", "faust", "aiokafka"}
