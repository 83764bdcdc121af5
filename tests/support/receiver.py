"""A real HTTP server that takes POST requests, as a webhook's receiver."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from models.records import Notice

NOTICE = Notice(
    id="n1",
    name="notify",
    kind="slipped",
    site="kth",
    job="4711",
    attempt=0,
    at=1.0,
    expected_start=2.0,
    latest=3.0,
    expected_before=1.5,
    estimated_at=1.0,
    text="late",
)


class Receiver:
    """Takes requests; answers with the statuses in their order, the last one again and again."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), body))
                self.send_response(receiver.statuses[min(len(receiver.requests), len(receiver.statuses)) - 1])
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@contextmanager
def received() -> Iterator[Receiver]:
    """A receiver that runs meanwhile."""
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
