"""JupyterHub shows the expected start of a notebook server's job."""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import pytest

from deploy.jupyterhub.queue_progress import QueueProgress
from models.records import JobAnswer
from streams.client.http import HttpClient
from streams.errors import Unreachable


def answer(text: str) -> JobAnswer:
    return JobAnswer(id="1", site="kth", made_at=0.0, job="4711", text=text)


def test_queue_progress_reports_each_changed_start(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[JobAnswer | Unreachable] = chain(
        [Unreachable("away"), answer("starts in about 12m"), answer("starts in about 12m")], repeat(answer("b"))
    )

    def job(client: HttpClient, name: str, sites: Sequence[str]) -> dict[str, JobAnswer]:
        assert (name, sites) == ("4711", ["kth"])
        found = next(answers)
        if isinstance(found, JobAnswer):
            return {"kth": found}
        raise found

    class Spawner(QueueProgress):
        queuecast_site, queuecast_pause_s, job_id = "kth", 0.0, "4711"

    async def first_two() -> list[str]:
        events = Spawner().progress()
        return [(await anext(events))["message"] for _ in range(2)]

    monkeypatch.setattr(HttpClient, "job", job)
    assert asyncio.run(first_two()) == ["Job 4711 starts in about 12m", "Job 4711 b"]
