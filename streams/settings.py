"""Settings: one object, from defaults, a TOML file and the environment, each over the one before.

A field `bootstrap` of section `kafka` is `[kafka] bootstrap = …` in the file and QUEUECAST_KAFKA_BOOTSTRAP in the
environment. The file is the one QUEUECAST_CONFIG names, else `queuecast.toml` in this directory, where there is one.
Methods' parameters, `[engine.parameters.METHOD]`, are set in the file only.
"""

import os
import re
import socket
import ssl
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from models.engine.settings import EngineSettings
from models.plugins import Registry
from models.ranking import SiteSettings
from models.registry import METHODS, RUN_METHODS, check_parameters
from models.site.shapes import WALLTIMES
from streams.errors import UserError, place_and_problem
from streams.tokens import ServeToken, check_secret, check_tokens, read_tokens

PREFIX = "QUEUECAST"
DEFAULT_FILE = Path("queuecast.toml")

SECRETS = ("password", "token")
"""Fields that are not shown."""

Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1)]


BOOTSTRAP_MS = 5000
"""Milliseconds within which a broker must answer when a client is made."""

_HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_ADDRESSES = re.compile(rf"{_HOST}:\d{{1,5}}(,{_HOST}:\d{{1,5}})*")
_INJECTED = re.compile(r"_SERVICE_(HOST|PORT)|_PORT$|(?<!WEB)_PORT_")
"""Variables that Kubernetes makes for services, which may be named as a section is."""

_REDIS_URL = re.compile(rf"rediss?://([^@/\s]*@)?{_HOST}(:\d{{1,5}})?(/\d*)?(\?\S*)?")


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section; as text, it does not show its secrets."""

    def __repr__(self) -> str:
        values = msgspec.structs.asdict(self)
        shown = {name: "***" if name in SECRETS and value else value for name, value in values.items()}
        fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({re.sub('(?<=://)[^/@]*@', '***@', fields)})"


class KafkaSettings(Section, frozen=True, kw_only=True):
    """Where Kafka is and how to enter.

    `bootstrap`: host:port, several with commas. `prefix` begins every topic's name and the consumer group's.
    `security`: plaintext, tls, sasl_plaintext or sasl_tls. SASL takes `mechanism`, `username` and `password`; TLS takes
    `ca_file` (the system's authorities where it is not set) and, for a client's certificate, `cert_file`, `key_file`.
    """

    bootstrap: str = "127.0.0.1:9092"
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]*$", max_length=100)] = "queuecast."
    security: Literal["plaintext", "tls", "sasl_plaintext", "sasl_tls"] = "plaintext"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name for `security`."""
        return {"tls": "SSL", "sasl_tls": "SASL_SSL"}.get(self.security, self.security.upper())

    @property
    def sasl(self) -> bool:
        """Whether a name and a password are asked for."""
        return self.security.startswith("sasl")

    def tls_context(self) -> ssl.SSLContext | None:
        """The TLS context to connect with; None where there is no TLS.

        Raises:
            UserError: a certificate or key cannot be read.
        """
        if not self.security.endswith("tls"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file, password="")  # rather fail than ask
        except OSError as error:
            raise UserError(f"kafka: ca_file, cert_file or key_file cannot be used: {error}") from None
        return context

    def client_options(self) -> dict[str, Any]:
        """Arguments for kafka-python's clients."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap.split(","),
            "bootstrap_timeout_ms": BOOTSTRAP_MS,
            "security_protocol": self.protocol,
        }
        if context := self.tls_context():
            options["ssl_context"] = context
        if self.sasl:
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options

    def async_options(self) -> dict[str, Any]:
        """Arguments for aiokafka's clients."""
        options = self.client_options()
        del options["bootstrap_timeout_ms"]
        return options


class TopicSettings(Section, frozen=True, kw_only=True):
    """How the topics are made: partitions (the most workers that can share the sites), copies, and hours kept."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 12
    replication: Annotated[int, Meta(ge=1, le=32)] = 1
    events_hours: Positive = 24 * 14
    predictions_hours: Positive = 24 * 7
    dead_letters_hours: Positive = 24 * 30
    estimates_hours: Positive = 24


class RedisSettings(Section, frozen=True, kw_only=True):
    """Where Redis is: `url` is redis://host:port/database, or rediss:// for TLS, checked against `ca_file`."""

    url: str = "redis://127.0.0.1:6379/0"
    username: str | None = None
    password: str | None = None
    ca_file: str | None = None
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)] = "queuecast"


class WorkerSettings(Section, frozen=True, kw_only=True):
    """How a worker runs.

    The web port serves /metrics, on loopback unless `web_host` says otherwise. State and offset are stored every
    `checkpoint_events` events of a partition, or after `checkpoint_seconds`. `instance` is the worker's lasting name in
    its group: a worker that comes back under it goes on within seconds; one that is silent for `session_seconds` has
    lost its partitions to others. `partition_sites` bounds the sites of a partition: events of further ones go to the
    dead letters, so that misspelt or hostile names cannot fill the memory. `metric_sites` bounds the site label.

    Predictions that leave more than `late_seconds` after their event came to the broker are marked late. At its start
    a worker waits `start_seconds` for servers that cannot be reached. `log_format` is text, for people, or json.
    """

    web_host: str = "127.0.0.1"
    web_port: Port = 6066
    instance: str | None = None
    session_seconds: Annotated[float, Meta(ge=6, le=80)] = 60.0
    checkpoint_events: Positive = 1000
    checkpoint_seconds: Annotated[float, Meta(gt=0)] = 2.0
    partition_sites: Positive = 200
    metric_sites: Positive = 500
    late_seconds: Annotated[float, Meta(gt=0)] = 60.0
    start_seconds: Annotated[float, Meta(ge=0)] = 60.0
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def name(self) -> str:
        """`instance`, or else the host and web port, which no other worker shares."""
        return self.instance or f"{socket.gethostname()}-{self.web_port}"


class SitesSettings(Section, frozen=True, kw_only=True):
    """Which sites there may be, and who may speak for them.

    `allowed` are names or patterns (`*`, `?`, `[a-c]`); none given: every name is. Events of other sites go to the dead
    letters. Sites in `own_topic` have a topic of events to themselves, `PREFIXevents.SITE`, so that Kafka's permissions
    say who may write for them; on the shared topic they are refused. They are allowed in any case, and take no place
    of `worker.partition_sites`. A site that has been silent for `forget_days` by the broker's clock may lose its place
    to a new one when its partition is full.
    """

    allowed: tuple[str, ...] = ()
    own_topic: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}$")], ...] = ()
    forget_days: Annotated[float, Meta(gt=0.0)] = 400.0


class EstimateSettings(Section, frozen=True, kw_only=True):
    """What estimates stand on the topic `estimates`, and how they are kept fresh.

    One a site for each combination of a size (the powers of two up to the site's processors, at most `most_cpus`), a
    walltime of `walltimes` (seconds) and a queue of `queues` (none named: the open ones, at most `most_queues`).

    A site's are made anew at most every `seconds`, if since then a `change` of its processors' share was taken, given
    back, asked for or withdrawn, or as many of its jobs came and went; and in any case every `oldest_seconds`. That
    takes at most the `share` of the worker's time. `enabled` false: there are none.
    """

    enabled: bool = True
    seconds: Annotated[float, Meta(ge=0.1)] = 30.0
    oldest_seconds: Annotated[float, Meta(ge=1.0)] = 900.0
    change: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.01
    share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.05
    walltimes: Annotated[tuple[Annotated[float, Meta(gt=0.0, le=1e8)], ...], Meta(min_length=1)] = WALLTIMES
    most_cpus: Positive = 1 << 20
    queues: tuple[str, ...] = ()
    most_queues: Positive = 8


class ServeSettings(Section, frozen=True, kw_only=True):
    """The HTTP service: where it listens, who may ask it, and the sites' speeds.

    `token` opens everything. `tokens`, `[serve.tokens.NAME]` in the file, have rights of their own; more of them are in
    `tokens_file`, a table for each name. Both files are read again when they change. Without any token the service is
    there for this machine only. `hosts` are the names under which browsers may reach it, beside this machine's own.

    A client (a token, or an address without one) may ask `requests_per_minute`; an address may have
    `client_connections`, and has `header_seconds` to say what it wants. `answer_seconds` is how long a worker's answer
    is waited for.
    """

    web_host: str = "127.0.0.1"
    web_port: Port = 6067
    token: Annotated[str, Meta(min_length=8)] | None = None
    answer_seconds: Annotated[float, Meta(gt=0.0, le=60.0)] = 2.0
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    sites: dict[str, SiteSettings] = {}
    tokens: dict[str, ServeToken] = {}
    tokens_file: Annotated[str, Meta(min_length=1)] | None = None
    hosts: tuple[str, ...] = ()
    requests_per_minute: Positive = 1200
    client_connections: Positive = 100
    header_seconds: Annotated[float, Meta(gt=0.0, le=600.0)] = 10.0

    def all_tokens(self) -> dict[str, ServeToken]:
        """The tokens by name, those of `tokens_file` as they are now.

        Raises:
            UserError: the file cannot be read, or a token is not one.
        """
        found = dict(self.tokens)
        if self.tokens_file is not None:
            found |= read_tokens(Path(self.tokens_file))
        if self.token is not None:
            found["token"] = ServeToken(token=self.token)
        check_tokens("serve.tokens", found)
        return found


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    sites: SitesSettings = SitesSettings()
    redis: RedisSettings = RedisSettings()
    worker: WorkerSettings = WorkerSettings()
    engine: EngineSettings = EngineSettings()
    estimates: EstimateSettings = EstimateSettings()
    serve: ServeSettings = ServeSettings()


SECTIONS: dict[str, type[msgspec.Struct]] = {field.name: field.type for field in msgspec.structs.fields(Settings)}
"""The sections by name."""


def load_settings(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in force.

    Raises:
        UserError: names the file or variable, the field, and what was expected.
    """
    environment = os.environ if environment is None else environment
    file = settings_file(file, environment)
    values = _from_file(file) if file else {}
    settings = _convert(values, str(file or DEFAULT_FILE))
    settings = _convert(_over(settings, _from_environment(environment)), "environment")
    _check(settings)
    return settings


def settings_file(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Path | None:
    """The file that settings are read from: the one given, the one that the environment names, or the one here."""
    environment = os.environ if environment is None else environment
    if file is None and (named := environment.get(f"{PREFIX}_CONFIG")):
        return Path(named)
    return file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def _from_file(path: Path) -> dict[str, dict[str, Any]]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not TOML: {error}") from None
    for name, section in values.items():
        known = SECTIONS.get(name)
        if known is None or not isinstance(section, dict):
            raise UserError(f"{path}: [{name}] is not a section; there are: {', '.join(SECTIONS)}")
        names = [field.name for field in msgspec.structs.fields(known)]
        for field in section:
            if field not in names:
                raise UserError(f"{path}: [{name}] {field} is not a setting; there are: {', '.join(names)}")
    _check_parameters(path, values.get("engine", {}).get("parameters", {}))
    for name, kind in (("sites", SiteSettings), ("tokens", ServeToken)):
        _check_tables(path, f"serve.{name}", values.get("serve", {}).get(name, {}), kind)
    return values


def _check_tables(path: Path, place: str, tables: Any, kind: type[msgspec.Struct]) -> None:
    """Make sure of each of these tables; by itself msgspec does not name the one that is wrong."""
    for name, values in tables.items() if isinstance(tables, dict) else ():
        try:
            msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            within, problem = place_and_problem(error)
            raise UserError(f"{path}: {'.'.join(filter(None, (place, name, within)))}: {problem}") from None


def _check_parameters(path: Path, parameters: Any) -> None:
    if not (isinstance(parameters, dict) and all(isinstance(values, dict) for values in parameters.values())):
        raise UserError(f"{path}: engine.parameters: expected a table for each method, [engine.parameters.METHOD]")
    for method, values in parameters.items():
        try:
            check_parameters(method, values)
        except ValueError as error:
            raise UserError(f"{path}: engine.parameters: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    _check_names(environment)
    values: dict[str, dict[str, Any]] = {}
    for name, section in SECTIONS.items():
        for field in msgspec.structs.fields(section):
            variable = f"{PREFIX}_{name}_{field.name}".upper()
            text = environment.get(variable)
            kind = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
            if text is not None and get_origin(kind) is dict:
                raise UserError(f"environment: {variable}: can only be set in a file, as [{name}.{field.name}.…]")
            if text is not None:
                listed = get_origin(kind) is tuple
                values.setdefault(name, {})[field.name] = _words(text) if listed else text
    return values


def _check_names(environment: Mapping[str, str]) -> None:
    """Make sure that no variable means to be a setting and is none, lest a misspelt token leaves a service open."""
    for name, section in SECTIONS.items():
        begin = f"{PREFIX}_{name}_".upper()
        known = [f"{begin}{field.name}".upper() for field in msgspec.structs.fields(section)]
        for variable in environment:
            if variable.startswith(begin) and variable not in known and not _INJECTED.search(variable):
                nearest = get_close_matches(variable, known, 1)
                meant = f"is {nearest[0]} meant?" if nearest else f"there are: {', '.join(known)}"
                raise UserError(f"environment: {variable} is not a setting; {meant}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _over(settings: Settings, values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sections = {name: msgspec.structs.asdict(getattr(settings, name)) for name in SECTIONS}
    return {name: sections[name] | values.get(name, {}) for name in sections}


def _convert(values: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=source != "environment")
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error)
        if source == "environment":
            place = f"{PREFIX}_{place}".replace(".", "_").upper()
        raise UserError(f"{source}: {place}: {problem}") from None


def _check(settings: Settings) -> None:
    _check_methods(settings.engine)
    if not _ADDRESSES.fullmatch(settings.kafka.bootstrap):
        raise UserError(f"kafka: bootstrap is {settings.kafka.bootstrap!r}; expected host:port, several with commas")
    if not _REDIS_URL.fullmatch(settings.redis.url):  # which may hold a password, and is not shown
        raise UserError("redis: url is not one; expected redis://host:port/database, or rediss://… for TLS")
    if settings.kafka.sasl and not (settings.kafka.username and settings.kafka.password):
        raise UserError("kafka: SASL needs both username and password")
    check_secret("kafka.password", settings.kafka.password)
    check_secret("redis.password", settings.redis.password or urlsplit(settings.redis.url).password)
    check_secret("serve.token", settings.serve.token)
    check_tokens("serve.tokens", settings.serve.tokens)


def _check_methods(engine: EngineSettings) -> None:
    """Make sure that there are the methods that are named. None of ours is imported for that."""
    named: list[tuple[str, Registry[Any], str]] = [
        *(("engine", METHODS, name) for name in engine.methods),
        ("engine.what_if", METHODS, engine.what_if or engine.method),
        *((f"engine.policies.{site}", METHODS, name) for site, name in engine.policies.items()),
        *(("engine", RUN_METHODS, name) for name in engine.run_methods),
    ]
    for field, registry, name in named:
        try:
            registry.check(name)
        except ValueError as error:
            raise UserError(f"{field}: {error}") from None
