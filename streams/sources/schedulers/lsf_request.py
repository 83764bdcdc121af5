"""What a job of LSF asks for, what it was given, and how it ended, from the fields of its records."""

import re
from functools import lru_cache
from typing import Any

from models.site.node_features import alternatives
from streams.sources.logs.fields import MAX_COUNT, count_of, name_of, tasks_of

TIMEOUTS, CANCELLED, PREEMPTED = {"5", "6"}, {"8", "9", "14", "15", "23"}, {"1"}
"""Codes of why LSF or a user ended a job."""

_ARRAY = re.compile(r"\[([-\d,:]{1,1000})\](?:%(\d{1,9}))?$")
_GPUS = re.compile(r"\bngpus(?:_physical|_excl_p|_shared)?=(\d{1,9})")
_OPTION = re.compile(r'"num=(\d{1,9})[:"]')
_PTILE = re.compile(r"\bspan\[[^\]]*\bptile=(\d{1,9})")

_SELECT = re.compile(r"\bselect\[([^\]]*)\]")


@lru_cache(4096)
def request(cpus: int, resources: str) -> dict[str, Any]:
    """What a job asks for: processors, and nodes and GPUs as far as its resource requirement says them."""
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


def with_gpus(asked: dict[str, Any], record: str) -> dict[str, Any]:
    """What a job asks for, with the GPUs of `-gpu num=2:…`, which are not in the requirement that it wrote.

    Parameters:
        record: the whole record: the option, and the requirement that follows from it, stand late in it, and where
            differs by version.
    """
    found = None if "gpus" in asked else (_GPUS.search(record) or _OPTION.search(record))
    many = int(found[1]) * asked.get("nodes", 1) if found else 0
    return asked | {"gpus": many} if 0 < many <= MAX_COUNT else asked


def allocation(hosts: list[str]) -> dict[str, Any]:
    """Slots and nodes of `16*n1 16*n2`, or `n1 n1 n2`."""
    slots, names = 0, set()
    for host in hosts:
        times, star, name = host.partition("*")
        slots += (count_of(times) or 1) if star else 1
        names.add(name if star else host)
    return {"cpus": slots, "nodes": len(names)} if 0 < slots <= MAX_COUNT else {}


@lru_cache(4096)
def array_of(name: str) -> tuple[int | None, int | None]:
    """How many tasks `name[1-100:2,200]%5` has, and how many of them may run at once."""
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
    """How a job ended that did not end well."""
    if reason in TIMEOUTS:
        return "timeout"
    if reason in PREEMPTED:
        return "preempted"
    return "cancelled" if reason in CANCELLED else "failed"
