"""Parse job requests and the fields of a line in LSF's files: numbers, and strings in double quotes."""

import csv
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from models.site.node_features import alternatives
from streams.sources.logs.fields import MAX_COUNT, MAX_SECONDS, BadRecord, count_of, name_of, tasks_of

csv.register_dialect("lsf", delimiter=" ", skipinitialspace=True)
_DIALECT = csv.get_dialect("lsf")  # made once: it takes as long as a short line


class LineFields:
    """The fields of a line in order; an error for a missing or wrong field has its number and name."""

    __slots__ = ("_next", "_tokens")

    def __init__(self, line: str) -> None:
        try:
            self._tokens: list[str] = next(csv.reader((line,), _DIALECT))
        except (csv.Error, StopIteration):
            raise BadRecord(None, repr(line[:40]), "fields of less than 128 KiB, separated by blanks") from None
        self._next = 0

    def skip(self, count: int = 1) -> None:
        """Pass over some."""
        self._next += count

    def text(self, name: str) -> str:
        """A string."""
        place = self._next
        self._next = place + 1
        try:
            return self._tokens[place]
        except IndexError:
            raise BadRecord(f"field {place + 1} ({name})", "", "this field; the line is cut short") from None

    def named(self, *names: str) -> dict[str, str]:
        """Read strings by the given names."""
        return {name: self.text(name) for name in names}

    def number(self, name: str, default: int | None = None) -> int:
        """A whole number; the default where nothing is left."""
        if default is not None and self.is_over():
            return default
        token = self.text(name)
        try:
            return int(token)
        except ValueError:
            raise BadRecord(f"field {self._next} ({name})", token, "a whole number") from None

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Read a number of integers."""
        return [self.number(name) for name in names]

    def count(self, name: str, most: int = 1_000_000) -> int:
        """Read the count of the fields that follow."""
        value = self.number(name)
        if 0 <= value <= most:
            return value
        raise BadRecord(f"field {self._next} ({name})", value, f"a number of 0 to {most}")

    def time(self, name: str) -> float:
        """Unix seconds, 0 where it is unknown."""
        value = self.number(name)
        if 0 <= value <= MAX_SECONDS:
            return float(value)
        raise BadRecord(f"field {self._next} ({name})", value, "Unix seconds")

    def texts(self, name: str) -> list[str]:
        """Strings, after the number of them."""
        return [self.text(name) for _ in range(self.count(name))]

    def elements(self) -> list[range]:
        """Read the array elements of a record.

        After five fractions (energy and its rates), the hosts with their number, and a time, comes a number of ranges,
        each with its first, its last and its step.
        """
        tokens = self._tokens
        for place in range(len(tokens) - 8, self._next, -1):
            if all(map(_FRACTION.fullmatch, tokens[place : place + 5])):
                self._next = place + 5
                self.texts("numAllocSlots")
                self.number("ineligiblePendingTime")
                found = [self.numbers(("first", "last", "step")) for _ in range(self.count("indexRangeCnt", 10_000))]
                ranges = [range(first, last + 1, step) for first, last, step in found if 0 < first <= last and step > 0]
                if ranges and sum(map(len, ranges)) <= MAX_ELEMENTS:
                    return ranges
        raise BadRecord("indexRangeCnt", "", "the elements of an array that were never started")

    def is_text_next(self) -> bool:
        """Check if the next field is a string."""
        token = self._tokens[self._next] if self._next < len(self._tokens) else "0"
        return not token.lstrip("-").isdecimal()

    def skip_texts(self, most: int) -> None:
        """Skip at most this many strings."""
        for _ in range(most):
            self._next += self.is_text_next()

    def is_over(self) -> bool:
        """True if no field is left."""
        return self._next >= len(self._tokens)


TIMEOUTS, CANCELLED, PREEMPTED = {"5", "6"}, {"8", "9", "14", "15", "23"}, {"1"}
"""Codes of why LSF or a user ended a job."""

_FRACTION = re.compile(r"-?\d+\.\d+", re.ASCII)
MAX_ELEMENTS = 1_000_000  # elements of one record

_ARRAY = re.compile(r"\[([-\d,:]{1,1000})\](?:%(\d{1,9}))?$")
_GPUS = re.compile(r"\bngpus(?:_physical|_excl_p|_shared)?=(\d{1,9})")
_OPTION = re.compile(r'"num=(\d{1,9})[:"]')
_PTILE = re.compile(r"\bspan\[[^\]]*\bptile=(\d{1,9})")

_SELECT = re.compile(r"\bselect\[([^\]]*)\]")


@lru_cache(4096)
def request(cpus: int, resources: str) -> dict[str, Any]:
    """Return a job's request: CPUs, and nodes and GPUs if its resource requirement has them."""
    found: dict[str, Any] = {"cpus": min(max(cpus, 1), MAX_COUNT)}
    if tile := _PTILE.search(resources):
        found["nodes"] = -(-found["cpus"] // max(int(tile[1]), 1))
    elif "hosts=1]" in resources:
        found["nodes"] = 1
    if (gpus := _GPUS.search(resources)) and (many := int(gpus[1]) * found.get("nodes", 1)) <= MAX_COUNT:
        found["gpus"] = many
    if (select := _SELECT.search(resources)) and (nodes := alternatives(select[1])):
        found["node_features"] = nodes
    return found


def with_gpus(request: dict[str, Any], record: str) -> dict[str, Any]:
    """Add the GPUs of `-gpu num=2:…`, which are not in the written resource requirement, to a job's request.

    The whole record has the option, and the requirement that follows from it, at a late place that depends on the
    version.
    """
    found = None if "gpus" in request else (_GPUS.search(record) or _OPTION.search(record))
    many = int(found[1]) * request.get("nodes", 1) if found else 0
    return request | {"gpus": many} if 0 < many <= MAX_COUNT else request


def allocation(hosts: list[str]) -> dict[str, Any]:
    """Slots and nodes of `16*n1 16*n2`, or `n1 n1 n2`."""
    slots, names = 0, set()
    for host in hosts:
        times, star, name = host.partition("*")
        slots += (count_of(times) or 1) if star else 1
        names.add(name if star else host)
    return {"cpus": slots, "nodes": len(names)} if 0 < slots <= MAX_COUNT else {}


def hosts_in(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The hosts of a record of names and values, as `12*n1`: `slotUsages` follows the hosts that it is of.

    >>> hosts_in([("execHosts", "n1"), ("slotUsages", "12"), ("execHosts", "n2"), ("slotUsages", "4")])
    ['12*n1', '4*n2']
    """
    found: list[str] = []
    for name, value in pairs:
        if name == "execHosts":
            given = value.split()
            found += given
        elif name == "slotUsages" and found:
            for place, slots in enumerate(value.split(), len(found) - len(given)):
                if place < len(found) and "*" not in found[place] and count_of(slots):
                    found[place] = f"{slots}*{found[place]}"
    return found


@lru_cache(4096)
def array_of(name: str) -> tuple[int | None, int | None]:
    """Return the number of tasks of `name[1-100:2,200]%5`, and how many may run at the same time."""
    found = _ARRAY.search(name)
    if found is None or (size := tasks_of(found[1].split(","))) is None:
        return None, None
    return size, count_of(found[2])


@lru_cache(4096)
def executable(name: str, command: str) -> str | None:
    """The job's name without its tasks; else the program that its command begins with."""
    name = _ARRAY.sub("", name)
    first = "" if command.startswith("#") else command.split(None, 1)[0] if command.strip() else ""
    return name_of(name or first)


def exit_state(status: int, reason: str = "") -> str:
    """Return the final state of a job that failed."""
    if reason in TIMEOUTS:
        return "timeout"
    if reason in PREEMPTED:
        return "preempted"
    return "cancelled" if reason in CANCELLED else "failed"
