"""The command `dead-letters`: counts by reason, and following."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from models.records import DeadLetter
from streams.broker import topic_messages
from streams.cli.app import main
from streams.errors import Unreachable
from streams.operate import dead_letters
from streams.operate.dead_letters import LetterFilter, by_reason, line
from streams.settings import Settings
from tests.streams.broker.test_stored import GoneBroker

AT = 835_823_160.0


def letter(reason: str, site: str | None = "kth", detail: str = "") -> DeadLetter:
    return DeadLetter(
        reason=reason,
        detail=detail,
        site=site,
        topic="queuecast.events",
        partition=1,
        offset=7,
        value="{\x1b",
        value_bytes=2,
        implausible=reason == "implausible_time",
    )


FOUND = [(letter("malformed", None), AT), (letter("wrong_key"), AT + 60), (letter("malformed", detail="x"), AT + 120)]


def test_dead_letters_are_counted_by_reason() -> None:
    malformed, wrong = by_reason(FOUND)
    assert (malformed.reason, malformed.count, malformed.sites) == ("malformed", 2, {"(none)": 1, "kth": 1})
    assert (malformed.first_at, malformed.last_at) == (AT, AT + 120)
    assert malformed.last is not None and malformed.last.detail == "x"
    assert (wrong.reason, wrong.count) == ("wrong_key", 1)


def test_letter_filter_selects_by_site_and_reason() -> None:
    chosen = [one for one, _ in FOUND if LetterFilter(site="kth", reason="malformed").includes(one)]
    assert [one.detail for one in chosen] == ["x"]


@pytest.mark.parametrize(("key", "site"), [(b"kth", "kth"), (None, None), (b"", None), (b"\xff", None)])
def test_dead_letter_site_is_message_key(key: bytes | None, site: str | None) -> None:
    message = SimpleNamespace(key=key, value=msgspec.json.encode(letter("malformed", None)), timestamp=1000)
    found, at = dead_letters.letter_in(message)
    assert (found.site, at) == (site, 1.0)
    assert not LetterFilter(site="ctc").includes(found)


def test_dead_letters_command_prints_counts_and_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(*_: Any) -> Iterator[Any]:
        yield from FOUND

    for name in ("read_letters", "coming_letters"):
        monkeypatch.setattr(dead_letters, name, read)
    assert main(["dead-letters"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[2].split() == ["malformed", "2", "1996-06-26", "21:08"]
    assert main(["dead-letters", "--json"]) == 0
    assert [one["count"] for one in json.loads(capsys.readouterr().out)] == [2, 1]
    assert main(["dead-letters", "--follow"]) == 0
    assert capsys.readouterr().out.count("\n") == 3


def test_dead_letters_of_lost_broker_raise_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = GoneBroker()
    monkeypatch.setattr("time.monotonic", lambda: broker.now)
    monkeypatch.setattr(topic_messages, "KafkaConsumer", lambda **_: broker)
    monkeypatch.setattr(dead_letters, "check_topics", lambda *_: None)
    with pytest.raises(Unreachable, match="nothing came for 30 s; is the broker running"):
        list(dead_letters.read_letters(Settings(), LetterFilter()))


def test_dead_letter_line_has_place_and_no_control_codes() -> None:
    assert line(letter("implausible_time", detail="year 2100"), AT) == (
        "1996-06-26 21:06:00 UTC  kth  implausible_time (implausible): year 2100"
        "  [queuecast.events, partition 1, offset 7]  {\\u001b"
    )
    of_a_bundle = msgspec.structs.replace(letter("malformed"), part=12)
    assert "  [queuecast.events, partition 1, offset 7, part 12]  " in line(of_a_bundle, AT)


def test_dead_letters_command_without_letter_prints_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dead_letters, "read_letters", lambda *_, **__: iter(()))
    assert main(["dead-letters"]) == 0
    assert capsys.readouterr().out == "no dead letters\n"
