"""Files into one log: what is read, skipped and left out is counted and told."""

import io
import sys
from pathlib import Path

import pytest

from streams.bulk.reading import read_log
from streams.errors import NotUnderstood, UserError
from streams.sources.contract import Skipped
from tests.support.traces import HEADER, made_trace, swf_line


def test_what_was_read_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(HEADER + swf_line(1) + "oops\n" + swf_line(2, wait=-1) + swf_line(3, 5))
    told: list[Skipped] = []
    with read_log([path], on_skipped=told.append) as (log, report):
        assert log.jobs == 2 and log.site == "a" and log.path.exists()
        assert [(file.format, file.records, file.events) for file in report.files] == [("swf", 3, log.count)]
        assert report.left_out == {"jobs without a wait": 1}
        ((reason, parts),) = report.skipped.items()
        assert reason.startswith("18: job number") and (parts.count, parts.found) == (1, "1 fields")
        assert len(told) == 1 and f"a.swf:{told[0].line}" == parts.places[0]
    assert not log.path.exists()


def test_files_are_of_the_first_ones_site_and_what_both_have_counts_once(tmp_path: Path) -> None:
    made_trace(tmp_path / "a.swf", 40)
    (tmp_path / "b.swf").write_bytes((tmp_path / "a.swf").read_bytes())
    paths = [tmp_path / "a.swf", tmp_path / "b.swf"]
    with read_log(paths[:1]) as (once, _), read_log(paths) as (both, report):
        assert list(both.events()) == list(once.events())
        assert report.events == 2 * once.count


def test_standard_input_is_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(swf_line(1).encode())))
    with read_log([Path("-")], "alder") as (log, _):
        assert (log.site, log.jobs) == ("alder", 1)


def test_a_file_without_a_job_says_what_is_there_instead(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"type":"capacity","site":"s","time":1,"cpus":4}\n\n{"type":"end"}\n')
    words = r"no job in it; 1 empty lines; a\.json:3: found .*, expected an event"
    with pytest.raises(NotUnderstood, match=words), read_log([tmp_path / "a.json"]):
        pass
    with pytest.raises(UserError, match="'crystal' is not a source"), read_log([tmp_path / "a.json"], None, "crystal"):
        pass
