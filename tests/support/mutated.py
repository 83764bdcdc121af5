"""Stored states with a few values changed, decoded in a process of their own: a kernel that trusts one would end it.

    python -m tests.support.mutated FIRST LAST

For each number from FIRST to LAST it changes a stored state, reads it, and applies further events. It prints the number
before, and what became of it after: `refused`, or `went on`. It exits with 1 where another error than ValueError is
raised.
"""

import random
import struct
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from models.engine.engine import Engine
from models.records import AnyEvent, Capacity, Partition, Pool
from models.site.history import StartedJob
from models.site.rows import Row
from models.site.runs import Run
from tests.support.engines import SMALL, workload

Stored = dict[str, Any]
"""A state, the jobs that started, run times, and rows by key, as generic values."""

EVENTS_BEFORE, EVENTS_AFTER = 330, 20
MOST_CHANGES = 3
NUMBERS = (0, -1, 1, 5, 127, 255, 1 << 15, -(1 << 31), 1 << 40, (1 << 63) - 1, float("nan"), float("inf"), -1.0, 1e300)


def with_pools(event: AnyEvent) -> AnyEvent:
    """The same of a site that names its nodes, in two partitions."""
    if not isinstance(event, Capacity):
        return event
    pools = [Pool(name="thin", nodes=12, cpus=4), Pool(name="fat", nodes=4, cpus=4, gpus={"a100": 2})]
    parts = [Partition(name="all", pools=["thin", "fat"]), Partition(name="thin", pools=["thin"])]
    return msgspec.structs.replace(event, pools=pools, partitions=parts, down_nodes=0)


@cache
def stored(pools: bool) -> tuple[bytes, list[AnyEvent]]:
    """A site's state as the stores have it, encoded as a whole, and the events after it."""
    events, engine = workload(3, 160), Engine("s", SMALL)
    if pools:
        events = [*map(with_pools, events)]
    started: list[StartedJob] = []
    runs: dict[int, Run] = {}
    rows: dict[str, dict[int, Row]] = {}
    for event in events[:EVENTS_BEFORE]:
        engine.apply(event)
    saved, changes = engine.checkpoint()
    started += changes.started
    runs |= {run.number: run for run in changes.runs}
    for name, new in changes.rows.items():
        rows.setdefault(name, {}).update((row.number, row) for row in new)
    whole = {"state": msgspec.Raw(saved), "started": started, "runs": [*runs.values()]}
    whole["rows"] = {name: [*of_one.values()] for name, of_one in rows.items()}
    return msgspec.msgpack.encode(whole, enc_hook=lambda array: array.tobytes()), events[EVENTS_BEFORE:]


def decoded(value: bytes) -> Any:
    """What is encoded in this; None where that is nothing but bytes."""
    try:
        found = msgspec.msgpack.decode(value)
    except (ValueError, RecursionError):  # msgspec's errors are such too
        return None
    return found if isinstance(found, dict | list) and msgspec.msgpack.encode(found) == value else None


def mutated(value: Any, dice: random.Random) -> Any:
    """The value with something in it changed: any one of its leaves, or of its parts one, of that one, and so on."""
    return _at_leaf(value, dice.randrange(leaves(value)), dice) if dice.random() < 0.5 else _down(value, dice)


def leaves(value: Any) -> int:
    """How many values there are in a value, those that are encoded in bytes included."""
    if isinstance(value, bytes) and (inner := decoded(value)) is not None:
        return leaves(inner)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(sum(map(leaves, parts)), 1)


def _at_leaf(value: Any, number: int, dice: random.Random) -> Any:
    if isinstance(value, bytes) and (inner := decoded(value)) is not None:
        return msgspec.msgpack.encode(_at_leaf(inner, number, dice))
    if not isinstance(value, dict | list) or not value:
        return _other(value, dice)
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    for place, part in value.items() if isinstance(value, dict) else enumerate(value):
        if number < (count := leaves(part)):
            changed[place] = _at_leaf(part, number, dice)
            break
        number -= count
    return changed


def _down(value: Any, dice: random.Random) -> Any:
    if isinstance(value, dict | list) and value and dice.random() < 0.97:
        place = dice.choice([*value]) if isinstance(value, dict) else dice.randrange(len(value))
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[place] = _down(value[place], dice)
        return changed
    if isinstance(value, bytes) and (inner := decoded(value)) is not None and dice.random() < 0.95:
        return msgspec.msgpack.encode(_down(inner, dice))
    return _other(value, dice)


def _other(value: Any, dice: random.Random) -> Any:
    if isinstance(value, bytes) and value:
        return _other_bytes(value, dice)
    if isinstance(value, list) and value:
        return dice.choice([value[:-1], value + value[-1:], value[::-1], []])
    if isinstance(value, dict) and value:
        gone = dice.choice([*value])
        return {name: one for name, one in value.items() if name != gone}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        others = [value + 1, value - 1, -value, *(number for number in NUMBERS if isinstance(number, int))]
        return dice.choice([other for other in others if -(1 << 63) <= other < 1 << 64])
    if isinstance(value, float):
        return dice.choice([value + 1.0, -value, *map(float, NUMBERS)])
    return dice.choice([value, None, "", "x", 0, -1.0, []])


def _other_bytes(value: bytes, dice: random.Random) -> bytes:
    changed, place = bytearray(value), dice.randrange(len(value))
    match dice.randrange(4):
        case 0:
            changed[place] ^= 1 << dice.randrange(8)
        case 1:
            changed[place] = dice.choice([0, 1, 0x7F, 0x80, 0xFF])
        case 2 if len(value) >= 8:
            place = dice.randrange(len(value) // 8) * 8 if len(value) % 8 == 0 else min(place, len(value) - 8)
            changed[place : place + 8] = struct.pack("<d", float(dice.choice(NUMBERS)))
        case _:
            return dice.choice([value[:place], value + value[:8], b""])
    return bytes(changed)


class _Whole(msgspec.Struct):
    state: msgspec.Raw
    started: list[Any]
    runs: list[Run]
    rows: dict[str, list[Row]]


def read(encoded: bytes) -> Engine:
    """The engine of what `stored` gave. Raises ValueError: it is something else."""
    from streams.worker.checkpoint.store import _decode_started

    whole = msgspec.msgpack.decode(encoded, type=_Whole)
    started = [_decode_started(msgspec.msgpack.encode(one)) for one in whole.started]
    return Engine.load(bytes(whole.state), started, whole.runs, SMALL, whole.rows)


def outcome_of(number: int) -> str:
    """What becomes of the state that is changed by the dice of this number."""
    dice, (encoded, events) = random.Random(number), stored(number % 2 == 1)
    value = msgspec.msgpack.decode(encoded)
    for _ in range(dice.randint(1, MOST_CHANGES)):
        part = dice.choice(["state", "state", "started", "runs", "rows"])
        value[part] = mutated(value[part], dice)
    try:
        engine = read(msgspec.msgpack.encode(value))
    except ValueError:  # msgspec's errors are such too
        return "refused"
    for event in events[:EVENTS_AFTER]:
        engine.apply(event)
        while (future := engine.pending()) is not None:
            future.exception()
    engine.checkpoint()
    return "went on"


def main(first: int, last: int, outcome: Callable[[int], str] = outcome_of) -> int:
    """Read each; gives how many failed."""
    failed, found = 0, Counter[str]()
    for number in range(first, last):
        print(number, flush=True)
        try:
            became = outcome(number)
        except Exception:
            traceback.print_exc()
            failed += 1
            became = "failed"
        found[became] += 1
    print(dict(found), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), int(sys.argv[2])), 1))
