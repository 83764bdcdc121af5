"""Health checks of servers that answer, are unreachable, or hang."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.settings import KafkaSettings, RedisSettings, Settings
from streams.worker.metrics import process_metrics
from streams.worker.metrics.process_metrics import FRESH_S, Health


class Server:
    """A server that accepts connections and answers requests unless it hangs."""

    def __init__(self) -> None:
        self.hangs = False
        self.writes = 0
        self.open = 0  # connections as to Kafka

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kafka = False
        while data := await reader.read(1024):
            if data.startswith(b"\x00\x00"):  # the length of a request to Kafka
                kafka, self.open = True, self.open + 1
                if not self.hangs:
                    writer.write(struct.pack(">i", 10) + data[8:12] + bytes(6))  # ApiVersions: no error, no versions
                continue
            self.writes += data.count(b"HSET")
            if not self.hangs:
                replies = data.count(b"*")  # a command each
                writer.write(b":1\r\n" if b"HSET" in data else b"+OK\r\n" * replies)
        self.open -= kafka
        writer.close()


@contextmanager
def away() -> Iterator[int]:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port


def test_health_reports_answering_hanging_and_absent_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "PATIENCE_S", 60.0)  # long enough on a busy machine
    now, server = 100.0, Server()

    async def look(closed_port: int) -> None:
        nonlocal now
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        settings = Settings(
            kafka=KafkaSettings(bootstrap=f"127.0.0.1:{closed_port},127.0.0.1:{port}"),
            redis=RedisSettings(url=f"redis://127.0.0.1:{port}/0?protocol=2"),
        )
        found = Health(settings, lambda: now)
        await found.look()
        assert (found.broker, found.store, server.writes) == (None, None, 1)

        server.hangs = True
        monkeypatch.setattr(process_metrics, "PATIENCE_S", 0.3)
        await asyncio.gather(found.look(), found.look())
        assert (found.store, server.writes) == (None, 1)  # cached result
        now += FRESH_S + 0.1
        await asyncio.gather(found.look(), found.look())
        assert (found.store, server.writes) == ("redis: no answer within 0.3 s", 2)
        assert found.broker == f"no broker answers at {settings.kafka.bootstrap}"  # although it accepts connections

        while server.open:  # the time limit of the test fails it if a connection stays open
            await asyncio.sleep(0.01)

        listening.close()
        server.hangs = False
        now += FRESH_S + 0.1
        await found.look()
        assert found.broker == f"no broker answers at {settings.kafka.bootstrap}"

    with away() as closed_port:
        asyncio.run(look(closed_port))
