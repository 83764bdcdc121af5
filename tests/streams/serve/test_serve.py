"""The HTTP service, with engines in this process to ask."""

import socket
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from litestar.testing import TestClient
from prometheus_client.parser import text_string_to_metric_families

from models.engine.engine import Engine
from models.ranking import SiteSettings
from models.records import AnyAnswer, AnyQuestion
from models.registry import DEFAULT
from streams.client.questions import TooManyQuestions
from streams.errors import UserError
from streams.serve import web
from streams.serve.middleware import SECURITY_HEADERS
from streams.serve.run import check_closed, listen
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings
from tests.support.asked import USER, FakeClient, engine

TOKEN = "correct horse battery"
JOB = "cpus=8&walltime=1h"
TEST_HOSTS = ("testserver", "testserver.local")
"""The names under which test clients ask."""

Client = TestClient[Any]


def engines() -> list[Engine]:
    return [engine("alder", 1), engine("birch", 2, 128)]


def app_of(questions: FakeClient, **serve: Any) -> Any:
    """The service over these questions, with these settings of its section."""
    chosen = Settings(serve=ServeSettings(**{"hosts": TEST_HOSTS, "requests_per_minute": 100_000} | serve))
    return build_app(Service(questions, chosen), chosen)


@pytest.fixture
def client() -> Iterator[Client]:
    with TestClient(app_of(FakeClient(engines()))) as found:
        yield found


def told(client: Client, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


class TestAnswers:
    def test_the_sites_and_what_is_set_of_them(self) -> None:
        sites = {"birch": SiteSettings(speed=2.0, max_cpus=64, max_walltime=3600.0)}
        with TestClient(app_of(FakeClient(engines()), sites=sites)) as client:
            alder, birch = told(client, "/v1/sites")["sites"]
        assert (alder["site"], alder["cpus"], alder["speed"], alder["max_cpus"]) == ("alder", 64, 1.0, None)
        assert (birch["site"], birch["cpus"], birch["speed"]) == ("birch", 128, 2.0)
        assert (birch["max_cpus"], birch["max_walltime"]) == (64, 3600.0)
        assert alder["live"]["running_jobs"] > 0
        assert alder["updated_at"] > alder["made_at"] > 0

    def test_a_site_as_its_worker_knows_it(self, client: Client) -> None:
        site = told(client, "/v1/sites/alder")
        assert (site["type"], site["site"], site["cpus"], site["method"]) == ("site", "alder", 64, DEFAULT)
        assert site["weeks"]
        assert site["queued"]

    def test_when_a_job_starts(self, client: Client) -> None:
        job = told(client, "/v1/sites/alder")["queued"][0]
        found = told(client, f"/v1/sites/alder/jobs/{job['job']}")
        assert (found["type"], found["job"], found["live"]["job"]) == ("job", job["job"], job["job"])
        assert found["text"].startswith("starts ") and found["expected_start"] >= found["made_at"]
        gone = told(client, "/v1/sites/alder/jobs/gone")
        assert gone["live"] is None and gone["text"].startswith("no such job")
        described = told(client, f"/v1/sites/alder/jobs/gone?{JOB}")
        waits = told(client, f"/v1/sites/alder/wait?{JOB}")
        assert described["text"].startswith("starts ")
        assert (described["live"], described["expected_start"]) == (None, waits["predicted_start"])
        told(client, "/v1/sites/nowhere/jobs/1", 404)

    def test_what_stands_of_a_site(self, client: Client) -> None:
        found = told(client, "/v1/sites/alder/estimates")
        assert found["site"] == "alder"
        assert {estimate["cpus"] for estimate in found["estimates"]} == {1, 2, 4, 8, 16, 32, 64}

    @pytest.mark.parametrize(("query", "count"), [("", 50), ("?most=2", 2)])
    def test_what_became_of_its_latest_jobs(self, client: Client, query: str, count: int) -> None:
        found = told(client, f"/v1/sites/alder/outcomes{query}")["outcomes"]
        assert [outcome["job"] for outcome in found] == [str(59 - back) for back in range(count)]

    def test_how_long_a_job_would_wait(self) -> None:
        questions = FakeClient(engines())
        with TestClient(app_of(questions)) as client:
            query = "cpus=8&walltime=1-00:00:00&queue=&user=ada&nodes=2&gpus=1&memory=4096&executable=%2Fbin%2Ftrue"
            found = told(client, f"/v1/sites/alder/wait?{query}")
        assert (found["type"], found["site"]) == ("wait", "alder")
        (asked,) = questions.asked
        said = {"cpus": 8, "walltime": 86_400.0, "user": "ada", "nodes": 2, "gpus": 1, "memory": 4096}
        assert {name: getattr(asked, name) for name in said} == said
        assert (asked.queue, asked.group, asked.executable) == (None, None, "/bin/true")  # type: ignore[union-attr]

    def test_gpus_partitions_and_memory_are_asked_for(self) -> None:
        questions = FakeClient(engines())
        with TestClient(app_of(questions)) as client:
            query = "gpus=4&gpu_type=a100&partition=gpu,old&memory=64G&qos=high&tasks=2&exclusive=true&reservation=r"
            told(client, f"/v1/sites/alder/wait?{query}")
            assert told(client, f"/v1/rank?{query}")["job"]["memory"] == 64 << 30
        asked = questions.asked[0]
        said = {"gpus": 4, "gpu_types": {"a100": 4}, "partitions": ["gpu", "old"], "queue": "gpu", "memory": 64 << 30}
        said |= {"qos": "high", "tasks": 2, "exclusive": True, "reservation": "r"}
        assert {name: getattr(asked, name) for name in said} == said

    def test_the_ranking(self, client: Client) -> None:
        found = told(client, f"/v1/rank?{JOB}&site=alder&site=birch&site=elm&run=30m")
        assert found["job"]["walltime"] == 3600.0
        assert found["reference_run_s"] == 1800.0
        assert {one["site"] for one in found["ranking"]} == {"alder", "birch"}
        assert [out["site"] for out in found["left_out"]] == ["elm"]
        assert [one["site"] for one in told(client, "/v1/rank?cpus=100")["ranking"]] == ["birch"]

    def test_a_users_jobs_and_the_accuracy_with_the_sites_that_were_silent(self) -> None:
        with TestClient(app_of(FakeClient(engines(), silent=["birch"]))) as client:
            jobs = told(client, f"/v1/users/{USER}/jobs")
            accuracy = told(client, "/v1/accuracy")
            nobody = told(client, "/v1/users/nobody/jobs")
        assert [site["site"] for site in jobs["sites"]] == ["alder"]
        assert jobs["sites"][0]["jobs"]
        assert accuracy["sites"][0]["weeks"]
        assert jobs["unanswered"] == accuracy["unanswered"] == nobody["unanswered"] == ["birch"]
        assert (jobs["user"], nobody["sites"]) == (USER, [])


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "detail"),
        [
            ("rank?cpus=0", "cpus: Expected `int` >= 1"),
            ("rank?cpus=many", "cpus: Expected `int`, got `str`"),
            ("rank?cpus=1&cpus=2", "cpus: expected once, it is given 2 times"),
            ("rank?cpu=8", "'cpu' is not a parameter; there are: account, cpus, "),
            ("rank?walltime=soon", "walltime: 'soon' is no duration; expected a time with its unit, not 0: 90m, 4h"),
            ("rank?walltime=14400", "walltime: '14400' is no duration without its unit; expected 14400m"),
            ("rank?memory=64X", "memory: '64X' is no size of memory; expected bytes, or a number with K, M, G or T"),
            ("rank?run=4+h", "run: '4 h' is no duration"),
            ("rank?site=a&site=", "site: Expected `str` of length >= 1"),
            (f"rank?user={'u' * 300}", "user: Expected `str` of length <= 256"),
            (f"rank?{'&'.join(['site=a'] * 1001)}", "site: Expected `array` of length <= 1000"),
            ("rank?user=%ff%fe&walltime=%00", "walltime: "),
            ("sites?x=1", "'x' is not a parameter; there are none here"),
            ("sites/alder/outcomes?most=51", "most: Expected `int` <= 50"),
            (f"sites/{'a' * 300}", "site: Expected `str` of length <= 256"),
        ],
    )
    def test_what_is_wrong_is_named(self, client: Client, path: str, detail: str) -> None:
        found = told(client, f"/v1/{path}", 400)
        assert found["status_code"] == 400
        assert found["detail"].startswith(detail)

    def test_a_query_of_any_length_is_answered(self, client: Client) -> None:
        assert told(client, f"/v1/rank?user={'u' * 60_000}", 400)["detail"].startswith("user: ")

    @pytest.mark.parametrize(
        "path", ["sites/elm", "sites/elm/estimates", "sites/elm/outcomes", f"sites/elm/wait?{JOB}"]
    )
    def test_an_unknown_site(self, client: Client, path: str) -> None:
        assert told(client, f"/v1/{path}", 404)["status_code"] == 404

    @pytest.mark.parametrize("path", ["sites/alder", f"sites/alder/wait?{JOB}"])
    def test_a_silent_worker(self, path: str) -> None:
        with TestClient(app_of(FakeClient(engines(), silent=["alder"]))) as client:
            assert "no worker answers" in told(client, f"/v1/{path}", 504)["detail"]

    def test_while_nothing_has_been_read_it_is_not_ready(self) -> None:
        questions = FakeClient(engines())
        questions.startup_problem = questions.broker_problem = "kafka: no broker answers"
        with TestClient(app_of(questions)) as client:
            for path in ("sites", "sites/alder/estimates", "sites/alder/outcomes", "rank", "accuracy", "users/u/jobs"):
                answer = client.get(f"/v1/{path}")
                assert (answer.status_code, answer.json()["detail"]) == (503, "kafka: no broker answers")
                assert answer.headers["retry-after"] == "2"
            ready = client.get("/readyz")
            assert (ready.status_code, ready.text) == (503, "kafka: no broker answers\n")
            assert client.get("/healthz").text == "ok\n"

    def test_too_many_questions(self) -> None:
        class Crowded(FakeClient):
            async def ask(self, question: AnyQuestion) -> AnyAnswer:
                raise TooManyQuestions("5000 questions are open; ask again later")

        with TestClient(app_of(Crowded(engines()))) as client:
            for path in ("sites/alder", "rank", "accuracy"):
                assert "questions are open" in told(client, f"/v1/{path}", 503)["detail"]

    def test_a_flaw_of_ours_tells_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(FakeClient):
            async def ask(self, question: AnyQuestion) -> AnyAnswer:
                raise ZeroDivisionError("of secrets")

        with TestClient(app_of(Broken(engines())), raise_server_exceptions=False) as client:
            assert "secrets" not in told(client, "/v1/sites/alder", 500)["detail"]
        assert "of secrets" in caplog.text

    def test_another_method_and_another_path(self, client: Client) -> None:
        answer = client.post("/v1/sites")
        assert (answer.status_code, "GET" in answer.headers["allow"]) == (405, True)
        assert client.get("/v2/sites").json() == {"status_code": 404, "detail": "Not Found"}


class TestToken:
    @pytest.fixture
    def locked(self) -> Iterator[Client]:
        with TestClient(app_of(FakeClient(engines()), token=TOKEN)) as found:
            yield found

    @pytest.mark.parametrize(
        "header",
        [None, "", "Bearer", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", "Bearer \u00e9"],
    )
    def test_who_does_not_show_it_is_not_let_in(self, locked: Client, header: str | None) -> None:
        headers = {} if header is None else {"authorization": header.encode("utf-8")}
        for path in ("/v1/sites", "/v1/rank?cpus=0", "/v1/sites/elm"):
            answer = locked.get(path, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert TOKEN not in answer.text

    def test_who_shows_it_is(self, locked: Client) -> None:
        for scheme in ("Bearer", "bearer"):
            assert locked.get("/v1/sites", headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 200

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/schema/openapi.json"])
    def test_what_needs_none(self, locked: Client, path: str) -> None:
        assert locked.get(path).status_code == 200


def requests_counted(client: Client) -> Counter[tuple[str, str]]:
    """How many requests this process has answered, by path and status."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].count("charset") == 1
    return Counter(
        {
            (sample.labels["path"], sample.labels["status_code"]): int(sample.value)
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
            if sample.name == "queuecast_http_requests_total"
        }
    )


class TestMiddleware:
    @pytest.mark.parametrize("path", ["/v1/sites", "/v1/rank?cpus=0", "/nothing", "/healthz", "/schema/openapi.json"])
    def test_every_answer_has_the_security_headers(self, client: Client, path: str) -> None:
        headers = client.get(path).headers
        assert {name: headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS

    def test_requests_are_counted_by_path_and_status(self, client: Client) -> None:
        before = requests_counted(client)
        for path in ("sites/alder", "sites/birch", "sites/elm", "rank?cpus=0"):
            client.get(f"/v1/{path}")
        client.get("/nowhere")
        counted = requests_counted(client) - before
        assert counted.pop(("/metrics", "200")) == 1
        assert counted == {
            ("/v1/sites/{site}", "200"): 2,
            ("/v1/sites/{site}", "404"): 1,
            ("/v1/rank", "400"): 1,
        }
        assert "queuecast_http_request_duration_seconds_bucket" in client.get("/metrics").text


class TestPage:
    @pytest.fixture
    def page(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
        (tmp_path / "page").mkdir()
        (tmp_path / "page" / "index.html").write_text("<p>waits</p>")
        (tmp_path / "page" / "app.js").write_text("'use strict'")
        (tmp_path / "secret").write_text("hidden")
        monkeypatch.setattr(web, "PAGE", tmp_path / "page")
        with TestClient(app_of(FakeClient(engines()), token=TOKEN)) as found:
            yield found

    def test_it_is_served_to_everybody(self, page: Client) -> None:
        index, script = page.get("/"), page.get("/static/app.js")
        assert (index.text, index.headers["content-type"]) == ("<p>waits</p>", "text/html; charset=utf-8")
        assert script.text == "'use strict'"
        assert "javascript" in script.headers["content-type"]

    @pytest.mark.parametrize("name", ["none.js", "..%2Fsecret", "%2e%2e/secret", "../secret", "a/b"])
    def test_nothing_else_is(self, page: Client, name: str) -> None:
        assert page.get(f"/static/{name}").status_code == 404


class TestListening:
    def test_a_port_that_is_taken_is_an_error(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(UserError, match=f"web port {port} of 127.0.0.1: .*; choose another with --web-port"):
                listen(ServeSettings(web_port=port))

    def test_a_host_that_is_not_ours_is_an_error(self) -> None:
        with pytest.raises(UserError, match=r"web port 6067 of 192\.0\.2\.1: "):
            listen(ServeSettings(web_host="192.0.2.1"))

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
    def test_on_loopback_no_token_is_needed(self, host: str) -> None:
        check_closed(ServeSettings(web_host=host), asks=False)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "192.0.2.1", ""])
    def test_elsewhere_one_is(self, host: str) -> None:
        check_closed(ServeSettings(web_host=host), asks=True)
        with pytest.raises(UserError, match=r"could ask about users' jobs: set a token with QUEUECAST_SERVE_TOKEN"):
            check_closed(ServeSettings(web_host=host), asks=False)


@cache
def served() -> Any:
    return app_of(FakeClient(engines()), token=TOKEN)


async def first_asked(scope: Any, receive: Any, send: Any) -> None:
    """The service, whose engines are made when it is first asked: not while tests are only collected."""
    await served()(scope, receive, send)


schema = schemathesis.openapi.from_asgi("/schema/openapi.json", app_of(FakeClient(), token=TOKEN))
schema.app = first_asked


@schema.parametrize()
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_is_as_its_document_says(case: schemathesis.Case) -> None:
    """Every path with parameters that fit and that do not: statuses, types and bodies are those of the document."""
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})


def test_the_document_has_every_path_and_asks_for_the_token() -> None:
    paths = schema.raw_schema["paths"]
    assert set(paths) == {
        "/v1/sites",
        "/v1/sites/{site}",
        "/v1/sites/{site}/estimates",
        "/v1/sites/{site}/outcomes",
        "/v1/sites/{site}/wait",
        "/v1/sites/{site}/jobs/{name}",
        "/v1/rank",
        "/v1/users/{user}/jobs",
        "/v1/accuracy",
        "/healthz",
        "/readyz",
        "/metrics",
    }
    answers = schema.raw_schema["components"]["schemas"]
    types = {
        name: answers[name]["properties"]["type"]["const"]
        for name in ("WaitAnswer", "SiteAnswer", "JobsAnswer", "JobAnswer")
    }
    assert types == {"WaitAnswer": "wait", "SiteAnswer": "site", "JobsAnswer": "jobs", "JobAnswer": "job"}
    asked = {path: bool(operation["get"].get("security")) for path, operation in paths.items()}
    assert asked == {path: path.startswith("/v1/") for path in paths}
