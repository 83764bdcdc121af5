"""A TCP link between two programs that can be slow, hold back one direction, or be cut."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 1 << 16


class Link:
    """Passes connections on to a server; what it does to their bytes can change at any time.

    Attributes:
        port: The port at which it listens.
        delay_s: Each chunk of bytes arrives that much later.
        held: Directions that nothing passes, of "to" and "from" the server; what was sent arrives once they are free.
    """

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        self.delay_s, self.held = 0.0, frozenset[str]()
        self.passed = {"to": 0, "from": 0}
        self._sockets: set[socket.socket] = set()
        link = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                link._pass_on(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and accept none any more."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def cut(self) -> None:
        """Close the connections that there are; new ones work."""
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def holding(self, *directions: str) -> Iterator[None]:
        """Hold these directions back in the block."""
        self.held = frozenset(directions)
        try:
            yield
        finally:
            self.held = frozenset()

    def _pass_on(self, client: socket.socket) -> None:
        assert self.target is not None
        with suppress(OSError), socket.create_connection(self.target) as server:
            self._sockets |= {client, server}
            back = threading.Thread(target=self._pump, args=(server, client, "from"), daemon=True)
            back.start()
            self._pump(client, server, "to")
            back.join()
            self._sockets -= {client, server}

    def _pump(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                time.sleep(self.delay_s)
                while direction in self.held:
                    time.sleep(0.01)
                target.sendall(chunk)
                self.passed[direction] += len(chunk)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
