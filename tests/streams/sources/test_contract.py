"""Contract of sources: built-in sources and sources of other packages."""

import doctest
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from queuecast.testing_sources import BadPart, SourceContract, present_steps
from streams.errors import UserError
from streams.sources.contract import CursorError, SkippedPart, Source, decode_cursor, refuse
from streams.sources.logs.lines import LinePosition
from streams.sources.source_registry import SOURCES, source_named, sources
from tests.support.packages import install
from tests.support.traces import swf_line

ROOT = Path(__file__).parents[3]


class TestSwf(SourceContract):
    name = "swf"
    events = 1 + 3 + 2 + 3 + 3
    bad = (
        BadPart(line=4, field=None, expected="18 or more: job number"),
        BadPart(line=5, field="field 4 (run time)", expected="a number, -1 if missing"),
        BadPart(line=7, field="field 1 (job number)", expected="a whole number"),
        BadPart(line=9, field="field 2 (submit time)", expected="seconds from the trace's start"),
    )

    def write(self, directory: Path) -> str:
        lines = [
            "; UnixStartTime: 1000000000\n",
            "; MaxProcs: 16\n",
            swf_line(1, 0, 10, 100),
            "2 5 soon\n",
            swf_line(3, 5, 0, 777).replace("777", "soon"),
            swf_line(4, 6, 20, -1, status=5),
            "x" + swf_line(5, 7),
            swf_line(6, 10, 0, 0),
            swf_line(7, -50),
            swf_line(8, 10, 100, 7),
        ]
        path = directory / "made.swf"
        path.write_text("".join(lines))
        return str(path)


PACKAGE = '''
    """A source of another project: a log that grows; some of its lines make two events, some none."""

    import time
    from pathlib import Path

    import msgspec

    from models.records import End, Start, Submit
    from streams.sources.contract import SkippedPart, Source, decode_cursor, encode_cursor, refuse


    class Place(msgspec.Struct):
        byte: int
        line: int


    class Bells(Source):
        name = "bells"
        live = True

        def __init__(self, location, site=None, on_skipped=refuse, pause_s=1.0):
            self.path, self.on_skipped, self.pause_s = Path(location), on_skipped, pause_s
            self.sites = (site or "bells",)

        def events(self, cursor=None):
            place = Place(0, 0) if cursor is None else decode_cursor(cursor, Place)
            with self.path.open("rb") as file:
                file.seek(place.byte)
                while True:
                    line = file.readline()
                    if not line.endswith(b"\\n"):
                        file.seek(place.byte)
                        yield None, encode_cursor(place)
                        time.sleep(self.pause_s)
                        continue
                    place = Place(place.byte + len(line), place.line + 1)
                    events = list(self.parsed(line.decode(errors="replace").split(), place.line))
                    for event in events[:-1]:
                        yield event, None
                    yield (events[-1] if events else None), encode_cursor(place)

        def parsed(self, fields, number):
            try:
                at, job, what = fields
            except ValueError:
                found = f"{len(fields)} fields"
                self.on_skipped(SkippedPart(str(self.path), number, None, found, "3 fields: time, job, what"))
                return
            if not at.isdigit():
                self.on_skipped(SkippedPart(str(self.path), number, "time", repr(at), "Unix seconds"))
                return
            common = {"site": self.sites[0], "time": float(at), "job": job}
            if what == "run":  # submitted and started at once
                yield Submit(**common)
                yield Start(**common)
            elif what == "end":
                yield End(**common)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a fake package that provides the source `bells`."""
    names = {"bells": "queuecast_bells:Bells", "gone": "queuecast_nowhere:Gone", "place": "queuecast_bells:Place"}
    modules = {"queuecast_bells": textwrap.dedent(PACKAGE)}
    install(tmp_path / "site-packages", "queuecast-bells", "1.0", modules, {"queuecast.sources": names})
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    yield
    sys.modules.pop("queuecast_bells", None)


@pytest.mark.usefixtures("package")
class TestSourceOfAnotherPackage(SourceContract):
    name = "bells"
    events = 11
    options: ClassVar = {"pause_s": 0.0}
    bad = (
        BadPart(line=3, field="time", expected="Unix seconds"),
        BadPart(line=5, field=None, expected="3 fields"),
    )

    def write(self, directory: Path) -> str:
        lines = ["100 1 run", "101 2 run", "noon 3 run", "130 1 end", "what", "140 3 comment", "140 4 run"]
        lines += ["150 4 end", "150 5 run", "151 2 end", "170 5"]
        path = directory / "bells.log"
        path.write_text("\n".join(lines))  # the last line is incomplete
        return str(path)

    def test_incomplete_last_line_is_read_once_complete(self, location: str) -> None:
        source = self.open(location)
        whole_lines = list(present_steps(source))[-1][1]
        assert next(source.events(whole_lines)) == (None, whole_lines)
        with Path(location).open("a") as file:
            file.write(" end\n")
        event, _ = next(source.events(whole_lines))
        assert event is not None and (event.kind, event.time) == ("end", 170.0)


def test_registered_sources_have_contract_tests() -> None:
    tests = (path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    tested = {name for text in tests for name in re.findall(r"\(SourceContract\):\n    name = \"(.+)\"\n", text)}
    assert set(SOURCES) <= tested


@pytest.mark.usefixtures("package")
def test_sources_of_other_packages_are_found_by_name() -> None:
    assert list(sources()) == [*SOURCES, "bells", "gone", "place"]
    assert source_named("bells").__module__ == "queuecast_bells"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "'none' is not a source; there are: .*table, bells"),
        ("gone", "source 'gone' of the package queuecast-bells 1.0 cannot be loaded: ModuleNotFoundError: "),
        ("place", "source 'place' of the package queuecast-bells 1.0: queuecast_bells:Place is not a Source"),
    ],
)
@pytest.mark.usefixtures("package")
def test_unavailable_source_raises_user_error(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        source_named(name)


def test_source_module_is_imported_lazily() -> None:
    code = "import sys; from streams.sources.source_registry import sources; list(sources()); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert "streams.sources.source_registry" in done.stdout.split()
    assert "streams.sources.swf" not in done.stdout.split()


def test_cursor_with_invalid_utf8_is_rejected() -> None:
    with pytest.raises(CursorError, match="not one of this source"):
        decode_cursor(b'{"file":"\xff","inode":1,"head":""}', LinePosition)


def test_skipped_part_is_reported_in_one_line() -> None:
    assert str(SkippedPart("a.log", 7, "time", "'x'", "seconds")) == "a.log, line 7: time is 'x'; expected seconds"
    assert str(SkippedPart("http://a", None, None, "no JSON", "JSON")) == "http://a: no JSON; expected JSON"
    with pytest.raises(UserError, match=r"a\.log, line 7: 3 fields; expected 4"):
        refuse(SkippedPart("a.log", 7, None, "3 fields", "4"))
    assert issubclass(CursorError, UserError)
    with pytest.raises(TypeError, match="abstract"):
        Source("x")  # type: ignore[abstract]


def test_source_guide_example_passes_doctest() -> None:
    assert doctest.testfile(str(ROOT / "docs" / "howto" / "source.md"), module_relative=False).failed == 0


def test_source_guide_contract_test_passes(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "howto" / "source.md").read_text()
    example = re.search(r"^```pycon\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    assert example is not None
    (tmp_path / "plain_log.py").write_text(re.sub(r"^(>>>|\.\.\.) ?", "", example[1], flags=re.MULTILINE))
    (tmp_path / "test_plain_log.py").write_text(shown)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_plain_log.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout[-5000:]
