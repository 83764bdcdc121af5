"""Convert Workload objects of Kueue, live or in files, to events.

An object has no history except the last change of each of its conditions. The object is compared with its last reported
state; the times are those of the conditions.
"""

import math
import re
from datetime import UTC, datetime
from typing import Any

from models.records import AnyEvent, Start, Submit
from streams.sources.logs import fields
from streams.sources.logs.lifecycles import HELD, RUNNING
from streams.sources.logs.log_source import Records
from streams.sources.schedulers.kueue_pods import admitted, pod

MAX_OBJECT_BYTES = 8 << 20  # of one object in a file; the API server stores none that is larger than some 1.5 MB

PREEMPTED = "Preempted"


class KueueRecords(Records):
    """Convert Workload objects as they change, or files printed by kubectl: a list, single objects, or watch events.

    The note of a running workload is its start (Unix seconds).
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._bytes = 0
        self._end = "}"

    def take(self, line: str) -> list[AnyEvent]:
        """Return the events of an object at its last line."""
        bare = line.rstrip().rstrip(",")
        if not self._lines:
            return self._first(bare)
        self.lines_before = len(self._lines)
        if line.startswith("{"):  # another one begins: the one before it was never completed
            self._lines = []
            events = self._first(bare)
            if not events:
                raise fields.BadRecord(None, "an object without an end", "a Workload in JSON")
            return events
        if len(self._lines) < 10 and bare.endswith('"items": [') and self._end == "}":
            self._lines = []  # the head of a list, whose items are taken one by one
            return []
        self._lines.append(bare if bare == self._end else line)
        self._bytes += len(line)
        if bare == self._end:
            return self._object()
        if self._bytes > MAX_OBJECT_BYTES:
            self._lines = []
            raise fields.BadRecord(None, f"an object of more than {MAX_OBJECT_BYTES} bytes", "a Workload")
        return []

    def _first(self, bare: str) -> list[AnyEvent]:
        """Process a line outside objects: the first of an object, or one around the items of a list."""
        self.lines_before, self._bytes = 0, 0
        opened = bare.lstrip()
        if opened == "{":
            self._end = bare.replace("{", "}")
            self._lines = [bare]
        elif opened.startswith("{"):
            self._lines = [bare]
            return self._object()
        elif opened not in ("", "]", "}") and not re.match(r'"(metadata|kind|apiVersion|resourceVersion)"', opened):
            raise fields.BadRecord(None, repr(opened[:40]), "an object in JSON")
        return []

    def _object(self) -> list[AnyEvent]:
        text, self._lines = "\n".join(self._lines), []
        found = fields.object_of(text, "an object", "a Workload in JSON")
        items = found.get("items")
        if isinstance(items, list):
            return [event for item in items for event in self._workload(fields.object_at(item), "")]
        kind = found.get("type")
        if isinstance(kind, str) and isinstance(found.get("object"), dict):
            return self._workload(found["object"], kind)
        return self._workload(found, "")

    def _workload(self, found: fields.Object, kind: str) -> list[AnyEvent]:
        if found.get("kind") != "Workload":
            return self.leave_out("objects of other kinds")
        events = self.delete_workload(found) if kind == "DELETED" else self.see(found)
        return events or self.leave_out("objects without new information")

    def see(self, workload: fields.Object) -> list[AnyEvent]:
        """Return the events of an object's changes.

        Raises:
            BadRecord: it is not a Workload.
        """
        name, created = self._name(workload)
        conditions = conditions_of(workload)
        events: list[AnyEvent] = []
        finished = conditions.get("Finished")
        if self.lifecycles.phase(name) is None:
            events += self._submitted(name, created, workload, conditions)
        events += self._moved(name, workload, conditions)
        if finished is not None:
            events += self.lifecycles.leave(name, finished[0], state_of(finished[1]))
        return events

    def delete_workload(self, workload: fields.Object) -> list[AnyEvent]:
        """Convert the deletion of an object; an unfinished workload leaves with it."""
        name, _ = self._name(workload)
        events = self.see(workload) if self.lifecycles.phase(name) is not None else []
        deleted = time_of(fields.object_at(workload, "metadata").get("deletionTimestamp"))
        last = self.latest(workload)
        return events + self.lifecycles.leave(name, max(deleted or last, last), "cancelled")

    def missing(self, names: set[str], at: float) -> list[AnyEvent]:
        """Remove the live workloads that are not among `names`; they were deleted by `at` at the latest."""
        gone = [name for name in self.lifecycles.known if name not in names]
        return [event for name in gone for event in self.lifecycles.leave(name, max(at, self._began(name)), "unknown")]

    def latest(self, workload: fields.Object) -> float:
        """Return the time of an object's last change."""
        _, created = self._name(workload)
        return max([created, *(at for at, _ in conditions_of(workload).values())])

    def _began(self, name: str) -> float:
        began = self.lifecycles.known[name].note.partition(" ")[0]
        return float(began) if began else 0.0

    def _name(self, workload: fields.Object) -> tuple[str, float]:
        metadata = fields.object_at(workload, "metadata")
        name = f"{metadata.get('namespace', 'default')}/{metadata.get('name', '')}"
        created = time_of(metadata.get("creationTimestamp"))
        if created is None:
            raise fields.BadRecord(
                "metadata.creationTimestamp", metadata.get("creationTimestamp"), "a time as in RFC 3339"
            )
        return fields.job_of(name, "metadata.name"), created

    def _submitted(
        self, name: str, created: float, workload: fields.Object, conditions: "Conditions"
    ) -> list[AnyEvent]:
        """Submit a new workload: at its creation, or at its requeue, as another attempt."""
        requeued = conditions.get("Requeued")
        attempt = 1 if requeued is not None and requeued[0] > created else 0
        at = requeued[0] if attempt and requeued is not None else created
        events = self.lifecycles.submit(Submit(site=self.site, time=at, job=name, attempt=attempt, **request(workload)))
        self.lifecycles.known[name].attempt = attempt
        return events

    def _moved(self, name: str, workload: fields.Object, conditions: "Conditions") -> list[AnyEvent]:
        """Return the events since the last state: admitted, evicted, held or released.

        The note holds when it was last admitted or evicted, and when it was reported to be eligible again. `Evicted`
        may be true while `Admitted` still is, until its pods are gone.
        """
        events: list[AnyEvent] = []
        lifecycle = self.lifecycles.known[name]
        admitted, evicted = conditions.get("Admitted"), conditions.get("Evicted")
        began = self._began(name)
        is_over = evicted is not None and evicted[0] > max(began, admitted[0] if admitted is not None else 0.0)
        if lifecycle.phase == RUNNING and (admitted is None or admitted[0] > began or is_over):
            events += self._requeued(name, workload, conditions)
        if lifecycle.phase != RUNNING:
            events += self._eligible(name, workload, conditions) + self._held(name, workload)
        if admitted is not None and lifecycle.phase != RUNNING and admitted[0] > began:
            events += self._started(name, admitted[0], workload)
            if is_over:
                events += self._requeued(name, workload, conditions)
        return events

    def _requeued(self, name: str, workload: fields.Object, conditions: "Conditions") -> list[AnyEvent]:
        """Requeue an evicted workload, which becomes eligible again after a backoff."""
        began = self._began(name)
        admitted, evicted, requeued = (conditions.get(kind) for kind in ("Admitted", "Evicted", "Requeued"))
        evicted_at = next((at for at, _ in filter(None, (evicted, requeued)) if at >= began), None)
        if evicted_at is None:
            evicted_at = admitted[0] if admitted is not None else began
        reason = evicted[1] if evicted is not None else ""
        events = self.lifecycles.requeue(name, evicted_at, "preempted" if reason == PREEMPTED else None)
        self.lifecycles.known[name].note = repr(evicted_at)
        return events

    def _eligible(self, name: str, workload: fields.Object, conditions: "Conditions") -> list[AnyEvent]:
        """Report when an evicted workload becomes eligible again; its backoff does not count as a wait."""
        lifecycle, requeued = self.lifecycles.known[name], conditions.get("Requeued")
        again = time_of(fields.object_at(workload, "status", "requeueState").get("requeueAt"))
        if requeued is not None:
            again = requeued[0]
        began, _, requeued_at = lifecycle.note.partition(" ")
        if not lifecycle.attempt or not began or again is None or again <= float(began) or repr(again) == requeued_at:
            return []
        lifecycle.note = f"{began} {again!r}"
        return self.lifecycles.alter(name, min(again, self.latest(workload)), eligible=again)

    def _started(self, name: str, at: float, workload: fields.Object) -> list[AnyEvent]:
        queue = fields.name_of(fields.object_at(workload, "status", "admission").get("clusterQueue"))
        start = Start(site=self.site, time=at, job=name, partition=queue, **admitted(workload))
        events = self.lifecycles.start(start)
        self.lifecycles.known[name].note = repr(at)
        return events

    def _held(self, name: str, workload: fields.Object) -> list[AnyEvent]:
        """Hold an inactive workload, or release an active one; the time of a hold is only stated after an eviction."""
        if fields.object_at(workload, "spec").get("active") is False:
            return self.lifecycles.hold(name, self.latest(workload))
        is_held = self.lifecycles.known[name].phase == HELD
        return self.lifecycles.release(name, self.latest(workload)) if is_held else []


Conditions = dict[str, tuple[float, str]]  # conditions that are true: since when (Unix seconds), and for which reason


def conditions_of(workload: fields.Object) -> Conditions:
    """The conditions of a workload that are true."""
    found: Conditions = {}
    conditions = fields.object_at(workload, "status").get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("status") == "True" and isinstance(condition.get("type"), str):
            at = time_of(condition.get("lastTransitionTime"))
            if at is not None:
                found[condition["type"]] = (at, str(condition.get("reason", "")))
    return found


def state_of(reason: str) -> str:
    """Return the final state of a workload, by the reason of its condition Finished."""
    return "failed" if "Fail" in reason or reason == "OutOfSync" else "completed"


def request(workload: fields.Object) -> dict[str, Any]:
    """Return a workload's request as fields of a `submit`; missing values are omitted."""
    spec = fields.object_at(workload, "spec")
    cpus = memory = gpus = tasks = 0.0
    sets = spec.get("podSets")
    for pods in sets if isinstance(sets, list) else ():
        count = fields.object_at(pods).get("count", 1)
        many = count if isinstance(count, int) and 0 <= count <= fields.MAX_COUNT else 1
        one = pod(fields.object_at(pods, "template", "spec"))
        tasks, cpus, memory, gpus = tasks + many, cpus + many * one[0], memory + many * one[1], gpus + many * one[2]
    limit, priority = spec.get("maximumExecutionTimeSeconds"), spec.get("priority")
    owners = fields.object_at(workload, "metadata").get("ownerReferences")
    owner = fields.object_at(owners[0]) if isinstance(owners, list) and owners else {}
    return fields.known(
        queue=fields.name_of(spec.get("queueName")),
        group=fields.name_of(fields.object_at(workload, "metadata").get("namespace")),
        executable=fields.name_of(owner.get("name")),
        job_type=fields.name_of(owner.get("kind")),
        qos=fields.name_of(spec.get("priorityClassName") or fields.object_at(spec, "priorityClassRef").get("name")),
        cpus=math.ceil(min(cpus, fields.MAX_COUNT)) or None,
        gpus=math.ceil(min(gpus, fields.MAX_COUNT)) or None,
        memory=int(min(memory, fields.MAX_BYTES)) or None,
        tasks=int(min(tasks, fields.MAX_COUNT)) or None,
        walltime=float(limit) if isinstance(limit, int) and 0 < limit <= fields.MAX_SECONDS else None,
        priority=float(priority) if isinstance(priority, int) and abs(priority) <= 1 << 53 else None,
    )


def time_of(value: object) -> float | None:
    """Return an RFC 3339 time as Unix seconds; None if it is invalid."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).timestamp()
    return fields.iso_time(value) if isinstance(value, str) and 19 <= len(value) <= 40 else None
