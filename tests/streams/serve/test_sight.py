"""Visibility of jobs by token, on each path of the service."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, JobsAnswer, JobsQuestion, SiteAnswer, SiteQuestion, Start, Submit
from streams.serve.service import Service
from streams.serve.sight import VisibleJobs, restricted
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings
from streams.settings.sections import ServeToken
from tests.support.fake_client import FakeClient

OWN, OTHERS = ("own-1", "own-2"), ("other-1", "other-2", "nobodys-1")
TOKENS = {
    "meta": ServeToken(token="rank-rank-rank", rights="rank"),
    "ada": ServeToken(token="ada's own token", rights="own", user="ada"),
    "admin": ServeToken(token="everything-is-seen"),
}
JOB = "cpus=8&walltime=1h"


def busy_engine() -> Engine:
    """Return a full site with a running and a pending job of each user."""
    found = Engine("alder", EngineSettings(method="median", shadows=(), bounds="", history=50))
    found.apply(Capacity(site="alder", time=0.0, cpus=16))
    users = {"own-1": "ada", "other-1": "bob", "other-2": "bob", "own-2": "ada", "nobodys-1": None}
    for number, (job, user) in enumerate(users.items()):
        found.apply(Submit(site="alder", time=10.0 + number, job=job, user=user, cpus=8, walltime=3600.0))
    for job in ("own-1", "other-1"):
        found.apply(Start(site="alder", time=20.0, job=job))
    return found


@pytest.fixture
def client() -> Iterator[TestClient[Any]]:
    settings = Settings(serve=ServeSettings(tokens=TOKENS))
    app = build_app(Service(FakeClient([busy_engine()]), settings), settings)
    with TestClient(app, base_url="http://127.0.0.1") as found:
        yield found


def get(client: TestClient[Any], path: str, name: str) -> tuple[int, str]:
    found = client.get(path, headers={"authorization": f"Bearer {TOKENS[name].token}"})
    return found.status_code, found.text


def paths(client: TestClient[Any]) -> Iterable[str]:
    """Yield each path under /v1 for the site, each job and each user."""
    values = {"site": ["alder"], "name": [*OWN, *OTHERS, "gone"], "user": ["ada", "bob"]}
    for route in client.app.routes:
        if isinstance(route, HTTPRoute) and route.path.startswith("/v1/") and "GET" in route.methods:
            found = [route.path]
            for parameter in route.path_parameters:
                found = [re.sub(rf"{{{parameter}:\w+}}", value, path) for path in found for value in values[parameter]]
            yield from found


def ids_in(value: Any) -> Iterator[str]:
    """Yield the ids of all jobs in a response."""
    if isinstance(value, dict):
        if isinstance(value.get("job"), str) and ("submit" in value or "actual_wait_s" in value):
            yield value["job"]
        for inner in value.values():
            yield from ids_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from ids_in(inner)


@pytest.mark.parametrize(("name", "seen"), [("ada", {*OWN}), ("meta", set[str]())])
def test_api_paths_hide_jobs_of_other_users(client: TestClient[Any], name: str, seen: set[str]) -> None:
    found, all_paths = set[str](), list(paths(client))
    assert len(all_paths) >= 16
    for path in all_paths:
        for query in ("", f"?{JOB}"):
            _, text = get(client, f"{path}{query}", name)
            found |= {*ids_in(json.loads(text))}
            mentioned = [job for job in OTHERS if job in text and job not in path]
            assert not mentioned, (path, mentioned)
            assert '"bob"' not in text or "/bob" in path, path
    assert found == seen
    everything = [{*ids_in(json.loads(get(client, path, "admin")[1]))} for path in all_paths]
    assert {*OWN, *OTHERS} <= set().union(*everything)


@pytest.mark.parametrize(
    ("name", "job", "expected"),
    [("ada", "own-2", 200), ("ada", "own-1", 200), ("meta", "own-2", 404), ("admin", "other-2", 200)]
    + [("ada", job, 404) for job in OTHERS],
)
def test_job_of_other_user_returns_404(client: TestClient[Any], name: str, job: str, expected: int) -> None:
    status, text = get(client, f"/v1/sites/alder/jobs/{job}", name)
    assert status == expected
    if status == 404:
        assert text == get(client, "/v1/sites/alder/jobs/gone", name)[1]
        described, missing = (get(client, f"/v1/sites/alder/jobs/{one}?{JOB}", name) for one in (job, "gone"))
        assert (described[0], *map(_unnamed, (described[1], missing[1]))) == (200, *[_unnamed(missing[1])] * 2)


def _unnamed(text: str) -> dict[str, Any]:
    """Return a response about a job without the ids of the job and the question."""
    return json.loads(text) | {"id": "", "job": ""}


def test_own_jobs_are_listed(client: TestClient[Any]) -> None:
    def queued(name: str) -> list[str]:
        return [job["job"] for job in json.loads(get(client, "/v1/sites/alder", name)[1])["queued"]]

    assert (queued("ada"), queued("meta")) == (["own-2"], [])
    assert queued("admin") == ["other-2", "own-2", "nobodys-1"]
    [site] = json.loads(get(client, "/v1/users/ada/jobs", "ada")[1])["sites"]
    assert {job["job"] for job in site["jobs"]} == {*OWN}


def test_restricted_answer_hides_invisible_jobs() -> None:
    engine = busy_engine()
    site = restricted(answer(SiteQuestion(id="1", site="alder"), engine, engine.time), VisibleJobs())
    jobs = restricted(
        answer(JobsQuestion(id="1", site="alder", user="bob"), engine, engine.time), VisibleJobs(user="ada")
    )
    assert isinstance(site, SiteAnswer) and site.queued == [] and site.live.queued_jobs == 3
    assert isinstance(jobs, JobsAnswer) and (jobs.jobs, jobs.more) == ([], 0)
