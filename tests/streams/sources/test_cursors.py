import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from streams.errors import UserError
from streams.sources.contract import Source
from streams.sources.cursors import SECONDS_PER_WRITE, CursorFile, file_name

ROOT = Path(__file__).parents[3]
TOPIC = "queuecast.events 7f"


def source(*sites: str, name: str = "swf") -> Source:
    found = Mock(spec=Source, sites=sites)
    found.name = name
    return found


def kept(directory: Path, *sites: str) -> bytes | None:
    with CursorFile(directory, source(*sites), TOPIC) as file:
        return file.cursor


def test_cursor_file_restores_cursor_on_reopen(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there yet"
    cursor = b"{}\n\x00\xff\n"
    with CursorFile(directory, source("kth"), TOPIC) as file:
        assert file.cursor is None
        file.keep(cursor)
    assert kept(directory, "kth") == cursor
    assert kept(directory, "ctc") is None
    assert sorted(path.name for path in directory.iterdir()) == ["swf-ctc.lock", "swf-kth.cursor", "swf-kth.lock"]


def test_cursor_file_is_readable_json(tmp_path: Path) -> None:
    with CursorFile(tmp_path, source("kth"), TOPIC) as file:
        file.keep(b'{"events":7}')
        expected = '{"v":1,"source":"swf","sites":["kth"],"topic":"queuecast.events 7f"}\n{"events":7}'
        assert file.path.read_text() == expected


def test_cursor_file_is_written_periodically_and_on_close(tmp_path: Path) -> None:
    now = 100.0
    with CursorFile(tmp_path, source("kth"), TOPIC, clock=lambda: now) as file:
        for number in range(5):
            file.keep(b"%d" % number)
        assert file.cursor == b"0"
        now += SECONDS_PER_WRITE
        file.keep(b"5")
        assert file.cursor == b"5"
        file.keep(b"6")
    assert kept(tmp_path, "kth") == b"6"


def test_unchanged_cursor_is_not_written(tmp_path: Path) -> None:
    with CursorFile(tmp_path, source("kth"), TOPIC, clock=lambda: 0.0) as file:
        file.keep(b"1")
        file.path.unlink()
        file.keep(b"1")
        assert not file.path.exists()


def test_cursor_file_in_use_raises_user_error(tmp_path: Path) -> None:
    with CursorFile(tmp_path, source("kth"), TOPIC):
        assert kept(tmp_path, "ctc") is None
        with pytest.raises(UserError, match=r"swf-kth.cursor: another process is using it"):
            kept(tmp_path, "kth")
    assert kept(tmp_path, "kth") is None


WRITER = """
import itertools, pathlib, sys
from unittest.mock import Mock
from streams.sources.cursors import CursorFile
source, clock = Mock(sites=("kth",)), itertools.count(0, 10).__next__
source.name = "swf"
with CursorFile(pathlib.Path(sys.argv[1]), source, "queuecast.events 7f", clock) as file:
    for number in itertools.count(1):
        file.keep(b"%d." % number * 500)
"""


def test_killed_process_leaves_valid_cursor_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "swf-kth.cursor"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT) as process:
            deadline = time.monotonic() + 60
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.05)
            os.kill(process.pid, signal.SIGKILL)
        cursor = kept(tmp_path, "kth")
        assert cursor is not None
        assert cursor == b"%d." % int(cursor.split(b".")[0]) * 500
        path.unlink()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a cursor file: "),
        (b"what\n7", "not a cursor file: "),
        (b'{"v":1,"source":"swf\xff"}\n7', "not a cursor file: "),
        (b'{"v":2,"source":"swf","sites":["kth"],"topic":"queuecast.events 7f"}\n7', "not a cursor file: .*<= 1"),
        (b'{"v":1,"source":"pbs","sites":["kth"],"topic":"queuecast.events 7f"}\n7', "its source is 'pbs', not 'swf'"),
        (b'{"v":1,"source":"swf","sites":["KTH"],"topic":"queuecast.events 7f"}\n7', "its sites is "),
        (b'{"v":1,"source":"swf","sites":["kth"],"topic":"queuecast.events 8a"}\n7', "its topic is .* 8a', not .* 7f'"),
    ],
)
def test_foreign_cursor_file_raises_and_stays_unchanged(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "swf-kth.cursor"
    path.write_bytes(content)
    for _ in range(2):  # the lock is released
        with pytest.raises(
            UserError, match=rf"swf-kth.cursor: {message}.*; remove the file to send from the beginning"
        ):
            kept(tmp_path, "kth")
    assert path.read_bytes() == content


def test_any_site_has_a_name_for_its_file(tmp_path: Path) -> None:
    assert file_name(source("kth")) == "swf-kth"
    assert file_name(source("a/b", "..")) == "swf-a%2Fb,.."
    assert file_name(source("a,b")) != file_name(source("a", "b"))
    long = [file_name(source("ö" * 255 + last)) for last in "ab"]
    assert long[0] != long[1] and max(map(len, long)) < 150
    assert kept(tmp_path, "ö" * 256) is None


def test_cursor_directory_not_creatable_raises_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        kept(tmp_path / "file", "kth")
