from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.papers.search.genetic import SearchPlan
from models.papers.search.ibl import Examples, Target, settings_of
from models.records import Outcome
from streams.cli.app import main
from streams.errors import UserError
from streams.offline import ibl_search
from streams.offline.output_files import save
from streams.offline.replay import replay
from streams.offline.searching import SearchResult, SearchStep
from streams.offline.tune import stretch_of
from streams.settings import load_settings
from streams.sources.swf import Trace, events_of

Capture = pytest.CaptureFixture[str]
ROWS = (120, 180)


IBL = EngineSettings(method="zero", parameters={"ibl": {"neighbours": 5, "run_neighbours": 7}})
PLAN = SearchPlan(6, 3, seed=2)


def examples_of(trace: Trace, target: Target = "wait", rows: tuple[int, int] = ROWS) -> Examples:
    return ibl_search.examples_of(stretch_of(trace, None, rows, 2), IBL, target)


def searched(
    examples: Examples, report: Callable[[SearchStep], None] = lambda _: None, plan: SearchPlan = PLAN, **options: Any
) -> SearchResult:
    return ibl_search.search(examples, plan, IBL, report, **options)


def replayed_error(trace: Trace, settings: EngineSettings, target: Target) -> float:
    """Return the mean absolute error (s) over the range, in a replay with these settings."""
    jobs = stretch_of(trace, None, ROWS, 2).jobs
    items = replay(events_of(trace, "made"), msgspec.structs.replace(settings, shadows=()))
    last = {item.job: item for item in items if isinstance(item, Outcome) and item.job in jobs}
    if target == "wait":
        pairs = [(outcome.predicted_wait_s, outcome.actual_wait_s) for outcome in last.values()]
    else:
        pairs = [(outcome.predicted_run_s, outcome.actual_run_s or 0.0) for outcome in last.values()]
    counted = [(predicted_s or 0.0, true) for predicted_s, true in pairs if target == "wait" or true]
    return sum(abs(predicted_s - true) for predicted_s, true in counted) / len(counted)


@pytest.mark.parametrize(("target", "setting"), [("wait", "method"), ("run", "runtimes")])
def test_ibl_search_profile_gives_reported_error(trace: Trace, target: Target, setting: str) -> None:
    found = searched(examples_of(trace, target))
    assert target == "run" or found.best.best_s <= found.before_s  # 7 neighbours are not among the tried values
    in_force = msgspec.structs.replace(IBL, **{setting: "ibl"})
    assert replayed_error(trace, in_force, target) == pytest.approx(found.before_s)
    save(ibl_search.profile(found, target, IBL), Path("made.toml"))
    engine = load_settings(Path("made.toml"), {}).engine
    assert getattr(engine, setting) == "ibl"
    assert engine.parameters["ibl"] == IBL.parameters["ibl"] | settings_of(ibl_search.found(found, target, IBL), target)
    assert replayed_error(trace, engine, target) == pytest.approx(found.best.best_s)


def test_ibl_search_ignores_jobs_after_range(trace: Trace) -> None:
    later = [msgspec.structs.replace(job, wait=job.wait + 9e5, run=1.0) for job in trace.jobs[ROWS[1] :]]
    changed = msgspec.structs.replace(trace, jobs=[*trace.jobs[: ROWS[1]], *later])
    assert examples_of(changed).fingerprint == examples_of(trace).fingerprint
    assert examples_of(changed, rows=(120, 182)).fingerprint != examples_of(trace, rows=(120, 182)).fingerprint


@pytest.mark.long
def test_ibl_search_is_independent_of_worker_number(trace: Trace) -> None:
    examples, plan = examples_of(trace), SearchPlan(4, 2)
    assert searched(examples, plan=plan, workers=2) == searched(examples, plan=plan)


@pytest.mark.parametrize(("option", "target"), [("--method", "wait"), ("--runtimes", "run")])
def test_tune_command_searches_ibl_settings(trace: Trace, capsys: Capture, option: str, target: Target) -> None:
    Path("queuecast.toml").write_text(
        '[engine]\nmethod = "zero"\n[engine.parameters.ibl]\nneighbours = 5\nrun_neighbours = 7\n'
    )
    plan = ["--population", "6", "--generations", "3", "--seed", "2", "--workers", "1"]
    arguments = ["tune", "made.swf", option, "ibl", "--rows", "120", "180", *plan]
    assert main([*arguments, "--save", "made.toml"]) == 0
    output, found = capsys.readouterr(), searched(examples_of(trace, target))
    assert Path("made.toml").read_text() == ibl_search.profile(found, target, IBL)
    ibl_search.show(found, target, IBL)
    assert output.out == capsys.readouterr().out
    last = [line.split() for line in output.out.splitlines()][-1]
    assert last == ["found", f"{found.best.best_s:.2f}", f"{found.best.best_s / found.mean_s:.3f}"]
    assert "only 31 jobs were predicted" in output.err
    shorter = [word if word != "3" else "1" for word in arguments]
    assert main([*shorter, "--resume", "state.json"]) == 0
    capsys.readouterr()
    assert main([*arguments, "--resume", "state.json", "--save", "again.toml"]) == 0
    assert capsys.readouterr().out == output.out
    assert Path("again.toml").read_text() == Path("made.toml").read_text()
    assert main(["--config", "made.toml", "replay", "made.swf", "--rows", "200", "240"]) == 0
    assert "ibl" in capsys.readouterr().out


def test_ibl_search_without_run_times_raises_user_error(trace: Trace) -> None:
    jobs = [msgspec.structs.replace(job, run=-1.0, status=5) for job in trace.jobs]
    stretch = stretch_of(msgspec.structs.replace(trace, jobs=jobs), None, ROWS, 2)
    with pytest.raises(UserError, match=r"made\.swf: no job of that range ran"):
        ibl_search.examples_of(stretch, IBL, "run")
