"""The worker survives hostile messages, reports the rejected ones, and predicts good sites as before.

A longer run: `TESTS_HOSTILE_EVENTS=100000 pytest tests/integration/test_hostile.py`. Other data: TESTS_HOSTILE_SEED.
"""

import os
import random
from collections.abc import Callable, Iterator

import msgspec
import psutil
import pytest
from kafka.errors import MessageSizeTooLargeError

from models.records import AnyEvent
from streams.worker.intake.messages import MAX_MESSAGE_BYTES, Unreadable, read_site_message
from tests.support.deployment import PARTITIONS, PATIENCE_S, Deployment, Message, busy_sites, metrics, simulated, until

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

EVENTS = int(os.environ.get("TESTS_HOSTILE_EVENTS", "5000"))
SEED = int(os.environ.get("TESTS_HOSTILE_SEED", "1"))
GOOD = ("alder", "birch")
NASTY = "a:b/{x} [31m"
MAX_SITES = 4

_encode = msgspec.json.Encoder().encode

NUMBERS = ("1e308", "1e999", "-1", "-0.0", "9" * 400, "NaN", "Infinity", "0.1e-400", "99999999999", "1.5", "1e11")
WORDS = (
    '"\\ud800"', '"\\u0000"', '"\\u001b[2J"', '""', '"x\\ny"', '"‮é😀"', "null", "true", "[]", "{}",
    '"' + "n" * 256 + '"', '"' + "n" * 257 + '"', '"' + "n" * 20_000 + '"', '"\udc80"', "[" * 20_000, '{"a":' * 5_000,
)  # fmt: skip


class Mutator:
    """Turn valid events into invalid ones, mostly with small changes."""

    def __init__(self, seed: int, events: list[AnyEvent]) -> None:
        self._dice = random.Random(seed)
        self._events = events
        self._ways: list[Callable[[dict[str, str]], Message]] = [
            self._flip, self._cut, self._swap, self._without, self._twice, self._number, self._word,
            self._wrong_key, self._no_value, self._foreign_type, self._foreign_site, self._again,
        ]  # fmt: skip

    def messages(self, count: int) -> Iterator[Message]:
        for _ in range(count):
            event = self._dice.choice(self._events)
            fields = {name: _encode(value).decode() for name, value in msgspec.to_builtins(event).items()}
            yield self._dice.choice(self._ways)(fields)

    def _message(self, fields: dict[str, str], more: str = "", key: bytes | None = b"evil") -> Message:
        text = "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + more + "}"
        return key, text.encode("utf-8", "surrogateescape")

    def _flip(self, fields: dict[str, str]) -> Message:
        key, value = self._message(fields)
        found = bytearray(value or b"")
        for _ in range(self._dice.choice((1, 1, 2, 10))):
            found[self._dice.randrange(len(found))] = self._dice.randrange(256)
        return key, bytes(found)

    def _cut(self, fields: dict[str, str]) -> Message:
        key, value = self._message(fields)
        return key, (value or b"")[: self._dice.randrange(len(value or b""))]

    def _swap(self, fields: dict[str, str]) -> Message:
        one, other = self._dice.sample(list(fields), 2)
        return self._message(fields | {one: fields[other], other: fields[one]})

    def _without(self, fields: dict[str, str]) -> Message:
        del fields[self._dice.choice(list(fields))]
        return self._message(fields)

    def _twice(self, fields: dict[str, str]) -> Message:
        return self._message(fields, f',"{self._dice.choice(list(fields))}":{self._dice.choice(NUMBERS)}')

    def _number(self, fields: dict[str, str]) -> Message:
        return self._message(fields | {self._dice.choice(list(fields)): self._dice.choice(NUMBERS)})

    def _word(self, fields: dict[str, str]) -> Message:
        return self._message(fields | {self._dice.choice([*fields, "zz"]): self._dice.choice(WORDS)})

    def _wrong_key(self, fields: dict[str, str]) -> Message:
        return self._message(fields, key=self._dice.choice((None, b"", b"alder", b"\xff\xfe", b"k" * 1000)))

    def _no_value(self, _: dict[str, str]) -> Message:
        return b"evil", self._dice.choice(
            (None, b"", b"0", b"null", b"[]", b"\x00" * 100, b'"' + b"x" * MAX_MESSAGE_BYTES)
        )

    def _foreign_type(self, fields: dict[str, str]) -> Message:
        more = self._dice.choice(({"type": '"explode"'}, {"v": "2"}, {"v": "0"}, {"type": "7"}, {"v": "1e3"}))
        return self._message(fields | more)

    def _foreign_site(self, fields: dict[str, str]) -> Message:
        site = f"s{self._dice.randrange(10_000)}"
        return self._message(fields | {"site": f'"{site}"'}, key=site.encode())

    def _again(self, fields: dict[str, str]) -> Message:
        return self._message(fields)


def test_hostile_messages_are_rejected_without_side_effects(deploy: Callable[..., Deployment]) -> None:
    here = deploy(worker={"max_sites_per_partition": MAX_SITES, "checkpoint_events": 1000})
    good = busy_sites(GOOD, 150)
    bad = list(Mutator(SEED, simulated("evil", 300)).messages(EVENTS))
    nasty = [msgspec.structs.replace(event, site=NASTY) for event in simulated("x", 20)]
    nasty = [msgspec.structs.replace(e, user=NASTY, queue=NASTY) if hasattr(e, "user") else e for e in nasty]
    sent: list[Message] = [(event.site.encode(), _encode(event)) for event in nasty]
    first = 1 + max(next(i for i, event in enumerate(good) if event.site == site) for site in GOOD)
    sent += [(e.site.encode(), _encode(e)) for e in good[:first]]  # so that these sites are admitted first
    dice, rest = random.Random(SEED), iter(good[first:])
    for message in bad:
        sent.append(message)
        if dice.random() < len(good) / len(bad):
            sent += [(e.site.encode(), _encode(e)) for e in [next(rest, None)] if e is not None]
    sent += [(e.site.encode(), _encode(e)) for e in rest]
    sent.append((b"evil", b"[" * 1_000_000))
    try:
        _judge(here, sent, [*good, *nasty])
    finally:
        print(f"TESTS_HOSTILE_SEED={SEED} TESTS_HOSTILE_EVENTS={EVENTS}")


def _judge(here: Deployment, sent: list[Message], good: list[AnyEvent]) -> None:
    worker = here.worker
    worker.start()
    first = len(sent) // 10
    here.send_raw(sent[:first])
    until(lambda: metrics(worker)["queuecast_messages_read_total"][()] == first)
    before = psutil.Process(worker.pid).memory_info().rss
    for begin in range(first, len(sent), 1000):
        here.send_raw(sent[begin : begin + 1000])
    until(lambda: metrics(worker)["queuecast_messages_read_total"][()] == len(sent), EVENTS / 10 + PATIENCE_S)
    after = psutil.Process(worker.pid).memory_info().rss
    metric_values = metrics(worker)
    with pytest.raises(MessageSizeTooLargeError):
        here.producer.send(here.topics.events, key=b"evil", value=b"x" * 10_000_000)
    here.stop()

    unreadable = sum(not readable(*message) for message in sent)
    letters = here.dead_letters()
    reasons = {letter.reason for letter in letters}
    by_engine = {"start_after_end", "requeue_before_start", "forgotten_job"}
    by_engine |= {reason for reason in reasons if reason.startswith(("stale_", "implausible_"))}
    refused = sum(letter.reason not in by_engine for letter in letters)
    assert len(letters) == len({(letter.partition, letter.offset) for letter in letters})
    assert sum(metric_values["queuecast_events_rejected_total"].values()) == len(letters)
    assert sum(metric_values["queuecast_events_total"].values()) + refused == len(sent)
    assert refused - sum(letter.reason == "too_many_sites" for letter in letters) == unreadable
    assert {"empty", "too_large", "not_json", "version", "unknown_type", "malformed", "wrong_key"} <= reasons
    assert "too_many_sites" in reasons and "engine_failed" not in reasons
    assert all(letter.value.isprintable() and len(letter.value) <= 10_000 for letter in letters)
    assert len(metric_values["queuecast_events_total"]) <= MAX_SITES * PARTITIONS
    assert after < 1.15 * before, f"{before / 1e6:.0f} MB, then {after / 1e6:.0f} MB"

    records, expected = here.records(), here.expected(good)
    assert {where: values for where, values in records.items() if where in expected} == expected
    keys = list(here.redis.scan_iter(f"{here.settings.redis.prefix}*", count=1000))
    assert keys and all(key.isascii() and key.decode().isprintable() for key in keys)
    assert any(b"{a%3Ab%2F%7Bx%7D%20%5B31m}" in key for key in keys)
    assert any(b"runs" in key and b"a%3Ab%2F%7Bx%7D%20%5B31m" in key.partition(b"}:")[2] for key in keys)


def readable(key: bytes | None, value: bytes | None) -> bool:
    try:
        read_site_message(key, value)
    except Unreadable:
        return False
    return True
