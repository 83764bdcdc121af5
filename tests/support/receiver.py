"""A real HTTP server that takes POST requests, as a webhook's receiver."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from models.records import Notice
from tests.support.answering import Answer, HttpRequest, answering

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
        self.requests: list[tuple[Mapping[str, str], bytes]] = []
        self.url = ""

    def answer(self, request: HttpRequest) -> Answer:
        """Take a request."""
        self.requests.append((request.headers, request.body))
        return Answer(status=self.statuses[min(len(self.requests), len(self.statuses)) - 1])


@contextmanager
def received() -> Iterator[Receiver]:
    """A receiver that runs meanwhile."""
    found = Receiver()
    with answering(found.answer) as url:
        found.url = f"{url}/hook"
        yield found
