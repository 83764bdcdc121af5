"""Rotated, compressed, truncated and incomplete logs, read by readers that stop and resume."""

import bz2
import gzip
import lzma
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import UserError
from streams.sources.contract import SkippedPart
from streams.sources.logs import lines as lines_module
from streams.sources.logs.lines import LinePosition, LineReader
from streams.sources.logs.log_files import LogFiles


def first_time(head: bytes) -> float | None:
    """Return the number at the start of the first complete line; it increases like a time."""
    for line in head.split(b"\n")[:-1]:
        if line[:6].isdigit():
            return float(line[:6])
    return None


class Reader:
    """A line reader that can restart from its position."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.place: LinePosition | None = None
        self.skipped: list[SkippedPart] = []
        self.there: list[str] = []
        self.restart()

    def restart(self) -> None:
        if self.place is not None:
            self.place = msgspec.json.decode(msgspec.json.encode(self.place), type=LinePosition)
        self.lines = LineReader(LogFiles(str(self.location), first_time), self.skipped.append, follow=True, pause_s=0.0)
        self.steps = self.lines.read(self.place)
        if self.place is None:
            assert next(self.steps) is None
            self.place = self.lines.place()

    def look(self, most: int = 1000) -> list[str]:
        """Return at most `most` new lines."""
        new = []
        for raw in self.steps:
            self.place = self.lines.place()
            if raw is None or len(new) == most:
                break
            new.append(raw.decode())
            if len(new) == most:
                break
        self.there += new
        return new


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def zipped(path: Path, how: Callable[[bytes], bytes] = gzip.compress, ending: str = ".gz") -> None:
    other = path.with_name(path.name + ending)
    other.write_bytes(how(path.read_bytes()))
    path.unlink()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "lsb.events"
    write(path, "000001 a\n000002 b\n")
    return path


def test_followed_log_yields_complete_lines(log: Path) -> None:
    reader = Reader(log)
    write(log, "000003 c\r\n0000")
    assert reader.look() == ["000001 a", "000002 b", "000003 c\r"]
    assert reader.look() == []
    write(log, "04 d")
    assert reader.look() == []
    write(log, "\n")
    assert reader.look() == ["000004 d"]
    assert (reader.place.line, reader.place.byte) == (4, log.stat().st_size)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("how", ["renamed", "zipped", "copied"])
def test_rotated_log_is_read_in_order(log: Path, how: str, is_restarted: bool) -> None:
    reader = Reader(log)
    assert reader.look(1) == ["000001 a"]
    for number in (3, 5):  # two rotations between two reads
        old = log.with_name(f"lsb.events.{number}")
        if how == "copied":
            shutil.copy(log, old)
            log.write_text("")
        else:
            log.rename(old)
        if how == "zipped":
            zipped(old)
        write(log, f"00000{number} c\n00000{number + 1} d\n")
    if is_restarted:
        reader.restart()
    reader.look()
    assert [int(line[:6]) for line in reader.there] == [1, 2, 3, 4, 5, 6]
    assert reader.skipped == []
    assert reader.look() == []


@pytest.mark.parametrize("unzip", [gzip.compress, bz2.compress, lzma.compress])
def test_directory_is_read_from_oldest_file(tmp_path: Path, unzip: Callable[[bytes], bytes]) -> None:
    for day in ("20240102", "20240101", "20240103"):
        write(tmp_path / day, f"{day[2:]} a\n{day[2:]} b\n")
    zipped(tmp_path / "20240101", unzip, ".z")
    write(tmp_path / "README", "not a log\n")
    write(tmp_path / ".hidden", "000001 x\n")
    expected = [f"24010{day} {which}" for day in (1, 2, 3) for which in "ab"]
    for location in (tmp_path, tmp_path / "2*"):
        whole = LineReader(LogFiles(str(location), first_time), lambda _: None, follow=False)
        assert [raw.decode() for raw in whole.read()] == expected
    reader = Reader(tmp_path)
    assert reader.look() == expected
    write(tmp_path / "20240103", "240103 c\n")
    write(tmp_path / "20240104", "")
    assert reader.look() == ["240103 c"]
    write(tmp_path / "20240103", "240103 d\n240103 never")
    write(tmp_path / "20240104", "240104 a\n")
    assert reader.look() == ["240103 d", "240103 never", "240104 a"]


def test_newly_compressed_file_is_not_read_twice(tmp_path: Path) -> None:
    write(tmp_path / "1", "000001 a\n")
    reader = Reader(tmp_path)
    assert reader.look() == ["000001 a"]
    (tmp_path / "1.gz").write_bytes(gzip.compress(b"000001 a\n"))
    assert reader.look() == []
    (tmp_path / "1").unlink()
    reader.restart()
    assert reader.look() == []
    write(tmp_path / "2", "000002 b\n")
    assert reader.look() == ["000002 b"]


def test_last_line_missing_newline_is_read_unless_following(log: Path) -> None:
    write(log, "000003")
    lines = LineReader(LogFiles(str(log), first_time), lambda _: None, follow=False)
    assert list(lines.read()) == [b"000001 a", b"000002 b", b"000003"]
    assert lines.line == 3


@pytest.mark.parametrize("is_restarted", [False, True])
def test_lost_log_lines_are_reported(log: Path, is_restarted: bool) -> None:
    reader = Reader(log)
    reader.look()
    write(log, "000003 lost\n")
    log.write_text("000009 x\n")
    if is_restarted:
        reader.restart()
    assert reader.look() == ["000009 x"]
    ((part),) = reader.skipped
    assert (part.line, "there is no copy of it" in part.found) == (2, True)
    log.unlink()
    write(log, "000010 y\n")
    if is_restarted:
        reader.restart()
    assert reader.look() == ["000010 y"]


def test_overlong_line_is_reported_and_skipped(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 64)
    reader = Reader(log)
    write(log, "000003 " + "x" * 500)
    assert reader.look() == ["000001 a", "000002 b"]
    assert [part.line for part in reader.skipped] == [3]
    assert reader.place.cut
    write(log, "y" * 500)
    reader.restart()
    assert reader.look() == []
    write(log, "\n000004 d\n000005" + "z" * 94 + "\n000006 e\n")
    assert reader.look() == ["000004 d", "000005" + "z" * 94, "000006 e"]
    assert reader.place.line == 6
    assert len(reader.skipped) == 1


def test_truncated_gzip_file_is_reported(tmp_path: Path) -> None:
    text = "".join(f"{number:06} {os.urandom(30).hex()}\n" for number in range(1, 2001)).encode()
    (tmp_path / "1.gz").write_bytes(gzip.compress(text)[:40_000])
    write(tmp_path / "2", "900000 b\n")
    reader = Reader(tmp_path)
    found = reader.look(10_000)
    assert found[:-1] == text.decode().split("\n")[: len(found) - 1]
    assert 100 < len(found) < 2000 and found[-1] == "900000 b"
    assert [(part.line, part.found) for part in reader.skipped] == [
        (len(found), "the zipped file is broken or cut short")
    ]


def test_log_files_missing_location_raises_user_error(tmp_path: Path) -> None:
    for location in (tmp_path / "none", tmp_path / "none" / "log", tmp_path / "lsb.*"):
        with pytest.raises(UserError, match="there is no such file, folder or pattern"):
            LogFiles(str(location), first_time)


ACTIONS = st.sampled_from(["line", "line", "part", "rename", "copy", "zip", "look", "look one", "restart", "kill"])


def written(action: str, log: Path, number: Iterator[int]) -> str:
    """Apply an action of a scheduler or of logrotate to a log; return the text written."""
    old = sorted(log.parent.glob("log.*[0-9]"))
    rotated = log.with_name(f"log.{next(number)}")
    if action in ("line", "part"):
        text = f"{next(number):06} {'x' * 50}"
        write(log, text + "\n" * (action == "line"))
        return text + "\n" * (action == "line")
    if action == "rename":
        log.rename(rotated)
    elif action == "copy":
        shutil.copy(log, rotated)
        log.write_text("")
    elif action == "zip" and old:
        zipped(old[0])
    return ""


@given(st.lists(ACTIONS, max_size=40))
def test_line_reader_reads_each_line_once_despite_rotations(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str]
) -> None:
    """Rotate at line ends only, as schedulers do, with no write between a copy and the truncation."""
    log = tmp_path_factory.mktemp("log") / "log"
    number = iter(range(1, 1000))
    kept, seen = None, 0
    text = written("line", log, number)
    reader = Reader(log)
    reader.look(1)
    for action in actions:
        if action in ("rename", "copy") and (not text.endswith("\n") or not log.stat().st_size):
            continue
        if action.startswith("look"):
            reader.look(1 if action == "look one" else 1000)
            if action == "look":
                kept, seen = reader.place, len(reader.there)
        elif action == "restart":
            reader.restart()
        elif action == "kill" and kept is not None:  # an older position, as in a cursor file
            reader.place, reader.there = kept, reader.there[:seen]
            reader.restart()
        else:
            text += written(action, log, number)
            if action == "rename":
                text += written("line", log, number)
    reader.look()
    assert reader.there == text.split("\n")[:-1]
    assert reader.skipped == []
    shutil.rmtree(log.parent)


def test_restarted_reader_with_no_lines_read_finds_rotated_file(log: Path) -> None:
    reader = Reader(log)
    log.rename(log.with_name(f"{log.name}.1"))
    write(log, "000003 c\n")
    reader.restart()
    assert reader.look() == ["000001 a", "000002 b", "000003 c"]
    reader = Reader(log)
    zipped(log.rename(log.with_name(f"{log.name}.2")))
    write(log, "000004 d\n")
    reader.restart()
    assert reader.look() == ["000003 c", "000004 d"]
