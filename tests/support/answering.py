"""A real HTTP server, whose answers a test gives."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, NamedTuple


class HttpRequest(NamedTuple):
    """A request: its path with the query, its headers, its body."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    """What is answered."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


@contextmanager
def answering(answer: Callable[[HttpRequest], Answer | None]) -> Iterator[str]:
    """The address of a server that answers so meanwhile, one after the other; nothing at all where that is None."""
    ended, turn = Event(), Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            with turn:
                found = answer(HttpRequest(self.path, dict(self.headers), body))
            if found is None:
                ended.wait(30)
                return
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)

        do_POST = do_PATCH = do_GET  # noqa: N815  # as http.server has them

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            ended.set()
            server.shutdown()
