"""All settings: a class for each section, with the meaning of each field and its default."""

import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from models.engine.settings import EngineSettings, SiteSettings
from models.site.shapes import MOST_QUEUES, WALLTIMES
from streams.errors import InvalidInput, UserError, place_and_problem
from streams.settings.usable_cpus import usable_cpus
from streams.text.toml import read_toml

S = TypeVar("S")

Rights = Literal["rank", "own", "all"]

PLACEHOLDER = re.compile(
    r"\W*(change[-_ ]?(me|it|this)|(your|my|the|some|a)?[-_ ]?(password|passwd|secret|token)([-_ ]?here)?|placeholder"
    r"|example|default|todo|tbd|none|null|x{3,}|\.{3,}|…+|\*{3,}|0{3,}|1234\d*)\W*|<.*>|\$\w+|\$\{.*\}|\{\{.*\}\}",
    re.IGNORECASE,
)
"""Placeholders for secrets in examples and unfilled templates."""


SECRETS = ("password", "token", "secret")  # fields that are not shown


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section; as text, it does not show its secrets."""

    def __repr__(self) -> str:
        values = msgspec.structs.asdict(self)
        shown = {name: "***" if name in SECRETS and value else value for name, value in values.items()}
        fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({re.sub('(?<=://)[^/@]*@', '***@', fields)})"


class ServeToken(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token with its rights.

    `rights` is `rank` (sites, estimates, waits, rankings, accuracy), `own` (the same, and only the jobs of `user`), or
    `all`.
    """

    token: Annotated[str, Meta(min_length=8)]
    rights: Rights = "all"
    user: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


def check_secret(place: str, value: str | None) -> None:
    """Check that a secret is not one of the examples in the documentation.

    Raises:
        UserError: it is; the value is not shown.
    """
    if value is not None and PLACEHOLDER.fullmatch(value):
        raise InvalidInput(f"{place}: this is a public example value; set one of your own")


def check_tokens(place: str, tokens: dict[str, ServeToken]) -> None:
    """Check that each token is a different secret, and that `own` has a user.

    Raises:
        UserError: a token is invalid.
    """
    names: dict[str, str] = {}
    for name, token in tokens.items():
        check_secret(f"{place}.{name}", token.token)
        if (token.rights == "own") != (token.user is not None):
            raise InvalidInput(f'{place}.{name}: rights = "own" needs a user, and other rights take none')
        if (other := names.setdefault(token.token, name)) != name:
            raise InvalidInput(f"{place}: {other} and {name} have the same token; each must be different")


def read_tokens(path: Path) -> dict[str, ServeToken]:
    """Read the tokens in a TOML file, one table for each name.

    Raises:
        UserError: the file cannot be read or is invalid; no token is shown.
    """
    found = checked_tables(path, "", read_toml(path), ServeToken)
    if not found:
        raise InvalidInput(f"{path}: the file contains no tokens; expected a table for each, [NAME] token = …")
    return found


def checked_tables(path: Path, place: str, tables: Mapping[str, Any], kind: type[S]) -> dict[str, S]:
    """Convert each table to its type; msgspec alone would not name the invalid one.

    Raises:
        UserError: names the file, the place in it, the table and the field.
    """
    found = {}
    for name, values in tables.items():
        try:
            found[name] = msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            within, problem = place_and_problem(error)
            raise InvalidInput(f"{path}: {'.'.join(filter(None, (place, name, within)))}: {problem}") from None
    return found


Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
BOOTSTRAP_MS = 5000  # milliseconds within which a broker must answer when a client is made


class KafkaSettings(Section, frozen=True, kw_only=True):
    """Connection to Kafka.

    `bootstrap` is host:port; separate several with commas. `prefix` begins every topic's name and the consumer group's.
    `security` is plaintext, tls, sasl_plaintext or sasl_tls. SASL uses `mechanism`, `username` and `password`. TLS uses
    `ca_file` (by default the system's authorities) and, for a client certificate, `cert_file` and `key_file`.
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
        """True if a user name and a password are required."""
        return self.security.startswith("sasl")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context to connect with; None without TLS.

        Raises:
            UserError: a certificate or key cannot be read.
        """
        if not self.security.endswith("tls"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file, password="")  # fail instead of prompting
        except OSError as error:
            raise UserError(f"kafka: ca_file, cert_file or key_file cannot be used: {error}") from None
        return context

    def client_options(self) -> dict[str, Any]:
        """Return arguments for kafka-python's clients."""
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
        """Return arguments for aiokafka's clients."""
        options = self.client_options()
        del options["bootstrap_timeout_ms"]
        return options


class TopicSettings(Section, frozen=True, kw_only=True):
    """Properties of new topics: partitions (the maximum number of worker processes), replication factor, retention."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 12
    replication: Annotated[int, Meta(ge=1, le=32)] = 1
    events_retention_hours: Positive = 24 * 14
    predictions_retention_hours: Positive = 24 * 7
    dead_letters_retention_hours: Positive = 24 * 30
    estimates_retention_hours: Positive = 24


class RedisSettings(Section, frozen=True, kw_only=True):
    """Connection to Redis, or to a compatible server.

    `url` is one of

    - `redis://host:port/database`
    - `redis+sentinel://host:port,host:port/service/database`: sentinels, which return the primary of the service
    - `redis+cluster://host:port,host:port`: some nodes of a Redis Cluster

    With TLS each begins with `rediss`, and is verified against `ca_file`. Sentinels may require a separate password.
    """

    url: str = "redis://127.0.0.1:6379/0"
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    ca_file: str | None = None
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)] = "queuecast"


class WorkerSettings(Section, frozen=True, kw_only=True):
    """Worker processes.

    `processes` share the partitions. Default: one for each CPU of the machine or of the quota of the
    container, at most one for each partition. `web_port` serves the
    `/metrics` of all processes, on loopback unless `web_host` names another address. A checkpoint stores state and
    offset every `checkpoint_events` events of a partition, or after `checkpoint_seconds`. `instance` is the static
    member name of the worker in its consumer group. A worker that restarts under its name resumes within seconds; after
    `session_timeout_seconds` without a heartbeat its partitions move to others. `max_sites_per_partition` bounds the
    memory that misspelt or hostile site names can take: events of further sites are rejected. `max_site_labels` bounds
    the cardinality of the site label.

    Predictions sent more than `late_after_seconds` after their event reached the broker are marked late. A starting
    worker retries unreachable servers for `startup_timeout_seconds`. `log_format` is `text` or `json`.
    """

    web_host: str = "127.0.0.1"
    web_port: Port = 6066
    processes: Annotated[int, Meta(ge=1, le=256)] | None = None
    instance: str | None = None
    session_timeout_seconds: Annotated[float, Meta(ge=6, le=80)] = 60.0
    checkpoint_events: Positive = 1000
    checkpoint_seconds: Annotated[float, Meta(gt=0)] = 2.0
    max_sites_per_partition: Positive = 200
    max_site_labels: Positive = 500
    late_after_seconds: Annotated[float, Meta(gt=0)] = 60.0
    startup_timeout_seconds: Annotated[float, Meta(ge=0)] = 60.0
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def name(self) -> str:
        """`instance`, or else the host and web port, which no other worker shares."""
        return self.instance or f"{socket.gethostname()}-{self.web_port}"

    def shared_by(self, partitions: int) -> int:
        """Return the number of processes for a number of partitions; a process without a partition would be idle."""
        return min(self.processes or usable_cpus(), partitions)


class SitesSettings(Section, frozen=True, kw_only=True):
    """Accepted sites.

    `allowed` lists names or patterns (`*`, `?`, `[a-c]`); empty: every name. Events of other sites are rejected. Each
    site in `dedicated_topics` has its own events topic, `PREFIXevents.SITE`, so that Kafka ACLs control who writes its
    events; its events on the shared topic are rejected. These sites are always allowed and do not count towards
    `worker.max_sites_per_partition`. In a full partition a new site replaces one without events for `idle_ttl_days`,
    by broker timestamps.
    """

    allowed: tuple[str, ...] = ()
    dedicated_topics: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}$")], ...] = ()
    idle_ttl_days: Annotated[float, Meta(gt=0.0)] = 400.0


class EstimateSettings(Section, frozen=True, kw_only=True):
    """The estimate grid on the topic `estimates`.

    The grid of a site has one estimate for each combination of a size, a walltime and a queue. Sizes are the powers of
    two up to the site's CPUs, at most `max_cpus`. `walltimes` are in seconds. `queues` defaults to the open queues, at
    most `max_queues`.

    A grid is refreshed after `refresh_seconds` if the share of CPUs allocated, freed, requested or withdrawn since then
    is at least `min_change`, or if that share of the jobs arrived or left; and always after `max_age_seconds`.
    Refreshes take at most `cpu_share` of the worker's time. `enabled = false` turns the grid off.
    """

    enabled: bool = True
    refresh_seconds: Annotated[float, Meta(ge=0.1)] = 30.0
    max_age_seconds: Annotated[float, Meta(ge=1.0)] = 900.0
    min_change: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.01
    cpu_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.05
    walltimes: Annotated[tuple[Annotated[float, Meta(gt=0.0, le=1e8)], ...], Meta(min_length=1)] = WALLTIMES
    max_cpus: Positive = 1 << 20
    queues: tuple[str, ...] = ()
    max_queues: Positive = MOST_QUEUES


class QuestionSettings(Section, frozen=True, kw_only=True):
    """Limits for questions to a worker.

    Questions take at most `cpu_share` of the worker's time while events are pending, else all of it. At most
    `max_pending` questions are queued, at most `max_pending_per_client` of one client; clients take turns. A question
    beyond these limits, or older than `max_wait_seconds` or its client's time-out, is answered from the estimate grid
    where a shape fits. Otherwise it is refused, the oldest first.
    """

    cpu_share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.25
    max_pending: Positive = 1000
    max_pending_per_client: Positive = 250
    max_wait_seconds: Annotated[float, Meta(gt=0.0, le=10.0)] = 1.0


class ServeSettings(Section, frozen=True, kw_only=True):
    """The HTTP service: address, authentication, limits, and the speed of each site.

    `token` grants all rights. `tokens`, `[serve.tokens.NAME]` in the file, have rights of their own; `tokens_file` has
    more of them, one table for each name. Both files are reloaded when they change. Without any token the service
    listens on loopback only. `hosts` are further host names for browsers. `user_header` is the header in which a
    reverse proxy sends the authenticated user; it is accepted only from the addresses in `user_header_from`. Such a
    user may read that user's jobs.

    A client (a token, or an address without one) may send `requests_per_minute`. An address may have
    `client_connections`, and must send its headers within `header_timeout_seconds`. A worker must answer within
    `answer_timeout_seconds`.
    """

    web_host: str = "127.0.0.1"
    web_port: Port = 6067
    token: Annotated[str, Meta(min_length=8)] | None = None
    answer_timeout_seconds: Annotated[float, Meta(gt=0.0, le=60.0)] = 2.0
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    sites: dict[str, SiteSettings] = {}
    tokens: dict[str, ServeToken] = {}
    tokens_file: Annotated[str, Meta(min_length=1)] | None = None
    user_header: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$")] | None = None
    user_header_from: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    requests_per_minute: Positive = 1200
    client_connections: Positive = 100
    header_timeout_seconds: Annotated[float, Meta(gt=0.0, le=600.0)] = 10.0

    def all_tokens(self) -> dict[str, ServeToken]:
        """Return the tokens by name, with the current ones of `tokens_file`.

        Raises:
            UserError: the file cannot be read, or a token is invalid.
        """
        found = dict(self.tokens)
        if self.tokens_file is not None:
            found |= read_tokens(Path(self.tokens_file))
        if self.token is not None:
            found["token"] = ServeToken(token=self.token)
        check_tokens("serve.tokens", found)
        return found


class NotifySettings(Section, frozen=True, kw_only=True):
    """Notices for pending jobs, `queuecast notify`.

    Notices are posted to the URL `webhook`, signed with `secret`, and retried for `retry_seconds`. `about_to_start` is
    sent `before_seconds` before the expected start. `name` identifies this process's own record of sent notices, where
    there are several. `web_port`, where it is set, serves Prometheus `/metrics`.
    """

    webhook: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    secret: Annotated[str, Meta(min_length=16)] | None = None
    retry_seconds: Annotated[float, Meta(ge=0.0)] = 3600.0
    before_seconds: Annotated[float, Meta(gt=0.0)] = 900.0
    name: Annotated[str, Meta(min_length=1, max_length=100)] = "notify"
    web_host: str = "127.0.0.1"
    web_port: Port | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    sites: SitesSettings = SitesSettings()
    redis: RedisSettings = RedisSettings()
    worker: WorkerSettings = WorkerSettings()
    engine: EngineSettings = EngineSettings()
    estimates: EstimateSettings = EstimateSettings()
    questions: QuestionSettings = QuestionSettings()
    serve: ServeSettings = ServeSettings()
    notify: NotifySettings = NotifySettings()


SECTIONS: dict[str, type[msgspec.Struct]] = {field.name: field.type for field in msgspec.structs.fields(Settings)}
"""The sections by name."""
