"""Supervise the processes of one worker: start, watch and stop them, with one web port.

Each process is a member of the consumer group with a separate name, so Kafka assigns partitions to them as to workers
on several machines. This process only restarts a process that ends, and forwards the web pages.
"""

import asyncio
import logging
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams import python_process
from streams.errors import UserError
from streams.process.scraping import Families, port_error
from streams.settings import Settings
from streams.settings.usable_cpus import usable_cpus

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Pauses before the first, second and later restarts of a process, seconds."""

STEADY_S = 60.0  # run time after which the restart pauses begin again, seconds
GRACE_S = 15.0  # stop timeout of a process, seconds; it normally ends within 9

LONGEST_PLACE = 70
"""Maximum length of the temporary directory's path, as a socket's path is limited to 107 characters; else /tmp."""

ASK_S = 8.0  # timeout for a page of a process, seconds; Prometheus waits for 10

CPUS_PER_TRAINING = 4
"""CPUs for each training that may run at a time. A training takes a third of the CPU time of its events' engine."""

FAMILIES = """
gauge process_up process: 1 if the process of the worker answers, else 0.
counter process_restarts process: Restarts of the process of the worker after it ended.
"""


class StartSettings(msgspec.Struct):
    """Input of a process: its settings, and data shared with the others.

    Attributes:
        partitions: Number of partitions of the topics.
        socket: Unix socket for its web pages.
        slots: Directory of the slots for trainings.
        number: Number of the process, from 0.
        trainings: Number of slots.
    """

    settings: Settings
    partitions: int
    socket: str
    slots: str
    number: int
    trainings: int


class WorkerProcess:
    """One of the processes, numbered from 1. Its group name is the worker's name with this number."""

    def __init__(self, number: int, settings: Settings, partitions: int, directory: Path) -> None:
        worker = msgspec.structs.replace(settings.worker, instance=f"{settings.worker.name}-{number}", processes=1)
        settings = msgspec.structs.replace(settings, worker=worker)
        socket = directory / f"{number}.socket"
        self.number, self.name = number, worker.name
        self._orders = StartSettings(
            settings, partitions, str(socket), str(directory), number - 1, max(usable_cpus() // CPUS_PER_TRAINING, 1)
        )
        self._socket = socket
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process. It ends when its standard input closes, for example because this process is killed."""
        self._socket.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as orders:  # without a name, because it contains passwords
            orders.write(msgspec.msgpack.encode(self._orders))
            orders.seek(0)
            self._process = await asyncio.create_subprocess_exec(
                *python_process.command("streams.worker.process", str(orders.fileno())),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[orders.fileno()],
                env=python_process.environment(),
            )

    async def ended(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> None:
        """Stop it after it hands over its sites; kill it after a timeout."""
        if self._process is None or self._process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), GRACE_S)
            except TimeoutError:
                log.warning("%s did not stop within %.0f s; killing it", self.name, GRACE_S)
                self._process.kill()
                await self._process.wait()

    async def show(self, page: str) -> tuple[int, str] | None:
        """Return status and text of one of its web pages; None if it does not respond."""
        try:
            async with (
                ClientSession(connector=UnixConnector(str(self._socket)), timeout=ClientTimeout(ASK_S)) as session,
                session.get(f"http://worker{page}") as answer,
            ):
                return answer.status, await answer.text()
        except (ClientError, OSError, TimeoutError):
            return None


class ProcessSupervisor:
    """All processes of a worker.

    Args:
        directory: Directory of their sockets, accessible to its user only.
    """

    def __init__(self, settings: Settings, partitions: int, directory: Path) -> None:
        self._settings = settings
        count = settings.worker.shared_by(partitions)
        self._members = [WorkerProcess(number, settings, partitions, directory) for number in range(1, count + 1)]
        self._stopping = asyncio.Event()
        self._restarts = Counter[int]()

    def stop(self) -> None:
        """Stop all processes."""
        self._stopping.set()

    async def run(self) -> None:
        """Run the processes until `stop` is called.

        Raises:
            UserError: A process ended during its start, or the web port is in use.
        """
        keepers: list[asyncio.Task[None]] = []
        async with AsyncExitStack() as running:
            running.push_async_callback(self._stop_all, keepers)
            for member in self._members:
                await member.start()
            log.info("%d processes: %s", len(self._members), ", ".join(member.name for member in self._members))
            if not await self._all_started():
                return
            await self._serve(running)
            keepers += (asyncio.create_task(self._keep(member)) for member in self._members)
            await self._stopping.wait()

    async def _stop_all(self, keepers: Iterable[asyncio.Task[None]]) -> None:
        self._stopping.set()
        await asyncio.gather(*(member.stop() for member in self._members))
        await asyncio.gather(*keepers)

    async def _all_started(self) -> bool:
        """Wait until all processes serve their pages; return False if they are stopped before."""
        ends = {asyncio.create_task(member.ended()): member for member in self._members}
        unready = list(self._members)
        try:
            while unready and not self._stopping.is_set():
                for task, member in ends.items():
                    if task.done():
                        raise UserError(f"{member.name} ended with {task.result()} during its start; see the log")
                unready = [member for member in unready if await member.show("/healthz") is None]
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), 0.1)
            return not self._stopping.is_set()
        finally:
            for task in ends:
                task.cancel()

    async def _keep(self, member: WorkerProcess) -> None:
        """Restart a process each time it ends, after a pause."""
        ends, since = 0, time.monotonic()
        while True:
            code = await member.ended()
            if self._stopping.is_set():
                return
            ends = 0 if time.monotonic() - since > STEADY_S else ends
            pause_s = PAUSES_S[min(ends, len(PAUSES_S) - 1)]
            ends += 1
            log.error("%s ended with exit code %d; restarting it in %g s", member.name, code, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
                return
            self._restarts[member.number] += 1
            await member.start()
            since = time.monotonic()

    async def _serve(self, running: AsyncExitStack) -> None:
        worker = self._settings.worker
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/readyz", self._ready)])
        app.add_routes([web.get("/healthz", self._healthy)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        running.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, worker.web_host, worker.web_port).start()
        except OSError as error:
            raise port_error(worker.web_host, worker.web_port, error) from None

    async def _shown(self, page: str) -> list[tuple[WorkerProcess, tuple[int, str] | None]]:
        answers = await asyncio.gather(*(member.show(page) for member in self._members))
        return list(zip(self._members, answers, strict=True))

    async def _metrics(self, _: web.Request) -> web.Response:
        shown = await self._shown("/metrics")
        pages = {member.number: answer[1] for member, answer in shown if answer is not None}
        text = await asyncio.to_thread(merged, pages)
        found = Families("queuecast", FAMILIES)
        for member, answer in shown:
            found.add("process_up", [str(member.number)], answer is not None)
            found.add("process_restarts", [str(member.number)], self._restarts[member.number])
        body = text.encode() + generate_latest(found)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _: web.Request) -> web.Response:
        """Return ready if all processes are: the sites of the others have no predictions."""
        lacking = [
            f"{member.name}: {'not running, or starting' if answer is None else answer[1].strip()}\n"
            for member, answer in await self._shown("/readyz")
            if answer is None or answer[0] != 200
        ]
        return web.Response(text="".join(lacking) or "ready\n", status=503 if lacking else 200)


def merged(pages: dict[int, str]) -> str:
    """Merge metrics pages into one, with the process number as a label; families stay together."""
    families: dict[str, list[str]] = {}
    for number, page in pages.items():
        known = set(families)
        family = ""
        for line in filter(None, page.split("\n")):  # names may contain other line separators
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
            if not line.startswith("#"):
                families[family].append(_labelled(line, number))
            elif family not in known:
                families.setdefault(family, []).append(line)
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def _labelled(sample: str, number: int) -> str:
    """Add the label `process` to a sample, before its own labels."""
    place = next(at for at, letter in enumerate(sample) if letter in "{ ")
    name, rest = sample[:place], sample[place:]
    return f'{name}{{process="{number}",{rest[1:]}' if rest[0] == "{" else f'{name}{{process="{number}"}}{rest}'


def run_crew(settings: Settings, partitions: int) -> None:
    """Run a worker of several processes until it is stopped (SIGTERM, SIGINT).

    Raises:
        UserError: A process ended during its start, or the web port is in use.
    """
    usual = tempfile.gettempdir()
    place = usual if len(usual) < LONGEST_PLACE else "/tmp"
    with tempfile.TemporaryDirectory(prefix="queuecast-", dir=place) as directory:
        asyncio.run(_run(settings, partitions, Path(directory)))


async def _run(settings: Settings, partitions: int, directory: Path) -> None:
    crew, loop = ProcessSupervisor(settings, partitions, directory), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, crew.stop)
    await crew.run()
