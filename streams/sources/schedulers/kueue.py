"""Kueue on Kubernetes: Workload objects, live or as `kubectl get workloads -o json` prints them.

The changes come from the API server with the package `kubernetes` (`pip install queuecast[kueue]`), by the kubeconfig
or the pod's service account, which may `list` and `watch` workloads.kueue.x-k8s.io. They contain neither users, nor the
nodes of pods, nor the size of the cluster.
"""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from models.records import AnyEvent
from streams.errors import UserError
from streams.sources import contract
from streams.sources.logs.fields import BadRecord, Object, object_at
from streams.sources.logs.lifecycles import Known, as_late
from streams.sources.logs.log_source import EVENTS_PER_KNOWN, LinesRead, LogSource
from streams.sources.schedulers.kueue_workloads import KueueRecords, time_of

GROUP, PLURAL = "kueue.x-k8s.io", "workloads"
VERSIONS = ("v1beta2", "v1beta1")
HERE, CLUSTER = "local", "cluster"
"""Locations: the current context of the kubeconfig; the cluster in which this runs as a pod."""

FIRST = re.compile(rb'"apiVersion"\s*:\s*"kueue\.x-k8s\.io/')
CREATED = re.compile(rb'"creationTimestamp"\s*:\s*"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)')

GONE, UNKNOWN = 410, 404
"""Statuses of answers: the place from which to watch is too old; the cluster has no such version of the API."""


class _Cursor(msgspec.Struct, forbid_unknown_fields=True):
    """Last version of the workloads that was read (None: list them first), and the lifecycles."""

    version: str | None
    known: Known


class KueueSource(contract.Source):
    """The Workload objects of a cluster, live."""

    name: ClassVar[str] = "kueue"
    live: bool = True

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: contract.OnSkipped = contract.refuse,
        version: str | None = None,
        pause_s: float = contract.IDLE_S,
    ) -> None:
        """Check that Kubernetes is available.

        Args:
            location: `local` for the kubeconfig's current context, `cluster` for the cluster of this pod, or the
                name of another context.
            version: version of Kueue's API; by default the newest of `VERSIONS` that the cluster has.
            pause_s: seconds between two lists if the watch was rejected.

        Raises:
            UserError: the package `kubernetes` is missing.
        """
        super().__init__(location, site or location, on_skipped)
        self._pause_s, self._versions = pause_s, VERSIONS if version is None else (version,)
        _kubernetes()

    def events(self, cursor: contract.Cursor | None = None) -> Iterator[contract.Step]:
        """The events of the workloads that there are, then of their changes."""
        at = _Cursor(None, {}) if cursor is None else contract.decode_cursor(cursor, _Cursor)
        records = KueueRecords(self.sites[0], LinesRead(known=at.known), None, self._left_out)
        since = 0
        for kind, found in self._changes(at.version):
            self.note_read(at_end=kind == "IDLE")
            events = self._listed(found, records) if kind == "LIST" else self._events_of(kind, found, records)
            version = object_at(found, "metadata").get("resourceVersion")
            since += len(events)
            is_due = kind in ("LIST", "IDLE") or (version and since * EVENTS_PER_KNOWN >= len(at.known))
            if is_due:
                at.version, since = version or at.version, 0
            yield from contract.steps_of(events, contract.encode_cursor(at) if is_due else None)

    def _changes(self, version: str | None) -> Iterator[tuple[str, Object]]:
        """Yield changes with their objects: LIST with all existing ones, IDLE after a second without a change."""
        client, watch = _kubernetes()
        api = self._api(client)
        where = {"group": GROUP, "version": self._versions[0], "plural": PLURAL}
        while True:
            try:
                if version is None:
                    found = api.list_cluster_custom_object(**where)
                    version = str(object_at(found, "metadata").get("resourceVersion", ""))
                    yield "LIST", found
                changes = watch.Watch().stream(
                    api.list_cluster_custom_object, **where, resource_version=version, timeout_seconds=1
                )
                for change in changes:
                    item = change["object"]
                    if change["type"] == "ERROR":
                        version = None
                        break
                    version = object_at(item, "metadata").get("resourceVersion", version)
                    yield change["type"], item
                if version is not None:
                    yield "IDLE", {"metadata": {"resourceVersion": version}}
            except client.ApiException as error:
                later = self._versions[self._versions.index(where["version"]) + 1 :]
                if error.status == UNKNOWN and later:
                    where["version"] = later[0]
                    continue
                if error.status != GONE:
                    raise UserError(f"kubernetes at {self._location}: {error.status} {error.reason}") from None
                version = None
                time.sleep(self._pause_s)

    def _api(self, client: Any) -> Any:
        from kubernetes import config

        try:
            if self._location == CLUSTER:
                config.load_incluster_config()
            else:
                config.load_kube_config(context=None if self._location == HERE else self._location)
        except config.ConfigException as error:
            raise UserError(f"kubernetes at {self._location}: {error}") from None
        return client.CustomObjectsApi()

    def _listed(self, found: Object, records: KueueRecords) -> list[AnyEvent]:
        """Process all objects as changed; missing ones were deleted."""
        items = sorted(found.get("items", []), key=_version_of)
        events = [event for item in items for event in self._events_of("LISTED", item, records)]
        names = {
            f"{object_at(item, 'metadata').get('namespace')}/{object_at(item, 'metadata').get('name')}"
            for item in items
        }
        latest = 0.0
        for item in items:
            with suppress(BadRecord):
                latest = max(latest, records.latest(item))
        return events + records.missing(names, latest)

    def _events_of(self, kind: str, found: Object, records: KueueRecords) -> list[AnyEvent]:
        if kind in ("IDLE", "BOOKMARK"):
            return []
        self.records += 1
        try:
            return as_late(records.delete_workload(found) if kind == "DELETED" else records.see(found))
        except BadRecord as bad:
            self._on_skipped(bad.skipped(f"kubernetes at {self._location}"))
            return []


class KueueLogSource(LogSource):
    """A file with Workload objects, as `kubectl get workloads -A -o json` prints them, with `--watch` or without."""

    name: ClassVar[str] = "kueue-log"
    records_of = KueueRecords

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """Return the creation time of the first object; 0 if it is not in the file's beginning."""
        if FIRST.search(head) is None:
            return None
        found = CREATED.search(head)
        at = time_of(found[0].rpartition(b'"')[2].decode() + "Z") if found is not None else None
        return at or 0.0


def _version_of(item: object) -> tuple[int, str]:
    """Objects in the order in which they changed."""
    version = str(object_at(item, "metadata").get("resourceVersion", ""))
    return len(version), version


def _kubernetes() -> tuple[Any, Any]:
    """The client of Kubernetes, and its watch. Raises UserError: the package is not there."""
    try:
        from kubernetes import client, watch
    except ImportError:
        raise UserError("the package kubernetes is not installed; pip install 'queuecast[kueue]'") from None
    return client, watch
