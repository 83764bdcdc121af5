"""The HTTP service while the worker of its machine compiles."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient

from models.records import AnyQuestion
from streams.client import client as client_module
from streams.client import probe_check
from streams.client.client import QuestionClient
from streams.serve.service import Service
from tests.support.compiled import fake_compilation
from tests.support.fake_client import FakeClient, app_of, engines

PROGRESS = "compiling 137 of 210 kernels, about 2 min left; first start only"
REASON = f"the worker is not ready: {PROGRESS}"


class Silent(FakeClient):
    """No worker answers."""

    async def _send(self, question: AnyQuestion) -> None:
        self.requests.append(question)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty folder of kernels, and wait for no answer."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(client_module, "COMPILING_TIMEOUT_S", 0.01)
    return tmp_path


@pytest.fixture
def compiling(cache: Path) -> Iterator[None]:
    with fake_compilation(cache, PROGRESS):
        yield


@pytest.fixture
def served(compiling: None) -> Iterator[TestClient[Any]]:
    with TestClient(app_of(Silent(engines()))) as found:
        yield found


def test_readiness_has_progress(served: TestClient[Any]) -> None:
    ready = served.get("/readyz")
    assert (ready.status_code, ready.text) == (503, f"{REASON}\n")
    assert served.get("/healthz").status_code == 200


def test_lists_have_progress(served: TestClient[Any]) -> None:
    status = served.get("/v1/status").json()
    assert (status["compiling"], status["unanswered"]) == (PROGRESS, ["alder", "birch"])
    assert served.get("/v1/sites").json()["compiling"] == PROGRESS


def test_site_returns_503_with_progress(served: TestClient[Any]) -> None:
    answer = served.get("/v1/sites/alder")
    assert (answer.status_code, answer.json()["detail"], answer.headers["retry-after"]) == (503, REASON, "10")


def test_wait_is_a_provisional_grid_estimate(served: TestClient[Any]) -> None:
    wait = served.get("/v1/sites/alder/wait?cpus=4&walltime=1h").json()
    shapes = served.get("/v1/sites/alder/estimates").json()["estimates"]
    (shape,) = (one for one in shapes if (one["cpus"], one["walltime"]) == (4, 3600.0))
    assert (wait["source"], wait["low_confidence"]) == ("grid", f"provisional: {REASON}")
    assert (wait["predicted_wait_s"], wait["bounds"]) == (shape["predicted_wait_s"], shape["bounds"])


@pytest.mark.usefixtures("compiling")
def test_provisional_wait_for_an_unknown_queue_is_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Silent(engines())
    estimate = questions.cache.covering("alder", 4, 3600.0, None)
    assert estimate is not None
    of_queue = msgspec.structs.replace(estimate, queue="batch")
    monkeypatch.setattr(questions.cache, "covering", lambda *_: of_queue)
    with TestClient(app_of(questions)) as client:
        wait = client.get("/v1/sites/alder/wait?cpus=4&walltime=1h&queue=bacth").json()
    assert wait["unverified"] == "the site has no grid estimates for queue 'bacth'; this one is for 'batch'"
    assert wait["low_confidence"] == f"provisional: {REASON}; {wait['unverified']}"


def test_wait_without_a_shape_is_the_recent_median(served: TestClient[Any]) -> None:
    wait = served.get("/v1/sites/alder/wait?cpus=4&gpus=1").json()
    assert (wait["source"], wait["method"], wait["predicted_wait_s"]) == ("median", "median", 4.0)
    assert wait["reason"] == "median of the last 50 jobs to start"
    assert wait["low_confidence"] == f"provisional: {REASON}"


@pytest.mark.parametrize("path", ["elm/wait?cpus=4", "alder/wait?cpus=4000&walltime=1h"])
def test_wait_without_history_returns_503(served: TestClient[Any], path: str) -> None:
    answer = served.get(f"/v1/sites/{path}")
    site = path.partition("/")[0]
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    assert answer.json()["detail"] == f"{REASON}; {site} has no history for a provisional answer"


def test_ranking_uses_grid_estimates(served: TestClient[Any]) -> None:
    ranking = served.get("/v1/rank?cpus=4&walltime=1h&site=alder&site=elm").json()
    assert [(one["site"], one["source"]) for one in ranking["ranking"]] == [("alder", "grid")]
    (out,) = ranking["left_out"]
    assert out["reason"] == f"no worker answers for this site, {PROGRESS}"


@pytest.mark.usefixtures("compiling")
def test_service_with_a_remote_worker_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "COMPILING_TIMEOUT_S", 60.0)
    with TestClient(app_of(FakeClient(engines()))) as client:
        assert client.get("/readyz").status_code == 200
        assert client.get("/v1/sites/alder").status_code == 200
        assert client.get("/v1/status").json()["compiling"] is None


def test_service_is_not_ready_when_its_worker_compiles_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = FakeClient(engines())
    with TestClient(app_of(questions)) as client:
        assert client.get("/v1/sites/alder").status_code == 200
        questions.silent = {"alder", "birch"}  # the worker ended for an upgrade
        with fake_compilation(cache, PROGRESS):
            assert (ready := client.get("/readyz")).status_code == 503
            assert ready.text == f"{REASON}\n"
            assert client.get("/v1/sites").json()["compiling"] == PROGRESS
            questions.silent = set()
            monkeypatch.setattr(client_module, "COMPILING_TIMEOUT_S", 60.0)
            assert client.get("/v1/sites/birch").status_code == 200
            assert client.get("/readyz").status_code == 200


@pytest.mark.usefixtures("compiling")
def test_probe_does_not_wait_for_a_slow_broker_or_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> bool:
        await asyncio.Event().wait()
        return True

    async def probed() -> str | None:
        questions = Silent(engines())
        monkeypatch.setattr(questions, "_check_broker", partial(QuestionClient._check_broker, questions))
        monkeypatch.setattr(client_module, "COMPILING_TIMEOUT_S", 600.0)
        monkeypatch.setattr(client_module, "broker_answers", never)
        async with asyncio.timeout(60):
            problem = await questions.problem()
            await questions.stop()
        return problem

    assert asyncio.run(probed()) == REASON


class SlowCheck:
    """A check that ends once `answered` is set."""

    def __init__(self) -> None:
        self.answered, self.ended = asyncio.Event(), 0

    async def __call__(self) -> None:
        await self.answered.wait()
        self.ended += 1


def test_slow_check_of_a_probe_runs_once_and_is_reported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_check, "MAX_WAIT_S", 0.01)
    monkeypatch.setattr(probe_check, "FRESH_S", 600.0)

    async def ended() -> list[int]:
        check, found = SlowCheck(), list[int]()
        probe = probe_check.ProbeCheck(check)
        await asyncio.gather(probe.refresh(), probe.refresh())
        found.append(check.ended)
        check.answered.set()
        for _ in range(2):
            await probe.refresh()
            found.append(check.ended)
        return found

    assert asyncio.run(ended()) == [0, 1, 1]


def test_probe_after_a_slow_check_starts_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result may be much older: probes are some ten seconds apart."""
    monkeypatch.setattr(probe_check, "FRESH_S", 0.0)

    async def ended() -> int:
        check = SlowCheck()
        probe = probe_check.ProbeCheck(check)
        monkeypatch.setattr(probe_check, "MAX_WAIT_S", 0.0)
        await probe.refresh()
        check.answered.set()
        async with asyncio.timeout(60):
            while not check.ended:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(probe_check, "MAX_WAIT_S", 60.0)
        await probe.refresh()
        return check.ended

    assert asyncio.run(ended()) == 2


def test_probe_in_flight_ends_when_the_service_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_check, "MAX_WAIT_S", 60.0)

    async def stopped() -> None:
        probe = probe_check.ProbeCheck(SlowCheck())
        refreshing = asyncio.ensure_future(probe.refresh())
        await asyncio.sleep(0)
        probe.stop()
        await refreshing

    asyncio.run(stopped())


@pytest.mark.usefixtures("compiling")
def test_worker_that_falls_silent_counts_as_compiling(cache: Path) -> None:
    questions = FakeClient(engines())
    questions._heard_at = time.monotonic() - client_module.HEARD_WITHIN_S - 1
    assert questions.compiling() == PROGRESS
    questions._heard_at = time.monotonic()
    assert questions.compiling() is None


def test_service_without_compilation_is_ready(cache: Path) -> None:
    questions = FakeClient(engines())
    assert questions.compiling() is None
    assert Service(questions, questions._settings).sites().compiling is None
