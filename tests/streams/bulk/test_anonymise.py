"""Anonymised logs: no name remains, and the predictions are unchanged."""

import gzip
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from models.records import Alter, AnyEvent, End
from streams.bulk.anonymise import KEPT, Anonymiser, write_anonymous
from streams.cli.app import main
from streams.errors import UserError
from tests.support.traces import made_trace

SECRET = "quartz"


def full(kind: Any, place: str = "") -> Any:
    """Return a value of this type with all fields set; all its strings begin with the same word."""
    info = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    match info:
        case msgspec.inspect.UnionType():
            return full(next(one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)), place)
        case msgspec.inspect.StructType():
            tag = {info.tag_field: info.tag} if info.tag_field else {}
            return tag | {field.encode_name: full(field.type, field.name) for field in info.fields}
        case msgspec.inspect.StrType():
            return "user" if place == "per" else f"{SECRET}-{place}"
        case msgspec.inspect.ListType():
            return [full(info.item_type, place)]
        case msgspec.inspect.DictType():
            return {f"{SECRET}-{place}": 3}
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType() if place == "v":
            return 1
        case msgspec.inspect.IntType():
            return 17
    return 1e9


def every_event() -> list[AnyEvent]:
    return [msgspec.convert(full(kind), AnyEvent) for kind in get_args(AnyEvent)]


def test_anonymiser_replaces_names_in_all_fields() -> None:
    anonymiser = Anonymiser()
    for event in every_event():
        assert SECRET in msgspec.json.encode(event).decode()
        hidden = anonymiser.event(event)
        assert SECRET not in json.dumps(hidden)
        again = msgspec.convert(hidden, AnyEvent)
        assert type(again) is type(event)
        strings = re.findall(r'"([a-z_]+)": "(\w+)"', json.dumps(hidden))
        assert all(field in KEPT or re.fullmatch(r"[a-z][0-9a-f]{16}", text) for field, text in strings)


def test_anonymiser_keeps_sizes_and_shifts_times() -> None:
    for event in every_event():
        hidden = msgspec.convert(Anonymiser(earlier_s=1000.0).event(event), AnyEvent)
        assert hidden.time == event.time - 1000.0
        for field in ("cpus", "nodes", "memory", "walltime", "array_size", "priority", "attempt"):
            assert getattr(hidden, field, None) == getattr(event, field, None)
        for field in ("eligible", "expected"):
            if hasattr(event, field):
                assert getattr(hidden, field) == getattr(event, field) - 1000.0


def test_anonymiser_keeps_states_and_pending_reasons() -> None:
    """Predictions depend on them."""
    anonymiser = Anonymiser()
    end = anonymiser.event(End(site="s", time=1e9, job="1", state="revoked"))
    assert end["state"] == "revoked"
    for reason, kept in (
        ("QOSGrpCpuLimit", "QOSGrpCpuLimit"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "ReqNodeNotAvail"),
    ):
        alter = Alter(site="s", time=1e9, job="1", pending_reason=reason)
        assert anonymiser.event(alter)["pending_reason"] == kept
    hidden = anonymiser.event(Alter(site="s", time=1e9, job="1", pending_reason="Reserved for ada"))
    assert "ada" not in hidden["pending_reason"]


def test_anonymiser_hash_depends_on_name_field_and_key() -> None:
    one, other = Anonymiser(b"a key of sixteen"), Anonymiser(b"another of sixteen")
    assert one.name("user", "ada") == Anonymiser(b"a key of sixteen").name("user", "ada") != other.name("user", "ada")
    assert one.name("user", "ada")[1:] != one.name("group", "ada")[1:]
    assert Anonymiser().name("user", "ada") != Anonymiser().name("user", "ada")


def test_anonymised_log_gives_same_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = made_trace(tmp_path / "made.swf", jobs=150), tmp_path / "shared.ndjson.gz"
    (tmp_path / "key").write_text("0123456789abcdef\n")
    more = ["--key", str(tmp_path / "key"), "--shift-time", "10d"]
    assert main(["replay", str(trace), "--site", "alder", "--anonymise", str(out), *more]) == 0
    assert "events with pseudonyms" in capsys.readouterr().out
    text = gzip.decompress(out.read_bytes()).decode()
    assert "alder" not in text and '"u1"' not in text and '"q0"' not in text
    assert main(["replay", str(trace), "--anonymise", str(tmp_path / "again.gz"), *more, "--site", "alder"]) == 0
    assert (tmp_path / "again.gz").read_bytes() == out.read_bytes()
    capsys.readouterr()
    tables = []
    for path in (trace, out):
        assert main(["replay", str(path), "--method", "qespera", "--json"]) == 0
        tables.append(json.loads(capsys.readouterr().out))
    assert tables[0]["methods"] == tables[1]["methods"]
    assert tables[1]["jobs"] == tables[0]["jobs"]


def test_anonymise_with_invalid_input_reports_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"times would be before 1970"):
        write_anonymous(tmp_path / "x", every_event(), Anonymiser(earlier_s=2e9))
    with pytest.raises(UserError, match=r"such: cannot be written"):
        write_anonymous(tmp_path / "no" / "such", every_event(), Anonymiser())
    trace = made_trace(tmp_path / "made.swf", jobs=5)
    (tmp_path / "short").write_text("abc")
    for key, words in (("short", "a key must have at least 16 bytes"), ("gone", "cannot be read")):
        assert main(["replay", str(trace), "--anonymise", str(tmp_path / "x"), "--key", str(tmp_path / key)]) == 1
        assert words in capsys.readouterr().err
