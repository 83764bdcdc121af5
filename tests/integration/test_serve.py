"""The HTTP service as a process, with a real Kafka and a real worker."""

import json
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from deploy.local.stack import LocalStack, free_port
from deploy.local.up import ServeProcess, as_toml
from models.records import WaitQuestion
from streams.settings import ServeSettings, Settings
from tests.support.command import Command
from tests.support.deployment import Deployment, engine_after, ready, settings_on, until
from tests.support.documented import ask_readable_constraints
from tests.support.fake_client import FRESH_ESTIMATES, SITES, answer_of_worker, two_sites

TOKEN = "correct horse battery"
JOB = "cpus=8&walltime=1h"


def get(serve: ServeProcess, path: str, token: str | None = TOKEN) -> tuple[int, Any]:
    """Return the status and the body, decoded if it is JSON."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        answer = opener.open(urllib.request.Request(f"http://{serve.address}{path}", headers=headers), timeout=120)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        body, kind = answer.read(), answer.headers["content-type"]
        return answer.status, json.loads(body) if "json" in kind else body.decode()


def served(given: Settings, seconds: float = 60.0) -> Settings:
    """Return settings of a service that requires the token; `seconds` limits workers' answers."""
    return msgspec.structs.replace(given, serve=ServeSettings(token=TOKEN, answer_timeout_seconds=seconds))


@pytest.fixture(scope="module")
def here(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A worker that has processed the events of two sites."""
    given = settings_on(stack.kafka.bootstrap, stack.redis.url, {}, {"history": 150}, estimates=FRESH_ESTIMATES)
    with closing(Deployment(given, tmp_path_factory.mktemp("served") / "worker")) as deployment:
        deployment.worker.start()
        deployment.send(two_sites())
        deployment.await_outputs(sum(map(len, deployment.expected(two_sites()).values())))
        yield deployment


@pytest.fixture(scope="module")
def serve(here: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """The service, with both sites."""
    with ServeProcess(tmp_path_factory.mktemp("serve"), served(here.settings)) as process:
        until(lambda: [site["site"] for site in sites(process)] == list(SITES))
        yield process


def sites(serve: ServeProcess) -> list[dict[str, Any]]:
    status, body = get(serve, "/v1/sites")
    return list(body["sites"]) if status == 200 else []


def test_service_responses_equal_worker_answers(here: Deployment, serve: ServeProcess) -> None:
    engine = engine_after(two_sites(), "alder", here.settings.engine)
    status, body = get(serve, f"/v1/sites/alder/wait?{JOB}&user=u1")
    question = WaitQuestion(id=body["id"], site="alder", cpus=8, walltime=3600.0, user="u1")
    answer = msgspec.json.decode(msgspec.json.encode(answer_of_worker(question, engine)))
    assert (status, body) == (200, answer)
    _, ranking = get(serve, f"/v1/rank?{JOB}&site=alder&site=birch&site=elm")
    assert {one["site"]: one["source"] for one in ranking["ranking"]} == dict.fromkeys(SITES, "what-if")
    assert [out["site"] for out in ranking["left_out"]] == ["elm"]
    assert get(serve, "/v1/sites/elm")[0] == 404
    assert len(get(serve, "/v1/sites/alder/outcomes")[1]["outcomes"]) == 50
    assert [one["site"] for one in get(serve, "/v1/status")[1]["sites"]] == list(SITES)


def test_service_requires_token_for_data(serve: ServeProcess) -> None:
    assert [get(serve, "/v1/sites", token)[0] for token in (None, "wrong horse", TOKEN)] == [401, 401, 200]
    for path in ("/", "/healthz", "/readyz", "/metrics", "/schema/openapi.json"):
        assert get(serve, path, None)[0] == 200
    assert "<html" in get(serve, "/", None)[1]
    assert 'path="/v1/sites",status_code="401"}' in get(serve, "/metrics", None)[1]


def test_query_command_uses_service_by_url(serve: ServeProcess, tmp_path: Path) -> None:
    url = f"http://{serve.address}"
    with Command(tmp_path, "ask", *JOB_OPTIONS, "--url", url, "--token", TOKEN) as result:
        assert result.ended() == 0
    assert all(site in result.out for site in SITES)
    with Command(tmp_path, "ask", *JOB_OPTIONS, "--url", url) as refused:
        assert refused.ended() == 1
    assert "the token is missing or wrong" in refused.err


JOB_OPTIONS = ("--cpus", "8", "--walltime", "1h")


def test_service_conforms_to_openapi_document(serve: ServeProcess) -> None:
    """Statuses, types and bodies equal the document, over the network and with real workers."""
    schema = schemathesis.openapi.from_url(f"http://{serve.address}/schema/openapi.json")
    ask_readable_constraints(schema)
    for operation in schema.get_all_operations():
        _check(operation.ok())  # type: ignore[union-attr]


def _check(operation: Any) -> None:
    @given(case=operation.as_strategy())
    @settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120)

    check()


@pytest.mark.parametrize(
    "request_line",
    [f"GET /v1/rank?user={'u' * 100_000} HTTP/1.1", "GET /\x00 HTTP/1.1", "nonsense", "GET /v1/sites HTTP/1.1"],
)
def test_invalid_http_request_gets_400_and_service_continues(serve: ServeProcess, request_line: str) -> None:
    host, _, port = serve.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as raw:
        raw.sendall(f"{request_line}\r\n\r\n".encode())
        assert raw.recv(64).startswith(b"HTTP/1.1 400")
    assert get(serve, "/healthz")[0] == 200


@pytest.mark.long
def test_serve_reports_and_survives_silent_workers_and_kafka(
    here: Deployment, stack: LocalStack, tmp_path: Path
) -> None:
    with ServeProcess(tmp_path / "serve", served(here.settings, seconds=5.0)) as serve:
        until(lambda: [site["site"] for site in sites(serve)] == list(SITES))
        here.worker.kill()
        assert get(serve, "/v1/sites/alder")[0] == 504
        ranking = get(serve, f"/v1/rank?{JOB}")[1]["ranking"]
        assert {one["site"]: one["source"] for one in ranking} == dict.fromkeys(SITES, "grid")
        assert get(serve, "/v1/status")[1]["unanswered"] == list(SITES)
        stack.kafka.kill()
        until(lambda: get(serve, "/readyz")[0] == 503)
        assert "no broker answers" in get(serve, "/readyz")[1]
        ranking = get(serve, f"/v1/rank?{JOB}")[1]["ranking"]
        assert {one["site"]: one["source"] for one in ranking} == dict.fromkeys(SITES, "grid")
        assert get(serve, "/v1/sites/alder")[0] == 503
        assert get(serve, "/healthz")[0] == 200
        with ServeProcess(tmp_path / "late", served(here.settings)) as late:  # which never reached Kafka
            assert get(late, "/v1/sites")[0] == 503
            stack.kafka.start()
            here.worker.start()
            until(lambda: ready(here.worker))
            for process in (serve, late):
                until(lambda process=process: get(process, "/readyz")[0] == 200)  # type: ignore[misc]
                until(lambda process=process: get(process, "/v1/sites/alder")[0] == 200)  # type: ignore[misc]
        assert "Traceback" not in serve.log.read_text()


def test_service_stops_cleanly_and_logs_json(here: Deployment, tmp_path: Path) -> None:
    config, port = tmp_path / "serve.toml", str(free_port())
    config.write_text(as_toml(here.settings))
    environment = {
        "QUEUECAST_SERVE_LOG_FORMAT": "json",
        "QUEUECAST_SERVE_WEB_HOST": "0.0.0.0",
        "QUEUECAST_SERVE_TOKEN": TOKEN,
    }
    with Command(tmp_path, "--config", str(config), "serve", "--web-port", port, **environment) as first:
        until(lambda: "Serving http://" in first.err)
        until(lambda: _reachable(int(port)))
        with Command(tmp_path, "--config", str(config), "serve", "--web-port", port) as second:
            assert second.ended() == 1
        assert (
            second.err
            == f"queuecast: web port {port} of 127.0.0.1: Address already in use; choose another with --web-port\n"
        )
        assert first.ended(signal.SIGTERM) == 0
    logged = [json.loads(line) for line in first.err.splitlines()]
    assert logged[0]["level"] == "info", logged
    assert TOKEN not in first.err
    assert {line["instance"] for line in logged} == {f"serve-{port}"}


@pytest.mark.parametrize("token", [None, "", "change-me"])
def test_serve_without_token_rejects_public_address(here: Deployment, tmp_path: Path, token: str | None) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(as_toml(here.settings))
    environment = {"QUEUECAST_SERVE_WEB_HOST": "0.0.0.0"}
    environment |= {} if token is None else {"QUEUECAST_SERVE_TOKEN": token}
    with Command(tmp_path, "--config", str(config), "serve", **environment) as refused:
        assert refused.ended() == (1 if token is None else 2)
    assert refused.err.startswith("queuecast: ") and refused.err.count("\n") == 1
    assert "token" in refused.err.lower()


def test_half_open_requests_of_one_client_block_no_other(serve: ServeProcess) -> None:
    host, _, port = serve.address.partition(":")
    with ExitStack() as opened:
        for _ in range(1001):
            half = opened.enter_context(socket.create_connection((host, int(port)), timeout=60))
            half.sendall(b"GET /v1/sites HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        assert [get(serve, path)[0] for path in ("/healthz", "/readyz", "/v1/sites", "/")] == [200] * 4


def test_serve_reloads_tokens_and_shows_a_user_own_jobs(here: Deployment, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[ada]\ntoken = "the first of ada"\nrights = "own"\nuser = "u1"\n')
    serving = msgspec.structs.replace(served(here.settings).serve, tokens_file=str(tokens))
    with ServeProcess(tmp_path / "serve", msgspec.structs.replace(here.settings, serve=serving)) as serve:
        until(lambda: get(serve, "/v1/users/u1/jobs", "the first of ada")[0] == 200)
        assert get(serve, "/v1/users/u2/jobs", "the first of ada")[0] == 403
        tokens.write_text('[ada]\ntoken = "the second of ada"\nrights = "own"\nuser = "u1"\n')
        until(lambda: get(serve, "/v1/users/u1/jobs", "the second of ada")[0] == 200)
        assert get(serve, "/v1/users/u1/jobs", "the first of ada")[0] == 401
        log = serve.log.read_text()
    assert 'client="ada"' in log and 'user="u2"' in log and "status=403" in log
    assert "of ada" not in log and TOKEN not in log


def _reachable(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
