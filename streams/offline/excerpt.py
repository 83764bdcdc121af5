"""What of a log is replayed: all of it, as much as the jobs need that are scored, or a sample for a first answer."""

from collections.abc import Container, Iterator

import msgspec

from models.records import AnyEvent, JobEvent, Start, Submit
from streams.bulk.event_log import EventLog

FAST_JOBS = 12_000  # of a long log the last jobs, which a fast replay is over
FAST_PREDICTED = 3000  # about how many of them a fast replay predicts


class Excerpt(msgspec.Struct, frozen=True):
    """The events of a log that are replayed. Small, so that other processes can be given it.

    Attributes:
        jobs: how many submissions are among them.
        length: how many events of the log they end after.
        skipped: the first submissions, whose jobs are left out but for those that are live when the rest begins.
        every: N, where each N-th of the other jobs is predicted. Those between are learnt from as old ones of a site's
            history are.
    """

    log: EventLog
    jobs: int
    length: int
    skipped: int = 0
    every: int = 1

    @property
    def predicted(self) -> int:
        """How many jobs are predicted."""
        return self.jobs // self.every

    @property
    def said(self) -> str:
        """In words, of which jobs that is, where not of all."""
        if self.every == 1:
            return ""
        return (
            f"a fast replay, for a first answer: of the log's {self.log.jobs:,} jobs the last {self.jobs:,}, of which "
            f"one in {self.every} is predicted; the others are learnt from, but by the mixture"
        )

    def events(self) -> Iterator[AnyEvent]:
        """The events in order; 3 µs each, those that are left out too."""
        count = 0
        for event in self.log.after(self.skipped, self.length):
            if isinstance(event, Submit) and not event.late:
                count += 1
                if count % self.every:
                    event = msgspec.structs.replace(event, historical=True, old=True)
            yield event


def whole(log: EventLog) -> Excerpt:
    """The whole log."""
    return Excerpt(log, log.jobs, log.count)


def until_scored(log: EventLog, jobs: Container[str]) -> Excerpt:
    """The log up to the last event of these jobs: nothing that comes later changes how they are scored."""
    submits = last_submits = last = 0
    for number, event in enumerate(log.events(), 1):
        submits += isinstance(event, Submit)
        if isinstance(event, JobEvent) and (event.job in jobs or (isinstance(event, Start) and event.array in jobs)):
            last, last_submits = number, submits
    return Excerpt(log, last_submits, last)


def fast(log: EventLog) -> Excerpt:
    """The last `FAST_JOBS` jobs, of which about `FAST_PREDICTED` are predicted; by the number of jobs alone."""
    jobs = min(log.jobs, FAST_JOBS)
    return Excerpt(log, jobs, log.count, log.jobs - jobs, max(round(jobs / FAST_PREDICTED), 1))
