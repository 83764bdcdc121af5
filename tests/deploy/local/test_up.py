import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from deploy.local import up
from deploy.local.stack import LocalStack, Ports, Progress, StackError
from deploy.local.stack.process import Server
from deploy.local.up import (
    MIN_STEADY_S,
    RESTART_PAUSES_S,
    USUAL_PORTS,
    ServerRestarter,
    WorkerProcess,
    as_toml,
    data_home,
    keep_running,
    settings_in,
    startup_progress,
    usual_where_free,
)
from models.engine.settings import EngineSettings
from streams.settings import KafkaSettings, RedisSettings, Settings, TopicSettings, WorkerSettings, load_settings

CHANGED = Settings(
    kafka=KafkaSettings(bootstrap="127.0.0.1:1", prefix="p.", security="sasl_tls", username="ü\"'\n", password="\\"),
    topics=TopicSettings(partitions=3, replication=3),
    redis=RedisSettings(url="redis://127.0.0.1:2/0", prefix="r"),
    worker=WorkerSettings(checkpoint_seconds=0.25),
    engine=EngineSettings(method="median", shadows=("zero",), publish_shadows=True),
)


@pytest.mark.parametrize("settings", [Settings(), CHANGED])
def test_settings_round_trip_through_toml(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "queuecast.toml"
    file.write_text(as_toml(settings), encoding="utf-8")
    assert load_settings(file, {}) == settings


def test_up_replaces_the_servers_of_the_settings(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path)
    settings = settings_in(stack, CHANGED)
    assert settings.kafka == KafkaSettings(bootstrap=stack.kafka.bootstrap, prefix="p.")
    assert settings.redis == RedisSettings(url=stack.redis.url, prefix="r")
    assert settings.topics == TopicSettings(partitions=3, replication=1)
    assert (settings.engine, settings.worker) == (CHANGED.engine, CHANGED.worker)


def test_up_uses_default_ports_if_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.local.up.is_free", lambda port: port != 6379)
    assert usual_where_free(Ports()) == (
        Ports(kafka=9092, serve=6067),
        ["Port 6379 is in use, so redis uses another one."],
    )
    given = Ports(kafka=1, redis=2, serve=3)
    assert usual_where_free(given) == (given, [])


def test_up_default_ports_are_those_of_the_settings() -> None:
    ours = Settings()
    places = (ours.kafka.bootstrap, ours.redis.url.removesuffix("/0"), f":{ours.serve.web_port}")
    assert [int(place.rpartition(":")[2]) for place in places] == list(USUAL_PORTS.values())


def test_data_home_follows_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert data_home() == Path("/x/queuecast")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert data_home() in (Path("/h/.local/share/queuecast"), Path("/h/Library/Application Support/queuecast"))


def test_up_worker_ignores_environment_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECAST_KAFKA_SECURITY", "tls")
    monkeypatch.setenv("QUEUECAST_CACHE", "/cache")
    worker = WorkerProcess(tmp_path / "worker-7", CHANGED, port=4711)
    worker.directory.mkdir()
    command = worker._prepare()
    assert "-uQUEUECAST_KAFKA_SECURITY" in command
    assert "-uQUEUECAST_CACHE" not in command
    assert command[command.index(sys.executable) :][1:3] == ["-m", "queuecast"]
    settings = load_settings(Path(command[-2]), {})
    own = msgspec.structs.replace(CHANGED.worker, web_port=4711, instance="worker-7")
    assert settings == msgspec.structs.replace(CHANGED, worker=own)
    assert Path(command[-2]).stat().st_mode & 0o077 == 0


def test_progress_without_terminal_is_one_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    with startup_progress() as show:
        for done in (0, 5, 10):
            show(Progress("fetching", done, 10))
        show(Progress("starting"))
    assert capsys.readouterr().err == "fetching\nstarting\n"


# Waiting for the worker's sites.


@pytest.mark.parametrize(
    ("there", "looks", "found"),
    [(True, [True], True), (True, [False, False, True], True), (True, [False], False), (False, [False], False)],
)
def test_up_waits_for_sites_of_running_workers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, looks: list[bool], found: bool
) -> None:
    now = [0.0]

    class Joining(WorkerProcess):
        running = there

    def pass_a_second(_: float) -> None:
        now[0] += 1.0

    monkeypatch.setattr(up, "answers", lambda page: looks[min(int(now[0]), len(looks) - 1)])
    monkeypatch.setattr(up, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pass_a_second))
    assert Joining(tmp_path / "worker", Settings()).await_sites(seconds=60.0) == found
    assert now[0] == (len(looks) - 1 if found else 60.0 if there else 0.0)


# Restart of servers.


class Failing(Server):
    """A server that runs or not, as set by the test."""

    name = "it"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {})
        self.there = True
        self.broken = False
        self.starts = 0

    @property
    def running(self) -> bool:
        return self.there

    def start(self) -> None:
        self.starts += 1
        if self.broken:
            raise StackError("it cannot start")
        self.there = True

    def _prepare(self) -> Sequence[str]:
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError


class Watch:
    """A restarter of a failing server, and its clock."""

    def __init__(self, directory: Path) -> None:
        self.server = Failing(directory)
        self.messages: list[str] = []
        self.now = 0.0
        self.keeper = ServerRestarter(self.server, self.messages.append, lambda: self.now)

    def started_after(self) -> float:
        """Return the seconds until the next start."""
        began, starts = self.now, self.server.starts
        while self.server.starts == starts:
            self.keeper.check()
            self.now += 0.5
        return self.now - 0.5 - began


def test_restarter_ignores_running_server(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    for _ in range(10):
        watch.keeper.check()
        watch.now += 1
    assert (watch.server.starts, watch.messages) == (0, [])


def test_restarter_restarts_server_after_growing_pauses(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    watch.server.there = False
    watch.server.broken = True
    assert [watch.started_after() for _ in range(6)] == [*RESTART_PAUSES_S, RESTART_PAUSES_S[-1]]
    assert watch.messages[:2] == [f"it ended, see {watch.server.log}; restarting in 1 s", "it cannot start"]
    watch.server.broken = False
    watch.started_after()
    assert watch.messages[-1] == "it restarted"


def test_restarter_resets_pause_after_steady_run(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    for _ in range(3):
        watch.server.there = False
        watch.started_after()
    watch.now += MIN_STEADY_S + 1
    watch.server.there = False
    assert watch.started_after() == RESTART_PAUSES_S[0]


def test_keep_running_checks_servers_until_interrupted(tmp_path: Path) -> None:
    servers = [Failing(tmp_path / "a"), Failing(tmp_path / "b")]
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_running(servers, print, sleep)
    assert [server.starts for server in servers] == [0, 0]
