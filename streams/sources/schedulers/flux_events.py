"""What Flux tells of its jobs (RFC 21), as events; and its jobspecs (RFC 25) and allocations (RFC 20)."""

from functools import lru_cache
from typing import Any

from models.records import AnyEvent, Start, Submit
from streams.sources.logs.fields import MAX_COUNT, MAX_SECONDS, MAX_TEXT, BadRecord, Object, inside, name_of, numbers_in
from streams.sources.logs.stories import BARE, GONE, HELD, QUEUED, RUNNING, SUSPENDED, Stories

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
MAX_DEPTH = 10
"""Of resources within resources in a jobspec."""


STATES = {"timeout": "timeout", "cancel": "cancelled", "node-failure": "node_fail", "preempt": "preempted"}
"""Types of exceptions, and how their jobs ended."""


class FluxJobs:
    """Events of Flux's jobs, in the order of its journal.

    `stories` keeps what was told; as the note of a job that runs, the type of the exception that it met.
    """

    def __init__(self, site: str, stories: Stories) -> None:
        self.site, self.stories = site, stories

    def see(self, job: str, entry: Object, jobspec: object = None, allocated: object = None) -> list[AnyEvent] | None:
        """What an entry of the journal says; None where it says nothing that an event has.

        Parameters:
            jobspec: of a submission.
            allocated: the resources that a job was given, R.

        Raises:
            BadRecord: the entry is none.
        """
        name, context = entry.get("name"), entry.get("context")
        at = time_of(entry)
        if not isinstance(name, str):
            raise BadRecord("name", name, "the name of an event")
        more = context if isinstance(context, dict) else {}
        if name == "submit":
            return self._submit(job, at, more, jobspec)
        if name == "alloc":
            return self.stories.start(Start(site=self.site, time=at, job=job, **allocation(allocated)))
        if name in ("depend", "dependency-add"):
            return self._dependency(job, at, name, more)
        if name == "jobspec-update":
            return self._update(job, at, more)
        if name == "priority":
            return self._priority(job, at, more)
        if name == "exception":
            return self._exception(job, at, more)
        if name == "finish":
            return self._finish(job, at, more)
        if name == "clean":
            self.stories.forget(job)
        return None

    def _submit(self, job: str, at: float, context: Object, jobspec: object) -> list[AnyEvent]:
        asked = request(jobspec)
        user = context.get("userid")
        submit = Submit(site=self.site, time=at, job=job, user=str(user) if isinstance(user, int) else None, **asked)
        told = self.stories.submit(submit, QUEUED if asked else BARE)
        if told and "dependency" in asked:
            self.stories.known[job].phase = HELD
        return told

    def _dependency(self, job: str, at: float, name: str, context: Object) -> list[AnyEvent]:
        story = self.stories.known.get(job)
        is_met = name == "depend"
        if story is None or story.phase not in ((HELD,) if is_met else (QUEUED, BARE)):
            return []
        story.phase = QUEUED if is_met else HELD
        said = str(context.get("description") or "unknown")[:MAX_TEXT]
        return self.stories.alter(job, at, dependency="" if is_met else said, eligible=at if is_met else None)

    def _update(self, job: str, at: float, context: Object) -> list[AnyEvent]:
        """Parts of a jobspec were set, by their paths: `{"attributes.system.duration": 60}`."""
        jobspec: Object = {}
        for path, value in context.items():
            *above, last = path.split(".")
            place = jobspec
            for word in above[:MAX_DEPTH]:
                inner = place.setdefault(word, {})
                place = inner if isinstance(inner, dict) else {}
            place[last] = value
        asked = request(jobspec)
        asked.pop("executable", None)
        if context.get("attributes.system.duration") == 0:
            asked["unlimited"] = True
        return self.stories.alter(job, at, **asked)

    def _priority(self, job: str, at: float, context: Object) -> list[AnyEvent]:
        """Priority 0 holds a job."""
        value = context.get("priority")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return []
        return self.stories.hold(job, at) if value <= 0 else self.stories.release(job, at)

    def _exception(self, job: str, at: float, context: Object) -> list[AnyEvent]:
        """A fatal exception takes a queued job away, and ends one that runs, which tells so itself."""
        if context.get("severity") != 0:
            return []
        story = self.stories.known.get(job)
        if story is not None and story.phase in (RUNNING, SUSPENDED):
            story.note = str(context.get("type", ""))[:20]
            return []
        return self.stories.cancel(job, at)

    def _finish(self, job: str, at: float, context: Object) -> list[AnyEvent]:
        story = self.stories.known.get(job)
        if story is None or story.phase == GONE:
            return []
        met = STATES.get(story.note, "failed" if story.note else "")
        state = met or ("completed" if context.get("status") == 0 else "failed")
        return self.stories.end(job, at, state)


def time_of(entry: Object) -> float:
    """When an entry was made, Unix seconds. Raises BadRecord: it does not say."""
    at = entry.get("timestamp")
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 < at <= MAX_SECONDS:
        raise BadRecord("timestamp", at, "Unix seconds")
    return float(at)


def job_name(number: object) -> str:
    """A job's id as Flux shows it, F58.

    >>> job_name(59)
    'ƒ22'

    Raises:
        BadRecord: it is none.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
        raise BadRecord("id", number, "a job's number")
    return _f58(number)


@lru_cache(16_384)
def _f58(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 58)
        digits = BASE58[digit] + digits
    return f"ƒ{digits}"


def request(jobspec: object) -> dict[str, Any]:
    """What a jobspec asks for, as the fields of a `submit`; what is unknown is absent."""
    if not isinstance(jobspec, dict):
        return {}
    totals = {"node": 0, "core": 0, "gpu": 0}
    _add(totals, jobspec.get("resources"), 1, 0)
    system = inside(jobspec, "attributes", "system")
    duration, dependencies = system.get("duration"), system.get("dependencies")
    limit = float(duration) if isinstance(duration, int | float) else 0.0
    found: dict[str, Any] = {
        "cpus": totals["core"] or None,
        "nodes": totals["node"] or None,
        "gpus": totals["gpu"] or None,
        "walltime": limit if 0 < limit <= MAX_SECONDS else None,
        "queue": name_of(system.get("queue")),
        "account": name_of(system.get("bank")) or name_of(system.get("project")),
        "executable": name_of(inside(system, "job").get("name")),
        "dependency": _dependencies(dependencies),
    }
    return {name: value for name, value in found.items() if value is not None}


def _add(totals: dict[str, int], resources: object, times: int, depth: int) -> None:
    """Count nodes, cores and GPUs, of which each has what is `with` it."""
    for resource in resources if isinstance(resources, list) and depth < MAX_DEPTH else ():
        if isinstance(resource, dict):
            many = min(times * _count(resource.get("count")), MAX_COUNT)
            kind = resource.get("type")
            if isinstance(kind, str) and kind in totals:
                totals[kind] = min(totals[kind] + many, MAX_COUNT)
            _add(totals, resource.get("with"), many, depth + 1)


def _count(value: object) -> int:
    if isinstance(value, dict):
        value = value.get("min")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_COUNT:
        return 1
    return value


def _dependencies(found: object) -> str | None:
    """Dependencies in Flux's words: `afterok:ƒ2c, begin-time:…`."""
    if not isinstance(found, list) or not found:
        return None
    words = [f"{one.get('scheme')}:{one.get('value')}" for one in found if isinstance(one, dict)]
    return ", ".join(words)[:MAX_TEXT] or None


def allocation(allocated: object) -> dict[str, Any]:
    """What a job was given, R, as the fields of a `start`; what is unknown is absent."""
    groups = inside(allocated, "execution").get("R_lite")
    nodes = cores = gpus = 0
    for group in groups if isinstance(groups, list) else ():
        children = inside(group, "children")
        ranks, core, gpu = (
            numbers_in(text) if isinstance(text, str) else 0
            for text in (inside(group).get("rank"), children.get("core"), children.get("gpu"))
        )
        nodes, cores, gpus = nodes + ranks, cores + ranks * core, gpus + ranks * gpu
    found = {"cpus": cores, "nodes": nodes, "gpus": gpus}
    return {name: value for name, value in found.items() if 0 < value <= MAX_COUNT}
