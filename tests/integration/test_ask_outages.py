"""Queries while workers or Kafka are unavailable."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from deploy.local.stack import LocalStack
from models.ranking import Ranking
from models.records import (
    AnyAnswer,
    NoAnswer,
    WaitQuestion,
)
from streams.client.client import QuestionClient
from streams.client.pending_questions import AnswerTimeout, new_id
from streams.errors import Unreachable
from tests.integration.test_ask import JOB, busy, command, known, query
from tests.support.deployment import (
    Deploy,
    Deployment,
    ready,
    settings_on,
    until,
)
from tests.support.fake_client import FRESH_ESTIMATES, SITES, two_sites


def test_query_without_worker_reports_error_in_time(deploy: Deploy, tmp_path: Path) -> None:
    here = deploy()
    result = command(here, tmp_path, *JOB)
    assert result.process.returncode == 1
    assert result.err.startswith("queuecast: no site is registered yet")
    silent = command(here, tmp_path, *JOB, "--site", "alder", seconds=0.5)
    assert silent.process.returncode == 1
    assert "no worker answers for this site" in silent.out


@pytest.mark.long
def test_grid_answers_replace_those_of_a_killed_worker(local_stack: LocalStack, tmp_path: Path) -> None:
    async def ask(client: QuestionClient) -> AnyAnswer:
        return await client.ask(WaitQuestion(id=new_id(), site="alder", cpus=8))

    with busy(local_stack, tmp_path) as here:
        here.worker.kill()
        result = command(here, tmp_path, *JOB, "--json", seconds=0.5)
        ranking = msgspec.json.decode(result.out, type=Ranking)
        assert {(ranked.site, ranked.source) for ranked in ranking.ranking} == {(site, "grid") for site in SITES}
        here.worker.start()
        until(lambda: ready(here.worker))
        # Killed before its first checkpoint, the worker has the site after it has read the events again.
        until(lambda: not isinstance(query(here.settings, ask), NoAnswer))


@pytest.fixture
def apart(stack: LocalStack, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment on servers that may be killed."""
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, {}, {"history": 80}, estimates=FRESH_ESTIMATES)
    with closing(Deployment(settings, tmp_path / "apart")) as deployment:
        yield deployment
        stack.kafka.start()


@pytest.mark.long
def test_client_recovers_after_kafka_outage(
    apart: Deployment, stack: LocalStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    apart.worker.start()
    apart.send(two_sites(40))
    until(lambda: known(apart.settings) == list(SITES))

    def question() -> WaitQuestion:
        return WaitQuestion(id=new_id(), site="alder", cpus=8)

    async def answered(client: QuestionClient) -> None:
        while True:
            with suppress(Unreachable, AnswerTimeout):
                assert not isinstance(await client.ask(question()), NoAnswer)
                return

    async def act(client: QuestionClient) -> None:
        await answered(client)
        assert await client.problem() is None
        await asyncio.to_thread(stack.kafka.kill)
        with pytest.raises((Unreachable, AnswerTimeout)):
            await client.ask(question())
        while "no broker answers" not in str(await client.problem()):
            await asyncio.sleep(0.1)
        await asyncio.to_thread(stack.kafka.start)
        await answered(client)
        while await client.problem() is not None:
            await asyncio.sleep(0.1)

    query(apart.settings, act, seconds=2.0)
    with pytest.raises(Unreachable, match="no broker answers"):
        stack.kafka.kill()
        query(apart.settings, act, seconds=2.0)
