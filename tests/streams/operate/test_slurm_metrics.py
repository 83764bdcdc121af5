"""Comparison of a site with the metrics of its slurmctld, and truncated metrics pages."""

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import IncompleteRead
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.local.stack import free_port
from streams.errors import InvalidInput
from streams.operate import checks
from streams.operate.checks import CheckResult, check_notifier, check_slurm, check_source, page_of
from streams.settings import Settings
from tests.support.answering import Answer, answering

PAGES = {
    "/metrics/jobs": """# HELP slurm_jobs_pending Number of jobs in Pending state
# TYPE slurm_jobs_pending gauge
slurm_jobs_pending 40
# TYPE slurm_jobs_running gauge
slurm_jobs_running 7
""",
    "/metrics/nodes": """# TYPE slurm_node_cpus gauge
slurm_node_cpus{node="n1"} 64
slurm_node_cpus{node="n2"} 64
# TYPE slurm_nodes_down gauge
slurm_nodes_down 1
""",
}


@pytest.fixture
def address() -> Iterator[str]:
    with answering(lambda request: Answer(PAGES[request.path].encode())) as url:
        yield url.removeprefix("http://")


@pytest.mark.parametrize(
    ("queued", "held", "running", "cpus", "state"),
    [
        (40, 0, 7, 128, "ok"),
        (31, 0, 2, 128, "ok"),
        (20, 0, 7, 128, "warn"),
        (20, 20, 7, 128, "ok"),  # Slurm also counts held jobs
        (40, 20, 7, 128, "warn"),
        (40, 0, 7, 64, "warn"),
    ],
)
def test_check_slurm_compares_site_with_slurm_counts(
    address: str, queued: int, held: int, running: int, cpus: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = SimpleNamespace(queued_jobs=queued, running_jobs=running)

    @contextmanager
    def client(*_: Any, **__: Any) -> Iterator[Any]:
        known = SimpleNamespace(live=live, held_jobs=held, cpus=cpus)
        yield SimpleNamespace(site=lambda _: known)

    monkeypatch.setattr(checks, "Client", client)
    found = check_slurm(Settings(), f"alder={address}")
    assert found.state == state
    assert found.found == (
        f"alder: {queued + held} jobs queued or held where Slurm counts 40, "
        f"{running} jobs running where Slurm counts 7, {cpus} CPUs where Slurm counts 128"
    )


def test_check_slurm_without_metrics_page_fails() -> None:
    found = check_slurm(Settings(), f"alder=127.0.0.1:{free_port()}")
    assert found.state == "fail" and "MetricsType=metrics/openmetrics" in str(found)
    with pytest.raises(InvalidInput, match="expected SITE=HOST:PORT"):
        page_of("ctl:6817")


@pytest.mark.parametrize("check", [check_notifier, check_source])
def test_check_of_truncated_metrics_page_fails(
    check: Callable[[str], CheckResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(*_: object, **__: object) -> None:
        raise IncompleteRead(b"queue", 100)

    monkeypatch.setattr(urllib.request, "urlopen", broken_off)
    found = check("127.0.0.1:1")
    assert found.state == "fail" and "broke off" in found.found
