"""Detection of a file's format by its first bytes."""

import gzip
from pathlib import Path
from zipfile import ZipFile

import pytest

from streams.bulk.reading import read_log
from streams.errors import UserError
from streams.sources.contract import HEAD_BYTES
from streams.sources.source_registry import UnknownFormat, format_of, head_of
from tests.streams.sources.schedulers import test_pbs as pbs
from tests.support.traces import HEADER, made_trace, swf_line


@pytest.mark.parametrize(
    "text",
    [
        HEADER,
        swf_line(1),
        "not a job\n" + swf_line(1),
        HEADER + swf_line(1, 5.5, 10, 100),
        ";" + "x" * 2000 + "\n" + swf_line(1),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_swf_trace_is_recognised(tmp_path: Path, text: str, zipped: bool) -> None:
    path = tmp_path / "a file of any name"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert format_of(path).name == "swf"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (b'{"meta": {}, "jobs": []}', "there are no jobs in it"),
        (b"1|1|c|b|n|a|u|2026-01-02T12:00:00|COMPLETED\n", "without a header; sacct prints one without --noheader"),
        (b"\x28\xb5\x2f\xfd" + b"x,y,z,\r" * 40, "packed by zstd; unpack it with `zstd -d`"),
        (b"PK\x03\x04" + b"x" * 40, "a zip archive; unpack it with `unzip`"),
        ("JobID|State".encode("utf-16"), "its text is UTF-16.*iconv"),
        (
            b'[{"vc": "v", "jobid": "app_1", "submitted_time": "2017-10-09 07:00", "state": "Pass"}]',
            "JSON of no known",
        ),
        (b"id,queued at\r\n1,2\n", "columns are those of no known data set: id, queued at; map them with --map FILE"),
    ],
)
def test_unsupported_format_error_names_likely_kind(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=f"what: .*{why}"):
        format_of(path)


@pytest.mark.parametrize(
    "members", [["[Content_Types].xml", "xl/workbook.xml"], ["mimetype", "content.xml"], ["xl/workbook.xml"], []]
)
def test_workbook_error_advises_csv_export(tmp_path: Path, members: list[str]) -> None:
    path = tmp_path / "jobs.xlsx"
    path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(100))  # format before Excel 2007
    if members:
        with ZipFile(path, "w") as book:
            for name in members:
                book.writestr(
                    name, "application/vnd.oasis.opendocument.spreadsheet" if name == "mimetype" else "<xml/>"
                )
    with pytest.raises(UnknownFormat, match=r"jobs\.xlsx: it is a workbook .* export the sheet with the jobs as CSV"):
        format_of(path)


@pytest.mark.parametrize("content", [b"1 2 3\n", b"\x00" * 100_000])
def test_unknown_format_error_lists_formats(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=r"what: the format is not recognised; there are: .*swf.*--format NAME"):
        format_of(path)


def test_head_of_compressed_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(b"0" * 10 * HEAD_BYTES))
    assert head_of(path) == b"0" * HEAD_BYTES
    assert head_of(made_trace(tmp_path / "small.swf", 3)) == (tmp_path / "small.swf").read_bytes()


def test_format_of_missing_file_raises_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone: cannot be read: No such file"):
        format_of(tmp_path / "gone")


def test_directory_format_is_that_of_first_recognised_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="no file in it is recognised; name their format with --format NAME"):
        format_of(tmp_path)
    (tmp_path / ".hidden").write_text(swf_line(1))
    (tmp_path / "1").write_text("what is this\n")
    (tmp_path / "20231114").write_text(pbs.QUEUED)
    (tmp_path / "20231115").write_text(pbs.STARTED.replace("11/14", "11/15"))
    assert format_of(tmp_path).name == "pbs"
    with read_log([tmp_path]) as (log, report):
        assert log.jobs == 1 and log.site == tmp_path.name and report.files[0].events == 2


def test_byte_order_mark_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    log = pbs.ENDED.encode()
    rows = b"JobID|State|Submit|Start|End\n1|COMPLETED|2026-01-02T12:00:00|2026-01-02T12:01:00|2026-01-02T12:02:00\n"
    for name, text in (("pbs", b"\xef\xbb\xbf" + log), ("slurm", b"\r\n\n" + rows), ("slurm", b"\xef\xbb\xbf" + rows)):
        path = tmp_path / "log"
        path.write_bytes(text)
        with read_log([path], "alder") as (found, report):
            assert (report.files[0].format, found.jobs, report.skipped) == (name, 1, {})


def test_malformed_csv_raises_unknown_format(tmp_path: Path) -> None:
    path = tmp_path / "what"
    path.write_bytes(b"a,b,c,\rd,e\x00\n")
    with pytest.raises(UnknownFormat, match="not recognised"):
        format_of(path)
