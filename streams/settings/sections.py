"""What can be set, tokens among it: a class for each section, with what each field means and its default."""

import os
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
from streams.errors import NotUnderstood, UserError, place_and_problem
from streams.text.toml import read_toml

S = TypeVar("S")

Rights = Literal["rank", "own", "all"]

PLACEHOLDER = re.compile(
    r"\W*(change[-_ ]?(me|it|this)|(your|my|the|some|a)?[-_ ]?(password|passwd|secret|token)([-_ ]?here)?|placeholder"
    r"|example|default|todo|tbd|none|null|x{3,}|\.{3,}|…+|\*{3,}|0{3,}|1234\d*)\W*|<.*>|\$\w+|\$\{.*\}|\{\{.*\}\}",
    re.IGNORECASE,
)
"""What examples have in the place of a secret, and templates that nobody filled in."""


SECRETS = ("password", "token", "secret")  # fields that are not shown


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A section; as text, it does not show its secrets."""

    def __repr__(self) -> str:
        values = msgspec.structs.asdict(self)
        shown = {name: "***" if name in SECRETS and value else value for name, value in values.items()}
        fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({re.sub('(?<=://)[^/@]*@', '***@', fields)})"


class ServeToken(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token. `rights`: `rank` (sites, estimates, waits, rankings, accuracy), `own` (the same, and the jobs of `user`,
    nobody else's), or `all`.
    """

    token: Annotated[str, Meta(min_length=8)]
    rights: Rights = "all"
    user: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


def check_secret(place: str, value: str | None) -> None:
    """Make sure that a secret is not an example's. Raises UserError: it is; the value is not shown."""
    if value is not None and PLACEHOLDER.fullmatch(value):
        raise NotUnderstood(f"{place}: this is an example's, which everybody knows; set one of your own")


def check_tokens(place: str, tokens: dict[str, ServeToken]) -> None:
    """Make sure that each token is a secret of its own, and that `own` says whose. Raises UserError: one is not so."""
    names: dict[str, str] = {}
    for name, token in tokens.items():
        check_secret(f"{place}.{name}", token.token)
        if (token.rights == "own") != (token.user is not None):
            raise NotUnderstood(f'{place}.{name}: rights = "own" needs a user, and other rights take none')
        if (other := names.setdefault(token.token, name)) != name:
            raise NotUnderstood(f"{place}: {other} and {name} have the same token; nobody could tell them apart")


def read_tokens(path: Path) -> dict[str, ServeToken]:
    """The tokens in a TOML file, a table a name. Raises UserError: it cannot be read or is wrong; none is shown."""
    found = checked_tables(path, "", read_toml(path), ServeToken)
    if not found:
        raise NotUnderstood(f"{path}: there are no tokens in it; expected a table for each, [NAME] token = …")
    return found


def checked_tables(path: Path, place: str, tables: Mapping[str, Any], kind: type[S]) -> dict[str, S]:
    """Each of these tables as what it is to be; by itself msgspec does not name the one that is wrong. Raises
    UserError: names the file, the place in it, the table and the field.
    """
    found = {}
    for name, values in tables.items():
        try:
            found[name] = msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            within, problem = place_and_problem(error)
            raise NotUnderstood(f"{path}: {'.'.join(filter(None, (place, name, within)))}: {problem}") from None
    return found


Port = Annotated[int, Meta(ge=1, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
BOOTSTRAP_MS = 5000  # milliseconds within which a broker must answer when a client is made


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        """The TLS context to connect with; None where there is no TLS. Raises UserError: a certificate or key cannot be
        read.
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
    """Where Redis is, or what speaks as it does: `url` is one of

    - `redis://host:port/database`
    - `redis+sentinel://host:port,host:port/service/database`: sentinels, who name the primary of the service
    - `redis+cluster://host:port,host:port`: some nodes of a Redis Cluster

    With TLS each begins with `rediss`, and is checked against `ca_file`. Sentinels may ask for a password of their own.
    """

    url: str = "redis://127.0.0.1:6379/0"
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    ca_file: str | None = None
    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)] = "queuecast"


class WorkerSettings(Section, frozen=True, kw_only=True):
    """How a worker runs.

    `processes` share its sites: as many as there are cores where it is not set, and no more than there are partitions.
    The web port serves /metrics of all of them, on loopback unless `web_host` says otherwise. State and offset are
    stored every `checkpoint_events` events of a partition, or after `checkpoint_seconds`. `instance` is the worker's
    lasting name in its group, followed by a process's number where there are several: who comes back under it goes on
    within seconds; who is silent for `session_seconds` has lost its partitions to others. `partition_sites` bounds the
    sites of a partition: events of further ones go to the dead letters, so that misspelt or hostile names cannot fill
    the memory. `metric_sites` bounds the site label.

    Predictions that leave more than `late_seconds` after their event came to the broker are marked late. At its start
    a worker waits `start_seconds` for servers that cannot be reached. `log_format` is text, for people, or json.
    """

    web_host: str = "127.0.0.1"
    web_port: Port = 6066
    processes: Annotated[int, Meta(ge=1, le=256)] | None = None
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

    def shared_by(self, partitions: int) -> int:
        """How many processes share so many partitions: one without any would be idle."""
        return min(self.processes or cores(), partitions)


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

    A site's are renewed at most every `seconds`, if since then a `change` of its processors' share was taken, given
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
    most_queues: Positive = MOST_QUEUES


class QuestionSettings(Section, frozen=True, kw_only=True):
    """How much a worker does for those who ask.

    While events wait, questions have a `share` of the worker's time; without, they may have all of it. At most
    `waiting` questions wait, at most `waiting_each` of one asker; askers take turns. The oldest that exceeds this,
    each that has waited for `patience_seconds`, and each whose asker waits no longer, is answered by a standing
    estimate where one fits, else refused.
    """

    share: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.25
    waiting: Positive = 1000
    waiting_each: Positive = 250
    patience_seconds: Annotated[float, Meta(gt=0.0, le=10.0)] = 1.0


class ServeSettings(Section, frozen=True, kw_only=True):
    """The HTTP service: where it listens, who may ask it, and the sites' speeds.

    `token` opens everything. `tokens`, `[serve.tokens.NAME]` in the file, have rights of their own; more of them are in
    `tokens_file`, a table for each name. Both files are read again when they change. Without any token the service is
    there for this machine only. `hosts` are the names under which browsers may reach it, beside this machine's own. A
    proxy that knows its users names them in `user_header`, which is believed from the addresses `user_header_from`
    alone: who comes so may see what is of that user.

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
    user_header: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+$")] | None = None
    user_header_from: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    requests_per_minute: Positive = 1200
    client_connections: Positive = 100
    header_seconds: Annotated[float, Meta(gt=0.0, le=600.0)] = 10.0

    def all_tokens(self) -> dict[str, ServeToken]:
        """The tokens by name, those of `tokens_file` as they are now. Raises UserError: the file cannot be read, or a
        token is not one.
        """
        found = dict(self.tokens)
        if self.tokens_file is not None:
            found |= read_tokens(Path(self.tokens_file))
        if self.token is not None:
            found["token"] = ServeToken(token=self.token)
        check_tokens("serve.tokens", found)
        return found


class NotifySettings(Section, frozen=True, kw_only=True):
    """Notices of jobs that queue, `queuecast notify`.

    They are sent to the address `webhook`, signed with `secret`, and tried again for `retry_seconds`. A job is told to
    be about to start `before_seconds` before it is expected to. `name` tells apart what several such processes told.
    Where there is a `web_port`, it shows Prometheus `/metrics` there.
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
    """Everything that can be set."""

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
