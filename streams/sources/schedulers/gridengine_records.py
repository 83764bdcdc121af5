"""Grid Engine's records by the names of their fields, which lines of text have by place.

Lines of JSON have them by name: Open Cluster Scheduler from 9, in `reporting.jsonl` and `accounting.jsonl`.
"""

from typing import NamedTuple

from streams.sources.logs.fields import BadRecord, by_name, object_of

PLACES = {
    kind: {name: int(place) for name, place in by_name(text).items()}
    for kind, text in (
        (
            "acct",
            "qname:0 group:2 owner:3 job_name:4 job_number:5 submission_time:8 start_time:9 end_time:10 failed:11"
            " exit_status:12 ru_wallclock:13 project:31 slots:34 task_number:35 category:39 pe_taskid:41",
        ),
        ("new_job", "submission_time:2 job_number:3 job_name:6 owner:7 group:8 project:9"),
        (
            "job_log",
            "event_time:2 event:3 job_number:4 task_number:5 pe_taskid:6 submission_time:12 job_name:13 owner:14"
            " group:15 project:16",
        ),
    )
}
"""Where each field stands in a line of text, from 0."""

UNSET = {"project": "NONE", "pe_taskid": "NONE"}


class Record(NamedTuple):
    """A record: its type, and its fields by name; none where records of this type are not read."""

    kind: str
    of: dict[str, str]
    is_json: bool = False

    @classmethod
    def of_text(cls, kind: str, parts: list[str]) -> "Record":
        """The record of a line of text."""
        return cls(kind, {name: parts[place] for name, place in PLACES[kind].items()})

    def where(self, name: str) -> str:
        """What is said of a field that is wrong: its name, and in text its number."""
        label = name.removesuffix("_number").replace("_", " ")
        return label if self.is_json else f"field {PLACES[self.kind][name] + 1} ({label})"


def record_of_json(line: str) -> Record:
    """The record of a line of JSON; what is not set is not there.

    Raises:
        BadRecord: it is no such object.
    """
    found = object_of(line)
    kind = found.get("type", "acct" if "job_number" in found else None)
    if not isinstance(kind, str):
        raise BadRecord(None, repr(line[:40]), "an object with a type, or a job_number")
    return Record(
        kind, {name: str(found.get(name, UNSET.get(name, ""))) for name in PLACES.get(kind, ())}, is_json=True
    )
