"""Limits on connections: time to send a request, and how many a client has.

uvicorn 0.54 waits for ever for a request's headers, and with its own limit it refuses everybody when too many
connections are open. Here those that wait make room, the oldest first: the client's own where it has too many,
anybody's where all have. Who sends its request at once is answered, however many others are half open. Where none
waits, one goes whose client does not read its answer.
"""

import asyncio
from typing import Any

import prometheus_client
from uvicorn.protocols.http.h11_impl import H11Protocol

from streams.serve.access import address_of

MAX_CONNECTIONS = 800
"""Open connections of all clients; below the 1024 files that a process may usually have open."""

DROPPED = prometheus_client.Counter(
    "queuecast_http_dropped_connections_total",
    "Connections that were closed: their request did not come (slow), nobody read the answer (unread), or their "
    "client or all clients had too many (many).",
    labelnames=["why"],
)
for _why in ("slow", "unread", "many"):  # shown from the beginning, so that the first ones are an increase
    DROPPED.labels(_why)


class Connections:
    """The open connections of a service.

    Parameters:
        of_client: how many one address may have.
        header_s: seconds within which a request's headers must have come.
        answer_s: seconds within which an answer must have been read.
        most: how many there may be in all.
    """

    def __init__(self, of_client: int, header_s: float, answer_s: float, most: int = MAX_CONNECTIONS) -> None:
        self.header_s = header_s
        self.answer_s = answer_s
        self._of_client = of_client
        self._most = most
        self._open: dict[LimitedProtocol, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: "LimitedProtocol", address: str) -> None:
        """Take in a connection; where there are too many now, drop one that waits or is not read, else this one.

        O(open connections).
        """
        self._open[connection] = address
        own = [other for other, of in self._open.items() if of == address]
        if len(own) > self._of_client or len(self._open) > self._most:
            others = [one for one in (own if len(own) > self._of_client else self._open) if one is not connection]
            waiting = min((one for one in others if not one.answering), key=lambda one: one.since, default=None)
            dropped = waiting or next((one for one in others if one.unread), connection)
            self.closed(dropped)
            dropped.drop("many")

    def closed(self, connection: "LimitedProtocol") -> None:
        """Forget a connection."""
        self._open.pop(connection, None)


class LimitedProtocol(H11Protocol):
    """A connection that is closed when its request or the reading of its answer takes too long."""

    limits: Connections
    answering = False
    """Whether a request is being answered; else one is waited for."""
    since = 0.0
    """Since when, by the loop's clock."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in the connection and begin to wait for its request."""
        super().connection_made(transport)
        self._give(self.limits.header_s, "slow")
        self.limits.opened(self, address_of({"client": self.client}))

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        self.limits.closed(self)
        super().connection_lost(exc)

    @property
    def unread(self) -> bool:
        """Whether a part of an answer waits for the client to read."""
        return self.transport.get_write_buffer_size() > 0

    def drop(self, why: str) -> None:
        """Close the connection at once."""
        DROPPED.labels(why).inc()
        self._stop_timer()
        self.transport.abort()

    def _follow(self) -> None:
        """Note whether a request is being answered, and give it, or the next one, its time."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering != self.answering and not self.transport.is_closing():
            self.answering = answering
            self._give(self.limits.answer_s, "unread") if answering else self._give(self.limits.header_s, "slow")

    def _give(self, seconds: float, why: str) -> None:
        self._stop_timer()
        self.since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self.drop, why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited(limits: Connections) -> type[LimitedProtocol]:
    """The protocol of a service with these limits."""
    attributes: dict[str, Any] = {"limits": limits}
    return type("LimitedProtocol", (LimitedProtocol,), attributes)
