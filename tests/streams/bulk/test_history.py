"""A site's history and the live source that continues it: together they give each event once."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.method import Memory
from models.records import AnyEvent, JobEvent, Submit
from queuecast.testing_sources import events_there
from streams.bulk import site_history as module
from streams.bulk.site_history import OpenHistory, needed
from streams.errors import UserError
from streams.settings import Settings
from streams.sources.contract import Source
from streams.sources.cursors import CursorFile
from streams.sources.publisher import OutgoingEvent
from streams.sources.schedulers.pbs import PbsSource
from streams.sources.slurm.source import SlurmSource
from tests.streams.sources.schedulers.test_pbs import ENDED, QUEUED, STARTED
from tests.support.events import as_history
from tests.support.made_slurm import NOON, MadeJob, history, sacct, squeue
from tests.support.stories import anomalies, applied, new_engine
from tests.support.traces import made_trace

END = 4000
ALL = Memory()


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the topic a fixed name, without a broker."""

    def cursor_file(_: Settings, source: Source, directory: Path) -> CursorFile:
        return CursorFile(directory, source, "events")

    monkeypatch.setattr(module, "cursor_file", cursor_file)


@contextmanager
def opened(files: list[Path], directory: Path | None, needed: Memory = ALL) -> Iterator[OpenHistory]:
    with ExitStack() as stack:
        yield OpenHistory(
            stack, files, "s", Settings(), directory, None, lambda part: pytest.fail(str(part)), (), needed
        )


def sent(steps: Iterator[OutgoingEvent]) -> list[AnyEvent]:
    """Return the events and store their cursors, as after acknowledgement by the broker."""
    events = []
    for event, cursor, file, _ in steps:
        if file is not None and cursor is not None:
            file.keep(cursor)
        if event is not None:
            events.append(event)
    return events


def kinds(events: list[AnyEvent]) -> list[tuple[str, int, str]]:
    return sorted((event.job, event.attempt, event.kind) for event in events if event.kind != "capacity")


def cursor_in(directory: Path, source: Source) -> bytes | None:
    with CursorFile(directory, source, "events") as file:
        return file.cursor


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cut", [400, 1100, 2000])
@pytest.mark.parametrize("by", ["squeue+sacct", "sacct"])
def test_slurm_is_followed_from_the_end_of_its_dump(seed: int, cut: int, by: str, tmp_path: Path) -> None:
    jobs = history(seed)
    (tmp_path / "dump.txt").write_text(sacct(jobs, cut))
    with opened([tmp_path / "dump.txt"], tmp_path / "cursors") as past:
        before = sent(past.steps())
    looks = tmp_path / "looks"
    looks.mkdir()
    for at in range(cut + 30, END, 60):
        (looks / f"{2 * at:06}-sacct.txt").write_text(sacct(jobs, at, cut - 300))
        if by != "sacct":
            (looks / f"{2 * at + 1:06}-squeue.json").write_bytes(squeue(jobs, at))
    source = SlurmSource(str(looks), "s")
    cursor = cursor_in(tmp_path / "cursors", source)
    after = [event for event, _ in events_there(source, cursor)]
    once = {"submit", "start", "end", "cancel", "requeue"}
    keys = [key for key in kinds(before + after) if key[2] in once]
    (tmp_path / "all.txt").write_text(sacct(jobs, END))
    with opened([tmp_path / "all.txt"], None) as whole:
        assert keys == [key for key in kinds(sent(whole.steps())) if key[2] in once]
    assert all(event.historical for event in before if event.kind in ("submit", "requeue"))
    assert not any(event.historical for event in after if event.kind in ("submit", "requeue"))
    assert max(event.time for event in before) <= NOON + cut


def test_history_dump_after_source_start_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_text(sacct([MadeJob(number=1, submit=0, start=20, end=90)], 300))
    with opened([tmp_path / "dump.txt"], tmp_path) as past:
        assert past.follows and past.events == 4
        sent(past.steps())
    with (
        pytest.raises(UserError, match=r"slurm-s.cursor: the source has already started"),
        opened([tmp_path / "dump.txt"], tmp_path),
    ):
        pass


def test_live_source_continues_at_end_of_history(tmp_path: Path) -> None:
    log = tmp_path / "accounting"
    log.mkdir()
    (log / "20231114").write_text(QUEUED + STARTED)
    with opened([log], tmp_path / "cursors") as past:
        first = sent(past.steps())
    assert [(event.kind, getattr(event, "historical", None)) for event in first] == [("submit", True), ("start", None)]
    with (log / "20231114").open("a") as file:
        file.write(ENDED + QUEUED.replace("7.srv", "8.srv"))
    source = PbsSource(str(log), "s", pause_s=0.0)
    with closing(source.events(cursor_in(tmp_path / "cursors", source))) as steps:
        found = [event for event, _ in (next(steps) for _ in range(3)) if event is not None]
    assert [(event.kind, event.job) for event in found] == [("end", "7.srv"), ("submit", "8.srv")]
    assert not found[1].historical


def test_history_of_followed_log_marks_earlier_jobs_old(tmp_path: Path) -> None:
    log = tmp_path / "accounting"
    log.mkdir()
    jobs = [(QUEUED + STARTED + ENDED).replace("7.srv", f"{number}.srv") for number in range(1, 6)]
    (log / "20231114").write_text("".join(jobs))
    with opened([log], tmp_path / "cursors", Memory(None, 2)) as past:
        steps = list(past.steps())
        assert past.follows
    submits = [step.event for step in steps if isinstance(step.event, Submit)]
    assert [(event.job, event.historical, event.old) for event in submits] == [
        (f"{number}.srv", True, number <= 3) for number in range(1, 6)
    ]
    assert all(step.together for step in steps if step.event is not None)
    assert all(step.cursor is not None for step in steps if step.event is not None)


def test_history_of_followed_log_sends_last_and_live_jobs(tmp_path: Path) -> None:
    """The first job has ended; the second and the third still run."""
    log = tmp_path / "accounting"
    log.mkdir()
    job_lines = [QUEUED + STARTED + (ENDED if number in (1, 5) else "") for number in range(1, 6)]
    (log / "20231114").write_text("".join(one.replace("7.srv", f"{n}.srv") for n, one in enumerate(job_lines, 1)))
    with opened([log], tmp_path / "cursors", Memory(2, 2)) as past:
        found = sent(past.steps())
        assert past.jobs == 5
    submits = [event for event in found if isinstance(event, Submit)]
    assert [(event.job, event.late) for event in submits] == [
        ("2.srv", True), ("3.srv", True), ("4.srv", False), ("5.srv", False)
    ]  # fmt: skip
    assert len(found) == 9 and all(event.historical for event in submits)
    source = PbsSource(str(log), "s", pause_s=0.0)
    with closing(source.events(cursor_in(tmp_path / "cursors", source))) as steps:
        assert next(steps)[0] is None, "the cursor is at its end"


def test_history_of_long_log_sends_last_jobs(tmp_path: Path) -> None:
    with opened([made_trace(tmp_path / "one.swf", jobs=700)], None, Memory(60, 6000)) as past:
        found = sent(past.steps())
    submits = [event for event in found if isinstance(event, Submit)]
    assert [event.old for event in submits if not event.late] == [False] * 60
    assert {event.job for event in found if isinstance(event, JobEvent)} <= {event.job for event in submits}


@pytest.mark.parametrize("late", [range(0), range(30), range(40, 60), range(0, 60, 2)])
def test_history_with_late_jobs_predicts_last_jobs(late: range) -> None:
    submits = [Submit(site="s", time=float(n), job=str(n), late=n in late) for n in range(60)]
    marked = as_history(submits, predicted=20)
    assert [event.job for event in marked if isinstance(event, Submit)] == [event.job for event in submits]
    punctual = [event for event in marked if isinstance(event, Submit) and not event.late]
    assert [event.old for event in punctual] == [True] * (40 - len(late)) + [False] * 20
    assert all(event.historical for event in punctual)


def test_history_without_live_source_writes_no_cursor(tmp_path: Path) -> None:
    (tmp_path / "pbs").write_text(ENDED)
    with opened([tmp_path / "pbs"], None) as past:
        assert not past.follows
        assert [event.kind for event in sent(past.steps())] == ["capacity", "submit", "start", "end"]


def test_history_length_follows_methods_memory() -> None:
    few = {"boosted": {"window": 1000}, "policy": {"every": 50}}
    forests = EngineSettings(method="boosted", shadows=(), history=600, parameters=few)
    assert needed(EngineSettings(), "s") == Memory(36_000, 6000)
    assert needed(forests, "s") == Memory(1200, 0)
    assert needed(msgspec.structs.replace(forests, shadows=("policy",)), "s") == Memory(30_000, 30_000)
    assert needed(msgspec.structs.replace(forests, shadows=("qbets",)), "s") == Memory(None, None), "not declared"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (EngineSettings(method="crystal"), "no method 'crystal'; there are: zero, "),
        (EngineSettings(parameters={"blend": {"ball": 1}}), "blend.ball is not a parameter; "),
    ],
)
def test_history_with_unknown_method_or_parameter_raises_error(settings: EngineSettings, words: str) -> None:
    with pytest.raises(UserError, match=f"^engine: {words}"):
        needed(settings, "s")


def test_dump_with_missing_ends_does_not_advance_time(tmp_path: Path) -> None:
    """Many jobs have no end event; the other jobs follow months later."""
    days = 24 * 3600
    jobs = [MadeJob(number=n, submit=100 * n, start=100 * n + 50) for n in range(1, 41)]
    times = [10 * days + n * days // 10 for n in range(3000)]
    jobs += [MadeJob(number=n, submit=at, start=at + 60, end=at + 900) for n, at in enumerate(times, 100)]
    (tmp_path / "dump.txt").write_text(sacct(jobs, 310 * days))
    for most in (ALL, Memory(500, 100)):
        with opened([tmp_path / "dump.txt"], None, most) as past:
            found = sent(past.steps())
        assert not any(one.implausible for one in anomalies(applied(new_engine(), found)))
    assert {event.job for event in found if isinstance(event, Submit)} == {str(n) for n in range(2600, 3100)}
