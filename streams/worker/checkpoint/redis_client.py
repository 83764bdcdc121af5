"""Connect to Redis: a single server, the primary of a Sentinel group, or a cluster."""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError, ResponseError

from streams.errors import UNTRUSTED, Unreachable, UserError
from streams.settings import RedisSettings

AWAY = (RedisError, RedisClusterException, OSError)
"""Errors of a client if Redis is unreachable or refuses; the second if no cluster node is reachable."""

CONNECT_S = 5.0
"""Connect timeout, seconds."""

R = TypeVar("R", bound=redis.asyncio.Redis)

_CLOSED = re.compile("'NoneType' object has no attribute|the handler is closed")
_HOST_AND_PORT = re.compile(r"(\[[^\]]+\]|[^:,]+)(?::(\d+))?")


class RedisUrl(NamedTuple):
    """Parsed URL of several servers: sentinels, or cluster nodes.

    >>> RedisUrl.read("rediss+sentinel://worker:secret@s1,s2:26380/main/2")
    RedisUrl(kind='sentinel', tls=True, hosts=(('s1', 26379), ('s2', 26380)), service='main', database=2, \
username='worker', password='secret')
    """

    kind: str
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    service: str
    database: int
    username: str | None
    password: str | None

    @classmethod
    def read(cls, url: str) -> Self:
        """Parse a URL that the settings have validated."""
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.partition("+")
        usual = 26379 if kind == "sentinel" else 6379
        found = _HOST_AND_PORT.findall(parts.netloc.rpartition("@")[2])
        hosts = tuple((host.strip("[]"), int(port or usual)) for host, port in found)
        service, _, database = parts.path.strip("/").partition("/")
        username, password = (part and unquote(part) for part in (parts.username, parts.password))
        return cls(kind, scheme == "rediss", hosts, service, int(database or 0), username or None, password)


class Closable(AbstractConnection):
    """A connection that reports a closed connection as a lost one.

    redis-py 8.1 may write to a closed connection. If a cluster node fails, it closes all connections to it, even one
    that another task has just opened. That task then has no stream to write to, or uvloop rejects the write. Reads are
    not affected.
    """

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        """Send a command.

        Raises:
            redis.ConnectionError: The connection is closed.
        """
        try:
            await super().send_packed_command(command, check_health)
        except (AttributeError, RuntimeError) as error:
            if _CLOSED.search(str(error)) is None:
                raise
            raise redis.ConnectionError(f"the connection was closed meanwhile: {error}") from error


@cache
def closable(kind: Any) -> Any:
    """Return the `Closable` variant of a connection class."""
    return type(kind.__name__, (Closable, kind), {})


def with_closable(client: R) -> R:
    """Make the connections of a client `Closable`, and return the client."""
    pool: Any = client.connection_pool
    pool.connection_class = closable(pool.connection_class)
    return client


class Primary(redis.asyncio.Redis):
    """Client of the current primary of a Sentinel group; follows failovers."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close its connections and those to the sentinels."""
        await super().aclose(close_connection_pool)
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined]
            await sentinel.aclose()


class Cluster(RedisCluster):
    """A Redis Cluster client that supports WATCH.

    redis-py 8.1 watches a cluster's keys in a thread with another event loop, to which its connections do not belong.
    So a transaction uses a client of the node that holds its keys (`node_of`).
    """

    def __init__(self, hosts: tuple[tuple[str, int], ...], **options: Any) -> None:
        super().__init__(startup_nodes=[ClusterNode(*host) for host in hosts], **options)
        kind = self.connection_kwargs["connection_class"] = closable(self.connection_kwargs["connection_class"])
        for node in self.startup_nodes:
            node.connection_class = kind
        self._options = options
        self._clients: dict[str, redis.asyncio.Redis] = {}

    async def node_of(self, key: str) -> redis.asyncio.Redis:
        """Return a client of the node that holds a key."""
        await self.initialize()
        node = self.get_node_from_key(key)
        assert node is not None  # only for replicas
        return self._client(node)

    async def primaries(self) -> dict[str, redis.asyncio.Redis]:
        """Return a client of each primary node, by address."""
        await self.initialize()
        return {node.name: self._client(node) for node in self.get_primaries()}

    def _client(self, node: ClusterNode) -> redis.asyncio.Redis:
        if node.name not in self._clients:
            client = redis.asyncio.Redis(host=str(node.host), port=int(node.port), **self._options)
            self._clients[node.name] = with_closable(client)
        return self._clients[node.name]

    async def look_again(self) -> None:
        """Query the nodes for the current assignment of slots."""
        await self.nodes_manager.initialize()

    async def aclose(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.aclose()
        await super().aclose()


Client = redis.asyncio.Redis | Cluster
"""Result of `connect`; both have the same commands."""


def connect(settings: RedisSettings, timeout: float = 30.0) -> Client:
    """Return a client for the configured Redis; it connects at its first use.

    Args:
        timeout: Timeout of a command, seconds.

    Raises:
        UserError: The URL is not a Redis URL.
    """
    options: dict[str, Any] = {"socket_connect_timeout": min(timeout, CONNECT_S), "socket_timeout": timeout}
    if settings.url.startswith("rediss") and settings.ca_file:
        options["ssl_ca_certs"] = settings.ca_file
    if "+" not in urlsplit(settings.url).scheme:
        try:
            login = _login(settings.username, settings.password)
            return with_closable(redis.asyncio.Redis.from_url(settings.url, **options, **login))
        except ValueError as error:
            raise UserError(f"redis: url: {error}") from None
    url = RedisUrl.read(settings.url)
    if url.tls:
        options["ssl"] = True
    login = _login(settings.username or url.username, settings.password or url.password)
    if url.kind == "cluster":
        return Cluster(url.hosts, **options, **login)
    asking = options | _login(settings.sentinel_username, settings.sentinel_password)
    manager = Sentinel(list(url.hosts), sentinel_kwargs=asking, **options, **login)  # type: ignore[no-untyped-call]
    for sentinel in manager.sentinels:
        with_closable(sentinel)
    primary: Primary = manager.master_for(url.service, Primary, db=url.database)
    return with_closable(primary)


def _login(username: str | None, password: str | None) -> dict[str, Any]:
    given = {"username": username, "password": password}
    return {name: value for name, value in given.items() if value is not None}


def address_of(settings: RedisSettings) -> str:
    """Return the address of Redis for messages, without passwords."""
    parts = urlsplit(settings.url)
    if "+" in parts.scheme:
        url = RedisUrl.read(settings.url)
        hosts = ",".join(f"{host}:{port}" for host, port in url.hosts)
        return f"{hosts} ({url.kind}{f' {url.service}' if url.service else ''})"
    return f"{parts.hostname}:{parts.port or 6379}"


@asynccontextmanager
async def transaction(client: Client, key: str) -> AsyncIterator[Any]:
    """Provide a pipeline that can watch keys with the same hash tag as `key`.

    If a cluster node has failed or redirects to another node, the assignment of slots is refreshed and the error is
    raised, so that a retry reaches the right node. While a slot is being migrated, retries may fail until the migration
    ends.
    """
    node = await client.node_of(key) if isinstance(client, Cluster) else client
    try:
        async with node.pipeline(transaction=True) as pipe:
            yield pipe
    except AWAY:
        if isinstance(client, Cluster):
            with suppress(*AWAY):
                await client.look_again()
        raise


async def servers(client: Client) -> dict[str, redis.asyncio.Redis]:
    """Return the servers that accept writes, by address; "" for a single server."""
    return await client.primaries() if isinstance(client, Cluster) else {"": client}


async def check_redis(settings: RedisSettings) -> None:
    """Check that Redis responds.

    Raises:
        Unreachable: It does not; the message contains the address without the password.
        UserError: It refuses the login, or its certificate is not trusted.
    """
    async with _open(settings) as client:
        await client.ping()


async def remembered_partitions(settings: RedisSettings, topic: str, partitions: int | None) -> int | None:
    """Return the partition count of an events topic when sites were first stored; None if it is not stored.

    Args:
        partitions: The count to store if there is none yet.

    Raises:
        Unreachable: Redis does not respond.
    """
    async with _open(settings) as client:
        if partitions is not None:
            await client.hsetnx(_partitions_key(settings), topic, str(partitions))
        found = await client.hget(_partitions_key(settings), topic)
        return None if found is None else int(found)


async def remember_partitions(settings: RedisSettings, topic: str, partitions: int) -> None:
    """Set the partition count that workers expect, after sites were moved.

    Raises:
        Unreachable: Redis does not respond.
    """
    async with _open(settings) as client:
        await client.hset(_partitions_key(settings), topic, str(partitions))


def _partitions_key(settings: RedisSettings) -> str:
    return f"{settings.prefix}:partitions"


@asynccontextmanager
async def _open(settings: RedisSettings) -> AsyncIterator[Any]:
    """Provide a client and close it afterwards. Convert Redis errors to `Unreachable`, or to `UserError` if Redis
    refuses.
    """
    client = connect(settings)
    try:
        yield client
    except AWAY as error:
        refuses = isinstance(error, AuthenticationError | ResponseError) or UNTRUSTED.search(str(error)) is not None
        kind = UserError if refuses else Unreachable
        raise kind(f"redis at {address_of(settings)}: {_explained(error)}") from None
    finally:
        await client.aclose()


def _explained(error: Exception) -> str:
    if isinstance(error, AuthenticationError):
        return "refused; is it this username and this password?"
    if found := UNTRUSTED.search(str(error)):
        return f"its certificate is not trusted: {found[1]}; is ca_file the authority that signed it?"
    return str(error)
