"""Questions through a real Kafka to a real worker, and the command `ask`."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from deploy.local.stack import LocalStack
from deploy.local.up import as_toml
from models.method_registry import DEFAULT
from models.ranking import Ranking
from models.records import (
    AnyAnswer,
    AnyQuestion,
    JobQuestion,
    JobsQuestion,
    NoAnswer,
    SiteAnswer,
    SiteQuestion,
    WaitQuestion,
)
from queuecast import Client, UnknownSite
from streams.broker.admin import create_topics
from streams.client.client import QuestionClient
from streams.client.pending_questions import new_id
from streams.settings import ServeSettings, Settings
from tests.support.command import Command
from tests.support.deployment import (
    Deploy,
    Deployment,
    engine_after,
    settings_on,
    until,
)
from tests.support.doors import Doors
from tests.support.fake_client import FRESH_ESTIMATES, SITES, answer_of_worker, two_sites
from tests.support.traces import made_trace

JOB = ("ask", "--cpus", "8", "--walltime", "1h")


def waiting(settings: Settings, seconds: float = 60.0) -> Settings:
    """Return the settings with this time limit for answers; the default suits any machine."""
    return msgspec.structs.replace(settings, serve=ServeSettings(answer_timeout_seconds=seconds))


def query(settings: Settings, act: Callable[[QuestionClient], Any], seconds: float = 60.0) -> Any:
    """Return the result of a function of a started client."""

    async def run() -> Any:
        client = QuestionClient(waiting(settings, seconds))
        await client.start()
        try:
            return await act(client)
        finally:
            await client.stop()

    return asyncio.run(run())


def known(settings: Settings) -> list[str]:
    """Return the sites that have estimates."""

    async def look(client: QuestionClient) -> list[str]:
        return client.cache.sites

    found: list[str] = query(settings, look)
    return found


@contextmanager
def busy(stack: LocalStack, directory: Path) -> Iterator[Deployment]:
    """A worker that has processed the events of two sites and has estimates of both."""
    settings = settings_on(stack.kafka.bootstrap, stack.redis.url, {}, {"history": 150}, estimates=FRESH_ESTIMATES)
    events = two_sites()
    with closing(Deployment(settings, directory / settings.redis.prefix)) as here:
        here.worker.start()
        for event in events:
            here.producer.send(here.topics.events, key=event.site.encode(), value=msgspec.json.encode(event))
        here.await_outputs(sum(map(len, here.expected(events).values())))
        until(lambda: known(settings) == list(SITES))
        yield here


@pytest.fixture(scope="module")
def here(local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One deployment for all tests that only query."""
    with busy(local_stack, tmp_path_factory.mktemp("queries")) as deployment:
        yield deployment


def command(here: Deployment, tmp_path: Path, *arguments: str, seconds: float = 60.0) -> Command:
    """Run `queuecast …` with a deployment's settings to its end."""
    config = tmp_path / "ask.toml"
    config.write_text(as_toml(waiting(here.settings, seconds)))
    with Command(tmp_path, "--config", str(config), *arguments) as found:
        found.process.wait(300)
    return found


APART_S = (0.0, 10.0, -10.0, 600.0, -600.0)
"""Offsets of a client's clock to the clocks of the broker and the worker (s)."""


@pytest.mark.parametrize("stamps", ["CreateTime", "LogAppendTime"])
def test_question_with_wrong_client_clock_is_answered(here: Deployment, stamps: str) -> None:
    """With timestamps by the broker, and on a topic of an earlier version."""
    _stamp(here, stamps)

    async def ask(client: QuestionClient) -> list[AnyAnswer]:
        send = client._producer.send_and_wait
        answers = []
        for apart_s in APART_S:
            stamp = int((time.time() + apart_s) * 1000)
            client._producer.send_and_wait = partial(send, timestamp_ms=stamp)
            answers.append(await client.ask(SiteQuestion(id=new_id(), site=SITES[0])))
        return answers

    answers = query(here.settings, ask, seconds=20.0)
    assert [type(one).__name__ for one in answers] == ["SiteAnswer"] * len(APART_S)


def _stamp(here: Deployment, stamps: str) -> None:
    """Configure the topic as an earlier version or as `queuecast topics create`."""
    key, name = "message.timestamp.type", here.topics.questions
    with KafkaAdminClient(**here.settings.kafka.client_options()) as client:
        if stamps == "CreateTime":
            client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {key: stamps})])
        else:
            create_topics(here.settings)
        found = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name, {key: None})])
    assert found["topic"][name][key]["value"] == stamps


def test_answers_equal_those_of_an_engine_with_same_events(here: Deployment) -> None:
    def questions(site: str) -> list[AnyQuestion]:
        engine = engine_after(two_sites(), site, here.settings.engine)
        job = next(job.id for job in engine.context.state.jobs.values())
        user = next(event.user for event in two_sites() if event.kind == "submit")  # type: ignore[union-attr]
        return [
            WaitQuestion(id=new_id(), site=site, cpus=8, walltime=3600.0),
            JobsQuestion(id=new_id(), site=site, user=str(user)),
            JobQuestion(id=new_id(), site=site, job=job),
            SiteQuestion(id=new_id(), site=site),
        ]

    async def ask(client: QuestionClient) -> list[AnyAnswer]:
        return await asyncio.gather(*map(client.ask, wanted))

    wanted = [question for site in SITES for question in questions(site)]
    engines = {site: engine_after(two_sites(), site, here.settings.engine) for site in SITES}
    found = list(map(without_the_workers_own, query(here.settings, ask)))
    assert found == [answer_of_worker(one, engines[one.site]) for one in wanted]


def without_the_workers_own(found: AnyAnswer) -> AnyAnswer:
    """Return an answer without the worker's own state and the scores of its answers."""
    if not isinstance(found, SiteAnswer):
        return found
    answers = [one for one in found.answers if one.kind in ("expected", "what-if")]
    return msgspec.structs.replace(found, answers=answers, worker=msgspec.UNSET)


def test_late_client_reads_estimates_and_outcomes(here: Deployment) -> None:
    async def look(client: QuestionClient) -> Any:
        return {site: (client.cache.estimates(site), client.cache.outcomes(site, DEFAULT)) for site in SITES}

    for site, (estimates, outcomes) in query(here.settings, look).items():
        assert {one.cpus for one in estimates.estimates} >= {1, 128}
        assert estimates.latest.site_cpus == 128
        assert len(outcomes) == 50
        assert len({outcome.job for outcome in outcomes}) == 50
        assert outcomes[0].observed_at == engine_after(two_sites(), site, here.settings.engine).time


def test_client_skips_unreadable_messages_with_warning(here: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "streams.client.client")

    async def ask(client: QuestionClient) -> AnyAnswer:
        here.producer.send(here.topics.answers, key=b"alder", value=b"nonsense")
        await asyncio.to_thread(here.producer.flush, 30)
        return await client.ask(WaitQuestion(id=new_id(), site="alder", cpus=8))

    for topic in (here.topics.estimates, here.topics.outcomes):
        here.producer.send(topic, key=b"alder", value=b"nonsense")
    here.producer.flush(timeout=30)
    assert not isinstance(query(here.settings, ask), NoAnswer)
    logged = [record.getMessage() for record in caplog.records if "Skipped a message" in record.getMessage()]
    assert {topic for topic in here.topics if any(topic in line for line in logged)} == {
        here.topics.estimates,
        here.topics.outcomes,
        here.topics.answers,
    }


def test_query_command_prints_ranked_sites(here: Deployment, tmp_path: Path) -> None:
    result = command(here, tmp_path, *JOB)
    assert (result.process.returncode, result.err) == (0, "")
    assert all(site in result.out for site in SITES)
    as_json = command(here, tmp_path, *JOB, "--json", "--site", "alder", "--site", "birch", "--site", "elm")
    assert (as_json.process.returncode, as_json.err) == (0, "")
    ranking = msgspec.json.decode(as_json.out, type=Ranking)
    assert {(ranked.site, ranked.source) for ranked in ranking.ranking} == {(site, "what-if") for site in SITES}
    responses = [ranked.predicted_response_s for ranked in ranking.ranking]
    assert responses == sorted(responses, key=lambda response: response or 0.0)
    assert [(out.site, "unknown site" in out.reason) for out in ranking.left_out] == [("elm", True)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((*JOB, "--site", "elm"), "elm unknown site"),
        (("ask", "--cpus", "129", "--walltime", "1h"), "alder has 128 CPUs birch has 128 CPUs"),
    ],
)
def test_query_without_rankable_site_prints_reason(
    here: Deployment, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    result = command(here, tmp_path, *arguments)
    assert result.process.returncode == 1
    assert result.err.startswith("queuecast: no site has an estimate for this job")
    assert reason in " ".join(result.out.split())


@pytest.mark.long
def test_questions_keep_outputs_and_state_unchanged(deploy: Deploy) -> None:
    here, events = deploy(estimates=FRESH_ESTIMATES), two_sites()
    half = len(events) // 2

    async def ask(client: QuestionClient) -> None:
        for number in range(60):
            site = SITES[number % 2]
            await asyncio.gather(
                client.ask(WaitQuestion(id=new_id(), site=site, cpus=1 + number, walltime=600.0 * number, user="u1")),
                client.ask(JobsQuestion(id=new_id(), site=site, user="u1")),
                client.ask(SiteQuestion(id=new_id(), site=site)),
            )

    here.worker.start()
    for some in (events[:half], events[half:]):
        here.send(some)
        query(here.settings, ask)
    here.await_outputs(sum(map(len, here.expected(events).values())))
    query(here.settings, ask)
    here.stop()
    assert here.records() == here.expected(events)
    for site in SITES:
        assert here.stored(site) == here.expected_in_redis(events, site)


def allowed(user: str, **operations: str) -> list[ACL]:
    """Return the ACLs that allow a user this operation on each of these topics."""

    def on(topic: str) -> ResourcePattern:
        return ResourcePattern(ResourceType.TOPIC, f"queuecast.{topic}", ACLResourcePatternType.LITERAL)

    allow = ACLPermissionType.ALLOW
    return [ACL(f"User:{user}", "*", ACLOperation[name], allow, on(topic)) for topic, name in operations.items()]


@pytest.mark.long
def test_query_on_secured_kafka_requires_permission(doors: Doors) -> None:
    reads = dict.fromkeys(("answers", "estimates", "outcomes"), "READ")
    client = KafkaAdminClient(bootstrap_servers=doors.inner)
    client.create_acls(allowed("reader", **reads) + allowed("doctor", **reads, questions="WRITE"))
    client.close()
    question = ("ask", "--site", "elm")
    in_vain = doors.run("doctor", *question, SERVE_ANSWER_TIMEOUT_SECONDS="0.5")
    assert in_vain[0] == 1 and "elm  no worker answers for this site" in in_vain[1]
    assert "'reader' may not write to queuecast.questions" in doors.refusal("reader", *question)
    assert "'stranger' may not see queuecast." in doors.refusal("stranger", *question)
    assert "user 'doctor' is refused; is it this username, this password" in doors.refusal(
        "doctor", *question, KAFKA_PASSWORD="wr0ng"
    )
    other = doors.refusal("doctor", *question, KAFKA_CA_FILE=str(doors.stranger))
    assert "its certificate is not trusted" in other


def test_client_queries_and_follows_records(here: Deployment) -> None:
    with Client(here.settings) as grid:
        assert grid.sites == list(SITES)
        ranking = grid.rank(cpus=8, walltime="1h")
        assert {(one.site, one.source) for one in ranking.ranking} == {(site, "what-if") for site in SITES}
        assert grid.wait("alder", ranking.job).predicted_wait_s is not None
        assert grid.estimate("alder", cpus=8, walltime="1h") in grid.estimates("alder")
        with pytest.raises(UnknownSite):
            grid.site("elm")
        stands = next(grid.estimate_changes(site="birch"))
        assert stands.site == "birch"

        def jobs(count: int) -> list[str]:
            group = f"{here.settings.kafka.prefix}meta"
            with closing(grid.predictions(site="alder", group=group, from_beginning=True)) as found:
                return [record.job for record in islice(found, count)]

        again = jobs(3)
        assert len(again) == 3 and jobs(3) == again  # records not consumed to the end are delivered again


def test_list_commands_print_sites_jobs_and_dead_letters(here: Deployment, tmp_path: Path) -> None:
    for arguments in (("sites",), ("jobs", "--site", "alder"), ("dead-letters",)):
        result = command(here, tmp_path, *arguments)
        assert (result.process.returncode, result.err) == (0, ""), arguments
        assert max(map(len, result.out.splitlines())) <= 80
    assert [line.split()[0] for line in command(here, tmp_path, "sites").out.splitlines()[2:4]] == list(SITES)


@pytest.mark.long
def test_ingest_reports_earlier_events_and_worker_progress(deploy: Deploy, tmp_path: Path) -> None:
    here, trace = deploy(estimates=FRESH_ESTIMATES), made_trace(tmp_path / "made.swf", jobs=60)
    result = command(here, tmp_path, "ingest", str(trace))
    assert "no worker is running" in result.err
    here.worker.start()
    until(lambda: known(here.settings) == ["made"])
    again = command(here, tmp_path, "ingest", str(trace))
    assert "made already has events until " in again.err and " UTC, and these start at " in again.err
    assert "the worker caught up " in again.out
    third = command(here, tmp_path, "ingest", str(trace), "--json")
    summary = json.loads(third.out)
    (site,) = summary["sites"]
    assert again.out.startswith(
        f"{site['site']}: {site['events']} events, {site['jobs']} jobs\n{summary['events']} events"
    )
    assert "the worker caught up " in third.err
