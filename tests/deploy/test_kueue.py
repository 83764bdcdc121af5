"""Kueue's dispatcher on a fake API server with field managers, as in Kubernetes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from deploy.kueue import dispatcher as module
from deploy.kueue.dispatcher import ADMISSION, CONDITION, Conflict, Dispatcher, KueueApi
from models.ranking import JobRequest
from models.records import JobAnswer
from streams.client.pending_questions import UnknownJob
from streams.errors import UserError
from streams.sources.schedulers.kueue import KueueSource
from tests.streams.sources.schedulers.test_kueue import at, workload
from tests.support.answering import Answer, HttpRequest, answering

Object = dict[str, Any]
CHECK = {"metadata": {"name": "multi"}, "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
CHECK["spec"]["parameters"] = {"name": "clusters"}  # type: ignore[index]
CONFIG = {"metadata": {"name": "clusters"}, "spec": {"clusters": ["worker1", "worker2", "worker3"]}}
NOW = 1_714_557_700.0


class Cluster:
    """A fake API server of workloads with status fields by manager, in pages of one object."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Object]] = {"multikueueconfigs": [CONFIG], "admissionchecks": [CHECK]}
        self.objects["workloads"] = []
        self.applied: dict[str, dict[str, Object]] = {}
        self.refused = set[str]()
        self.url = ""

    def add(self, found: Object) -> Object:
        self.objects["workloads"].append(found)
        self.applied[found["metadata"]["name"]] = {ADMISSION: dict(found["status"])}
        return found

    def apply(self, name: str, manager: str, body: Object) -> int:
        (found,) = (one for one in self.objects["workloads"] if one["metadata"]["name"] == name)
        known = found["metadata"]["resourceVersion"]
        if name in self.refused:
            return 422
        if body["metadata"].get("resourceVersion", known) != known:
            return 409
        found["metadata"]["resourceVersion"] = str(int(known) + 1)
        applied = self.applied[name]
        applied[manager] = body["status"]
        conditions = {one["type"]: one for status in applied.values() for one in status.get("conditions", [])}
        found["status"] = {field: value for status in applied.values() for field, value in status.items()}
        found["status"]["conditions"] = list(conditions.values())
        return 200

    def answer(self, request: HttpRequest) -> Answer:
        place, query = urlsplit(request.path), parse_qs(urlsplit(request.path).query)
        if request.body:
            assert request.headers["Content-Type"] == "application/apply-patch+yaml"
            name = re.fullmatch(r"/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads/(\w+)/status", place.path)
            body = json.loads(request.body)
            assert name and query["force"] == ["true"] and body["kind"] == "Workload"
            return json_answer({}, self.apply(name[1], query["fieldManager"][0], body))
        if place.path == "/apis/kueue.x-k8s.io":
            return json_answer({"versions": [{"version": "v1beta1"}, {"version": "v1alpha1"}]})
        found = self.objects[place.path.removeprefix("/apis/kueue.x-k8s.io/v1beta1/")]
        if "watch" in query or "limit" not in query:
            return json_answer({"items": [] if "watch" in query else found, "metadata": {"resourceVersion": "9"}})
        start = int(query.get("continue", ["0"])[0])
        more = str(start + 1) if start + 1 < len(found) else ""
        return json_answer({"items": found[start : start + 1], "metadata": {"continue": more}})


def json_answer(document: Object, status: int = 200) -> Answer:
    return Answer(json.dumps(document).encode(), status)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    with answering(found.answer) as found.url:
        yield found


class Service:
    """A fake HTTP service of queuecast: ranked sites, the best first, and the start of the job."""

    def __init__(self, *ranked: str) -> None:
        self.ranked, self.requests, self.start = list(ranked), list[JobRequest](), NOW + 720.0
        self.is_slow = False

    def rank(self, job: JobRequest, sites: list[str]) -> Any:
        self.requests.append(job)
        if not self.ranked:
            raise UserError("away")
        found = [SimpleNamespace(site=site, predicted_response_s=1.0) for site in self.ranked if site in sites]
        return SimpleNamespace(ranking=found)

    def job(self, name: str, sites: list[str]) -> dict[str, JobAnswer | None]:
        (site,) = sites
        if self.is_slow:
            return {site: None}
        if site != "birch":
            raise UnknownJob(name)
        fields = {"job": name, "text": "", "expected_start": self.start, "starts_by": {"0.9": self.start + 2400}}
        return {site: JobAnswer(id="1", site=site, made_at=0.0, ahead_jobs=3, **fields)}


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def dispatcher(cluster: Cluster, service: Service, clock: Clock, here: str | None = None) -> Dispatcher:
    sites = {"worker1": "alder", "worker2": "birch", "worker3": "cedar"}
    return Dispatcher(KueueApi(cluster.url), service, sites, here, 600.0, clock)  # type: ignore[arg-type]


def with_quota(name: str = "a") -> Object:
    found = workload(name, ("QuotaReserved", 1))
    found["status"]["admissionChecks"] = [{"name": "multi", "state": "Pending"}]
    return found


def nominated(found: Object) -> list[str] | None:
    names: list[str] | None = found["status"].get("nominatedClusterNames")
    return names


def test_dispatcher_nominates_best_cluster_and_later_the_next(cluster: Cluster) -> None:
    cluster.add(workload("without"))
    found, service, clock = cluster.add(with_quota()), Service("birch", "alder"), Clock()
    looks = dispatcher(cluster, service, clock)
    looks.poll()
    assert nominated(found) == ["worker2"] and nominated(cluster.objects["workloads"][0]) is None
    assert (service.requests[0].cpus, service.requests[0].gpus, service.requests[0].walltime) == (5, 3, 3600.0)
    assert found["status"]["admission"] == {"clusterQueue": "a100"}  # fields applied by Kueue stay
    assert [one["type"] for one in found["status"]["conditions"]] == ["QuotaReserved"]
    clock.now += 599.0
    looks.poll()
    assert nominated(found) == ["worker2"]
    clock.now += 1.0
    looks.poll()
    assert nominated(found) == ["worker2", "worker1"]
    assert CONDITION not in json.dumps(cluster.applied["a"][ADMISSION])  # not a field of Kueue
    found["status"]["clusterName"] = "worker2"
    count = len(service.requests)
    clock.now += 600.0
    looks.poll()
    assert len(service.requests) == count


def test_dispatcher_without_estimates_nominates_all_clusters(cluster: Cluster) -> None:
    found = cluster.add(with_quota())
    dispatcher(cluster, Service(), Clock()).poll()
    assert nominated(found) == ["worker1", "worker2", "worker3"]


def test_dispatcher_after_last_estimate_nominates_other_clusters(cluster: Cluster) -> None:
    found, service, clock = cluster.add(with_quota()), Service("birch"), Clock()
    looks = dispatcher(cluster, service, clock)
    looks.poll()
    service.ranked.clear()
    clock.now += 600.0
    looks.poll()
    assert nominated(found) == ["worker2", "worker1", "worker3"]


def test_rejected_workload_does_not_block_other_workloads(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """For the nomination of a cluster, and for the expected start."""
    for name in "abcd":
        cluster.add(with_quota(name) if name in "ab" else workload(name))
    cluster.refused |= {"a", "c"}
    looks = dispatcher(cluster, Service("birch"), Clock(), here="birch")
    looks.poll()
    looks.poll()
    _, b, _, d = cluster.objects["workloads"]
    assert nominated(b) == ["worker2"] and CONDITION in json.dumps(b) and CONDITION in json.dumps(d)
    assert [one.message.split(": ")[0] for one in caplog.records] == ["ml/a", "ml/c"]


def test_dispatcher_updates_many_workloads_in_turn(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUERIES", 2)
    clock = Clock()
    looks = dispatcher(cluster, Service("birch"), clock, here="birch")
    for name in "abcde":
        cluster.add(workload(name))
    for expected in (2, 4, 5):
        clock.now += 10.0
        looks.poll()
        assert sum(CONDITION in json.dumps(one["status"]) for one in cluster.objects["workloads"]) == expected


def test_changed_workload_is_deferred_to_the_next_poll(cluster: Cluster) -> None:
    found, api = cluster.add(with_quota()), KueueApi(cluster.url)
    with pytest.raises(Conflict):
        api.apply(found, ADMISSION, {}, "1")
    assert "admission" in found["status"]


def test_workload_condition_reports_expected_start(cluster: Cluster) -> None:
    found, service, clock = cluster.add(workload("a")), Service("birch"), Clock()
    looks = dispatcher(cluster, service, clock, here="birch")

    def conditions() -> list[Object]:
        return [one for one in found["status"]["conditions"] if one["type"] == CONDITION]

    looks.poll()
    (condition,) = conditions()
    assert condition["message"] == "about 2024-05-01 10:13 UTC, 90 % by 2024-05-01 10:53 UTC; 3 jobs ahead"
    check_condition(condition)
    service.start += 50.0
    looks.poll()
    assert conditions() == [condition]  # a small change
    service.start += 50.0
    looks.poll()
    (condition,) = conditions()
    assert condition["message"].startswith("about 2024-05-01 10:15")
    service.is_slow = True
    looks.poll()
    assert conditions() == [condition]  # no answer
    service.is_slow = False
    found["status"]["conditions"].append(
        {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": at(5)}
    )
    looks.poll()
    assert not conditions()


def check_condition(condition: Object) -> None:
    """Check a condition by the schema of Kueue's Workload and by Kubernetes' own model."""
    client = pytest.importorskip("kubernetes.client")
    client.V1Condition(**{re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", k): v for k, v in condition.items()})
    name = (
        r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
    )
    assert re.fullmatch(name, condition["type"]) and re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*\w)?", condition["reason"])
    assert condition.keys() == {"type", "status", "reason", "message", "lastTransitionTime"}


def test_kueue_source_with_kubernetes_package_reads_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source `kueue` with the real package, which other tests replace."""
    kube_config = pytest.importorskip("kubernetes.config.kube_config")
    cluster.add(with_quota())
    context = {"name": "here", "context": {"cluster": "here", "user": "here"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": [context]}
    config |= {
        "clusters": [{"name": "here", "cluster": {"server": cluster.url}}],
        "users": [{"name": "here", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    steps = KueueSource("here", "alder", pytest.fail, version="v1beta1").events()
    event, cursor = next(steps)
    assert event is not None and (event.kind, event.site, cursor is not None) == ("submit", "alder", True)
