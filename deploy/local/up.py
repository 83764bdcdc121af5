"""Local stack, kept running: Kafka, Redis, a worker, the HTTP service and, if installed, Prometheus.

`overview` is the text that `queuecast up` prints when all are running.
"""

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import tomli_w
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn

from deploy.local.stack import LocalStack, OnProgress, Ports, Progress, Prometheus, StackError
from deploy.local.stack.locks import USER, password_in, write_private
from deploy.local.stack.process import LOOPBACK, Server, answers, ignore, is_free
from streams.broker.admin import create_topics
from streams.process.compile_progress import compile_progress
from streams.process.early_start import compiling_early
from streams.running import announced, starting
from streams.settings import PREFIX, SECTIONS, KafkaSettings, RedisSettings, Settings

CONFIG = "queuecast.toml"

RESTART_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Pauses in seconds before a server is restarted, after its first end, its second, and so on."""

JOINED_WITHIN_S = 60.0
"""Maximum time in seconds that the start waits until the worker's processes have partitions."""

MIN_STEADY_S = 60.0  # seconds after which the next end of a server counts as its first again


class Process(Server):
    """A queuecast command as a process, with its settings in a file in its directory.

    It ignores settings in the environment, because `settings` already contains those in force.
    """

    page: ClassVar[str]

    def __init__(
        self, directory: Path, settings: Settings, port: int | None = None, on_progress: OnProgress = ignore
    ) -> None:
        # The first start on a machine compiles. A worker reports that; the other commands wait until it is done.
        super().__init__(directory, {"port": port}, on_progress, ready_within=600.0)
        self._settings = settings

    @property
    def url(self) -> str:
        """Its main page."""
        return f"http://{self.address}{self.page}"

    def with_place(self, settings: Settings) -> Settings:
        """The settings with this process's host and port, and a worker's name."""
        place: dict[str, Any] = {"web_host": LOOPBACK, "web_port": self.port} | self._named()
        section = msgspec.structs.replace(getattr(settings, self.name), **place)
        return msgspec.structs.replace(settings, **{self.name: section})

    def _named(self) -> dict[str, str]:
        return {}

    def _prepare(self) -> Sequence[str]:
        config = self._write(CONFIG, as_toml(self.with_place(self._settings)))
        prefixes = tuple(f"{PREFIX}_{section}_".upper() for section in SECTIONS)
        without = [f"-u{name}" for name in os.environ if name.startswith(prefixes)]
        command = [sys.executable, "-m", "queuecast", "--config", str(config), self.name]
        return ["env", *without, f"TMPDIR={self.directory}", *command]

    def _ready(self) -> bool:
        return answers(self.url)


class WorkerProcess(Process):
    """A worker; the name of its directory is its name in the consumer group, with a number for each of several
    processes.
    """

    name = "worker"
    at_first = ": the first time it compiles for a minute or two"
    page = "/metrics"

    def _progress(self) -> str:
        return compile_progress() or ""

    def _named(self) -> dict[str, str]:
        return {"instance": self.directory.name}

    def await_sites(self, seconds: float = JOINED_WITHIN_S) -> bool:
        """Wait until each process of the worker has partitions, at most `seconds`; return whether they have.

        When a process joins, the group rebalances, so the others lose their partitions for a moment.
        """
        deadline = time.monotonic() + seconds
        while not (found := answers(f"http://{self.address}/readyz")) and self.running and time.monotonic() < deadline:
            time.sleep(0.1)
        return found


class ServeProcess(Process):
    """The HTTP service."""

    name = "serve"
    page = "/"


USUAL_PORTS = {"kafka": 9092, "redis": 6379, "serve": 6067}
"""Default ports, which the examples in the documentation use."""


def usual_where_free(ports: Ports) -> tuple[Ports, list[str]]:
    """Return the ports, with default ports where none are given and these are free, and a note for each port in use."""
    wanted = {name: port for name, port in USUAL_PORTS.items() if getattr(ports, name) is None}
    free = {name: port for name, port in wanted.items() if is_free(port)}
    taken = [f"Port {wanted[name]} is in use, so {name} uses another one." for name in wanted.keys() - free.keys()]
    return ports._replace(**free), sorted(taken)


def up(base: Settings, data_dir: Path, ports: Ports, open_to_all: bool = False) -> None:
    """Run the stack in a directory until SIGINT or SIGTERM; restart each server that ends.

    Args:
        base: the settings in force; the addresses of this stack's servers replace those in them.
        open_to_all: whether every user of this machine may use Kafka and the page without a password.

    Raises:
        StackError: a server cannot be started, or a required program is missing.
        UserError: the topics cannot be created.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    ports, notes = usual_where_free(ports)
    with ExitStack() as running:
        with starting(), startup_progress() as on_progress, compiling_early(base.engine):
            stack = LocalStack(
                data_dir,
                prometheus=Prometheus.available(),
                ports=ports,
                locked=True,
                open_kafka=open_to_all,
                redis_keys=f"{base.redis.prefix}:*",
                on_progress=on_progress,
            )
            settings = settings_in(stack, base if open_to_all else with_token(base, stack.data_dir))
            worker = WorkerProcess(stack.data_dir / "worker", settings, ports.web, on_progress)
            serve = ServeProcess(stack.data_dir / "serve", settings, ports.serve, on_progress)
            if stack.prometheus:
                targets = {"queuecast": [worker.address], "queuecast-serve": [serve.address]}
                stack.prometheus.scrape(targets, serve.url)
            every = (stack.redis, stack.kafka, stack.prometheus, worker, serve)
            servers = [server for server in every if server is not None]
            for server in servers:  # report a port in use now, and reserve the others
                running.callback(server.kill)
                server.hold()
            running.enter_context(stack)
            create_topics(settings)
            # The worker compiles at the first start. Until then the service answers what it can, and why not the rest.
            running.enter_context(serve)
            config = stack.data_dir / CONFIG
            serve_settings = serve.with_place(settings)
            write_private(config, f"# Written by `queuecast up` at each start.\n\n{as_toml(serve_settings)}")
            found = running.enter_context(announced(config))
            on_progress(Progress(f"the page is ready at {serve.url}; predictions need the worker", lasting=True))
            running.enter_context(worker)
            on_progress(Progress("waiting for the worker's partitions"))
            if not worker.await_sites():
                notes.append(f"The worker has no sites yet, or a part of it has none: see {worker.log}.")
        places = {"Kafka": stack.kafka.bootstrap, "Redis": stack.redis.address}
        places |= {"Worker": worker.url, "Page": serve.url}
        places["Prometheus"] = stack.prometheus.url if stack.prometheus else "not installed, so left out"
        console.print(overview(stack.data_dir, places, notes, config, open_to_all, found))
        with suppress(KeyboardInterrupt, SystemExit):
            keep_running(servers, console.print)
        console.print("stopping…")
    console.print(f"stopped; the data is kept in {data_dir}")


def data_home() -> Path:
    """Return the data directory: $XDG_DATA_HOME, else the platform's directory for the user's data."""
    if base := os.environ.get("XDG_DATA_HOME"):
        return Path(base) / "queuecast"
    return Path.home() / ("Library/Application Support" if sys.platform == "darwin" else ".local/share") / "queuecast"


def settings_in(stack: LocalStack, base: Settings) -> Settings:
    """Return the settings with the addresses of this stack's servers."""
    kafka = KafkaSettings(bootstrap=stack.kafka.bootstrap, prefix=base.kafka.prefix)
    if password := stack.kafka_password:
        kafka = msgspec.structs.replace(
            kafka, security="sasl_plaintext", mechanism="PLAIN", username=USER, password=password
        )
    return msgspec.structs.replace(
        base,
        kafka=kafka,
        topics=msgspec.structs.replace(base.topics, replication=1),
        redis=RedisSettings(url=stack.redis.url, prefix=base.redis.prefix),
    )


def with_token(settings: Settings, data_dir: Path) -> Settings:
    """Return the settings with a token for the HTTP service: the configured one, else a generated one in `data_dir`."""
    if settings.serve.token is not None or settings.serve.tokens or settings.serve.tokens_file is not None:
        return settings
    token = password_in(data_dir, "serve")
    return msgspec.structs.replace(settings, serve=msgspec.structs.replace(settings.serve, token=token))


def as_toml(settings: Settings) -> str:
    """Settings as a file that `load_settings` reads."""
    return tomli_w.dumps(_set(msgspec.to_builtins(settings)))


def _set(values: dict[str, Any]) -> dict[str, Any]:
    """The values without None, which TOML cannot express."""
    tables = {name: _set(value) if isinstance(value, dict) else value for name, value in values.items()}
    return {name: value for name, value in tables.items() if value is not None}


@contextmanager
def startup_progress() -> Iterator[OnProgress]:
    """Show the start of the stack on stderr: in a terminal the current step, else a line for each step."""
    console = Console(stderr=True, highlight=False)
    bar = Bar(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True)
    task = bar.add_task("", visible=False)
    step = ""

    def show(now: Progress) -> None:
        nonlocal step
        size = f": {now.done / 1e6:.0f} of {now.total / 1e6:.0f} MB" if now.total else ""
        bar.update(task, description=f"{now.step}{size}", visible=True)
        if now.step != step and (now.lasting or not console.is_terminal):
            console.print(now.step, soft_wrap=True)
        step = now.step

    with bar if console.is_terminal else nullcontext():
        yield show


def keep_running(
    servers: Sequence[Server], report: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Restart each server that ends; never returns."""
    keepers = [ServerRestarter(server, report) for server in servers]
    while True:
        for keeper in keepers:
            keeper.check()
        sleep(0.5)


class ServerRestarter:
    """Restarts a server that has ended, after pauses that grow with repeated ends."""

    def __init__(
        self, server: Server, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._server = server
        self._report = report
        self._clock = clock
        self._since = clock()
        self._ends = 0
        self._due: float | None = None

    def check(self) -> None:
        """Restart the server if it has ended and the pause is over; call this in a loop."""
        now = self._clock()
        if self._server.running:
            return
        if self._due is None:
            self._ends = 0 if now - self._since > MIN_STEADY_S else self._ends
            pause_s = RESTART_PAUSES_S[min(self._ends, len(RESTART_PAUSES_S) - 1)]
            self._ends += 1
            self._due = now + pause_s
            self._report(f"{self._server.name} ended, see {self._server.log}; restarting in {pause_s:g} s")
        elif now >= self._due:
            self._start()

    def _start(self) -> None:
        self._due = None
        try:
            self._server.start()
            self._report(f"{self._server.name} restarted")
        except StackError as error:
            self._report(str(error))
        self._since = self._clock()


SCRIPT = "queuecast"


def command_as_called(called: str | None = None) -> str:
    """Return the command to call queuecast in another terminal: by name only if PATH finds the same program there.

    A virtual environment that is active here may be inactive in another terminal, so its programs need a path.
    """
    script = Path(sys.argv[0] if called is None else called)
    if script.name != SCRIPT or not script.exists():
        return shlex.join([sys.executable, "-m", "queuecast"])
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if active := os.environ.get("VIRTUAL_ENV"):
        folders = [folder for folder in folders if not Path(folder).is_relative_to(active)]
    found = shutil.which(SCRIPT, path=os.pathsep.join(folders))
    return SCRIPT if found and script.samefile(found) else shlex.quote(str(script.absolute()))


def overview(
    data_dir: Path, places: Mapping[str, str], notes: Sequence[str], config: Path, open_to_all: bool, found: bool
) -> str:
    """Return the text that is printed when the stack is up: addresses, access, notes, and the next commands.

    Args:
        places: the address of each server by its name.
        notes: further lines.
        found: whether other commands of this user find the settings without configuration.
    """
    command = command_as_called()
    doors = (
        "Every user of this machine may use Kafka and the page; Redis requires a password."
        if open_to_all
        else f"Kafka, Redis and the page require passwords. `{command} credentials` prints the connection details;\n"
        f"`{command} credentials --link` prints a link that opens the page."
    )
    export = f"export {PREFIX}_CONFIG={shlex.quote(str(config))}"
    further = ["", "These find it by themselves. To name it in another program's environment:", "", f"  {export}"]
    lines = [
        f"queuecast is up, over {data_dir}",
        "",
        *(f"  {name:<12}{place}" for name, place in places.items()),
        *(["", *notes] if notes else []),
        "",
        doors,
        "",
        "Next, in another terminal:",
        "",
        *([] if found else [f"  {export}"]),
        f"  {command} watch --outcomes",
        f"  {command} ingest TRACE",
        f"  {command} ask --cpus 64 --walltime 4h",
        *(further if found else []),
        "",
        "Ctrl-C stops it." if signal.getsignal(signal.SIGINT) != signal.SIG_IGN else f"`kill {os.getpid()}` stops it.",
    ]
    return "\n".join(lines)
