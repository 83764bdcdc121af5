import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.papers.run_template import RunTemplate
from models.papers.search.evaluation_jobs import WorkloadStep
from models.papers.search.genetic import SearchPlan
from models.papers.template import Templates
from models.records import End
from streams.cli.app import main
from streams.errors import UserError
from streams.offline.output_files import save
from streams.offline.searching import SearchResult, SearchStep
from streams.offline.template_search import TemplateSearchOptions, profile, search, show, workload_of
from streams.settings import load_settings
from streams.sources.swf import Trace, events_of, read_swf
from tests.support.traces import made_trace, swf_line

PLAN = SearchPlan(6, 4, seed=3)
ENGINE = EngineSettings()


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read_swf(made_trace(tmp_path / "made.swf", jobs=300))


def found(trace: Trace, settings: EngineSettings = ENGINE, **options: Any) -> SearchResult:
    return search(trace, TemplateSearchOptions(**{"plan": PLAN, "jobs": 200, **options}), settings)


def test_workload_has_events_of_started_jobs(tmp_path: Path) -> None:
    lines = [
        swf_line(1, submit=0, wait=10, run=90),
        swf_line(2, submit=5, wait=50, run=0, status=5),
        swf_line(3, submit=60, wait=0, run=5),
        swf_line(4, submit=70, wait=5, run=1000),
        swf_line(5, submit=200, wait=0, run=10),
        swf_line(6, submit=210, wait=0, run=10),
    ]
    path = tmp_path / "t.swf"
    path.write_text("".join(lines))
    trace = read_swf(path)
    work = workload_of(trace, 5)
    assert [job.id for job in work.jobs] == ["1", "3", "4", "5"]
    assert work.run_s.tolist() == [90.0, 5.0, 1000.0, 10.0]
    ended = [(int(place), bool(np.isnan(at))) for place, at in zip(work.place, work.elapsed_s, strict=True)]
    assert ended == [(0, False), (1, False), (1, True), (2, False), (0, True), (3, False), (3, True), (2, True)]
    running = workload_of(trace, 5, running=True)
    queries = [
        WorkloadStep(int(place), float(at))
        for place, at in zip(running.place, running.elapsed_s, strict=True)
        if not np.isnan(at)
    ]
    assert queries == [(0, 0.0), (1, 0.0), (0, 50.0), (2, 0.0), (0, 60.0), (3, 0.0), (2, 125.0)]
    with pytest.raises(UserError, match="no job started among the first 1"):
        workload_of(msgspec.structs.replace(trace, jobs=trace.jobs[1:2]), 1)


def test_template_search_error_equals_engine_error(trace: Trace) -> None:
    texts = ["user mean relative 64", "cpus/8,walltime linear absolute 16"]
    parameters = {"template": {"templates": texts, "choice": "weighted"}}
    engine = Engine(
        "s", EngineSettings(method="zero", shadows=(), bounds="", runtimes="template", parameters=parameters)
    )
    last = max(event.time for event in events_of(trace, "s") if isinstance(event, End))
    for event in events_of(trace, "s"):
        engine.apply(event)
    assert last > 0
    work = workload_of(trace, len(trace.jobs))
    error_s = work.error_s([work.estimates(RunTemplate.parse(text)) for text in texts], "weighted")
    assert engine.scores.run_accuracy["template"].measures()["MAE_min"] * 60 == pytest.approx(error_s, rel=1e-9)


@pytest.mark.parametrize("kind", ["genetic", "greedy"])
def test_template_search_result_beats_former_templates(trace: Trace, kind: str) -> None:
    parameters = {"template": {"templates": ["memory mean absolute 2"]}}
    result = found(trace, EngineSettings(parameters=parameters), kind=kind)
    assert result.best.best_s == min(step.best_s for step in result.steps) < result.before_s
    assert [step.number for step in result.steps] == list(range(1, len(result.steps) + 1))
    work = workload_of(trace, 200)
    estimates = [work.estimates(RunTemplate.parse(text)) for text in result.best.best]
    assert work.error_s(estimates, "weighted") == result.best.best_s


def test_template_search_of_running_jobs_varies_elapsed_time(trace: Trace) -> None:
    plain, running = found(trace), found(trace, running=True)
    assert all("elapsed/64" in text for text in plain.best.best)
    assert any("elapsed/64" not in text for step in running.steps for text in step.best)
    work = workload_of(trace, 200, running=True)
    estimates = [work.estimates(RunTemplate.parse(text)) for text in running.best.best]
    assert work.error_s(estimates, "weighted") == running.best.best_s


@pytest.mark.long
def test_template_search_is_independent_of_worker_number(trace: Trace) -> None:
    assert found(trace, workers=2, plan=SearchPlan(4, 2)) == found(trace, workers=1, plan=SearchPlan(4, 2))


def test_template_search_ignores_later_jobs(trace: Trace) -> None:
    later = [msgspec.structs.replace(job, run=job.run + 9e4) for job in trace.jobs[200:]]
    changed = msgspec.structs.replace(trace, jobs=trace.jobs[:200] + later)
    assert found(changed) == found(trace)


def test_template_search_resumes_after_interruption(trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    whole = found(trace)

    class Interrupt(Exception):
        pass

    def interrupt(step: SearchStep) -> None:
        if step.number == 2:
            raise Interrupt

    with pytest.raises(Interrupt):
        search(trace, TemplateSearchOptions(plan=PLAN, jobs=200, file=file), ENGINE, interrupt)
    assert len(msgspec.msgpack.decode(file.read_bytes())["steps"]) == 2
    seen: list[SearchStep] = []
    assert search(trace, TemplateSearchOptions(plan=PLAN, jobs=200, file=file), ENGINE, seen.append) == whole
    assert seen == whole.steps
    assert found(trace, file=file) == whole  # the search has ended
    assert found(trace, file=file, plan=SearchPlan(6, 5, seed=3)).steps[:4] == whole.steps


def test_template_search_rejects_state_of_other_search(trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    found(trace, file=file, plan=SearchPlan(4, 1))
    with pytest.raises(UserError, match="of a search on other jobs"):
        found(trace, file=file, plan=SearchPlan(4, 1), jobs=190)
    with pytest.raises(UserError, match="the state of another search"):
        found(trace, file=file, plan=SearchPlan(4, 1, seed=2))
    for content in (b"", b"{", file.read_bytes()[:-1]):
        file.write_bytes(content)
        with pytest.raises(UserError, match="is not the state of a search"):
            found(trace, file=file)
    with pytest.raises(UserError, match="cannot be written"):
        found(trace, file=tmp_path / "no" / "state.json", plan=SearchPlan(4, 1))


def test_template_search_profile_configures_engine(
    trace: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = found(trace)
    file = tmp_path / "site.toml"
    save(profile(result.best.best, "surest"), file)
    assert file.read_text() == profile(result.best.best, "surest")
    values = tomllib.loads(file.read_text())["engine"]
    assert values["runtimes"] == "template"
    engine = Engine("s", msgspec.convert(values, EngineSettings))
    runtimes = engine.context.runtimes
    assert isinstance(runtimes, Templates)
    assert [str(template) for template in runtimes.set] == result.best.best
    assert runtimes.choice == "surest"
    assert load_settings(file, {}).engine.runtimes == "template"
    show(result)
    shown = capsys.readouterr().out
    assert f"{result.best.best_s:.2f}" in shown and f"{result.before_s:.2f}" in shown
    assert all(text.split()[0] in shown for text in result.best.best)
    with pytest.raises(UserError, match="cannot be written"):
        save("", tmp_path)


def test_tune_templates_saves_profile_and_resumes(
    trace: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ["--population", "6", "--generations", "4", "--seed", "3", "--jobs", "200", "--workers", "1"]
    arguments = ["tune", "made.swf", "--runtimes", "template", *plan]
    assert main([*arguments, "--save", "made.toml"]) == 0
    shown, expected = capsys.readouterr().out, found(trace)
    assert Path("made.toml").read_text() == profile(expected.best.best, "weighted")
    assert f"{expected.best.best_s:.2f}" in shown
    assert main([*arguments, "--generations", "2", "--resume", "state.json"]) == 0
    assert main([*arguments, "--resume", "state.json", "--save", "again.toml"]) == 0
    assert Path("again.toml").read_text() == Path("made.toml").read_text()
    assert capsys.readouterr().out.endswith(shown)
    assert main(["--config", "made.toml", "replay", "made.swf", "--rows", "200", "300"]) == 0
    assert "template" in capsys.readouterr().out


def test_tune_command_searches_templates_greedily(
    trace: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--search", "greedy", "--choice", "surest", "--jobs", "100", "--workers", "1", "--save", "made.toml"]
    assert main(["tune", "made.swf", "--runtimes", "template", *arguments]) == 0
    greedy = found(trace, kind="greedy", jobs=100, choice="surest")
    assert Path("made.toml").read_text() == profile(greedy.best.best, "surest")
    assert f"{greedy.before_s:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--population", "5"], 2, "--population is 5; expected an even number."),
        (["--search", "greedy", "--resume", "state.json"], 2, "--resume requires the genetic search."),
        (["--every", "3"], 2, "--every does not apply to template."),
        (["--method", "ibl"], 2, "--method and --runtimes are mutually exclusive."),
        (["--resume", "no/state.json"], 1, "no/state.json: cannot be written: no such directory"),
    ],
)
def test_tune_command_reports_invalid_template_option(
    trace: Trace, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert main(["tune", str(trace.path), "--runtimes", "template", *arguments]) == code
    assert message in capsys.readouterr().err
