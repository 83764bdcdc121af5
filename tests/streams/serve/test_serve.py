"""The HTTP service with in-process engines."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient
from prometheus_client.parser import text_string_to_metric_families

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import SiteSettings
from models.method_registry import DEFAULT
from models.records import AnyAnswer, AnyQuestion, NoAnswer, SiteAnswer, SiteQuestion
from models.site.shapes import Shape
from streams.client.pending_questions import TooManyQuestions, on_behalf_of
from streams.serve.middleware import SECURITY_HEADERS
from streams.settings.sections import ServeToken
from tests.support.fake_client import NOW, TOKEN, USER, FakeClient, app_of, engine, engines, key

JOB = "cpus=8&walltime=1h"

Client = TestClient[Any]


@pytest.fixture
def client() -> Iterator[Client]:
    with TestClient(app_of(FakeClient(engines()))) as found:
        yield found


def get(client: Client, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def reported_accuracy(site: Engine) -> Any:
    """Return the accuracy of a site's answers, as reported by its engine."""
    found = answer(SiteQuestion(id="1", site=site.site), site, site.time)
    assert isinstance(found, SiteAnswer)
    return msgspec.to_builtins(found.answers)


class TestAnswers:
    def test_sites_returns_state_and_settings(self) -> None:
        sites = {"birch": SiteSettings(speed=2.0, max_cpus=64, max_walltime=3600.0)}
        with TestClient(app_of(FakeClient(engines()), sites=sites)) as client:
            alder, birch = get(client, "/v1/sites")["sites"]
        assert (alder["site"], alder["cpus"], alder["speed"], alder["max_cpus"]) == ("alder", 64, 1.0, None)
        assert (birch["site"], birch["cpus"], birch["speed"]) == ("birch", 128, 2.0)
        assert (birch["max_cpus"], birch["max_walltime"]) == (64, 3600.0)
        assert alder["live"]["running_jobs"] > 0
        assert alder["updated_at"] > alder["made_at"] > 0

    def test_site_returns_worker_state(self, client: Client) -> None:
        site = get(client, "/v1/sites/alder")
        assert (site["type"], site["site"], site["cpus"], site["method"]) == ("site", "alder", 64, DEFAULT)
        assert site["weeks"]
        assert site["queued"]

    def test_job_returns_expected_start(self, client: Client) -> None:
        job = get(client, "/v1/sites/alder")["queued"][0]
        found = get(client, f"/v1/sites/alder/jobs/{job['job']}")
        assert (found["type"], found["job"], found["live"]["job"]) == ("job", job["job"], job["job"])
        assert found["text"].startswith("starts ") and found["expected_start"] >= found["made_at"]
        assert get(client, "/v1/sites/alder/jobs/gone", 404)["detail"].startswith("alder: no such job")
        described = get(client, f"/v1/sites/alder/jobs/gone?{JOB}")
        waits = get(client, f"/v1/sites/alder/wait?{JOB}")
        assert described["text"].startswith("starts ")
        assert (described["live"], described["expected_start"]) == (None, waits["predicted_start"])
        get(client, "/v1/sites/nowhere/jobs/1", 404)

    def test_name_with_encoded_slash_is_resolved(self) -> None:
        name = "ro ss/ä"
        with TestClient(app_of(FakeClient([engine(name, 1)]))) as client:
            assert [site["site"] for site in get(client, "/v1/sites")["sites"]] == [name]
            for path in ("", "/outcomes", "/estimates", f"/wait?{JOB}", f"/jobs/a%2Fb?{JOB}"):
                assert get(client, f"/v1/sites/ro%20ss%2F%C3%A4{path}")["site"] == name
            assert get(client, "/v1/sites/ro%20ss%2f%C3%A4")["site"] == name
            assert get(client, "/v1/users/a%2Fb/jobs")["user"] == "a/b"
            get(client, "/v1/sites/ro%2Fss", 404)
            assert get(client, "/v1/sites/ro/ss", 404)

    def test_trends_return_hours_and_days(self, client: Client) -> None:
        past = get(client, "/v1/sites/alder/trends")
        assert past["hours"][-1]["running_jobs"] > 0 and past["days"][0]["jobs"] > 0
        assert "trends" not in get(client, "/v1/sites/alder")

    def test_status_returns_sites_and_unanswered_sites(self) -> None:
        with TestClient(app_of(FakeClient(engines(), silent=["birch"]))) as client:
            status = get(client, "/v1/status")
        [alder] = status["sites"]
        assert (alder["site"], alder["stale"], alder["lag_messages"]) == ("alder", None, 0)
        assert alder["recent"]["jobs"] > 0 and alder["live"]["running_jobs"] > 0
        assert (status["workers"], status["unanswered"]) == ([], ["birch"])

    def test_accuracy_returns_sites_and_unanswered_sites(self) -> None:
        with TestClient(app_of(FakeClient(engines(), silent=["birch"]))) as client:
            accuracy = get(client, "/v1/accuracy")
        [alder] = accuracy["sites"]
        assert (alder["site"], accuracy["unanswered"]) == ("alder", ["birch"])
        assert alder["recent"]["jobs"] > 0 and [age["age_s"] for age in alder["while_waiting"]][:1] == [600.0]
        assert alder["while_waiting"][0]["ratio"] > 0.0

    def test_sites_return_start_of_worker_silence(self) -> None:
        questions = FakeClient(engines(), silent=["birch"])
        with TestClient(app_of(questions)) as client:

            def silent() -> list[bool]:
                return [site["silent_since"] is not None for site in get(client, "/v1/sites")["sites"]]

            assert silent() == [False, False]  # not queried yet
            get(client, "/v1/sites/nowhere", 404)
            get(client, "/v1/sites/birch", 504)
            since = get(client, "/v1/sites")["sites"][1]["silent_since"]
            assert since == NOW
            get(client, "/v1/sites/birch", 504)
            assert get(client, "/v1/sites")["sites"][1]["silent_since"] == since
            questions.silent.clear()
            get(client, "/v1/sites/birch")
            assert silent() == [False, False]

    def test_new_estimate_ends_worker_silence(self) -> None:
        questions = FakeClient(engines(), silent=["birch"])
        with TestClient(app_of(questions)) as client:
            get(client, "/v1/sites/birch", 504)
            latest = questions.cache.estimates("birch").latest
            shape = Shape(latest.cpus, latest.walltime, latest.queue)
            questions.cache.put_estimate(key("birch", shape), msgspec.json.encode(latest), 1, NOW + 1)
            assert get(client, "/v1/sites")["sites"][1]["silent_since"] is None

    def test_estimates_returns_cached_estimates_of_site(self, client: Client) -> None:
        found = get(client, "/v1/sites/alder/estimates")
        assert found["site"] == "alder"
        assert {estimate["cpus"] for estimate in found["estimates"]} == {1, 2, 4, 8, 16, 32, 64}

    @pytest.mark.parametrize(("query", "count"), [("", 50), ("?limit=2", 2)])
    def test_outcomes_returns_latest_jobs_up_to_limit(self, client: Client, query: str, count: int) -> None:
        found = get(client, f"/v1/sites/alder/outcomes{query}")["outcomes"]
        assert [outcome["job"] for outcome in found] == [str(59 - back) for back in range(count)]

    def test_wait_parameters_describe_job(self) -> None:
        questions = FakeClient(engines())
        with TestClient(app_of(questions)) as client:
            query = "cpus=8&walltime=1-00:00:00&queue=&user=ada&nodes=2&gpus=1&memory=4096&executable=%2Fbin%2Ftrue"
            found = get(client, f"/v1/sites/alder/wait?{query}")
        assert (found["type"], found["site"]) == ("wait", "alder")
        (question,) = questions.requests
        fields = {"cpus": 8, "walltime": 86_400.0, "user": "ada", "nodes": 2, "gpus": 1, "memory": 4096}
        assert {name: getattr(question, name) for name in fields} == fields
        assert (question.queue, question.group, question.executable) == (None, None, "/bin/true")  # type: ignore[union-attr]

    def test_gpu_partition_and_memory_parameters_describe_job(self) -> None:
        questions = FakeClient(engines())
        with TestClient(app_of(questions)) as client:
            query = "gpus=4&gpu_type=a100&partition=gpu,old&memory=64G&qos=high&tasks=2&exclusive=true&reservation=r"
            query += "&constraint=ib%26(a100|h100)"
            get(client, f"/v1/sites/alder/wait?{query}")
            assert get(client, f"/v1/rank?{query}")["job"]["memory"] == 64 << 30
        question = questions.requests[0]
        fields = {"gpus": 4, "gpu_types": {"a100": 4}, "partitions": ["gpu", "old"], "queue": "gpu", "memory": 64 << 30}
        fields |= {"qos": "high", "tasks": 2, "exclusive": True, "reservation": "r"}
        fields |= {"node_features": [["a100", "ib"], ["h100", "ib"]]}
        assert {name: getattr(question, name) for name in fields} == fields

    def test_rank_returns_ranking_and_excluded_sites(self, client: Client) -> None:
        found = get(client, f"/v1/rank?{JOB}&site=alder&site=birch&site=elm&run=30m")
        assert found["job"]["walltime"] == 3600.0
        assert found["reference_run_s"] == 1800.0
        assert {one["site"] for one in found["ranking"]} == {"alder", "birch"}
        assert [out["site"] for out in found["left_out"]] == ["elm"]
        assert [one["site"] for one in get(client, "/v1/rank?cpus=100")["ranking"]] == ["birch"]
        for one in found["ranking"]:
            assert (
                one["recent"]["method"] == DEFAULT and one["recent"]["jobs"] > 0 and one["recent"]["mean_error_s"] > 0
            )

    def test_user_jobs_and_status_list_silent_sites(self) -> None:
        with TestClient(app_of(FakeClient(engines(), silent=["birch"]))) as client:
            jobs = get(client, f"/v1/users/{USER}/jobs")
            status = get(client, "/v1/status")
            unknown_user = get(client, "/v1/users/nobody/jobs")
        assert [site["site"] for site in jobs["sites"]] == ["alder"]
        assert jobs["sites"][0]["jobs"]
        assert status["sites"][0]["answers"] == reported_accuracy(engine("alder", 1))
        assert jobs["unanswered"] == status["unanswered"] == unknown_user["unanswered"] == ["birch"]
        assert (jobs["user"], unknown_user["sites"]) == (USER, [])


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "detail"),
        [
            ("rank?cpus=0", "cpus: expected a whole number >= 1"),
            ("rank?cpus=many", "cpus: expected a whole number, got text"),
            ("rank?cpus=1&cpus=2", "cpus: expected once, it is given 2 times"),
            ("rank?cpu=8", "'cpu' is not a parameter; there are: account, constraint, cpus, "),
            (
                "rank?walltime=soon",
                "walltime: 'soon' is not a valid duration; expected a time with its unit, not 0: 90m, 1.5h",
            ),
            ("rank?walltime=14400", "walltime: '14400' is not a valid duration without a unit; expected 14400m"),
            (
                "rank?memory=64X",
                "memory: '64X' is not a valid memory size; expected bytes, or a number with K, M, G or T",
            ),
            ("rank?constraint=ib%26", "constraint: 'ib&' cannot be read; expected features with & and | between"),
            ("rank?run=4+h", "run: '4 h' is not a valid duration"),
            ("rank?site=a&site=", "site: expected text, not an empty one"),
            (f"rank?user={'u' * 300}", "user: expected text of length <= 256"),
            (f"rank?{'&'.join(['site=a'] * 1001)}", "site: expected a list of length <= 1000"),
            ("rank?user=%ff%fe&walltime=%00", "walltime: "),
            ("sites?x=1", "'x' is not a parameter; there are none here"),
            ("sites/alder/outcomes?limit=51", "limit: expected a whole number <= 50"),
            (f"sites/{'a' * 300}", "site: expected text of length <= 256"),
        ],
    )
    def test_invalid_parameter_returns_400_with_detail(self, client: Client, path: str, detail: str) -> None:
        found = get(client, f"/v1/{path}", 400)
        assert found["status_code"] == 400
        assert found["detail"].startswith(detail)

    def test_overlong_query_returns_400(self, client: Client) -> None:
        assert get(client, f"/v1/rank?user={'u' * 60_000}", 400)["detail"].startswith("user: ")

    @pytest.mark.parametrize(
        "path", ["sites/elm", "sites/elm/estimates", "sites/elm/outcomes", f"sites/elm/wait?{JOB}"]
    )
    def test_unknown_site_returns_404(self, client: Client, path: str) -> None:
        assert get(client, f"/v1/{path}", 404)["status_code"] == 404

    @pytest.mark.parametrize("path", ["sites/alder", f"sites/alder/wait?{JOB}"])
    def test_silent_worker_returns_504(self, path: str) -> None:
        with TestClient(app_of(FakeClient(engines(), silent=["alder"]))) as client:
            assert "no worker answers" in get(client, f"/v1/{path}", 504)["detail"]

    def test_unready_service_returns_503(self) -> None:
        questions = FakeClient(engines())
        questions.startup_problem = questions.broker_problem = "kafka: no broker answers"
        with TestClient(app_of(questions)) as client:
            for path in ("sites", "sites/alder/estimates", "sites/alder/outcomes", "rank", "status", "users/u/jobs"):
                answer = client.get(f"/v1/{path}")
                assert (answer.status_code, answer.json()["detail"]) == (503, "kafka: no broker answers")
                assert answer.headers["retry-after"] == "2"
            ready = client.get("/readyz")
            assert (ready.status_code, ready.text) == (503, "kafka: no broker answers\n")
            assert client.get("/healthz").text == "ok\n"

    def test_too_many_open_queries_return_503(self) -> None:
        class Crowded(FakeClient):
            async def ask(self, question: AnyQuestion) -> AnyAnswer:
                raise TooManyQuestions("5000 queries are open; try again later")

        with TestClient(app_of(Crowded(engines()))) as client:
            for path in ("sites/alder", "rank", "status"):
                problem = get(client, f"/v1/{path}", 503)
                assert "queries are open" in problem["detail"] and problem["reason"] == "busy"

    @pytest.mark.parametrize(("reason", "status"), [("busy", 503), ("quota", 429)])
    def test_busy_worker_response_has_retry_after(self, reason: str, status: int) -> None:
        class Full(FakeClient):
            async def ask(self, question: AnyQuestion) -> AnyAnswer:
                return NoAnswer(id=question.id, site=question.site, reason=reason, detail="too many questions wait")

        with TestClient(app_of(Full(engines()))) as client:
            answer = client.get(f"/v1/sites/alder/wait?{JOB}")
            assert (answer.status_code, answer.headers["retry-after"]) == (status, "2")
            assert answer.json().get("reason") == ("busy" if status == 503 else None)
            assert "too many questions wait" in answer.json()["detail"]
            ranked = get(client, f"/v1/rank?{JOB}")["ranking"]
            assert {one["source"] for one in ranked} == {"grid"}

    def test_question_contains_client_but_no_address(self) -> None:
        askers = []

        class Noting(FakeClient):
            async def ask(self, question: AnyQuestion) -> AnyAnswer:
                askers.append(on_behalf_of.get())
                return await super().ask(question)

        tokens = {"mira": ServeToken(token="a" * 20), "bob": ServeToken(token="b" * 20)}
        with TestClient(app_of(Noting(engines()), tokens=tokens)) as client:
            for letter in "aab":
                header = {"Authorization": f"Bearer {letter * 20}"}
                assert client.get("/v1/sites/alder", headers=header).status_code == 200
        mira, again, bob = askers
        assert mira is not None and mira == again != bob and "mira" not in mira

    def test_internal_error_hides_exception_and_logs_it(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(FakeClient):
            async def ask(self, question: AnyQuestion) -> AnyAnswer:
                raise ZeroDivisionError("of secrets")

        with TestClient(app_of(Broken(engines())), raise_server_exceptions=False) as client:
            assert "secrets" not in get(client, "/v1/sites/alder", 500)["detail"]
        assert "of secrets" in caplog.text

    def test_other_method_returns_405_and_other_path_404(self, client: Client) -> None:
        answer = client.post("/v1/sites")
        assert (answer.status_code, "GET" in answer.headers["allow"]) == (405, True)
        assert [client.head(path).status_code for path in ("/", "/healthz", "/v1/sites", "/v2")] == [200, 200, 200, 404]
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
    def test_missing_or_wrong_token_returns_401(self, locked: Client, header: str | None) -> None:
        headers = {} if header is None else {"authorization": header.encode("utf-8")}
        for path in ("/v1/sites", "/v1/rank?cpus=0", "/v1/sites/elm"):
            answer = locked.get(path, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert TOKEN not in answer.text

    def test_bearer_token_grants_access(self, locked: Client) -> None:
        for scheme in ("Bearer", "bearer"):
            assert locked.get("/v1/sites", headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 200

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/schema/openapi.json"])
    def test_public_paths_require_no_token(self, locked: Client, path: str) -> None:
        assert locked.get(path).status_code == 200


def requests_counted(client: Client) -> Counter[tuple[str, str]]:
    """Count the answered requests of this process, by path and status."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].count("charset") == 1
    counted = Counter[tuple[str, str]]()
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            if sample.name == "queuecast_http_requests_total":  # one sample per HTTP method
                counted[sample.labels["path"], sample.labels["status_code"]] += int(sample.value)
    return counted


class TestMiddleware:
    @pytest.mark.parametrize("path", ["/v1/sites", "/v1/rank?cpus=0", "/nothing", "/healthz", "/schema/openapi.json"])
    def test_response_has_security_headers(self, client: Client, path: str) -> None:
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


def test_preferred_site_is_a_parameter_of_the_ranking(client: Client) -> None:
    last = get(client, f"/v1/rank?{JOB}")["ranking"][-1]["site"]
    assert get(client, f"/v1/rank?{JOB}&prefer={last}&unless_sooner=10d")["ranking"][0]["site"] == last
    assert "requires prefer" in get(client, f"/v1/rank?{JOB}&unless_sooner=10d", 400)["detail"]
