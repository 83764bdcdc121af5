"""Commands that train and measure a prior, on made traces."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.engine import methods
from models.records import Cancel, End, JobEvent, Start, Submit
from models.waits.blend.remaining.landmark_forests import AIMS
from models.waits.blend.remaining.queued_features import NAMES as REMAINING_NAMES
from models.waits.boosted import boosted
from models.waits.boosted.prior import FILE, SITE, Prior, shares
from models.waits.boosted.submit_features import NAMES
from streams.cli.app import main
from streams.errors import UserError
from streams.offline.pretraining import first_events, learnt_from, training_set_of
from tests.prior import months, moved, waiting, week_one
from tests.prior.measure import errors_of, lines_of
from tests.support.command import ROOT
from tests.support.traces import made_trace


@pytest.mark.parametrize(
    ("setting", "refused"),
    [("grid", "one.swf: not a prior"), ("none", "one.swf: requires engine.prior = 'grid'; it is 'none'")],
)
def test_replay_with_prior_uses_jobs_of_other_sites(
    setting: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUEUECAST_ENGINE_PRIOR", setting)
    output = tmp_path / "output.ndjson"
    command = ["replay", str(made_trace(tmp_path / "one.swf", jobs=20)), "--method", "boosted", "--out", str(output)]
    assert main([*command, "--prior", str(FILE)]) == (0 if setting == "grid" else 1)
    assert output.exists() == (setting == "grid")
    assert not output.exists() or "jobs of other sites" in output.read_text()
    assert main([*command, "--prior", str(tmp_path / "one.swf")]) == 1
    assert refused in capsys.readouterr().err


def trained(out: Path, *arguments: str) -> bytes:
    """Return the file that the command writes."""
    command = [sys.executable, "-m", "queuecast", "prior", *arguments, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return out.read_bytes()


@pytest.mark.long
def test_prior_of_same_logs_has_same_bytes(tmp_path: Path) -> None:
    logs = [str(made_trace(tmp_path / f"{name}.swf", jobs=500, seed=seed)) for seed, name in enumerate(("one", "two"))]
    first = trained(tmp_path / "first", *logs)
    assert trained(tmp_path / "second", *reversed(logs)) == first
    few = made_trace(tmp_path / "few.swf", jobs=50)
    with pytest.raises(UserError, match=r"few.swf: \d+ jobs left its queue; expected at least 100"):
        learnt_from([few])


def test_training_set_has_jobs_that_departed_from_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (methods, boosted):  # the package's prior may have other features than the new prior
        monkeypatch.delattr(module, "shipped")
    lesson = training_set_of(made_trace(tmp_path / "one.swf", jobs=400), jobs=300)
    assert 200 < len(lesson.weights) <= 300 and set(lesson.weights) == {0.5, 1.0}
    assert lesson.features.shape[1] == len(NAMES)
    np.testing.assert_allclose(lesson.features[:, SITE], np.log2(65.0), rtol=1e-3)
    assert np.isfinite(shares(lesson.features)).all()


def test_training_set_of_waiting_jobs_has_landmarks_of_both_halves(tmp_path: Path) -> None:
    log = made_trace(tmp_path / "one.swf", jobs=400)
    half, whole = waiting.training_set_of(log, jobs=150), waiting.training_set_of(log, jobs=300)
    count = len(half.weights)
    assert 50 < count < len(whole.weights) and set(whole.weights) == {0.5, 1.0}
    assert whole.features.shape == (len(whole.weights), len(REMAINING_NAMES)) and {*whole.targets} == {*AIMS}
    assert np.isfinite(whole.features).all() and (whole.targets[AIMS[0]] >= 0.0).all()


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        (["LOGS=a b"], ["train a b"]),
        (["WAITING=c"], ["waiting c"]),
        (["LOGS=a b", "WAITING=c"], ["train a b", "waiting c"]),
    ],
)
def test_make_prior_trains_those_whose_logs_are_given(given: list[str], trained: list[str]) -> None:
    run = subprocess.run(["make", "--dry-run", "prior", *given], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"-m tests\.prior\.(.+)", run.stdout) == trained


def test_make_prior_without_logs_is_an_error() -> None:
    run = subprocess.run(["make", "--dry-run", "prior"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode and "LOGS" in run.stderr


def test_measure_table_compares_errors_with_and_without_prior(tmp_path: Path) -> None:
    log = made_trace(tmp_path / "one.swf", jobs=400)
    without, by = (errors_of(log, 300, prior) for prior in (None, Prior.decode(FILE.read_bytes())))
    early = by.numbers < 20
    assert (without.numbers == by.numbers).all() and len(by.numbers) > 200
    assert not without.held[early].any() and by.held[early].any(), "bounds at the first jobs come from the prior alone"
    assert (without.errors_s["zero"] == by.errors_s["zero"]).all()
    (line,) = lines_of("one", without, by)
    assert line.startswith("| one | 1-300 | ") and line.endswith("% |")


def test_first_week_begins_with_live_jobs_or_all_history(tmp_path: Path) -> None:
    before, _ = week_one.parted(made_trace(tmp_path / "one.swf", jobs=300), cut=200)
    live = week_one.live_at_the_end(before)
    assert sum(isinstance(event, Submit) for event in before) == 200
    assert {event.job for event in live if isinstance(event, Start)} == {
        event.job for event in live if isinstance(event, Submit) and event.late
    }
    over = {event.job for event in before if isinstance(event, End | Cancel)}
    assert live and not over & {event.job for event in live if isinstance(event, JobEvent)}
    (line,) = week_one.lines_of(tmp_path / "one.swf", 200)
    zero, without, fed, jobs = (float(part.replace(",", "")) for part in line.split("|")[3:7])
    assert min(zero, without, fed) > 0.0 and without != fed and jobs > 10


def test_moved_site_appends_jobs_of_the_new_machine(tmp_path: Path) -> None:
    logs = [made_trace(tmp_path / f"{name}.swf", jobs=60, seed=seed) for seed, name in enumerate(("old", "new"))]
    old, new = (list(first_events(log, 60)) for log in logs)
    later = moved.moved(old, new)
    assert {event.site for event in later} == {"old"} and later[0].time > max(event.time for event in old)
    assert [one.time - later[0].time for one in later] == [one.time - new[0].time for one in new]
    assert not {event.job for event in later if isinstance(event, JobEvent)} & {"1", "2", "3"}
    kept, reset = (moved.errors_of(old, later, is_reset) for is_reset in (False, True))
    assert {len(errors) for errors in kept.values()} == {sum(isinstance(event, Submit) for event in new)}
    assert np.isfinite(kept["blend"]).any()
    np.testing.assert_array_equal(kept["zero"][:1], reset["zero"][:1])
    assert not np.array_equal(kept["blend"], reset["blend"], equal_nan=True)


def test_made_months_are_deterministic_with_optional_fields() -> None:
    made = [list(months.events_of(seed)) for seed in range(6)]
    assert list(months.events_of(0)) == made[0] != made[1]
    submits = [[event for event in month if isinstance(event, Submit)] for month in made]
    assert [len(month) for month in submits] == [months.JOBS] * 6
    walltimes = [{event.walltime is not None for event in month} for month in submits]
    assert {True} in walltimes and {False} in walltimes, "some months have all walltimes, and some none"


def test_month_training_set_has_limited_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "JOBS", 400)
    lesson = months.lesson_of_month(0)
    assert len(lesson.weights) == months.TAUGHT == len(lesson.features)
    assert {len(values) for values in lesson.targets.values()} == {months.TAUGHT}
    again = months.lesson_of_month(0)
    np.testing.assert_array_equal(lesson.features, again.features)


def test_train_command_without_logs_exits_with_usage_error() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.prior.train"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "the following arguments are required: logs" in done.stderr
