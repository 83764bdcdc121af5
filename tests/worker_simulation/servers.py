"""Redis and Kafka in virtual time: slow, temporarily unavailable, and with lost responses."""

import asyncio
import copy
from collections import defaultdict
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import WatchError

from tests.support.memory_servers import TOPIC
from tests.worker_simulation.loop import CURRENT, SimulatedLoop, in_process

T = TypeVar("T")


class Faults:
    """Inject random faults, and record them in the trace.

    Attributes:
        rate: probability that a request is refused, or that its response is lost.
        slow: maximum duration of a request or a response (s).
    """

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.rate, self.slow = random.choice((0.0, 0.01, 0.05)), random.choice((0.002, 0.05, 0.5))
        self.trace: list[str] = []

    def note(self, what: str) -> None:
        """Add a decision to the trace."""
        self.trace.append(f"{self.loop.time():9.3f} {what}")

    def heal(self) -> None:
        """Stop all faults."""
        self.rate, self.slow = 0.0, 0.002
        self.note("heal")

    async def pause(self) -> None:
        """Wait for the transfer of a request or a response."""
        await asyncio.sleep(self.random.random() ** 3 * self.slow)

    async def request(self, what: str, effect: Callable[[], T], error: type[Exception] = ConnectionError) -> T:
        """Send a request to a server; its effect is atomic, and happens even if the client has died."""
        if self.loop.is_over:
            raise asyncio.CancelledError
        process = CURRENT.get()
        if process is not None and not process.alive:
            await asyncio.Event().wait()
        served = self.loop.create_task(self._serve(what, effect, error), context=in_process(None))
        return await asyncio.shield(served)

    async def _serve(self, what: str, effect: Callable[[], T], error: type[Exception]) -> T:
        await self.pause()
        if self.random.random() < self.rate:
            self.note(f"refuse {what}")
            raise error(f"refused: {what}")
        result = effect()
        await self.pause()
        if self.random.random() < self.rate:
            self.note(f"lose the answer to {what}")
            raise error(f"no answer: {what}")
        return result


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Redis:
    """The data of a Redis server, and its commands."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.data: dict[str, Any] = {}
        self.versions: dict[str, int] = defaultdict(int)
        self._kept: dict[str, Any] | None = None

    def keep(self) -> None:
        """Copy the data to the replica."""
        self._kept = copy.deepcopy(self.data)

    def fail_over(self) -> None:
        """Continue with the data of the replica."""
        if self._kept is not None:
            self.faults.note("Redis fails over")
            for key in {*self.data, *self._kept}:
                self.versions[key] += 1
            self.data, self._kept = self._kept, None

    def do(self, name: str, *given: Any) -> Any:
        """Execute a command."""
        result = getattr(self, f"_{name.lower()}")(*given)
        if name.upper() in ("HSET", "HDEL", "SADD", "SREM", "HINCRBY", "DELETE"):
            self.versions[given[0]] += 1
            for key in given if name.upper() == "DELETE" else given[:1]:
                if not self.data.get(key, True):
                    del self.data[key]
        return result

    def _hash(self, key: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.data.get(key, {})
        return found

    def _hset(self, key: str, *pairs: Any) -> int:
        place = self.data.setdefault(key, {})
        place.update(zip(map(_bytes, pairs[::2]), map(_bytes, pairs[1::2]), strict=True))
        return 1

    def _hdel(self, key: str, *names: Any) -> int:
        return sum(self._hash(key).pop(_bytes(name), None) is not None for name in names)

    def _hget(self, key: str, name: Any) -> bytes | None:
        return self._hash(key).get(_bytes(name))

    def _hmget(self, key: str, names: list[Any]) -> list[bytes | None]:
        return [self._hget(key, name) for name in names]

    def _hvals(self, key: str) -> list[bytes]:
        return list(self._hash(key).values())

    def _hgetall(self, key: str) -> dict[bytes, bytes]:
        return dict(self._hash(key))

    def _hlen(self, key: str) -> int:
        return len(self._hash(key))

    def _hincrby(self, key: str, name: Any, by: int) -> int:
        count = int(self._hget(key, name) or 0) + by
        self._hset(key, name, count)
        return count

    def _sadd(self, key: str, *members: Any) -> int:
        self.data.setdefault(key, {}).update(dict.fromkeys(map(_bytes, members)))
        return len(members)

    def _srem(self, key: str, *members: Any) -> int:
        return sum(self.data.get(key, {}).pop(_bytes(one), 0) is None for one in members)

    def _scard(self, key: str) -> int:
        return len(self.data.get(key, ()))

    def _sscan(self, key: str, cursor: int, count: int = 0) -> tuple[int, list[bytes]]:
        return 0, list(self.data.get(key, ()))

    def _expire(self, key: str, seconds: int) -> int:
        return int(key in self.data)

    def _persist(self, key: str) -> int:
        return 0

    def _delete(self, *keys: str) -> int:
        return sum(self.data.pop(key, None) is not None for key in keys)


def _pairs(mapping: dict[str, Any] | None) -> tuple[Any, ...]:
    return tuple(part for pair in (mapping or {}).items() for part in pair)


class RedisClient:
    """A client of that server, which replaces `redis.asyncio.Redis`."""

    def __init__(self, server: Redis) -> None:
        self._server = server

    def pipeline(self, transaction: bool = True) -> "RedisPipeline":
        return RedisPipeline(self._server)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def command(*given: Any, mapping: dict[str, Any] | None = None, count: int = 0) -> Any:
            server = self._server
            given += _pairs(mapping)
            return await server.faults.request(f"redis {name}", lambda: server.do(name, *given), RedisAway)

        return command


class RedisPipeline:
    """Commands executed together, or immediately while a key is watched before `multi`."""

    def __init__(self, server: Redis) -> None:
        self._server, self._watched = server, dict[str, int]()
        self._commands: list[tuple[Any, ...]] = []
        self._at_once = False

    async def __aenter__(self) -> "RedisPipeline":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def watch(self, *keys: str) -> None:
        def note() -> None:
            self._watched |= {key: self._server.versions[key] for key in keys}

        await self._server.faults.request("redis watch", note, RedisAway)
        self._at_once = True

    def multi(self) -> None:
        self._at_once = False

    def execute_command(self, name: str, *given: Any) -> Any:
        if self._at_once:
            server = self._server
            return server.faults.request(f"redis {name}", lambda: server.do(name, *given), RedisAway)
        self._commands.append((name, *given))
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def command(*given: Any, mapping: dict[str, Any] | None = None) -> Any:
            return self.execute_command(name, *given, *_pairs(mapping))

        return command

    async def execute(self) -> list[Any]:
        commands, self._commands = self._commands, []

        def effect() -> list[Any]:
            if any(self._server.versions[key] != version for key, version in self._watched.items()):
                raise WatchError("a watched key has changed")
            return [self._server.do(*command) for command in commands]

        return await self._server.faults.request("redis exec", effect, RedisAway)


class Kafka:
    """The data of the brokers: events, changelog of the table, records of workers, and offsets of the group."""

    def __init__(self, faults: Faults, partitions: int) -> None:
        self.faults = faults
        self.messages: dict[int, list[SimpleNamespace]] = {number: [] for number in range(partitions)}
        self.changelog: dict[int, list[tuple[bytes, bytes | None]]] = {number: [] for number in range(partitions)}
        self.outputs: list[tuple[str, bytes | None, bytes]] = []
        self.committed: dict[int, int] = {}
        self.generation = 0

    def publish(self, partition: int, key: bytes | None, value: bytes | None, timestamp: float) -> None:
        """Append a message to the events topic."""
        log = self.messages[partition]
        place = {"topic": TOPIC, "partition": partition, "offset": len(log), "timestamp": timestamp}
        log.append(SimpleNamespace(key=key, value=value, **place))

    def commit(self, generation: int, partition: int, offset: int) -> None:
        """Commit an offset if the member has the present generation of the group."""
        if generation == self.generation:
            self.committed[partition] = offset

    def records(self, topic: str) -> list[bytes]:
        """Return the values of the topic whose name ends with `topic`."""
        return [value for name, _, value in self.outputs if name.endswith(topic)]


class Sender:
    """A worker's producer: records of a partition arrive in order, some of them twice."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._last: dict[Any, asyncio.Task[None]] = {}

    def deliver(self, place: Any, effect: Callable[[], None]) -> "asyncio.Future[None]":
        """Return a future that is done when the brokers have the message."""
        loop, before = self._kafka.faults.loop, self._last.get(place)
        process = CURRENT.get()
        if loop.is_over or (process is not None and not process.alive):
            return loop.create_future()
        task = loop.create_task(self._arrive(before, effect), context=in_process(None))
        self._last[place] = task
        return asyncio.shield(task)

    async def _arrive(self, before: "asyncio.Task[None] | None", effect: Callable[[], None]) -> None:
        faults = self._kafka.faults
        await faults.pause()
        if before is not None:
            await before
        effect()
        if faults.random.random() < faults.rate:
            faults.note("repeat a message")
            effect()
        await faults.pause()

    async def send(self, topic: str, key: bytes | None, value: bytes, partition: Any, headers: Any) -> Any:
        """Send a record."""
        await asyncio.sleep(0)
        return self.deliver((topic, partition), lambda: self._kafka.outputs.append((topic, key, value)))
