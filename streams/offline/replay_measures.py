"""All measures of a replay, from the estimates that it published and the outcomes."""

import msgspec

from models.engine.settings import EngineSettings
from models.notices import JobPlace, StartEstimate
from models.records import Outcome
from models.waiting_accuracy import Landmark
from streams.offline.breakdown import NO_QUEUE, BreakdownCounts, Breakdowns
from streams.offline.replay_scores import ReplayScores, ScoreCounts
from streams.offline.waiting_scores import WaitingCounts, WaitingScores


class PublishedEstimate(msgspec.Struct, array_like=True, frozen=True, tag="estimate"):
    """An estimate of a pending job by the default method."""

    place: JobPlace
    estimate: StartEstimate


class MeasuredOutcome(msgspec.Struct, array_like=True, frozen=True, tag="outcome"):
    """An outcome, with what the measures need of its job.

    Attributes:
        scored: whether the job is scored.
        noted: the estimates in force at fixed ages.
        queue: the job's queue.
        weight: the job's weight in a burst.
    """

    outcome: Outcome
    scored: bool
    noted: tuple[Landmark, ...] = ()
    queue: str = NO_QUEUE
    weight: float = 1.0


MeasuredRecord = PublishedEstimate | MeasuredOutcome


class MeasureCounts(msgspec.Struct):
    """The counts of `ReplayMeasures`."""

    scores: ScoreCounts
    breakdowns: BreakdownCounts
    waiting: WaitingCounts


class ReplayMeasures:
    """Measure a replay.

    Args:
        begin: Unix time of the first event.
        settings: settings of the replay.
    """

    def __init__(self, begin: float, settings: EngineSettings) -> None:
        self.scores = ReplayScores(settings)
        self.breakdowns = Breakdowns(begin, settings)
        self.waiting = WaitingScores(settings.method)

    @property
    def counted(self) -> MeasureCounts:
        """The counts so far, which may be saved and restored."""
        return MeasureCounts(self.scores.counted, self.breakdowns.counted, self.waiting.counted)

    @counted.setter
    def counted(self, saved: MeasureCounts) -> None:
        self.scores.counted, self.breakdowns.counted = saved.scores, saved.breakdowns
        self.waiting.counted = saved.waiting

    def add(self, record: MeasuredRecord) -> None:
        """Add an estimate or an outcome, in the order of the replay."""
        if isinstance(record, PublishedEstimate):
            self.waiting.estimated(record.place, record.estimate)
            return
        self.waiting.job_dequeued(record.outcome, record.noted, record.scored)
        if record.scored:
            self.breakdowns.add(record.outcome, record.queue, record.weight)
            self.scores.add(record.outcome)
