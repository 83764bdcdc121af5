"""Kueue's Workload objects, from the watch API and from files."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from queuecast.testing_sources import BadPart, SourceContract
from streams.errors import UserError
from streams.sources.schedulers.kueue import KueueLogSource, KueueSource
from tests.support.logs import plain, read

Object = dict[str, Any]
VERSIONS = iter(range(100, 1_000_000))


def at(minute: int) -> str:
    return f"2024-05-01T10:{minute:02}:00Z"


T = 1_714_557_600.0
"""The time at minute 0."""


def workload(name: str, *conditions: tuple[str, int] | tuple[str, int, str], active: bool = True) -> Object:
    pod = {
        "containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}}]
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": at(0),
            "resourceVersion": str(next(VERSIONS)),
            "ownerReferences": [{"kind": "Job", "name": "train"}],
        },
        "spec": {
            "queueName": "gpus",
            "active": active,
            "priority": 10,
            "priorityClassName": "high",
            "maximumExecutionTimeSeconds": 3600,
            "podSets": [{"count": 3, "template": {"spec": pod}}],
        },
        "status": {
            "admission": {"clusterQueue": "a100"},
            "conditions": [
                {"type": one[0], "status": "True", "reason": [*one, ""][2], "lastTransitionTime": at(one[1])}
                for one in conditions
            ],
        },
    }


ADMITTED = (("QuotaReserved", 5), ("Admitted", 6))
DONE = (*ADMITTED, ("Finished", 20, "Succeeded"))
SUBMIT = {
    "type": "submit",
    "time": T,
    "job": "ml/a",
    "group": "ml",
    "queue": "gpus",
    "executable": "train",
    "job_type": "Job",
    "qos": "high",
    "cpus": 5,
    "gpus": 3,
    "memory": 3 << 30,
    "tasks": 3,
    "walltime": 3600.0,
    "priority": 10.0,
}


def listed(*items: Object, indent: int | None = 4) -> str:
    found = {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(found, indent=indent) + "\n"


class TestKueueLog(SourceContract):
    name = "kueue-log"
    options: ClassVar = {"pause_s": 0.0}
    events = 11
    bad = (
        BadPart(line=2, field="metadata.creationTimestamp", expected="RFC 3339"),
        BadPart(line=3, field=None, expected="a Workload in JSON"),
        BadPart(line=4, field=None, expected="an object in JSON"),
    )

    def write(self, directory: Path) -> str:
        wrong = workload("x")
        wrong["metadata"]["creationTimestamp"] = "soon"
        lines = [
            json.dumps(workload("a")) + "\n",
            json.dumps(wrong) + "\n",
            '{"what"}\n',
            "what\n",
            listed(workload("a", *DONE), workload("b", *ADMITTED), workload("c")),
            json.dumps(workload("b", *DONE), indent=4) + "\n",
            json.dumps({"type": "DELETED", "object": workload("c")}) + "\n",
            listed(workload("d", *DONE), indent=None),
            listed(workload("e"))[:-300],
        ]
        path = directory / "workloads.json"
        path.write_text("".join(lines))
        return str(path)


def test_finished_workload_yields_submit_start_end(tmp_path: Path) -> None:
    for indent in (4, None):
        found = read("kueue-log", tmp_path, listed(workload("a", *DONE), indent=indent))
        assert plain(found.whole) == [
            SUBMIT,
            {"type": "start", "time": T + 360, "job": "ml/a", "partition": "a100"},
            {"type": "end", "time": T + 1200, "job": "ml/a"},
        ]


@pytest.mark.parametrize("indent", [4, None])
def test_workload_changes_emit_events(tmp_path: Path, indent: int | None) -> None:
    evicted = ("Evicted", 8, "Preempted"), ("Requeued", 9)
    changes = [
        workload("a", active=False),
        workload("a"),
        workload("a", *ADMITTED),
        workload("a", *ADMITTED, ("PodsReady", 7)),
        workload("a", *evicted),
        workload("a", ("Requeued", 9), ("Admitted", 11)),
        workload("a", ("Requeued", 12), ("Admitted", 13)),  # the eviction was missed
        workload("a", ("Requeued", 12), ("Admitted", 13), ("Finished", 20, "Failed")),
    ]
    text = "".join(json.dumps(change, indent=indent) + "\n" for change in changes)
    found = plain(read("kueue-log", tmp_path, text).live)
    assert [(event["type"], (event["time"] - T) / 60, event.get("attempt", 0)) for event in found] == [
        ("submit", 0, 0),
        ("hold", 0, 0),
        ("release", 0, 0),
        ("start", 6, 0),
        ("requeue", 8, 0),
        ("alter", 9, 1),  # eligible after the backoff
        ("start", 11, 1),
        ("requeue", 12, 1),
        ("start", 13, 2),
        ("end", 20, 2),
    ]
    assert (found[4]["state"], found[-1]["state"]) == ("preempted", "failed")


def test_requeued_workload_starts_as_second_attempt(tmp_path: Path) -> None:
    found = read("kueue-log", tmp_path, listed(workload("a", ("Requeued", 4), *ADMITTED)))
    assert [(event.kind, event.time - T, event.attempt) for event in found.live] == [
        ("submit", 240, 1),
        ("start", 360, 1),
    ]


class Cluster:
    """A minimal fake of the API server."""

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.changes: list[tuple[str, Object]] = []
        self.too_old = False
        self.versions = {"v1beta1", "v1beta2"}
        self.requests: list[str] = []

    def list_cluster_custom_object(self, *, version: str, **_: Any) -> Object:
        self.requests.append(version)
        if version not in self.versions:
            raise ApiException(404)
        return {"items": self.objects, "metadata": {"resourceVersion": "99"}}

    def stream(self, *_: Any, resource_version: str, **__: Any) -> Iterator[Object]:
        if self.too_old:
            self.too_old = False
            raise ApiException(410)
        for kind, found in self.changes:
            if int(found["metadata"]["resourceVersion"]) > int(resource_version):
                yield {"type": kind, "object": found}


class ApiException(Exception):
    def __init__(self, status: int) -> None:
        self.status, self.reason = status, "why"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Install a minimal fake of the package kubernetes, with a cluster."""
    found, package = Cluster(), ModuleType("kubernetes")
    package.client = SimpleNamespace(CustomObjectsApi=lambda: found, ApiException=ApiException)  # type: ignore[attr-defined]
    package.watch = SimpleNamespace(Watch=lambda: found)  # type: ignore[attr-defined]
    load = SimpleNamespace(load_kube_config=lambda context: None, ConfigException=OSError)
    package.config = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kubernetes", package)
    return found


class TestKueue(SourceContract):
    name = "kueue"
    options: ClassVar = {"pause_s": 0.0}
    events = 11
    bad = (BadPart(line=None, field="metadata.name", expected="a job's id"),)

    @pytest.fixture
    def location(self, tmp_path: Path, cluster: Cluster) -> str:  # type: ignore[override]
        cluster.objects = [workload("a", *DONE), workload("b", *ADMITTED), workload("c")]
        cluster.changes = [
            ("ADDED", workload("d")),
            ("MODIFIED", workload("d", *ADMITTED)),
            ("MODIFIED", workload("x" * 300)),
            ("DELETED", workload("c")),
            ("MODIFIED", workload("b", *DONE)),
            ("MODIFIED", workload("d", *DONE)),
        ]
        return "local"

    def write(self, directory: Path) -> str:
        return "local"


def test_expired_watch_lists_all_workloads_again(cluster: Cluster) -> None:
    cluster.objects = [workload("a"), workload("b", *ADMITTED)]
    steps = KueueSource("local", pause_s=0.0).events()
    assert [event.kind for event, _ in islice(steps, 3) if event is not None] == ["submit", "submit", "start"]
    cluster.too_old, cluster.objects = True, [workload("c", ("Admitted", 30))]
    rest = [event for event, _ in islice(steps, 5) if event is not None]
    assert [(event.kind, event.job, event.time - T) for event in rest] == [
        ("submit", "ml/c", 0),
        ("start", "ml/c", 1800),
        ("cancel", "ml/a", 1800),
        ("end", "ml/b", 1800),
    ]


def test_kueue_source_uses_newest_available_api_version(cluster: Cluster) -> None:
    cluster.objects = [workload("a")]
    for there, requests in (
        ({"v1beta1", "v1beta2"}, ["v1beta2"]),
        ({"v1beta1"}, ["v1beta2", "v1beta1"]),
        ({"v1beta2"}, ["v1beta2"]),
    ):
        cluster.versions, cluster.requests = there, []
        assert next(KueueSource("local", pause_s=0.0).events())[0] is not None
        assert cluster.requests == requests
    cluster.versions = {"v2"}
    with pytest.raises(UserError, match="404"):
        next(KueueSource("local", pause_s=0.0).events())
    assert next(KueueSource("local", version="v2", pause_s=0.0).events())[0] is not None


def test_workload_of_v1beta2_equals_v1beta1(tmp_path: Path) -> None:
    found = workload("a", *ADMITTED)
    found["apiVersion"] = "kueue.x-k8s.io/v1beta2"
    del found["spec"]["priorityClassName"]
    found["spec"]["priorityClassRef"] = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    assert plain(read("kueue-log", tmp_path, listed(found)).whole)[0] == SUBMIT


def test_kueue_workload_format_is_recognised() -> None:
    assert KueueLogSource.recognises(listed(workload("a")).encode())
    assert not KueueLogSource.recognises(b'{"apiVersion": "v1", "kind": "Pod"}\n')


def test_missing_extra_raises_install_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(UserError, match=r"not installed; pip install 'queuecast\[kueue\]'"):
        KueueSource("local")
