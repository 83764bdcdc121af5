"""External dispatcher for Kueue's MultiKueue: nominate the cluster where a job would finish first.

Set it in Kueue's configuration: `multiKueue.dispatcherName: queuecast`. The dispatcher ranks each workload that has
reserved its quota at the manager. It ranks the clusters of the workload's MultiKueueConfig, each of which is a
queuecast site, and nominates the best one. After `patience_s` without an admission it nominates the next one too.
Without estimates it nominates all clusters, as Kueue itself does.

Each pending workload gets a condition, `queuecast/StartExpected`, with its expected start.

Kueue clears nominations itself, and by server-side apply can do so only for the field manager `kueue-admission`. So the
dispatcher nominates as this field manager. It applies all status fields of that manager, because a manager gives up the
fields that it leaves out.
"""

import argparse
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from models.ranking import JobRequest
from models.records import JobAnswer
from streams.client.http import HttpClient
from streams.client.pending_questions import AnswerTimeout, UnknownJob
from streams.errors import UserError
from streams.sources.logs.fields import Object, object_at
from streams.sources.schedulers.kueue import GROUP, VERSIONS
from streams.sources.schedulers.kueue_workloads import conditions_of, request
from streams.text.terminal import minute

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S, PAGE = 30.0, 500


class Conflict(UserError):
    """An object has changed since it was read."""


class KueueApi:
    """Client for Kueue's objects at an API server, or at `kubectl proxy`.

    It authenticates with the token, which is renewed, and `ca.crt` in the folder of a service account, if these exist.
    Every method may raise a UserError.
    """

    def __init__(self, url: str, account: Path = SERVICE_ACCOUNT) -> None:
        self._url, self._token = f"{url.rstrip('/')}/apis/{GROUP}", account / "token"
        ca = account / "ca.crt"
        self._context = ssl.create_default_context(cafile=str(ca) if ca.exists() else None)
        self.version = ""

    def items(self, plural: str) -> list[Object]:
        """Return all objects of a kind, in all namespaces."""
        found, more = list[Object](), ""
        while True:
            page = self._call("GET", f"{self._of_version()}/{plural}?{urlencode({'limit': PAGE, 'continue': more})}")
            found += page.get("items") or []
            more = object_at(page, "metadata").get("continue") or ""
            if not more:
                return found

    def apply(self, workload: Object, manager: str, status: Object, version: str | None = None) -> None:
        """Apply these fields of a workload's status as this field manager.

        Fields that the manager owned and that are missing here are removed.

        Args:
            version: the resource version that was read.

        Raises:
            Conflict: the workload has another `version` by now.
        """
        known = object_at(workload, "metadata")
        names = {"name": known.get("name"), "namespace": known.get("namespace")}
        metadata = names if version is None else {**names, "resourceVersion": version}
        body = {
            "apiVersion": f"{GROUP}/{self._of_version()}",
            "kind": "Workload",
            "metadata": metadata,
            "status": status,
        }
        place = f"{self._of_version()}/namespaces/{names['namespace']}/workloads/{names['name']}/status"
        self._call("PATCH", f"{place}?{urlencode({'fieldManager': manager, 'force': 'true'})}", body)

    def _of_version(self) -> str:
        if not self.version:
            served = [object_at(one).get("version") for one in self._call("GET", "").get("versions") or []]
            self.version = next((version for version in VERSIONS if version in served), "")
            if not self.version:
                raise UserError(f"{self._url}: no supported version of {GROUP}; expected {' or '.join(VERSIONS)}")
        return self.version

    def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        headers = {"Content-Type": "application/apply-patch+yaml", "Accept": "application/json"}
        if self._token.exists():
            headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}".rstrip("/"), data, headers, method=method)
        context = self._context if self._url.startswith("https:") else None
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                found: Any = json.load(answer)
        except urllib.error.HTTPError as error:
            kind = Conflict if error.code == 409 else UserError
            raise kind(f"{self._url}: {error.code} {error.reason}") from None
        except (OSError, ValueError, HTTPException) as error:
            raise UserError(f"{self._url}: {error}") from None
        return object_at(found)


log = logging.getLogger("queuecast.kueue")

CONTROLLER = "kueue.x-k8s.io/multikueue"
ADMISSION, OURS = "kueue-admission", "queuecast"  # field managers: Kueue's for admissions, and this program
CONDITION = "queuecast/StartExpected"
MOVED = 0.1
"""A condition is updated when the expected start has moved by this share of the remaining wait, or by a minute."""


MAX_QUERIES = 200  # maximum queries per poll, about the workloads whose last query is oldest


class Dispatcher:
    """Nominate clusters for the workloads of a manager, and maintain their start conditions.

    It also maintains the conditions of a cluster without a manager.

    Args:
        sites: the site of each MultiKueueCluster with a different name, by cluster.
        here: the site of this cluster, if it runs workloads itself; these get conditions too.
        patience_s: seconds without an admission after which another cluster is nominated too.
    """

    def __init__(
        self,
        api: KueueApi,
        client: HttpClient,
        sites: Mapping[str, str],
        here: str | None = None,
        patience_s: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._client, self._sites, self._here = api, client, sites, here
        self._patience_s, self._clock = patience_s, clock
        self._nominated: dict[str, float] = {}
        self._queried: dict[str, float] = {}
        self._published: dict[str, float] = {}
        self._failed = set[str]()

    def poll(self) -> None:
        """Nominate clusters, and update the start conditions of workloads.

        An error in one workload is logged when it is new, and does not stop the others.

        Raises:
            UserError: the API server does not list its objects.
        """
        checks = self._checks()
        workloads = {_name_of(one): one for one in self._api.items("workloads")}
        for known in (self._nominated, self._queried, self._published):
            for name in known.keys() - workloads.keys():
                del known[name]
        failed = set[str]()
        for name, workload in workloads.items():
            with self._process_workload(name, failed):
                if clusters := self._waits_for(workload, checks):
                    self._nominate(name, workload, clusters)
        waiting = [name for name, one in workloads.items() if _has_estimate(one) or self._site_of(one) is not None]
        for name in sorted(waiting, key=lambda name: self._queried.get(name, 0.0))[:MAX_QUERIES]:
            self._queried[name] = self._clock()
            with self._process_workload(name, failed):
                self._publish(name, workloads[name])
        self._failed = failed

    @contextmanager
    def _process_workload(self, name: str, failed: set[str]) -> Iterator[None]:
        """Handle the errors of one workload, so that the next workload is processed in any case."""
        try:
            yield
        except Conflict:
            log.info("Skipped %s until the next poll: it was modified concurrently", name)
        except (UserError, msgspec.MsgspecError) as error:
            text = f"{name}: {error}"
            if text not in self._failed | failed:
                log.warning("%s", text)
            failed.add(text)

    def _checks(self) -> dict[str, list[str]]:
        configs = {object_at(one, "metadata").get("name"): one for one in self._api.items("multikueueconfigs")}
        found: dict[str, list[str]] = {}
        for check in self._api.items("admissionchecks"):
            config = configs.get(object_at(check, "spec", "parameters").get("name"))
            if object_at(check, "spec").get("controllerName") == CONTROLLER and config is not None:
                found[str(object_at(check, "metadata").get("name"))] = object_at(config, "spec").get("clusters") or []
        return found

    def _waits_for(self, workload: Object, checks: Mapping[str, list[str]]) -> list[str]:
        """Return the clusters to one of which a workload is to be dispatched; none if it needs no dispatch."""
        conditions, status = conditions_of(workload), object_at(workload, "status")
        if "QuotaReserved" not in conditions or "Finished" in conditions or status.get("clusterName"):
            return []
        pending = [one for one in map(object_at, status.get("admissionChecks") or []) if one.get("state") == "Pending"]
        return [cluster for one in pending for cluster in checks.get(str(one.get("name")), [])]

    def _nominate(self, name: str, workload: Object, clusters: list[str]) -> None:
        status = object_at(workload, "status")
        now, before = self._clock(), [one for one in status.get("nominatedClusterNames") or [] if one in clusters]
        since = self._nominated.setdefault(name, now)
        if before and (now - since < self._patience_s or len(before) == len(clusters)):
            return
        rest = [one for one in clusters if one not in before]
        chosen = [*before, *(self._ranked(workload, rest)[:1] or rest)]
        own = {field: value for field, value in status.items() if field != "conditions"}
        own["conditions"] = [one for one in status.get("conditions") or [] if object_at(one).get("type") != CONDITION]
        version = object_at(workload, "metadata").get("resourceVersion")
        self._api.apply(workload, ADMISSION, {**own, "nominatedClusterNames": chosen}, version)
        self._nominated[name] = now
        log.info("Nominated clusters for %s: %s", name, ", ".join(chosen))

    def _ranked(self, workload: Object, clusters: Iterable[str]) -> list[str]:
        """Return the clusters by the predicted end of the job; none without estimates."""
        names = {self._sites.get(cluster, cluster): cluster for cluster in clusters}
        fields: dict[str, Any] = {
            field: value for field, value in request(workload).items() if field in JobRequest.__struct_fields__
        }
        try:
            found = self._client.rank(JobRequest(**fields), sites=list(names)).ranking
        except UserError as error:
            log.warning("Cannot rank clusters: %s", error)
            return []
        return [names[one.site] for one in found if one.predicted_response_s is not None]

    def _publish(self, name: str, workload: Object) -> None:
        """Set the start condition of a pending workload, or remove that of any other workload."""
        site, now = self._site_of(workload), self._clock()
        answer = None if site is None else self._answer(name, site)
        if answer is None or answer.expected_start is None:
            self._published.pop(name, None)
            if _has_estimate(workload):
                self._api.apply(workload, OURS, {})
            return
        moved = abs(answer.expected_start - self._published.get(name, 0.0))
        if not _has_estimate(workload) or moved > max(60.0, MOVED * (answer.expected_start - now)):
            self._api.apply(workload, OURS, {"conditions": [_condition(answer, now)]})
            self._published[name] = answer.expected_start

    def _site_of(self, workload: Object) -> str | None:
        """Return the site where a workload is pending; None if it is not pending at any."""
        if {"Admitted", "Finished"} & conditions_of(workload).keys():
            return None
        status = object_at(workload, "status")
        cluster = status.get("clusterName") or next(iter(status.get("nominatedClusterNames") or []), None)
        return self._here if cluster is None else self._sites.get(str(cluster), str(cluster))

    def _answer(self, name: str, site: str) -> JobAnswer | None:
        """Return the site's answer about a workload; None if the site has not received its submission.

        Raises:
            AnswerTimeout: no worker answers, so the condition stays unchanged.
        """
        try:
            answer = self._client.job(name, [site])[site]
        except UnknownJob:  # the site has not received its submission yet
            return None
        if answer is None:
            raise AnswerTimeout(f"{site}: no worker answers")
        return answer


def _has_estimate(workload: Object) -> bool:
    return CONDITION in conditions_of(workload)


def _name_of(workload: Object) -> str:
    metadata = object_at(workload, "metadata")
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _condition(answer: JobAnswer, now: float) -> Object:
    assert answer.expected_start is not None
    likely = answer.starts_by.get("0.9")
    text = f"about {minute(answer.expected_start)}" + (f", 90 % by {minute(likely)}" if likely else "")
    at = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ}"
    ahead = f"; {answer.ahead_jobs} jobs ahead"
    return {
        "type": CONDITION, "status": "True", "reason": "Predicted", "message": text + ahead, "lastTransitionTime": at
    }  # fmt: skip


def main() -> None:
    """Poll the workloads in a loop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="URL of queuecast's HTTP service")
    parser.add_argument("--token-file", type=Path, help="file with a token that may rank sites and read jobs")
    parser.add_argument("--api", default="https://kubernetes.default.svc", help="URL of the API server")
    parser.add_argument("--site", action="append", default=[], metavar="CLUSTER=SITE", help="site of a cluster")
    parser.add_argument("--here", metavar="SITE", help="site of this cluster")
    parser.add_argument(
        "--patience",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="time without an admission until the next cluster is nominated",
    )
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS", help="poll interval")
    given = parser.parse_args()
    sites = dict(one.partition("=")[::2] for one in given.site)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    token = given.token_file.read_text().strip() if given.token_file else None
    dispatcher = Dispatcher(KueueApi(given.api), HttpClient(given.url, token), sites, given.here, given.patience)
    while True:
        try:
            dispatcher.poll()
        except (UserError, msgspec.MsgspecError) as error:
            log.warning("%s", error)
        time.sleep(given.every)


if __name__ == "__main__":
    main()
