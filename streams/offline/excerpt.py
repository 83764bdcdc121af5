"""Selection of the events to replay: all, those that the scored jobs need, or a sample for a first answer."""

from collections.abc import Container, Iterator

import msgspec

from models.records import AnyEvent, JobEvent, Start, Submit
from streams.bulk.event_log import EventLog

FAST_JOBS = 12_000  # of a long log the last jobs, which a fast replay is over
FAST_PREDICTED = 3000  # about how many of them a fast replay predicts


class Excerpt(msgspec.Struct, frozen=True):
    """The events of a log to replay; small enough to pass to other processes.

    Attributes:
        log: the log.
        jobs: number of submissions in the excerpt.
        length: number of events of the log up to the end of the excerpt.
        skipped: number of first submissions to skip; jobs that are live when the excerpt begins are kept.
        every: predict each N-th of the other jobs. The jobs between are learnt from, as the old ones of a
            site's history.
    """

    log: EventLog
    jobs: int
    length: int
    skipped: int = 0
    every: int = 1

    @property
    def predicted(self) -> int:
        """Number of jobs to predict."""
        return self.jobs // self.every

    @property
    def description(self) -> str:
        """Description of the sample; empty if all jobs are predicted."""
        if self.every == 1:
            return ""
        return (
            f"a fast replay of the last {self.jobs:,} of the log's {self.log.jobs:,} jobs, which predicts one in "
            f"{self.every}; the others train all models except the mixture"
        )

    def events(self) -> Iterator[AnyEvent]:
        """Yield the events in order."""
        count = 0
        for event in self.log.after(self.skipped, self.length):
            if isinstance(event, Submit) and not event.late:
                count += 1
                if count % self.every:
                    event = msgspec.structs.replace(event, historical=True, old=True)
            yield event


def whole(log: EventLog) -> Excerpt:
    """Select the whole log."""
    return Excerpt(log, log.jobs, log.count)


def until_scored(log: EventLog, jobs: Container[str]) -> Excerpt:
    """Select the log up to the last event of these jobs; later events do not change their scores."""
    submits = last_submits = last = 0
    for number, event in enumerate(log.events(), 1):
        submits += isinstance(event, Submit)
        if isinstance(event, JobEvent) and (event.job in jobs or (isinstance(event, Start) and event.array in jobs)):
            last, last_submits = number, submits
    return Excerpt(log, last_submits, last)


def fast(log: EventLog) -> Excerpt:
    """Select the last `FAST_JOBS` jobs, of which about `FAST_PREDICTED` are predicted.

    The number of jobs alone decides the selection.
    """
    jobs = min(log.jobs, FAST_JOBS)
    return Excerpt(log, jobs, log.count, log.jobs - jobs, max(round(jobs / FAST_PREDICTED), 1))
