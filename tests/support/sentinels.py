"""A Redis with a replica, watched by three sentinels: real servers, on loopback."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import redis
from redis.sentinel import Sentinel as Sentinels

from deploy.local.stack import Redis
from tests.support.deployment import until

SERVICE = "main"


class Sentinel(Redis):
    """Watches a primary, and makes its replica the primary when it is gone for five seconds.

    With a shorter limit, a busy machine would replace a primary that is alive and lose its last writes.
    """

    name = "Redis Sentinel"

    def __init__(self, directory: Path, watched: Redis) -> None:
        super().__init__(directory)
        self._watched = watched

    def _prepare(self) -> Sequence[str]:
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._watched.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} 5000",
            f"sentinel failover-timeout {SERVICE} 3000",
        )
        self._write("sentinel.conf", "".join(f"{line}\n" for line in lines))
        return [self.executable(), "sentinel.conf", "--sentinel"]


class Replicated(NamedTuple):
    """The first primary, the sentinels' client, and the URL for the settings."""

    primary: Redis
    manager: Sentinels
    url: str

    def has_failed_over(self) -> bool:
        """Return True if the first primary is replaced."""
        master = self.manager.sentinels[0].sentinel_get_master_addr_by_name(SERVICE)
        return bool(master[1] != self.primary.port)


@contextmanager
def replicated(directory: Path) -> Iterator[Replicated]:
    """Run a primary with a replica, and three sentinels."""
    with ExitStack() as running:
        primary, replica = (running.enter_context(Redis(directory / name)) for name in ("primary", "replica"))
        with redis.Redis.from_url(replica.url) as client:
            client.replicaof("127.0.0.1", primary.port)
            until(lambda: client.info("replication")["master_link_status"] == "up")
        sentinels = [running.enter_context(Sentinel(directory / f"sentinel{n}", primary)) for n in range(3)]
        with redis.Redis.from_url(sentinels[0].url) as client:
            until(lambda: client.sentinel_master(SERVICE)["num-other-sentinels"] == 2)
            until(lambda: client.sentinel_master(SERVICE)["num-slaves"] == 1)
        hosts = [("127.0.0.1", sentinel.port) for sentinel in sentinels]
        url = f"redis+sentinel://{','.join(f'{host}:{port}' for host, port in hosts)}/{SERVICE}"
        yield Replicated(primary, Sentinels(hosts), url)
