"""What a site's Slurm answers, recorded with other names: a folder that the source `slurm` reads, to be sent to us.

Names are hidden unless a field is known to have none: what a later release adds is hidden too.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from streams.bulk.anonymise import Anonymiser
from streams.errors import UserError
from streams.sources.slurm.calls import COLUMNS, SEPARATOR, CallFailed, Commands
from streams.sources.slurm.machine.capacity import hosts
from streams.sources.slurm.machine.text import pairs_of

_PLAIN = """
job_state state current state_reason reason flags shared exclusive tres_req_str tres_alloc_str tres_per_node type
tres_per_job tres_per_task tres_per_socket gres_detail array_task_string dependency release task plugin data_parser
jobid jobidraw submit eligible start end restarts timelimitraw nnodes ncpus reqcpus reqmem reqtres alloctres priority
cputot cpueffctv realmemory weight gres maxtime maxnodes prioritytier default starttime endtime major minor micro
"""
PLAIN = frozenset(_PLAIN.split())
"""Fields, in small letters, in which nobody is named."""

KINDS = {
    "user_name": "user",
    "users": "user",
    "allowgroups": "group",
    "accounts": "account",
    "allowaccounts": "account",
    "denyaccounts": "account",
    "partitions": "partition",
    "partitionname": "partition",
    "allowqos": "qos",
    "denyqos": "qos",
    "nodename": "node",
    "nodes": "node",
    "nodelist": "node",
    "required_nodes": "node",
    "excluded_nodes": "node",
    "features": "node_features",
    "constraints": "node_features",
    "activefeatures": "node_features",
    "reservationname": "reservation",
}
"""What the names in a field are, where it is not called so itself."""

WORDS = frozenset({"", "ALL", "(null)", "N/A", "None", "None assigned", "Unknown", "none", "NO", "YES", "UNLIMITED"})
NUMBERED = frozenset({"user_id", "group_id", "uid", "gid"})

_MACHINE = ("nodes", "partitions", "reservations")
_OF_MACHINE = (PLAIN - {"reason"}) | KINDS.keys() | {"qos"}  # why a node is down is an operator's own text


class Hiding:
    """Replaces the names in answers; the same name has the same hash in all of them."""

    def __init__(self, key: bytes | None = None) -> None:
        self._names = Anonymiser(key)

    def text(self, field: str, text: str) -> str:
        """A value: as it is, or the names in its list replaced."""
        field = field.lower()
        if field in PLAIN or text in WORDS:
            return text
        kind = KINDS.get(field, field)
        if kind == "node_features":
            return re.sub(r"[^&|()\[\],*]*[A-Za-z_][^&|()\[\],*]*", lambda name: self._names.name(kind, name[0]), text)
        names = hosts(text) if kind == "node" else text.split(",")
        return ",".join(self._names.name(kind, name) for name in names)

    def json(self, found: Any, field: str = "") -> Any:
        """A document, or a part of it."""
        if isinstance(found, dict):
            return {name: self.json(value, name) for name, value in found.items()}
        if isinstance(found, list):
            return [self.json(value, field) for value in found]
        if isinstance(found, str):
            return self.text(field, found)
        return 0 if field in NUMBERED and isinstance(found, int) else found

    def line(self, line: str) -> str:
        """A line of `scontrol --oneliner`, with what the source reads of it."""
        pairs = pairs_of(line).items()
        return " ".join(f"{name}={self.text(name, value)}" for name, value in pairs if name.lower() in _OF_MACHINE)

    def table(self, text: str) -> Iterator[str]:
        """What sacct prints, with bars between its columns."""
        header, *rows = text.splitlines()
        names = header.split(SEPARATOR)
        yield "|".join(names)
        for row in rows:
            cells = row.split(SEPARATOR)
            if len(cells) == len(names):  # others are parts of a job's name
                yield "|".join(
                    re.sub(r" by \d+", "", self.text(name, cell)) for name, cell in zip(names, cells, strict=True)
                )


def capture(directory: Path, looks: int, every_s: float, told: Callable[[str], None], key: bytes | None = None) -> None:
    """Record looks at the queue, the machine and the accounting.

    Raises:
        UserError: the folder cannot be written, or squeue gives nothing.
    """
    calls, hiding = Commands({}), Hiding(key)
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(1, looks + 1):
        if number > 1:
            time.sleep(every_s)
        try:
            queue = calls.run("squeue", "--json", "--all", "--states=all")
            document = msgspec.json.decode(queue.decode("utf-8", "replace"))
        except (CallFailed, msgspec.DecodeError) as error:
            raise UserError(f"squeue: {error}") from None
        (directory / f"{number:04}-squeue.json").write_bytes(msgspec.json.encode(hiding.json(document)))
        for name, text in _others(calls, hiding, told):
            (directory / f"{number:04}-{name}.txt").write_text(text)
        told(f"{directory}: look {number} of {looks}")
    version = calls.run("squeue", "--version").decode("utf-8", "replace").strip()
    seconds = {name: round(made.seconds / max(made.count, 1), 3) for name, made in calls.measured.items()}
    about = {"slurm": version, "looks": looks, "every_s": every_s, "seconds_a_call": seconds}
    (directory / "about.json").write_bytes(msgspec.json.format(msgspec.json.encode(about)))


def _others(calls: Commands, hiding: Hiding, told: Callable[[str], None]) -> Iterator[tuple[str, str]]:
    """The machine and the accounting, as far as this Slurm tells them."""
    for what in _MACHINE:
        try:
            lines = calls.run("scontrol", "--oneliner", "show", what.removesuffix("s")).decode("utf-8", "replace")
            yield what, "\n".join(filter(None, map(hiding.line, lines.splitlines()))) + "\n"
        except CallFailed as error:
            told(f"{error.call}: {error}")
    try:
        known = calls.run("sacct", "--helpformat").decode().split()
        columns = ",".join(column for column in COLUMNS.split() if column in known)
        words = ("--allusers", "--allocations", "--duplicates", "--parsable2", f"--delimiter={SEPARATOR}")
        rows = calls.run("sacct", *words, f"--format={columns}", "--starttime=now-1hour").decode("utf-8", "replace")
        yield "sacct", "\n".join(hiding.table(rows)) + "\n"
    except CallFailed as error:
        told(f"{error.call}: {error}")
