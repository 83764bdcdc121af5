"""The command `dead-letters`: list messages that could not be processed by reason, or follow them."""

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import msgspec

from models.records import DeadLetter
from streams.broker.admin import check_topics, kafka_errors
from streams.broker.topic_messages import held
from streams.broker.topics import Topics
from streams.client.blocking import iterate
from streams.client.watch import Warn, follow
from streams.errors import UNDECODABLE
from streams.settings import Settings
from streams.text.terminal import minute, moment, printable, show_listed, show_table

NO_SITE = "(none)"
MAX_NAME_BYTES = 1024  # maximum length of a site name
Letter = tuple[DeadLetter, float]  # a dead letter and its broker timestamp (Unix seconds)


class LetterFilter(msgspec.Struct, frozen=True):
    """Filter for dead letters by site and reason; None matches all."""

    site: str | None = None
    reason: str | None = None

    def includes(self, letter: DeadLetter) -> bool:
        """Return whether the filter matches a dead letter."""
        return self.site in (None, letter.site) and self.reason in (None, letter.reason)


class ReasonCount(msgspec.Struct):
    """Dead letters of one reason: their number, sites and time range, and the last of them."""

    reason: str
    count: int = 0
    sites: dict[str, int] = {}
    first_at: float = 0.0
    last_at: float = 0.0
    last: DeadLetter | None = None


def read_letters(settings: Settings, wanted: LetterFilter) -> Iterator[Letter]:
    """Yield the dead letters that the topic holds; skip other messages, as only workers should write to this topic.

    Raises:
        UserError: The broker is unreachable or refuses, also during the read, or the topic is missing or not readable.
    """
    topic = _topic(settings)
    with kafka_errors(settings.kafka):
        for message in held(settings, topic):
            with suppress(*UNDECODABLE):
                letter = letter_in(message)
                if wanted.includes(letter[0]):
                    yield letter


def coming_letters(settings: Settings, wanted: LetterFilter, warn: Warn) -> Generator[Letter]:
    """Yield new dead letters without end; report messages that are no dead letters through `warn`.

    Raises:
        UserError: See `read_letters`.
    """
    topic = _topic(settings)
    with closing(iterate(follow(settings, {topic: letter_in}, None, False, warn))) as found:
        yield from (letter for letter, _ in found if wanted.includes(letter[0]))


def _topic(settings: Settings) -> str:
    topic = Topics(settings.kafka.prefix).dead_letters
    check_topics(settings, {topic: "read"})
    return topic


def letter_in(message: Any) -> Letter:
    """Decode the dead letter in a message of the topic.

    Raises:
        msgspec.MsgspecError: The message is no dead letter.
    """
    letter = msgspec.json.decode(message.value or b"", type=DeadLetter)
    return _of_site(letter, message.key), message.timestamp / 1000


def _of_site(letter: DeadLetter, key: bytes | None) -> DeadLetter:
    """Return the dead letter; if it has no site, use the message key as its site."""
    if letter.site is not None or not key or len(key) > MAX_NAME_BYTES:
        return letter
    with suppress(UnicodeDecodeError):
        return msgspec.structs.replace(letter, site=key.decode())
    return letter


def by_reason(letters: Iterable[Letter]) -> list[ReasonCount]:
    """Count dead letters by reason, the most frequent first."""
    found: dict[str, ReasonCount] = {}
    for letter, at in letters:
        count = found.setdefault(letter.reason, ReasonCount(letter.reason, first_at=at))
        count.count += 1
        site = letter.site or NO_SITE
        count.sites[site] = count.sites.get(site, 0) + 1
        count.first_at = min(count.first_at, at)
        if at >= count.last_at:
            count.last_at, count.last = at, letter
    return sorted(found.values(), key=lambda one: (-one.count, one.reason))


def show(counts: list[ReasonCount]) -> None:
    """Print a table of the reasons, followed by the sites and the last detail of each."""
    if not counts:
        sys.stdout.write("no dead letters\n")
        return
    lines = [[one.reason, str(one.count), minute(one.last_at, zone=False)] for one in counts]
    show_table(["reason", "letters", "last (UTC)"], lines)
    show_listed("sites", [(one.reason, _sites(one)) for one in counts])
    show_listed("the last", [(one.reason, one.last.detail) for one in counts if one.last is not None])


def _sites(one: ReasonCount) -> str:
    most = sorted(one.sites, key=lambda site: -one.sites[site])[:8]
    more = f" and {len(one.sites) - len(most)} more" if len(one.sites) > len(most) else ""
    return ", ".join(f"{site} {one.sites[site]}" for site in most) + more


def line(letter: DeadLetter, at: float) -> str:
    """Format a dead letter as one printable line: time, site, reason, location and the start of its value."""
    part = "" if letter.part is msgspec.UNSET else f", part {letter.part}"
    place = f"{letter.topic}, partition {letter.partition}, offset {letter.offset}{part}"
    held = " (implausible)" if letter.implausible else ""
    site = letter.site or NO_SITE
    return printable(f"{moment(at)}  {site}  {letter.reason}{held}: {letter.detail}  [{place}]  {letter.value[:200]}")
