"""Grid Engine's records as lines of JSON: Open Cluster Scheduler from 9, in `reporting.jsonl` and `accounting.jsonl`.

They have by name what the lines of text have by place. What is not set is not there.
"""

from typing import Any

import msgspec

from streams.errors import UNDECODABLE
from streams.sources.logs.fields import BadRecord

RUN = {
    "qname": 0,
    "group": 2,
    "owner": 3,
    "job_name": 4,
    "job_number": 5,
    "submission_time": 8,
    "start_time": 9,
    "end_time": 10,
    "failed": 11,
    "exit_status": 12,
    "ru_wallclock": 13,
    "project": 31,
    "slots": 34,
    "task_number": 35,
    "category": 39,
    "iow": 40,
    "pe_taskid": 41,
}
NEW_JOB = {"submission_time": 2, "job_number": 3, "job_name": 6, "owner": 7, "group": 8, "project": 9}
JOB_LOG = {"event_time": 2, "event": 3, "job_number": 4, "task_number": 5, "pe_taskid": 6, "submission_time": 12}
JOB_LOG |= {"job_name": 13, "owner": 14, "group": 15, "project": 16}
"""Where each field stands in a line of text, from 0."""

PLACES = {"acct": RUN, "new_job": NEW_JOB, "job_log": JOB_LOG}
UNSET = {"project": "NONE", "pe_taskid": "NONE", "iow": "0.0"}

_json = msgspec.json.Decoder(dict[str, Any])


def record_of(line: str) -> tuple[str, list[str]]:
    """The type of a record, and its fields as a line of text has them; none where records of this type are not read.

    Raises:
        BadRecord: it is no such object.
    """
    try:
        found = _json.decode(line)
    except UNDECODABLE:
        raise BadRecord(None, repr(line[:40]), "an object in JSON") from None
    kind = found.get("type", "acct" if "job_number" in found else None)
    if not isinstance(kind, str):
        raise BadRecord(None, repr(line[:40]), "an object with a type, or a job_number")
    places = PLACES.get(kind)
    if places is None:
        return kind, []
    fields = [""] * (max(places.values()) + 1)
    for name, place in places.items():
        value = found.get(name, UNSET.get(name, ""))
        fields[place] = value if isinstance(value, str) else str(value)
    return kind, fields
