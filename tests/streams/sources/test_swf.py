import gzip
import os
import threading
from pathlib import Path

import msgspec
import pytest

from models.records import AnyEvent, Cancel, Capacity, End, Start, Submit
from streams.bulk.event_log import in_order
from streams.bulk.reading import read_log
from streams.errors import InvalidInput, UserError
from streams.sources.contract import CursorError, SkippedPart
from streams.sources.swf import FIELDS, WIDER, SwfJob, SwfSource, Trace, events_of, read_swf
from tests.support.traces import HEADER, made_trace, swf_line, trace_path

LINE = "17 100.5 60 3600 8 3500 -1 16 7200 512 1 4 5 6 2 1 -1 -1\n"


def read(tmp_path: Path, text: str | bytes) -> Trace:
    path = tmp_path / "site.swf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_swf(path)


def events(tmp_path: Path, text: str) -> list[AnyEvent]:
    return list(events_of(read(tmp_path, text), "s"))


def test_swf_line_becomes_job(tmp_path: Path) -> None:
    (job,) = read(tmp_path, LINE).jobs
    assert (job.number, job.submit, job.wait, job.run) == (17, 100.5, 60.0, 3600.0)
    assert (job.allocated, job.requested, job.walltime, job.requested_memory) == (8, 16, 7200.0, 512.0)
    assert (job.status, job.user, job.group, job.executable, job.queue) == (1, 4, 5, 6, 2)
    assert job.started


def test_swf_job_becomes_submit_start_end(tmp_path: Path) -> None:
    assert events(tmp_path, HEADER + LINE) == [
        Capacity(site="s", time=835823260.5, cpus=64, nodes=16),
        Submit(
            site="s",
            time=835823260.5,
            job="17",
            user="u4",
            group="g5",
            queue="q2",
            executable="x6",
            cpus=16,
            memory=16 * 512 * 1024,
            walltime=7200.0,
        ),
        Start(site="s", time=835823320.5, job="17", cpus=8),
        End(site="s", time=835826920.5, job="17", state="completed"),
    ]


def test_unknown_fields_are_omitted(tmp_path: Path) -> None:
    submit, start, end = events(tmp_path, "1 5 0 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n")
    assert submit == Submit(site="s", time=5.0, job="1", cpus=1)
    assert start == Start(site="s", time=5.0, job="1")
    assert end == End(site="s", time=5.0, job="1", state="unknown")


@pytest.mark.parametrize("run", [0, -1])
def test_job_cancelled_while_pending_emits_no_start(tmp_path: Path, run: int) -> None:
    submit, cancel = events(tmp_path, swf_line(1, 10, 30, run, status=5))
    assert isinstance(submit, Submit)
    assert cancel == Cancel(site="s", time=40.0, job="1")


def test_cancelled_running_job_emits_end(tmp_path: Path) -> None:
    assert [event.kind for event in events(tmp_path, swf_line(1, 10, 30, 5, status=5))] == ["submit", "start", "end"]


def test_swf_sorts_jobs_and_counts_missing_waits(tmp_path: Path) -> None:
    trace = read(tmp_path, swf_line(1, 50) + swf_line(2, 7, wait=-1) + swf_line(3, 20) + swf_line(4, 20))
    assert [job.number for job in trace.jobs] == [3, 4, 1]
    assert trace.without_wait == 1
    assert trace.begin == 20.0


def test_gzip_trace_is_recognised_by_content(tmp_path: Path) -> None:
    plain, zipped = tmp_path / "plain.swf.gz", tmp_path / "zipped.swf"
    plain.write_text(LINE)
    zipped.write_bytes(gzip.compress(LINE.encode()))
    assert read_swf(plain).jobs == read_swf(zipped).jobs
    assert (plain.name, read_swf(plain).site, read_swf(zipped).site) == ("plain.swf.gz", "plain", "zipped")


def test_truncated_gzip_file_raises_user_error(tmp_path: Path) -> None:
    whole = gzip.compress("".join(swf_line(number, number * 7) for number in range(2000)).encode())
    with pytest.raises(UserError, match=r"site.swf: cannot be read: the zipped file is broken or cut short"):
        read(tmp_path, whole[: len(whole) // 2])


def test_corrupt_gzip_file_raises_user_error(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress("".join(swf_line(number, number * 7) for number in range(2000)).encode()))
    for place in (10, len(whole) // 2, len(whole) - 8):  # invalid block, invalid symbols, wrong checksum
        with pytest.raises(UserError, match=r"site.swf(: cannot be read: the zipped|, line)"):
            read(tmp_path, bytes(whole[:place]) + bytes(255 - byte for byte in whole[place:]))


def test_header_with_invalid_utf8_is_read(tmp_path: Path) -> None:
    trace = read(tmp_path, b"; Computer: Universit\xe4t\xff\n; MaxProcs: 12\n" + LINE.encode())
    assert (trace.cpus, len(trace.jobs)) == (12, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", r"line 1: 3 fields; expected 18 or more: job number, submit time"),
        (LINE + "\n" + LINE.replace("3600", "soon"), r"line 3: field 4 \(run time\) is 'soon'; expected a number"),
        (LINE.replace("17", "1.5"), r"line 1: field 1 \(job number\) is '1.5'; expected a whole number"),
        (LINE.replace(" 16 ", " x "), r"field 8 \(requested processors\) is 'x'; expected a whole number"),
        (LINE.replace("100.5", "-3"), r"field 2 \(submit time\) is '-3'; expected seconds from the trace's start"),
        (LINE.replace("3600", "nan"), r"field 4 \(run time\) is 'nan'"),
        (LINE.replace("60 ", "inf "), r"field 3 \(wait time\) is 'inf'"),
        (LINE.replace("3600", "1e400"), r"field 4 \(run time\) is '1e400'"),
        ("", r"no job with a wait time; expected a trace in the Standard Workload Format"),
        ("; only: a header\n", r"no job"),
        (swf_line(1, wait=-1), r"no job"),
    ],
)
def test_invalid_line_error_names_file_and_expected_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, text)
    assert str(tmp_path / "site.swf") in str(error.value)


def test_swf_without_valid_line_reports_first_error(tmp_path: Path) -> None:
    path = tmp_path / "site.swf"
    path.write_text("".join(LINE.rpartition(" ")[0] + "\n" for _ in range(3)))
    with pytest.raises(InvalidInput, match=r"no job with a wait time; .*line 1: 17 fields; expected 18"):
        read_swf(path, lambda part: None)


def test_error_shows_long_field_truncated(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path, LINE.replace("3600", "9" * 5000 + "x"))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("name", ["missing.swf", "."])
def test_unreadable_file_raises_user_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_swf(tmp_path / name)


def test_invalid_lines_are_reported_and_skipped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    skipped: list[SkippedPart] = []
    path.write_text(LINE + "what\n" + LINE.replace("60", "x") + swf_line(5, 900))
    trace = read_swf(path, skipped.append)
    assert [job.number for job in trace.jobs] == [17, 5]
    assert [(part.file, part.line, part.field) for part in skipped] == [
        (str(path), 2, None),
        (str(path), 3, "field 3 (wait time)"),
    ]


@pytest.mark.parametrize(
    ("entry", "cpus"),
    [("338 (batch; 512 total)", 338), ("-1", 0), ("many", 0), ("nan", 0), ("inf", 0), ("", 0)],
)
def test_header_entries_set_machine_size(tmp_path: Path, entry: str, cpus: int) -> None:
    trace = read(
        tmp_path, f"; MaxProcs: {entry}\n; MaxNodes: {entry}\n; UnixStartTime: {entry}\n; MaxProcs: 9\n" + LINE
    )
    assert (trace.cpus, trace.nodes, trace.start) == (cpus, cpus or None, float(cpus))
    assert isinstance(next(events_of(trace, "s")), Capacity if cpus else Submit)


def test_swf_source_yields_events_of_trace(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "made.swf")
    source = SwfSource(str(path))
    assert (source.sites, source.live) == (("made",), False)
    assert [event for event, _ in source.events()] == list(events_of(read_swf(path), "made"))
    assert SwfSource(str(path), "kth").sites == ("kth",)
    with pytest.raises(UserError, match="a name has 1 to 256 characters"):
        SwfSource(str(path), "")


def test_cursor_of_other_trace_is_rejected(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "made.swf")
    source = SwfSource(str(path))
    (_, cursor), *rest = source.events()
    zipped = tmp_path / "zipped.swf.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert list(SwfSource(str(zipped), "made").events(cursor)) == rest
    part = tmp_path / "part.swf"
    part.write_text("".join(path.read_text().splitlines(keepends=True)[:20]))
    for other in (part, made_trace(tmp_path / "other.swf", seed=6)):
        with pytest.raises(CursorError, match=r"(part|other)\.swf: the cursor is of another log"):
            next(SwfSource(str(other)).events(cursor))


def test_synthetic_trace_is_read(tmp_path: Path) -> None:
    trace = read_swf(made_trace(tmp_path / "made.swf"))
    assert len(trace.jobs) + trace.without_wait == 400
    assert 0 < trace.without_wait < 60
    assert 0 < sum(not job.started for job in trace.jobs) < 80


@pytest.mark.trace
def test_real_trace_is_read() -> None:
    trace = read_swf(trace_path("KTH"))
    assert (len(trace.jobs), trace.start, trace.cpus) == (28476, 843480031.0, 100)
    assert sum(1 for _ in events_of(trace, "kth")) == 1 + sum(3 if job.started else 2 for job in trace.jobs)
    assert len(FIELDS) + 2 == len(SwfJob.__struct_fields__)


def test_swf_extra_columns_are_counted(tmp_path: Path) -> None:
    line = "7 10 5.5 60.25 4.0 -1 -1 4 600 -1 1.0 3 1 -1 2 -1 -1 -1"
    path = tmp_path / "wide.swf"
    path.write_text(f"{line} -1 {{n1,n2}} 2:ppn=2\n{line.replace('7', '8', 1)}\n")
    source = SwfSource(str(path))
    assert len(list(source.read_all())) == 6
    first, second = read_swf(path).jobs
    assert (first.number, first.run, first.allocated, first.status) == (7, 60.25, 4, 1)
    assert first == msgspec.structs.replace(second, number=7)
    assert source.left_out == {WIDER: 1}
    assert SwfSource.recognises(path.read_bytes())


def test_frontier_extra_column_sets_cpus_and_nodes(tmp_path: Path) -> None:
    line = "7 10 5 60 589824 -1 -1 4 600 -1 1 3 1 -1 2 -1 -1 -1 20000 500 frontier:excl:2500x112\n"
    submit, start, _ = events(tmp_path, line)
    assert isinstance(submit, Submit)
    assert isinstance(start, Start)
    assert (submit.cpus, submit.nodes, start.cpus) == (280_000, 2500, 280_000)


@pytest.mark.parametrize("size", ["0x112", "16x0", "999999x9999"])
def test_invalid_extra_column_keeps_standard_fields(tmp_path: Path, size: str) -> None:
    submit, start, _ = events(tmp_path, f"7 10 5 60 8 -1 -1 4 600 -1 1 3 1 -1 2 -1 -1 -1 a:b:{size}\n")
    assert isinstance(submit, Submit)
    assert isinstance(start, Start)
    assert (submit.cpus, submit.nodes, start.cpus) == (4, None, 8)


def test_swf_duplicate_line_without_header_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "twice.swf"
    path.write_text("1 0 10.5 3600.25 8 -1 -1 8 7200 -1 1 4 5 6 2 1 -1 -1 {n1 n2} batch\n" * 2)
    with read_log([path]) as (log, report):
        assert (log.jobs, report.events) == (1, 6)
        assert [event.time for event in log.events()][-2:] == [10.5, 3610.75]


def test_swf_trace_from_pipe_is_read(tmp_path: Path) -> None:
    trace, pipe = made_trace(tmp_path / "made.swf", 300), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(trace.read_bytes()), daemon=True)
    writer.start()
    found = read_swf(pipe)
    writer.join(60)
    assert list(found.jobs) == list(read_swf(trace).jobs) != []


def test_swf_followed_trace_is_in_time_order(tmp_path: Path) -> None:
    path = tmp_path / "s.swf"
    path.write_text(HEADER + swf_line(1, 500) + swf_line(2, 5) + swf_line(3, 900) + swf_line(4, 7, wait=-1))
    source = SwfSource(str(path))
    steps = list(source.events())
    assert [event for event, _ in steps] == list(events_of(read_swf(path), "s"))
    assert (source.records, source.left_out) == (4, {"jobs without a wait": 1})
    for place, (_, cursor) in enumerate(steps, 1):
        assert list(SwfSource(str(path)).events(cursor)) == steps[place:]


def test_swf_pipe_accepts_cursors_of_the_file(tmp_path: Path) -> None:
    trace, pipe = made_trace(tmp_path / "made.swf", 300), tmp_path / "pipe"
    trace.write_bytes(b"\xef\xbb\xbf; Note: \xff\n" + trace.read_bytes().replace(b"\n", b"\r\n"))
    steps = list(SwfSource(str(trace), "made").events())
    os.mkfifo(pipe)
    for cursor, expected in ((None, steps), (steps[99][1], steps[100:])):
        writer = threading.Thread(target=lambda: pipe.write_bytes(trace.read_bytes()), daemon=True)
        writer.start()
        source = SwfSource(str(pipe), "made")
        found = list(source.events(cursor))
        writer.join(60)
        assert found == expected and source.records == 300


def test_swf_read_twice_counts_excluded_jobs_one_time(tmp_path: Path) -> None:
    path = tmp_path / "s.swf"
    path.write_text(swf_line(1) + swf_line(2, wait=-1))
    source = SwfSource(str(path))
    for _ in range(2):
        assert len(list(source.read_all())) == 3
        assert (source.records, source.left_out) == (2, {"jobs without a wait": 1})


def test_frontier_trace_gpus_are_read_from_column_19(tmp_path: Path) -> None:
    line = "7 10 5 60 589824 -1 -1 589824 600 -1 1 3 1 -1 2 -1 -1 -1 20000 3600 frontier:excl:2500x112\n"
    unknown = line.replace("7 10", "8 20").replace("20000", "-1")
    plain = "9 30 5 60 4 -1 -1 4 600 -1 1 3 1 -1 2 -1 -1 -1 16 {n1}\n"
    first, second, third = (event for event in events(tmp_path, line + unknown + plain) if isinstance(event, Submit))
    assert (first.cpus, first.nodes, first.gpus) == (280_000, 2500, 20_000)
    assert (second.gpus, third.gpus, third.cpus) == (0, 0, 4)


def test_bulk_read_uses_header_following_jobs(tmp_path: Path) -> None:
    path = tmp_path / "made.swf"
    path.write_text(swf_line(1) + HEADER + swf_line(2, 30))
    found = list(SwfSource(str(path)).read_all())
    assert found == list(events_of(read_swf(path), "made"))
    assert isinstance(found[0], Capacity) and (found[0].cpus, found[0].time) == (64, 835823160.0)


def test_bulk_read_yields_same_events_as_read_swf(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "made.swf")
    source = SwfSource(str(path))
    assert list(source.read_all()) == list(events_of(read_swf(path), "made"))
    assert source.records == 400
    lines = path.read_text().splitlines(keepends=True)
    jobs = [line for line in lines if not line.startswith(";")]
    path.write_text("".join([line for line in lines if line.startswith(";")] + jobs[1:] + jobs[:1]))
    with read_log([path], "made") as (log, _):
        bulk_events = [
            event for place, event in enumerate(log.events(0)) if place == 0 or not isinstance(event, Capacity)
        ]
    assert bulk_events == list(in_order(events_of(read_swf(path), "made")))
