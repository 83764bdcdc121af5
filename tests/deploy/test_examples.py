"""Examples for CI, Snakemake, Parsl, SkyPilot and the IRI facility API, with a fake client."""

import asyncio
import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import fields

from deploy.ci import wait_or_give_up
from deploy.iri.start_estimate import with_start
from deploy.parsl.best_site import executors_by_start
from deploy.skypilot.launch_options import launch_options
from deploy.snakemake.best_partition import BestPartition
from models.ranking import Ranking, rank
from models.records import JobAnswer, WaitAnswer
from streams.client.pending_questions import UnknownJob
from streams.errors import Unreachable
from streams.settings import SECTIONS
from streams.settings.loading import NO_SETTINGS
from tests.models.test_ranking import JOB, bounded
from tests.support.snippets import ROOT


class FakeClient:
    """Answer with the waits of sites or partitions; without waits, raise `Unreachable`."""

    def __init__(self, waits: dict[str, WaitAnswer]) -> None:
        self.waits = waits
        self.requests: list[dict[str, Any]] = []

    def rank(self, **request: Any) -> Ranking:
        """Return the ranking of the sites."""
        self.requests.append(request)
        if not self.waits:
            raise Unreachable("away")
        return rank(JOB, self.waits, {}, start_within_s=1800.0)

    def wait(self, site: str, **request: Any) -> WaitAnswer:
        """Return the wait in a partition."""
        self.requests.append({"site": site, **request})
        if not self.waits:
            raise Unreachable("away")
        return self.waits[request["partition"]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient({})
    monkeypatch.setenv("QUEUECAST_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(wait_or_give_up, "HttpClient", lambda *_: client)
    return client


@pytest.mark.parametrize(
    ("waits", "code", "expected"),
    [
        ({"near": bounded(600.0, 300.0), "far": bounded(90_000.0, 60.0)}, 0, "near"),
        ({"far": bounded(90_000.0, 60.0)}, 75, "queuecast: no site starts the job within 30m with 90 %"),
        (
            {"young": bounded(0.0, low_confidence="2 jobs")},
            75,
            "queuecast: no site starts the job within 30m with 90 %",
        ),
    ],
)
def test_pipeline_exit_code_follows_expected_wait(
    served: FakeClient, capsys: pytest.CaptureFixture[str], waits: dict[str, WaitAnswer], code: int, expected: str
) -> None:
    served.waits = waits
    assert wait_or_give_up.main("64", "1h", "30m") == code
    printed = capsys.readouterr()
    assert (printed.err if code else printed.out) == f"{expected}\n" and not (printed.out and code)
    assert served.requests == [{"cpus": 64, "walltime": "1h", "start_within": "30m"}]


def test_pipeline_without_service_exits_with_message(served: FakeClient) -> None:
    with pytest.raises(SystemExit, match="queuecast: away"):
        wait_or_give_up.main("64", "1h", "30m")


def test_snakemake_chooses_partition_of_earliest_start() -> None:
    waits = {
        "batch": bounded(3600.0, 60.0),
        "short": bounded(0.0, cannot_run="at most 1h"),
        "long": bounded(900.0, 60.0),
        "old": bounded(0.0, stale="old"),
    }
    client: Any = FakeClient(waits)
    best = BestPartition(client, "kth", ["batch", "short", "long", "old"])
    assert evaluated_by_snakemake(best.within(240), threads=16) == "long"
    assert client.requests[0] == {"site": "kth", "cpus": 16, "walltime": 14_400.0, "partition": "batch"}
    client.waits = {}
    assert evaluated_by_snakemake(best.within(240), threads=16) == "batch"


def evaluated_by_snakemake(resource: Callable[..., str], threads: int) -> str:
    """Call the function of a resource as Snakemake 9 does: with its named parameters, and without other resources."""
    given = {"input": [], "attempt": 1, "rulename": "align", "async_run": None, "threads": threads}
    named = inspect.signature(resource).parameters
    return resource(None, **{name: value for name, value in given.items() if name in named})


def test_parsl_orders_executors_by_when_they_start() -> None:
    executors = {"kth": "kth-htex", "ctc": "ctc-htex", "dead": "dead-htex"}
    client: Any = FakeClient({"kth": bounded(3600.0, 60.0), "ctc": bounded(60.0, 60.0)})
    assert executors_by_start(client, executors, 64, "4h") == ["ctc-htex", "kth-htex"]
    executors_by_start(client, executors, 64, "4h", home="kth")
    assert (client.requests[1]["prefer"], client.requests[1]["unless_sooner"]) == ("kth", "30m")
    for waits in ({}, {"kth": bounded(0.0, cannot_run="at most 32 CPUs")}):  # Parsl fails without an executor
        client.waits = waits
        assert executors_by_start(client, executors, 64, "4h") == ["kth-htex", "ctc-htex", "dead-htex"]


def test_skypilot_fails_over_after_the_bound_of_best_partition() -> None:
    client: Any = FakeClient(
        {
            "batch": bounded(3600.0, 60.0),
            "short": bounded(0.0, cannot_run="at most 1h"),
            "gpu": bounded(900.0, 600.5),
            "old": bounded(0.0, stale="old"),
        }
    )
    places = [f"alder/{name}" for name in ("batch", "short", "gpu", "old")]
    expected = ["--infra", "slurm/alder/gpu", "--config", "slurm.provision_timeout=1501"]
    assert launch_options(client, 64, "4h", places) == expected
    client.waits = {"batch": bounded(1.0, 1.0)}
    assert launch_options(client, 64, "4h", ["alder/batch"])[3] == "slurm.provision_timeout=120"
    client.waits = {}
    assert launch_options(client, 64, "4h", places) == []


class FakeJobs:
    """A client that has one job."""

    def job(self, job: str, sites: list[str]) -> dict[str, JobAnswer | None]:
        """Return the answer for the job."""
        if job != "4711":
            raise UnknownJob("unknown")
        (site,) = sites
        given: dict[str, Any] = {"id": "", "site": site, "made_at": 0.0, "job": job, "text": "in 2h"}
        return {site: JobAnswer(**given, expected_start=7200.0, starts_by={"0.9": 9000.0}, ahead_jobs=3)}


@pytest.mark.parametrize(
    ("job", "state", "expected"),
    [
        (
            "4711",
            1,
            {
                "node": "n1",
                "queuecast": {
                    "expected_start": 7200.0,
                    "starts_by": {"0.9": 9000.0},
                    "ahead_jobs": 3,
                    "text": "in 2h",
                },
            },
        ),
        ("4711", 2, {"node": "n1"}),
        ("4712", 1, {"node": "n1"}),
    ],
    ids=["queued", "active", "unknown"],
)
def test_iri_status_has_the_expected_start_of_a_queued_job(job: str, state: int, expected: dict[str, Any]) -> None:
    client: Any = FakeJobs()
    given = SimpleNamespace(id=job, status=SimpleNamespace(state=state, meta_data={"node": "n1"}))
    assert asyncio.run(with_start(given, client, "alder")).status.meta_data == expected


def test_iri_job_without_status_is_unchanged() -> None:
    client: Any = FakeJobs()
    assert asyncio.run(with_start(SimpleNamespace(id="4711", status=None), client, "alder")).status is None


def test_variables_of_examples_are_accepted_by_commands() -> None:
    """A command refuses unknown variables, so it fails beside an example that uses one."""
    files = [file for file in (ROOT / "deploy").rglob("*") if file.suffix in (".py", ".md")]
    names = {name for file in files for name in re.findall(r"QUEUECAST_[A-Z_]*[A-Z]", file.read_text())}
    assert {"QUEUECAST_URL", "QUEUECAST_SERVE_TOKEN"} <= names
    settings = {f"QUEUECAST_{name}_{one.name}".upper() for name, kind in SECTIONS.items() for one in fields(kind)}
    assert names - settings - NO_SETTINGS == set()
