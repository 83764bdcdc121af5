"""Event log in a file: order of events by time, survey, and range of scored jobs."""

from pathlib import Path

import pytest

from models.records import AnyEvent, Cancel, Capacity, End, ExpectedStart, Requeue, Start, Submit
from streams.bulk import event_log
from streams.bulk.event_log import EventLog, job_number, jobs_in
from streams.bulk.live_events import LogPrefixState
from streams.bulk.survey import UsageLevel
from streams.errors import UserError
from streams.sources.swf import events_of, read_swf
from tests.support.stories import anomalies, applied, new_engine
from tests.support.traces import made_trace, trace_path


def job(name: str, submit: float, start: float, end: float, cpus: int = 1, **more: object) -> list[AnyEvent]:
    """Return all events of a finished job together, as in a log of finished jobs."""
    return [
        Submit(site="s", time=submit, job=name, cpus=cpus, **more),
        Start(site="s", time=start, job=name),
        End(site="s", time=end, job=name),
    ]


def test_finished_jobs_become_events_in_the_order_of_their_times(tmp_path: Path) -> None:
    log = EventLog.of([*job("2", 5, 20, 90), *job("1", 0, 10, 100), *job("2", 5, 20, 90)], tmp_path)
    found = [(event.time, event.kind, getattr(event, "job", "")) for event in log.events()]
    assert found == [
        (0, "capacity", ""),
        (0, "submit", "1"),
        (5, "submit", "2"),
        (10, "start", "1"),
        (20, "start", "2"),
        (90, "end", "2"),
        (100, "end", "1"),
    ]
    assert (log.count, log.jobs, log.site, log.begin) == (7, 2, "s", 0)
    assert [list(log.events(passed)) for passed in range(8)] == [list(log.events())[passed:] for passed in range(8)]


def test_event_log_larger_than_cache_is_sorted_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_TABLES", event_log._TABLES.replace(f"-{event_log.CACHE_KIB}", "-64"))
    events = list(events_of(read_swf(made_trace(tmp_path / "made.swf", jobs=3000)), "s"))
    log = EventLog.of(sorted(events, key=lambda event: (getattr(event, "job", ""), event.time)), tmp_path)
    times = [event.time for event in log.events()]
    assert times == [event.time for event in events]
    assert {path.name for path in tmp_path.iterdir()} == {"made.swf", "events.sqlite"}


def test_event_log_without_capacity_infers_machine_size(tmp_path: Path) -> None:
    busy = [*job("1", 0, 0, 1000, 4), *job("2", 0, 0, 1000, 8, queue="gpu", gpus=2, gpu_types={"a100": 2})]
    mistake = job("3", 500, 500, 501, 8)
    log = EventLog.of([*busy, *mistake], tmp_path)
    survey = log.surveys["s"]
    assert log.capacity["s"] == next(log.events()) == Capacity(site="s", time=0, cpus=12)
    assert survey.partitions["gpu"].cpus.size == 8
    assert (survey.machine.gpus.size, survey.gpu_types["a100"].size) == (2, 2)
    busy_log = EventLog.of([Capacity(site="s", time=0, cpus=64), *busy], tmp_path / "..")
    assert busy_log.capacity == {} and busy_log.surveys["s"].capacity is not None


def test_survey_counts_events_and_fields_of_log(tmp_path: Path) -> None:
    more: list[AnyEvent] = [
        Submit(site="s", time=1, job="c", user="ada", walltime=60.0),
        ExpectedStart(site="s", time=1, job="c", by="slurm", expected=9),
        Cancel(site="s", time=2, job="c"),
        Submit(site="s", time=1, job="r"),
        Start(site="s", time=2, job="r"),
        Requeue(site="s", time=3, job="r"),
        Start(site="s", time=4, job="r", attempt=1),
        Start(site="s", time=4, job="unknown"),
    ]
    survey = EventLog.of([*job("1", 0, 1, 2), *more], tmp_path).surveys["s"]
    assert (survey.submits, survey.starts, survey.ends, survey.cancels, survey.requeues) == (3, 4, 1, 1, 1)
    assert (survey.unsubmitted, survey.unended) == (1, 2)
    assert (survey.fields.user, survey.fields.walltime, survey.fields.eligible) == (1, 1, 0)
    assert survey.expected_by == {"slurm": 1}


@pytest.mark.trace
@pytest.mark.parametrize(("name", "size"), [("KTH", 100), ("SDSC-SP2", 135)])
def test_inferred_machine_size_is_within_six_percent(name: str, size: int, tmp_path: Path) -> None:
    trace = read_swf(trace_path(name))
    silent = (event for event in events_of(trace, "s") if not isinstance(event, Capacity))
    assert EventLog.of(silent, tmp_path).capacity["s"].cpus == size
    assert size == pytest.approx(trace.cpus, rel=0.06)


def test_usage_level_size_is_exact_with_bounded_memory() -> None:
    level = UsageLevel()
    for time in range(1, 20_000):
        level.change(7, time)
    assert len(level.seconds) < 15_000
    assert 7 * 19_700 < level.size < 7 * 20_010


@pytest.mark.parametrize(
    ("name", "number"), [("17", 17), ("4711_3", 4711), ("4711[3]", 4711), ("12.server", 12), ("x", None), ("", None)]
)
def test_job_number_is_leading_number_of_name(name: str, number: int | None) -> None:
    assert job_number(name) == number


def test_job_range_selects_by_number_row_or_time(tmp_path: Path) -> None:
    log = EventLog.of([*job("30_1", 0, 1, 2), *job("20", 5, 6, 7), *job("x", 9, 9, 9)], tmp_path)
    everything = jobs_in(log)
    assert "30_1" in everything and "x" in everything
    numbered = jobs_in(log, ids=(25, 35))
    assert ["30_1" in numbered, "20" in numbered, "x" in numbered] == [True, False, False]
    placed = jobs_in(log, rows=(2, 3))
    assert ["30_1" in placed, "20" in placed, "x" in placed] == [False, True, True]
    late = jobs_in(log, since=5.0)
    assert ["30_1" in late, "20" in late, "x" in late] == [False, True, True]
    with pytest.raises(UserError, match="since then; the log ends at 1970-01-01T00:00Z"):
        jobs_in(log, since=10.0)
    for where, there_are in (
        ({"ids": (1, 2)}, "they are 20 to 30"),
        ({"rows": (9, 10)}, "they are 1 to 3, in the order"),
    ):
        with pytest.raises(UserError, match=f"no job .*; {there_are}"):
            jobs_in(log, **where)


def test_event_log_unwritable_directory_raises_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot store the log there: .*; set TMPDIR to another directory"):
        EventLog.of(job("1", 0, 1, 2), tmp_path / "no" / "such")


def spanning(tmp_path: Path, moment: float) -> tuple[EventLog, set[str]]:
    """Return a busy site's log of jobs that ended after a time, and its jobs submitted before that time."""
    jobs = [
        (str(n), 600.0 * n, 600.0 * n + 3600 * (n % 50), 600.0 * n + 3600 * (n % 50 + 1 + n % 7)) for n in range(3000)
    ]
    found = [one for one in jobs if one[3] >= moment]
    log = EventLog.of([event for one in found for event in job(*one)], tmp_path)
    log.cut_off()
    return log, {one[0] for one in found if one[1] < moment}


def test_jobs_that_outlived_the_beginning_of_a_log_are_late(tmp_path: Path) -> None:
    log, before = spanning(tmp_path, 600.0 * 1000)
    late = {event.job for event in log.events() if isinstance(event, Submit) and event.late}
    assert len(before) > 50 and before <= late and len(late - before) <= 2
    assert log.cuts["s"] >= 600.0 * 1000


def test_short_log_is_not_cut_off(tmp_path: Path) -> None:
    log = EventLog.of([*job("1", 0, 5, 1e5), *job("2", 10, 20, 2e5), *job("3", 5e4, 6e4, 3e5)], tmp_path)
    log.cut_off()
    assert not log.cuts
    assert not any(event.late for event in log.events() if isinstance(event, Submit))


def test_live_events_within_a_log_keep_arrays(tmp_path: Path) -> None:
    def array(name: str, size: int, at: float, ends: int) -> list[AnyEvent]:
        events: list[AnyEvent] = [Submit(site="s", time=at, job=name, cpus=1, array_size=size)]
        events += [Start(site="s", time=at + 1, job=f"{name}_{task}", array=name) for task in range(2)]
        return events + [End(site="s", time=at + 2, job=f"{name}_{task}") for task in range(ends)]

    gone, partly = array("7", 2, 10.0, ends=2), array("8", 4, 20.0, ends=1)
    withdrawn = [*array("9", 3, 30.0, ends=2), Cancel(site="s", time=34.0, job="9")]
    log = EventLog.of([*gone, *partly, *withdrawn, *job("1", 40.0, 41.0, 90.0), *job("2", 50.0, 51.0, 99.0)], tmp_path)
    live_events = [(event.kind, event.job) for event in log.after(4) if event.time <= 40.0 and event.kind != "capacity"]
    assert live_events == [("submit", "8"), ("start", "8_0"), ("start", "8_1"), ("end", "8_0"), ("submit", "1")]


def test_log_after_first_jobs_contains_capacity(tmp_path: Path) -> None:
    spring, summer = 0.0, 150 * 86400.0
    events = [
        *job("1", spring, spring, spring + 9),
        *job("2", summer, summer + 50, summer + 90),
        *job("3", summer + 10, summer + 60, summer + 70),
    ]
    first, second, third = list(EventLog.of(events, tmp_path).after(2))[:3]
    assert (first.kind, first.time) == ("submit", summer)
    assert (second.kind, second.time) == ("capacity", summer + 10)
    assert (third.kind, third.time) == ("submit", summer + 10)


def test_log_prefix_state_forgets_ended_jobs_and_arrays() -> None:
    live = LogPrefixState()
    alone = Submit(site="s", time=11.0, job="7_1", array="7")  # it leaves the array of three, which then has two tasks
    started = [Start(site="s", time=12.0, job=f"7_{task}", array="7") for task in (0, 2)]
    for event in (Submit(site="s", time=10.0, job="7", array_size=3), alone, *started):
        live.add(event)
    for task in (0, 2):
        live.add(End(site="s", time=20.0, job=f"7_{task}"))
    assert list(live) == [("s", "7_1")]
    live.add(Cancel(site="s", time=30.0, job="7_1"))
    assert not live and not [*live.live_events()]


def test_task_submitted_after_start_keeps_other_tasks_pending() -> None:
    live = LogPrefixState()
    live.add(Submit(site="s", time=10.0, job="9", array_size=3))
    live.add(Start(site="s", time=11.0, job="9_1", array="9"))
    live.add(End(site="s", time=12.0, job="9_1"))
    live.add(Start(site="s", time=12.0, job="9_2", array="9"))
    live.add(Submit(site="s", time=13.0, job="9_2", array="9", late=True))
    assert list(live) == [("s", "9"), ("s", "9_1"), ("s", "9_2")]


DAY_S = 86400.0


def with_runaways(runaways: int) -> list[AnyEvent]:
    """Return 390 busy days and earlier jobs without an end; one stays pending, one starts at the end."""
    events = [
        event for n in range(2000) for event in job(f"{n}", *(10 * DAY_S + 16_800.0 * n + s for s in (0, 60, 900)))
    ]
    for n in range(runaways):
        events += job(f"9{n:04}", 0.0, 1.0 + n, 9.0)[:2]
    events.append(Submit(site="s", time=2 * DAY_S, job="held"))
    events += job("again", 3 * DAY_S, 390 * DAY_S, 9.0)[:2]
    return events


@pytest.mark.parametrize("runaways", [1, 40])
def test_missing_end_does_not_advance_site_time(runaways: int, tmp_path: Path) -> None:
    log = EventLog.of(with_runaways(runaways), tmp_path)
    rest = list(log.after(log.jobs - 500))
    assert anomalies(applied(new_engine(), list(log.events()))) == anomalies(applied(new_engine(), rest)) == []
    submits = {event.job for event in rest if isinstance(event, Submit)}
    assert submits == {"held", "again", *(f"{n}" for n in range(1500, 2000))}
