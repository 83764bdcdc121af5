from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.engine.engine import Settings
from models.records import Cancel, End, Outcome, Start
from models.search.ibl import Examples, Generation, Plan, Target, settings_of
from models.search.tuning import Tuning, aae_s
from models.simulation import generate, run
from streams.cli.app import main
from streams.errors import UserError
from streams.offline import tune
from streams.offline.replay import Scores, replay
from streams.offline.search import save
from streams.settings import load_settings
from streams.sources.swf import SwfJob, Trace, events_of, read_swf
from tests.support.traces import HEADER, swf_line

Capture = pytest.CaptureFixture[str]
ROWS = (120, 180)
ENGINE = Settings(method="qespera", history=120)


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A simulated busy site of 240 jobs, some withdrawn, as a trace."""
    jobs = generate(seed=3, jobs=240, cpus=64, load=0.9)
    left: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in run(jobs, cpus=64, site="made"):
        if isinstance(event, Start | Cancel):
            left[event.job] = event.time
        elif isinstance(event, End):
            ended[event.job] = event.time
    lines = [
        swf_line(
            int(job.job),
            job.submit,
            int(left[job.job]) - job.submit,
            int(ended[job.job] - left[job.job]) if job.job in ended else 0,
            1 if job.job in ended else 5,
            job.cpus,
            job.walltime,
            int(job.user[1:]),
        )
        for job in jobs
    ]
    path = tmp_path / "made.swf"
    path.write_text(HEADER + "".join(lines))
    return read_swf(path)


def tuned(trace: Trace, every: int = 2) -> tuple[tune.Stretch, Tuning]:
    stretch = tune.stretch_of(trace, None, ROWS, every)
    return stretch, tune.tune(stretch, ENGINE)


def test_the_profile_loads_and_predicts_as_was_said(trace: Trace) -> None:
    stretch, found = tuned(trace)
    save(tune.profile(found.profile), Path("made.toml"))
    engine = load_settings(Path("made.toml"), {}).engine
    assert (engine.method, engine.history) == (found.profile.method, found.profile.history)
    assert engine.parameters == {engine.method: found.profile.parameters[engine.method]}
    assert engine.parameters[engine.method]
    scores = Scores(lambda outcome: outcome.job in stretch.jobs)
    published = msgspec.structs.replace(engine, shadows=())
    for item in replay(events_of(trace, "made"), published):
        if isinstance(item, Outcome):
            scores.add(item)
    row = scores.rows()[engine.method]
    assert row["jobs"] == len(stretch.jobs)
    assert (row["AAE"] * 3600, row["PPE"]) == pytest.approx((aae_s(found.together), found.together.measures()["PPE"]))


def test_nothing_after_the_stretch_is_read(trace: Trace, capsys: Capture) -> None:
    shown = []
    later = [msgspec.structs.replace(job, wait=job.wait + 9e5, run=1.0, user=1) for job in trace.jobs[ROWS[1] :]]
    for jobs in (trace.jobs, [*trace.jobs[: ROWS[1]], *later], trace.jobs[: ROWS[1]]):
        stretch, found = tuned(msgspec.structs.replace(trace, jobs=jobs))
        tune.show(found, stretch)
        shown.append((capsys.readouterr().out, tune.profile(found.profile)))
    assert len(later) > 50
    assert shown[0] == shown[1] == shown[2]


def test_a_change_within_the_stretch_is_seen(trace: Trace) -> None:
    jobs = [*trace.jobs]
    jobs[ROWS[1] - 1] = msgspec.structs.replace(jobs[ROWS[1] - 1], wait=9e5)
    one, other = (tuned(msgspec.structs.replace(trace, jobs=kept), every=1)[1] for kept in (trace.jobs, jobs))
    assert aae_s(one.before) != aae_s(other.before)


def job(number: int, **changes: Any) -> SwfJob:
    fields: dict[str, Any] = dict.fromkeys(SwfJob.__struct_fields__, -1)
    return SwfJob(**fields | {"number": number, "submit": float(number), "wait": 5.0, "run": 60.0} | changes)


def test_the_stretch_is_every_so_manieth_of_its_jobs() -> None:
    jobs = [job(number) for number in range(1, 21)]
    jobs[9] = job(10, run=-1.0, status=5)
    trace = Trace(Path("t.swf"), {}, jobs, 0)
    stretch = tune.stretch_of(trace, (10, 16), None, 3)
    assert {name: (truth.wait_s, truth.run_s) for name, truth in stretch.jobs.items()} == {
        "10": (5.0, 0.0),
        "13": (5.0, 60.0),
        "16": (5.0, 60.0),
    }
    assert (stretch.of, len(stretch.trace.jobs), stretch.steps) == (7, 16, 48)
    assert list(tune.stretch_of(trace, None, (19, 99), 1).jobs) == ["19", "20"]
    with pytest.raises(UserError, match="no job in that range; there are 20, numbered 1 to 20"):
        tune.stretch_of(trace, None, None, 1)


def test_progress_comes_to_its_end(trace: Trace) -> None:
    stretch, steps = tune.stretch_of(trace, None, (40, 60), 4), []
    tune.tune(stretch, ENGINE, lambda: steps.append(1))
    assert len(steps) == stretch.steps


def test_the_command_prints_the_tables_and_saves_the_profile(trace: Trace, capsys: Capture) -> None:
    Path("queuecast.toml").write_text("[engine]\nhistory = 120\n")
    arguments = ["tune", "made.swf", "--rows", "120", "180", "--every", "2", "--save", "made.toml"]
    assert main(arguments) == 0
    said = capsys.readouterr()
    _, found = tuned(trace)
    lines = [line.split() for line in said.out.splitlines()]
    assert f"{aae_s(found.statistics['qespera']):.2f}" in lines[2]
    assert lines[2][-3:] == ["31", "of", "61"]
    rows = [line for line in lines if line and line[-1] == "*"]
    assert len(rows) == sum(row.chosen for row in found.rows)
    assert lines[-1][-2:] == [f"{aae_s(found.together):.2f}", f"{found.together.measures()['PPE']:.3f}"]
    assert "only 31 jobs were predicted" in said.err
    assert Path("made.toml").read_text() == tune.profile(found.profile)
    assert main(["--config", "made.toml", "replay", "made.swf", "--rows", "200", "240"]) == 0
    assert found.profile.method in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--ids", "1", "2", "--rows", "1", "2"], 2, "--ids and --rows exclude each other."),
        (["--every", "0"], 2, "--every"),
        (["--seed", "3"], 2, "--seed says nothing of qespera."),
        (["--method", "ibl", "--jobs", "3"], 2, "--jobs says nothing of ibl."),
        (["--method", "ibl", "--resume", "no/s.json"], 1, "no/s.json: cannot be written: there is no such directory"),
        ([], 1, "made.swf: no job in that range; there are 240, numbered 1 to 240"),
        (["--rows", "1", "9", "--save", "no/such.toml"], 1, "no/such.toml: cannot be written: there is no such"),
    ],
)
def test_a_mistake_is_told(trace: Trace, capsys: Capture, arguments: list[str], code: int, message: str) -> None:
    assert main(["tune", "made.swf", *arguments]) == code
    assert message in capsys.readouterr().err


IBL = Settings(method="zero", parameters={"ibl": {"neighbours": 5, "run_neighbours": 7}})
PLAN = Plan(6, 3, seed=2)


def examples_of(trace: Trace, target: Target = "wait", rows: tuple[int, int] = ROWS) -> Examples:
    return tune.examples_of(tune.stretch_of(trace, None, rows, 2), IBL, target)


def searched(examples: Examples, report: Callable[[Generation], None] = lambda _: None, **wanted: Any) -> tune.Found:
    return tune.search(examples, tune.Wanted(**{"plan": PLAN, **wanted}), IBL, report)


def replayed_error(trace: Trace, settings: Settings, target: Target) -> float:
    """The error over the stretch, as a share of the mean wait or run time, in a replay by these settings."""
    jobs = tune.stretch_of(trace, None, ROWS, 2).jobs
    items = replay(events_of(trace, "made"), msgspec.structs.replace(settings, shadows=()))
    last = {item.job: item for item in items if isinstance(item, Outcome) and item.job in jobs}
    if target == "wait":
        pairs = [(outcome.predicted_wait_s, outcome.actual_wait_s) for outcome in last.values()]
    else:
        pairs = [(outcome.predicted_run_s, outcome.actual_run_s or 0.0) for outcome in last.values()]
    counted = [(said or 0.0, true) for said, true in pairs if target == "wait" or true]
    return sum(abs(said - true) for said, true in counted) / sum(true for _, true in counted)


@pytest.mark.parametrize(("target", "setting"), [("wait", "method"), ("run", "runtimes")])
def test_what_is_found_for_ibl_predicts_as_was_said(trace: Trace, target: Target, setting: str) -> None:
    found = searched(examples_of(trace, target))
    assert found.error == min(found.generations[-1].errors.values())
    assert target == "run" or found.error <= found.before_error  # 7 neighbours are none of those tried
    in_force = msgspec.structs.replace(IBL, **{setting: "ibl"})
    assert replayed_error(trace, in_force, target) == pytest.approx(found.before_error)
    save(tune.search_profile(found, IBL), Path("made.toml"))
    engine = load_settings(Path("made.toml"), {}).engine
    assert getattr(engine, setting) == "ibl"
    assert engine.parameters["ibl"] == IBL.parameters["ibl"] | settings_of(found.parameters, target)
    assert replayed_error(trace, engine, target) == pytest.approx(found.error)


def test_nothing_after_the_stretch_is_searched(trace: Trace) -> None:
    later = [msgspec.structs.replace(job, wait=job.wait + 9e5, run=1.0) for job in trace.jobs[ROWS[1] :]]
    changed = msgspec.structs.replace(trace, jobs=[*trace.jobs[: ROWS[1]], *later])
    assert examples_of(changed).fingerprint == examples_of(trace).fingerprint
    assert examples_of(changed, rows=(120, 182)).fingerprint != examples_of(trace, rows=(120, 182)).fingerprint


def test_a_search_for_ibl_that_was_interrupted_is_resumed(trace: Trace) -> None:
    examples, file = examples_of(trace), Path("state.json")
    whole = searched(examples)

    class Interrupt(Exception):
        pass

    def interrupt(generation: Generation) -> None:
        if generation.number == 2:
            raise Interrupt

    with pytest.raises(Interrupt):
        searched(examples, interrupt, file=file)
    assert len(msgspec.json.decode(file.read_bytes())["errors"]) < len(
        {bits for generation in whole.generations for bits in generation.errors}
    )
    assert searched(examples, file=file) == whole
    assert searched(examples, file=file, workers=2) == whole  # all is known
    assert searched(examples, file=file, plan=Plan(6, 4, seed=2)).generations[:3] == whole.generations
    with pytest.raises(UserError, match="of a search on other jobs"):
        searched(examples_of(trace, "run"), file=file)


def test_a_search_for_ibl_is_the_same_with_any_number_of_workers(trace: Trace) -> None:
    examples, plan = examples_of(trace), Plan(4, 2)
    assert searched(examples, plan=plan, workers=2) == searched(examples, plan=plan)


@pytest.mark.parametrize(("option", "target"), [("--method", "wait"), ("--runtimes", "run")])
def test_the_command_searches_for_ibl(trace: Trace, capsys: Capture, option: str, target: Target) -> None:
    Path("queuecast.toml").write_text(
        '[engine]\nmethod = "zero"\n[engine.parameters.ibl]\nneighbours = 5\nrun_neighbours = 7\n'
    )
    plan = ["--population", "6", "--generations", "3", "--seed", "2", "--workers", "1"]
    arguments = ["tune", "made.swf", option, "ibl", "--rows", "120", "180", *plan]
    assert main([*arguments, "--save", "made.toml"]) == 0
    said, found = capsys.readouterr(), searched(examples_of(trace, target))
    assert Path("made.toml").read_text() == tune.search_profile(found, IBL)
    tune.show_search(found)
    assert said.out == capsys.readouterr().out
    last = [line.split() for line in said.out.splitlines()][-1]
    assert last == ["found", f"{found.error * found.mean_s:.2f}", f"{found.error:.3f}"]
    assert "only 31 jobs were predicted" in said.err
    shorter = [word if word != "3" else "1" for word in arguments]
    assert main([*shorter, "--resume", "state.json"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--resume", "state.json", "--save", "again.toml"]) == 0
    assert capsys.readouterr().out == said.out
    assert Path("again.toml").read_text() == Path("made.toml").read_text()
    assert main(["--config", "made.toml", "replay", "made.swf", "--rows", "200", "240"]) == 0
    assert "ibl" in capsys.readouterr().out


def test_run_times_need_jobs_that_ran(trace: Trace) -> None:
    jobs = [msgspec.structs.replace(job, run=-1.0, status=5) for job in trace.jobs]
    stretch = tune.stretch_of(msgspec.structs.replace(trace, jobs=jobs), None, ROWS, 2)
    with pytest.raises(UserError, match=r"made\.swf: no job of that range ran"):
        tune.examples_of(stretch, IBL, "run")


def test_a_profile_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        save("", Path())
