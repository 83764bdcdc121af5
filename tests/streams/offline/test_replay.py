import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.engine.outgoing import Anomaly
from models.engine.saved_state import encode_array
from models.engine.settings import EngineSettings
from models.method import SiteContext, WaitMethod
from models.method_registry import DEFAULT_RUN, METHODS, RUN_METHODS
from models.records import ExpectedStart, Outcome, Prediction, Start, Submit
from models.site.job import Estimate, Job
from streams.bulk.event_log import EventLog, jobs_in
from streams.errors import UserError
from streams.offline.replay import RecordFile, replay, settings_for
from streams.offline.replay_scores import ReplayScores
from streams.sources.swf import Trace, events_of, read_swf
from tests.support import events
from tests.support.deployment import busy_sites, engine_after
from tests.support.replayed import Replayed, SiteEntries, replayed
from tests.support.sizes import is_thorough
from tests.support.traces import made_trace, shared_path, trace_path


def run(
    trace: Trace,
    out: Path,
    methods: Sequence[str] = (),
    scores: ReplayScores | None = None,
    settings: EngineSettings | None = None,
    written: Container[str] = (*METHODS, *RUN_METHODS),
    runtimes: Sequence[str] = (),
    included: Callable[[Outcome], bool] = lambda _: True,
) -> list[Prediction | Anomaly]:
    """Replay with predictions in `out`; the outcomes that are `included` are scored."""
    chosen = settings_for(settings or EngineSettings(history=150), methods, runtimes)
    given: list[Prediction | Anomaly] = []
    with RecordFile(out) as lines:
        for record in replay(events_of(trace, "made"), chosen):
            if isinstance(record, Outcome):
                if scores is not None and included(record):
                    scores.add(record)
                continue
            given.append(record)
            if isinstance(record, Prediction) and record.method in written:
                lines.write(record)
    return given


def referee(trace: Path, predictions: Path, *options: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, shared_path("referee/score.py"), trace, predictions, "--json", *options]
    scored: dict[str, dict[str, Any]] = json.loads(subprocess.check_output(list(map(str, command))))
    return scored


def agree(ours: dict[str, float], theirs: dict[str, Any]) -> None:
    """Check that each measure equals that of the referee."""
    bounds = theirs.pop("bounds")
    assert {name: ours[name] for name in theirs} == pytest.approx(theirs, rel=1e-9)
    found = {f"{float(name.removeprefix('cov_')):g}": value for name, value in ours.items() if name.startswith("cov_")}
    assert found == pytest.approx({q: bound["cov"] for q, bound in bounds.items()})


RANGES: dict[str, dict[str, Any]] = {
    "": {},
    "--ids 120 300": {"ids": (120, 300)},
    "--rows 50 250": {"rows": (50, 250)},
    "--rows 50 250 --started": {"rows": (50, 250), "started": True},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", RANGES)
def test_replay_measures_equal_referee(tmp_path: Path, method: str, options: str) -> None:
    path = made_trace(tmp_path / "made.swf")
    chosen = dict(RANGES[options])
    started = chosen.pop("started", False)
    trace = read_swf(path)
    names = jobs_in(EventLog.of(events_of(trace, trace.site), tmp_path), **chosen)
    scores = ReplayScores()

    def included(outcome: Outcome) -> bool:
        return outcome.job in names and not (started and outcome.censored)

    run(trace, tmp_path / "out", [method], scores, written=[method], included=included)
    theirs = referee(path, tmp_path / "out", *options.split())
    agree(scores.rows()[method], theirs["predictions"])
    agree(scores.rows()["zero"], theirs["always zero"])


class Bounded(WaitMethod):
    """Predict ten minutes with bounds, except for jobs of some users."""

    name = "bounded"

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        if job.user in ("u1", "u2"):
            return Estimate(None, "not of them")
        return Estimate(600.0, "always", {"0.1": 60.0, "0.95": 3600.0 * job.cpus})


def test_scores_with_missing_estimates_equal_referee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "bounded", Bounded)
    path, scores = made_trace(tmp_path / "made.swf"), ReplayScores()
    run(read_swf(path), tmp_path / "out", ["bounded"], scores, written=["bounded"])
    row = scores.rows()["bounded"]
    agree(row, referee(path, tmp_path / "out")["predictions"])
    assert row["missing"] > 0
    assert 0 < row["cov_0.1"] < row["cov_0.95"] < 1


def test_replay_adds_baselines_first(tmp_path: Path) -> None:
    scores = ReplayScores()
    run(read_swf(made_trace(tmp_path / "made.swf", jobs=60)), tmp_path / "out", ["qespera"], scores)
    assert list(scores.rows()) == ["zero", "median", "qespera"]


def test_replay_is_deterministic(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "made.swf")
    for name in ("one", "other"):
        run(read_swf(path), tmp_path / name, list(METHODS))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert (tmp_path / "one").read_bytes().count(b"\n") == len(read_swf(path).jobs) * len(METHODS)


def alter_future(path: Path, target: Path) -> float:
    command = [sys.executable, shared_path("referee/alter_future.py"), path, "0.5", target]
    return float(subprocess.check_output(list(map(str, command)), text=True).split()[1])


def nothing_looks_ahead(path: Path, settings: EngineSettings) -> None:
    """Check that predictions up to the horizon do not depend on later jobs."""
    horizon = alter_future(path, path.with_name("altered.swf"))
    outputs: list[list[bytes]] = []
    for name in (path.name, "altered.swf"):
        trace = read_swf(path.with_name(name))
        run(trace, path.with_name("out"), list(METHODS), settings=settings, runtimes=list(RUN_METHODS))
        outputs.append(path.with_name("out").read_bytes().splitlines())
    known, again = ([line for line in one if json.loads(line)["made_at"] <= trace.start + horizon] for one in outputs)
    assert known == again
    assert {json.loads(line)["method"] for line in known} == {*METHODS, *RUN_METHODS} - {DEFAULT_RUN}
    assert len(known) >= len(outputs[0]) // 2
    assert outputs[0] != outputs[1]


def test_methods_are_independent_of_later_jobs(tmp_path: Path) -> None:
    jobs = 1000 if is_thorough() else 600
    nothing_looks_ahead(made_trace(tmp_path / "made.swf", jobs=jobs), EngineSettings(history=150))


def beginning(name: str, jobs: int, target: Path) -> Path:
    """Return the first jobs of a real trace."""
    with gzip.open(trace_path(name), "rt") as lines, target.open("w") as out:
        for line in lines:
            jobs -= not line.startswith(";")
            if jobs < 0:
                break
            out.write(line)
    return target


@pytest.mark.trace
def test_methods_are_independent_of_later_jobs_on_real_trace(tmp_path: Path) -> None:
    jobs, history = (1500, 400) if is_thorough() else (1000, 300)
    nothing_looks_ahead(beginning("KTH", jobs, tmp_path / "kth.swf"), EngineSettings(history=history))


@pytest.mark.trace
def test_replay_measures_equal_referee_on_real_trace(tmp_path: Path) -> None:
    path = beginning("KTH", 4000, tmp_path / "kth.swf")
    trace, scores, settings = read_swf(path), ReplayScores(), EngineSettings()

    def included(outcome: Outcome) -> bool:
        return 1500 <= int(outcome.job) <= 3500

    run(trace, tmp_path / "out", scores=scores, settings=settings, written=[settings.method], included=included)
    theirs = referee(path, tmp_path / "out", "--ids", "1500", "3500")
    agree(scores.rows()[settings.method], theirs["predictions"])
    agree(scores.rows()["zero"], theirs["always zero"])
    median, recent = scores.rows()["median"], theirs["recent median"]  # the referee also counts waits of cancelled jobs
    assert median["AAE"] == pytest.approx(recent["AAE"], rel=0.02)


def test_replay_settings_have_named_methods_and_baselines() -> None:
    bare = EngineSettings(bounds="")
    assert settings_for(bare, ["median"]).methods == ("median", "zero")
    assert settings_for(EngineSettings(bounds="qbets"), ["median"]).methods == ("median", "zero", "qbets")
    assert settings_for(EngineSettings(method="median", shadows=(), bounds=""), []).methods == ("median", "zero")
    assert settings_for(bare, ["zero", "qespera", "zero", "qespera"]).methods == ("zero", "qespera", "median")
    assert settings_for(EngineSettings(history=7), ["zero"]).history == 7


def test_run_methods_are_accepted_in_either_option() -> None:
    chosen = settings_for(EngineSettings(), ["gibbons", "easy", "walltime"])
    assert (chosen.method, chosen.run_methods) == ("easy", ("gibbons", "walltime"))
    chosen = settings_for(EngineSettings(), ["gibbons"], ["last-two"])
    assert (chosen.method, chosen.run_methods) == (EngineSettings().method, ("last-two", "gibbons"))
    assert settings_for(EngineSettings(), ["easy"]).run_methods == EngineSettings().run_methods
    with pytest.raises(UserError, match=r"no method 'easy' for run times; there are: closest"):
        settings_for(EngineSettings(), [], ["easy"])


def test_replay_settings_with_unknown_method_raise_user_error() -> None:
    with pytest.raises(UserError, match=r"no method 'crystal ball'; there are: zero, median"):
        settings_for(EngineSettings(), ["zero", "crystal ball"])


def test_replay_of_two_sites_keeps_their_histories_separate() -> None:
    def at(site: str, *waits: float) -> list[Submit | Start]:
        return [
            event
            for number, wait in enumerate(waits)
            for event in (
                Submit(site=site, time=1000.0 * number, job=str(number)),
                Start(site=site, time=1000.0 * number + wait, job=str(number)),
            )
        ]

    def predicted_waits_s(records: Iterable[object], site: str) -> list[float | None]:
        return [r.predicted_wait_s for r in records if isinstance(r, Prediction) and r.site == site]

    one, other, settings = at("one", 10, 10, 10), at("other", 500, 500, 500), EngineSettings(method="median")
    mixed = [event for pair in zip(one, other, strict=True) for event in pair]
    assert (
        predicted_waits_s(replay(mixed, settings), "one")
        == predicted_waits_s(replay(one, settings), "one")
        == [None, 10.0, 10.0]
    )
    assert predicted_waits_s(replay(mixed, settings), "other") == [None, 500.0, 500.0]


def outcome(job: str, wait_s: float, run_s: float | None = None, **more: Any) -> Outcome:
    return events.outcome(job, wait_s, 100.0, method="m", predicted_run_s=60.0, actual_run_s=run_s, **more)


def test_shared_replay_of_parts_equals_replay() -> None:
    """The integration tests compare a worker with `replayed`."""
    coming, settings = busy_sites(("alder", "birch"), 40), EngineSettings(history=30)
    pack = msgspec.msgpack.Encoder(enc_hook=encode_array).encode
    records = [record for record in replay(coming, settings) if not isinstance(record, Anomaly)]
    encoded = [msgspec.json.encode(record) for record in records]
    shared, half = replayed(settings), len(coming) // 2
    assert shared is replayed(EngineSettings(history=30))
    first = [record.value for record in shared.records(coming[:half])]
    assert [record.value for record in shared.records(coming)] == encoded
    entries = pack(shared.entries(coming, "alder"))
    assert [record.value for record in shared.records(coming[:half])] == first == encoded[: len(first)]
    alone = Replayed(settings)
    assert pack(alone.entries(coming, "alder")) == entries
    assert [record.value for record in alone.records(coming[half:])] != encoded
    assert pack(alone.entries(coming[:half], "alder")) != entries
    assert pack(alone.entries(coming, "alder")) == entries
    engine = engine_after(coming, "alder", settings)
    runs, oldest = list(engine.context.runs), engine.context.history.oldest
    assert oldest > 0 and entries == pack(SiteEntries(runs, oldest, engine.checkpoint()[1]))


def test_replay_scores_equal_values_by_hand() -> None:
    scores = ReplayScores(settings=EngineSettings(method="m", runtimes="closest"))
    for one in (
        outcome("1", 100.0, bounds={"0.9": 50.0}),
        outcome("1", 100.0, run_s=100.0),
        outcome("2", 400.0, bounds={"0.9": 500.0}),
        outcome("2", 400.0, run_s=200.0),
        outcome("3", 700.0, censored=True, bounds={"0.9": 800.0}),
    ):
        scores.add(one)
    row = scores.rows()["m"]
    assert row["AAE"] == pytest.approx((0 + 300 + 600) / 3 / 3600)
    assert row["PPE"] == pytest.approx((0 + 300 / 600 + 600 / 700) / 3)
    assert row["median_min"] == 5.0
    assert scores.run_rows()["closest"]["MAE_min"] == pytest.approx((40 + 140) / 2 / 60)
    assert row["cov_0.9"] == pytest.approx(2 / 3)
    assert scores.bound_rows()["m 0.9"]["coverage"] == row["cov_0.9"]
    assert row["jobs"] == 3


def test_record_file_unwritable_raises_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no/such: cannot be written: No such file"):
        RecordFile(tmp_path / "no" / "such")


def test_replay_scores_have_row_of_scheduler_estimate() -> None:
    key: dict[str, Any] = {"site": "s", "job": "1"}
    expected = ExpectedStart(**key, time=10.0, by="slurm", expected=90.0)
    settings, scores = settings_for(EngineSettings(), ["median"]), ReplayScores()
    for record in replay([Submit(**key, time=0.0), expected, Start(**key, time=60.0)], settings):
        if isinstance(record, Outcome):
            scores.add(record)
    rows = scores.rows()
    assert [*rows] == ["zero", "median", "slurm"]
    assert (rows["slurm"]["jobs"], rows["slurm"]["AAE"]) == (1, 30.0 / 3600.0)
