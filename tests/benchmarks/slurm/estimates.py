"""Read the recordings of a run: the actual waits, Slurm's own estimates, and queuecast's predictions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from models.engine.settings import EngineSettings
from models.records import AnyEvent, Prediction
from streams.offline.replay import replay
from tests.benchmarks.slurm.parsing import time_of
from tests.benchmarks.slurm.recording import ReceivedEvent, StartsPoll, SubmittedJob
from tests.benchmarks.slurm.workload import Workload

SOON_S = 10.0
"""Slurm's estimate at submission is the first one that `squeue --start` prints within this time, seconds."""

Row = TypeVar("Row", bound=msgspec.Struct)

_TIMES = {"time", "eligible", "expected", "start", "end"}
_DURATIONS = {"walltime", "max_walltime", "default_walltime"}


class Estimate(msgspec.Struct, frozen=True):
    """An estimate of the whole wait in seconds (None: no estimate), and when it was available (Unix seconds)."""

    at: float
    wait_s: float | None
    bounds: dict[str, float] | None = None


class ScoredJob(msgspec.Struct, kw_only=True):
    """A job that started, with the estimates of each method in the order of time; times and waits of the real run.

    Attributes:
        job: Slurm's number.
        submit: Unix seconds.
        wait_s: the actual wait.
        estimates: by method. `squeue` has an entry for each poll that listed the job as pending.
    """

    job: str
    submit: float
    wait_s: float
    estimates: dict[str, list[Estimate]] = {}

    def first(self, method: str) -> float | None:
        """Return the estimate at submission, seconds; None if there is none."""
        found = self.estimates.get(method, [])
        if method != "squeue":
            return found[0].wait_s if found else None
        return next((one.wait_s for one in found if one.wait_s is not None and one.at <= self.submit + SOON_S), None)

    def in_force(self, method: str, age_s: float) -> Estimate | None:
        """Return the last estimate that was available at an age; None if there is none."""
        return next((one for one in reversed(self.estimates.get(method, [])) if one.at <= self.submit + age_s), None)


class Run(msgspec.Struct):
    """A recorded run.

    Attributes:
        workload: what was submitted.
        jobs: the jobs that started, in the order of submission.
        waiting: number of jobs that did not start.
        reasons: by pending reason, in how many polls a job was listed with an estimate, and without.
    """

    workload: Workload
    jobs: list[ScoredJob]
    waiting: int
    reasons: dict[str, tuple[int, int]] = {}


def read_run(directory: Path, uncompressed: bool = True) -> Run:
    """Read the recordings of a run, and predict its waits with queuecast.

    Args:
        directory: the folder of the recordings.
        uncompressed: whether queuecast gets the times of the trace, not those of the run.
    """
    workload = msgspec.json.decode((directory / "workload.json").read_bytes(), type=Workload)
    jobs, waiting = _actual(directory)
    for row in _rows(directory / "submitted.ndjson", SubmittedJob):
        if (job := jobs.get(row.job)) is not None:
            wait_s = None if row.test_only is None else max(row.test_only - job.submit, 0.0)
            job.estimates["test-only"] = [Estimate(row.queried_at, wait_s)]
    reasons = dict[str, tuple[int, int]]()
    for poll in _rows(directory / "starts.ndjson", StartsPoll):
        for number, (start, reason) in poll.starts.items():
            present, missing = reasons.get(reason, (0, 0))
            reasons[reason] = present + (start is not None), missing + (start is None)
            if (job := jobs.get(number)) is not None:
                wait_s = None if start is None else max(start - job.submit, 0.0)
                job.estimates.setdefault("squeue", []).append(Estimate(poll.at, wait_s))
    received = list(_rows(directory / "events.ndjson", ReceivedEvent))
    for at, made in predictions(received, workload.factor if uncompressed else 1):
        if (job := jobs.get(made.job)) is not None:
            job.estimates.setdefault(made.method, []).append(Estimate(at, made.predicted_wait_s, made.bounds))
    return Run(workload, sorted(jobs.values(), key=lambda job: (job.submit, int(job.job))), waiting, reasons)


def predictions(received: list[ReceivedEvent], factor: int) -> Iterator[tuple[float, Prediction]]:
    """Apply the events in the order in which they were received; yield the predictions with the time of receipt.

    The engine gets times that are longer by a factor; the waits and bounds of the predictions are those of the run.
    """
    settings, now = EngineSettings(publish_shadows=True), 0.0
    origin = received[0].event.time

    def events() -> Iterator[AnyEvent]:
        nonlocal now
        for one in received:
            now = one.at
            yield stretched(one.event, origin, factor)

    for record in replay(events(), settings):
        if isinstance(record, Prediction):
            wait_s = None if record.predicted_wait_s is None else record.predicted_wait_s / factor
            bounds = {q: bound_s / factor for q, bound_s in (record.bounds or {}).items()}
            yield now, msgspec.structs.replace(record, predicted_wait_s=wait_s, bounds=bounds or None)


def stretched(event: AnyEvent, origin: float, factor: int) -> AnyEvent:
    """Return an event with times and durations that are longer by a factor, from `origin` (Unix seconds) on."""

    def longer(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: longer(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [longer(one) for one in value]
        if name in _TIMES:
            return origin + (value - origin) * factor
        return value * factor if name in _DURATIONS else value

    return cast(AnyEvent, msgspec.convert(longer(msgspec.to_builtins(event)), AnyEvent))


def _actual(directory: Path) -> tuple[dict[str, ScoredJob], int]:
    """Return the jobs that started, of sacct, and the number of jobs that did not."""
    found, waiting = dict[str, ScoredJob](), 0
    for line in (directory / "sacct.txt").read_text().splitlines():
        job, _, _, _, submit, _, start, *_ = line.split("|")
        submitted, started = time_of(submit), time_of(start)
        if submitted is None or started is None:
            waiting += 1
            continue
        found[job] = ScoredJob(job=job, submit=submitted, wait_s=max(started - submitted, 0.0))
    return found, waiting


def _rows(path: Path, kind: type[Row]) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield decoder.decode(line)
