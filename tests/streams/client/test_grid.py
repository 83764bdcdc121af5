"""The Python client, with in-process engines."""

import asyncio
import logging
import ssl
import subprocess
import sys
from typing import Any

import pytest

from models.records import AnyAnswer, AnyQuestion, GridEstimate, NoAnswer
from models.records.answers import BUSY
from queuecast import AnswerTimeout, AsyncClient, Client, InvalidInput, JobRequest, UnknownSite, WorkerOverloaded
from streams.client.blocking import on_loop_error
from streams.client.client import QuestionClient
from streams.client.job_requests import JobFields, job_request
from streams.errors import Unreachable
from streams.settings import KafkaSettings, Settings
from tests.support.command import PATIENCE_S
from tests.support.fake_client import USER, FakeClient, engine


def grid(patience_s: float = 0.0, **fake: Any) -> Client:
    sites = [engine("alder", 1), engine("birch", 2)]
    return Client(Settings(), patience_s=patience_s, questions=FakeClient(sites, **fake))


def test_sites_are_ranked_for_a_job() -> None:
    with grid() as client:
        assert client.sites == ["alder", "birch"]
        found = client.rank(cpus=4, walltime="1h")
        assert {one.site for one in found.ranking} == {"alder", "birch"}
        assert found.job == JobRequest(cpus=4, walltime=3600.0)
        for sites in (["birch"], "birch"):
            assert [one.site for one in client.rank(found.job, sites=sites).ranking] == ["birch"]


def test_client_queries_single_site() -> None:
    with grid() as client:
        assert client.wait("alder", cpus=4, walltime="1h").site == "alder"
        assert client.site("alder").cpus == 64
        assert client.every_site().keys() == {"alder", "birch"}
        assert client.every_site("birch").keys() == {"birch"}
        with pytest.raises(UnknownSite, match="there is no site 'elm'; there are: alder, birch"):
            client.wait("elm", cpus=4)


def test_overloaded_worker_raises_worker_overloaded() -> None:
    class Overrun(FakeClient):
        async def ask(self, question: AnyQuestion) -> AnyAnswer:
            return NoAnswer(id=question.id, site=question.site, reason=BUSY, detail="too many questions wait")

    client = Client(Settings(), patience_s=0, questions=Overrun([engine("alder", 1)]))
    with client, pytest.raises(WorkerOverloaded, match="alder: too many questions wait"):
        client.wait("alder", cpus=4)


@pytest.mark.parametrize(("bootstrap", "warned"), [("127.0.0.1:9092,localhost:9093", False), ("kafka:9092", True)])
def test_password_on_loopback_gives_no_warning(bootstrap: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    QuestionClient(Settings(kafka=KafkaSettings(bootstrap=bootstrap)))
    logging.getLogger("aiokafka.conn").warning("Sending username and password in the clear")
    logging.getLogger("aiokafka.conn").warning("another")
    assert caplog.messages == [*(["Sending username and password in the clear"] if warned else []), "another"]


def test_jobs_are_returned_per_site() -> None:
    with grid(silent=["birch"]) as client:
        jobs = client.jobs(USER)
        assert jobs["birch"] is None and jobs["alder"] is not None and jobs["alder"].jobs
        job = jobs["alder"].jobs[0].job
        answer = client.job(job, ["alder"])["alder"]
        assert answer is not None and answer.job == job


def test_estimates_are_read_from_cache() -> None:
    with grid() as client:
        assert all(isinstance(one, GridEstimate) for one in client.estimates("alder"))
        assert client.estimates("elm") == []
        found = client.estimate("alder", cpus=3, walltime="30m")
        assert found is not None and (found.cpus, found.walltime) == (4, 3600.0)
        assert client.estimate("alder", cpus=10_000) is None


def test_unanswered_query_is_retried_and_logged_one_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake, tries = FakeClient([engine("alder", 1)]), 0
    answered = fake.ask

    async def ask(question: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise (AnswerTimeout if tries == 1 else Unreachable)("not now")
        return await answered(question)

    monkeypatch.setattr(fake, "ask", ask)
    with Client(Settings(), questions=fake) as client:
        assert client.site("alder").site == "alder"
    assert tries == 3
    assert caplog.messages == ["not now; retrying for 30 s"]
    with grid(silent=["alder"]) as client, pytest.raises(AnswerTimeout):
        client.site("alder")


def test_async_client_ranks_and_queries_site() -> None:
    async def ask() -> None:
        async with AsyncClient(Settings(), questions=FakeClient([engine("alder", 1)])) as client:
            found, site = await asyncio.gather(client.rank(cpus=1), client.site("alder"))
            assert found.ranking[0].site == site.site == "alder"

    asyncio.run(ask())


def test_job_request_converts_and_validates_fields() -> None:
    assert job_request(cpus=2, memory="4G", walltime="90m") == JobRequest(cpus=2, memory=4 << 30, walltime=5400.0)
    for wrong, message in (
        ({"cpu": 1}, "'cpu' is not a field of a job"),
        ({"cpus": 0}, "cpus: "),
        ({"walltime": "4"}, "without a unit"),
    ):
        with pytest.raises(InvalidInput, match=message):
            job_request(**wrong)


def test_wrong_argument_fails_type_check_and_raises() -> None:
    assert set(JobFields.__annotations__) == set(JobRequest.__struct_fields__)
    with grid() as client:
        for ask in (lambda: client.rank(64), lambda: client.wait("alder", 64)):  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="expected a JobRequest, not 64; or pass the fields by name"):
                ask()
        with pytest.raises(InvalidInput, match="'cpu' is not a field of a job"):
            client.rank(cpu=64)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match=r"expected Settings, not '127.0.0.1:9092'; HttpClient takes a service's"):
        Client("127.0.0.1:9092")  # type: ignore[arg-type]


def test_rank_start_within_returns_start_probability() -> None:
    with grid() as client:
        soon, late = (client.rank(cpus=64, start_within=within).ranking[0] for within in (1.0, "5000d"))
        assert soon.bounds and soon.p_start is not None and soon.p_start <= 0.5
        assert late.p_start == max(map(float, soon.bounds))
        assert client.rank(cpus=64).ranking[0].p_start is None
        with pytest.raises(InvalidInput, match="start_within: "):
            client.rank(cpus=64, start_within="soon")


def test_client_not_entered_raises_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="with Client"):
        grid().rank(cpus=1)


def test_client_with_unreachable_kafka_prints_no_client_logs() -> None:
    """Without a logging configuration, aiokafka would print a line per connection attempt."""
    opened = 'Client(Settings(kafka=KafkaSettings(bootstrap="127.0.0.1:1")), patience_s=0).__enter__()'
    program = f"from queuecast import *\ntry: {opened}\nexcept Unreachable as error: print(error)"
    ran = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=PATIENCE_S)
    problem = "kafka: no broker answers at 127.0.0.1:1; is it running, and is it this address?"
    assert (ran.stdout, ran.stderr) == (f"{problem}\n", "")


CLOSED = ssl.SSLError(1, "[SSL: APPLICATION_DATA_AFTER_CLOSE_NOTIFY] application data after close notify")
CLOSED.reason = "APPLICATION_DATA_AFTER_CLOSE_NOTIFY"
OTHER = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")


@pytest.mark.parametrize(
    ("error", "levels"), [(CLOSED, []), (OTHER, [logging.ERROR]), (OSError("gone"), [logging.ERROR])]
)
def test_loop_error_of_closed_tls_connection_is_not_logged(
    error: Exception, levels: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_unnoticed() -> None:
        asyncio.get_running_loop().create_future().set_exception(error)

    with caplog.at_level(logging.INFO), asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(on_loop_error)
        runner.run(fail_unnoticed())
    assert [record.levelno for record in caplog.records] == levels


def test_preferred_site_is_ranked_first_everywhere() -> None:
    with grid() as client:
        last = client.rank(cpus=4, walltime="1h").ranking[-1].site
        assert client.rank(cpus=4, walltime="1h", prefer=last, unless_sooner="10d").ranking[0].site == last
        assert client.rank(cpus=4, walltime="1h", prefer="elm", unless_sooner=5.0).ranking[-1].site == last
        with pytest.raises(InvalidInput, match="unless_sooner: requires prefer"):
            client.rank(cpus=4, unless_sooner="1h")
