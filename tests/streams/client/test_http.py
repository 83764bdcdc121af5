"""The HTTP client, and calls with a time limit."""

import asyncio

import pytest

from queuecast import (
    AnswerTimeout,
    Client,
    HttpClient,
    NotFound,
    QuestionRejected,
    UnknownJob,
    UnknownSite,
    Unreachable,
    WorkerOverloaded,
)
from tests.streams.client.test_ask import service
from tests.support.fake_client import FakeClient, engine


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, QuestionRejected),
        (401, QuestionRejected),
        (404, UnknownSite),
        (429, WorkerOverloaded),
        (503, Unreachable),
        (504, AnswerTimeout),
    ],
)
def test_error_status_raises_matching_exception(status: int, kind: type[Exception]) -> None:
    with service(status, b'{"detail":"why"}') as (url, _), pytest.raises(kind, match=f"^{url}: why$"):
        HttpClient(url).wait("alder", cpus=4)


def test_busy_service_raises_busy() -> None:
    with (
        service(503, b'{"detail":"why","reason":"busy"}') as (url, _),
        pytest.raises(WorkerOverloaded, match=f"^{url}: why$"),
    ):
        HttpClient(url).wait("alder", cpus=4)


def test_job_missing_at_all_sites_raises_unknown_job() -> None:
    with service(404, b'{"detail":"no such job"}') as (url, requests), pytest.raises(UnknownJob) as raised:
        HttpClient(url).job("1", ["a/b", "c"])
    assert isinstance(raised.value, NotFound)
    assert str(raised.value) == f"{url}: a/b, c: no such job"
    assert [path for path, *_ in requests] == ["/v1/sites/a%2Fb/jobs/1", "/v1/sites/c/jobs/1"]


def test_site_with_silent_worker_is_returned_as_null() -> None:
    with service(504, b"") as (url, _):
        assert HttpClient(url).every_site(["alder"]) == {"alder": None}


def test_call_beyond_time_limit_raises_answer_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = FakeClient([engine("alder", 1)])

    async def never(_: object) -> None:
        await asyncio.sleep(60.0)

    with Client(questions=questions) as grid:
        assert grid.within(30.0).wait("alder", cpus=1).site == "alder"
        monkeypatch.setattr(questions, "ask", never)
        with pytest.raises(AnswerTimeout, match=r"no answer within 0\.01 s"):
            grid.within(0.01).wait("alder", cpus=1)
