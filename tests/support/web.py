"""The HTTP service on loopback in a thread, with engines or answers of a test's own behind it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import socket
from typing import Any

import uvicorn

from models.records import AnyAnswer, AnyQuestion
from streams.client.client import QuestionClient
from streams.serve.http_server import Connections, _uvicorn
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings
from tests.support.fake_client import FakeClient

Altered = Callable[[AnyAnswer], AnyAnswer]


class AlteringClient(FakeClient):
    """A client without a broker, whose answers a test alters."""

    alter: Altered = staticmethod(lambda answer: answer)

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        return self.alter(await super().ask(question))


@contextmanager
def serving(client: QuestionClient, **serve: Any) -> Iterator[str]:
    """The address of a service over this client."""
    settings = Settings(serve=ServeSettings(requests_per_minute=100_000, **serve))
    app = build_app(Service(client, settings), settings)
    listening = socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(_uvicorn(app, settings.serve, Connections(100, 30.0, answer_s=60.0)))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        host, port = listening.getsockname()
        yield f"http://{host}:{port}/"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
