"""A scored replay that writes files; an interrupted one resumes and produces identical bytes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import msgspec

from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.outgoing import Anomaly
from models.engine.saved_state import STATE_VERSION
from models.engine.settings import EngineSettings
from models.notices import estimate_of
from models.records import AnyEvent, JobEvent, Outcome, Submit
from models.site.history import FEATURES
from models.site.job import Job
from streams.bulk.event_log import JobRange
from streams.errors import UserError
from streams.offline.breakdown import NO_QUEUE, BreakdownCounts, Breakdowns
from streams.offline.excerpt import Excerpt
from streams.offline.measuring_process import MeasuringProcess
from streams.offline.output_files import read_state, save_state
from streams.offline.replay import RecordFile, discard_changes
from streams.offline.replay_measures import (
    MeasureCounts,
    MeasuredOutcome,
    MeasuredRecord,
    PublishedEstimate,
    ReplayMeasures,
)
from streams.offline.replay_scores import ReplayScores, ScoreCounts
from streams.offline.waiting_scores import WaitingCounts, WaitingScores
from streams.settings.usable_cpus import usable_cpus
from streams.training.processes import processes

APART_JOBS = 20_000  # minimum number of jobs to measure in a process of its own, whose start takes a second
KEEP_EVERY = 10_000  # events between two times that the state is kept; some 10 s, of which keeping it takes a hundredth

_USER_QUEUED = FEATURES.index("user_queued_jobs")


class SavedReplay(msgspec.Struct):
    """State of a replay: the number of events, each site's engine with its whole history, and the counts.

    `identity` hashes the input and the options; `sizes` are those of the output files.
    """

    identity: bytes
    passed: int
    engines: dict[str, tuple[bytes, Changes]]
    scores: ScoreCounts
    breakdowns: BreakdownCounts
    anomalies: dict[str, int]
    waiting: WaitingCounts
    sizes: list[int]


class ScoredReplay:
    """Replay an excerpt through the engine, and score the results.

    Args:
        excerpt: the events to replay.
        settings: settings of the engine.
        jobs: the jobs to score.
        cancelled: score jobs cancelled in the queue too.
        files: for predictions and for outcomes; None writes none.
        only: the method whose records are written; None: all methods.
        resume: a file for the state; the replay resumes from it if it exists.
        part: name of this process's share, which adds a suffix to its state file.
        prior: pre-trained model to use instead of the packaged one.

    Raises:
        UserError: a file cannot be used, or `resume` is of another replay.
    """

    def __init__(
        self,
        excerpt: Excerpt,
        settings: EngineSettings,
        jobs: JobRange,
        cancelled: bool = True,
        files: tuple[Path | None, Path | None] = (None, None),
        only: str | None = None,
        resume: Path | None = None,
        part: str = "",
        prior: bytes | None = None,
    ) -> None:
        self._measures = ReplayMeasures(excerpt.log.begin, settings)
        self._measure: Callable[[MeasuredRecord], None] = self._measures.add
        self.anomalies: Counter[str] = Counter()
        self._excerpt, self._settings, self._only, self._prior = excerpt, settings, only, prior
        self._jobs, self._cancelled = jobs, cancelled
        self._engines: dict[str, Engine] = {}
        self._threads = 1 if part else usable_cpus()  # the replay may have to wait for what trains
        self._passed = 0
        self._state_file, self._identity = resume, b""
        sizes: Sequence[int | None] = (None, None)
        if resume is not None:
            digest = f"-{blake2b(part.encode(), digest_size=4).hexdigest()}" if part else ""
            self._state_file = file = resume.with_name(f"{resume.name}{digest}")
            log, what = excerpt.log, msgspec.structs.astuple(excerpt)[1:]
            scored = jobs.ids, sorted(jobs.names or ()), cancelled
            identity = msgspec.msgpack.encode((STATE_VERSION, log.fingerprint, log.cuts, what, scored, settings))
            self._identity = blake2b(identity + repr((files, only, prior)).encode(), digest_size=16).digest()
            sizes = self._take_back(file)
        self._files = RecordFile(files[0], sizes[0]), RecordFile(files[1], sizes[1])

    @property
    def scores(self) -> ReplayScores:
        """Accuracy by method."""
        return self._measures.scores

    @property
    def breakdowns(self) -> Breakdowns:
        """Accuracy by wait time, week and queue."""
        return self._measures.breakdowns

    @property
    def waiting(self) -> WaitingScores:
        """Accuracy while jobs wait."""
        return self._measures.waiting

    def _take_back(self, file: Path) -> Sequence[int | None]:
        saved = read_state(file, SavedReplay, "a replay")
        if saved is None:
            return None, None
        if saved.identity != self._identity:
            raise UserError(
                f"{file}: is the state of another replay: with another log, other settings, options or jobs, or "
                "another version of queuecast; name another file, or delete it"
            )
        self._measures.counted = MeasureCounts(saved.scores, saved.breakdowns, saved.waiting)
        self.anomalies.update(saved.anomalies)
        self._passed = saved.passed
        for site, (state, kept) in saved.engines.items():
            self._engines[site] = Engine.load(state, kept.started, kept.runs, self._settings, kept.rows)
        return saved.sizes

    def run(self, advance: Callable[[], None] = lambda: None) -> None:
        """Replay the remaining events; `advance` is called at each submission, also those before an interruption.

        Raises:
            UserError: a file cannot be written, or the process that measures was killed, or hangs.
        """
        processes().threads = self._threads
        predictions, outcomes = self._files
        with predictions, outcomes, self._measuring():
            events = self._excerpt.events()
            for event in islice(events, self._passed):
                if isinstance(event, Submit):
                    advance()
            for event in events:
                self._apply(event)
                self._passed += 1
                if isinstance(event, Submit):
                    advance()
                if self._passed % KEEP_EVERY == 0:
                    self._keep()
            self._keep()

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """Measure a long replay in a process of its own, if there is a CPU for it and no state to keep."""
        if self._threads == 1 or self._state_file is not None or self._excerpt.jobs < APART_JOBS:
            yield
            return
        try:
            started = MeasuringProcess(self._excerpt.log.begin, self._settings)
        except OSError:  # such as too little memory for a process; the result is the same without one
            yield
            return
        with started as process:
            self._measure = process.add
            yield
            self._measures.counted = process.finish()

    def _apply(self, event: AnyEvent) -> None:
        engine = self._engines.get(event.site)
        if engine is None:
            engine = self._engines[event.site] = Engine(event.site, self._settings)
            if self._prior is not None:
                engine.methods.use_prior(self._prior)
        job = _job_of(event, engine)
        predictions, outcomes = self._files
        for item in engine.apply(event):
            if isinstance(item, Anomaly):
                self.anomalies[item.reason] += 1
                continue
            if isinstance(item, Outcome):
                self._score(item, job, engine)
            elif item.method == self._settings.method and (estimate := estimate_of(item)) is not None:
                self._measure(PublishedEstimate((item.site, item.job, item.attempt), estimate))
            if self._only in (None, item.method):
                (outcomes if isinstance(item, Outcome) else predictions).write(item)
        discard_changes(engine)

    def _score(self, outcome: Outcome, job: Job | None, engine: Engine) -> None:
        scored = outcome.job in self._jobs and (self._cancelled or not outcome.censored)
        if not scored and outcome.method != self._settings.method:
            return
        key, noted = engine.parts.landmarks.latest
        if outcome.method != self._settings.method or key != (outcome.job, outcome.attempt):
            noted = ()
        queue, weight = (NO_QUEUE, 1.0) if job is None else (job.queue or NO_QUEUE, burst_weight(job))
        self._measure(MeasuredOutcome(outcome, scored, noted, queue, weight))

    def _keep(self) -> None:
        if self._state_file is None:
            return
        engines = {}
        for site, engine in self._engines.items():
            engine.take_changes()
            engine.parts.histories.mark_all_new()
            engines[site] = engine.checkpoint()
        counted = self._measures.counted
        sizes = [written.durable() for written in self._files]
        save_state(
            SavedReplay(
                self._identity,
                self._passed,
                engines,
                counted.scores,
                counted.breakdowns,
                dict(self.anomalies),
                counted.waiting,
                sizes,
            ),
            self._state_file,
        )


def burst_weight(job: Job) -> float:
    """Return the weight of a job: 1/(1 + n), where n jobs of its user were pending in its pool at its submission.

    A burst of one user then does not count as thousands of independent jobs.
    """
    return 1.0 if job.features is None else 1.0 / (1.0 + job.features.item(_USER_QUEUED))


def _job_of(event: AnyEvent, engine: Engine) -> Job | None:
    """Return the live job of an event; for a task that is pending in its array's row, that row."""
    if not isinstance(event, JobEvent):
        return None
    jobs = engine.context.state.jobs
    return jobs.get(event.key) or jobs.get((getattr(event, "array", None) or "", 0))
