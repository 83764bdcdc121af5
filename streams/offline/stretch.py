"""The stretch of a trace that is tuned on: the jobs to predict, and what comes before them."""

from collections.abc import Callable, Iterator

import msgspec

from models.papers.search.tuning import PASSES, Truth
from models.records import AnyEvent, Submit
from streams.offline.replay import jobs_in
from streams.sources.swf import Trace, events_of

DEFAULT_IDS = (16_000, 20_000)
"""The job numbers to tune on by default: the paper's, just before those that it tests on."""

MIN_JOBS = 500
"""With fewer jobs than this the choice owes much to chance."""


class Stretch(msgspec.Struct, frozen=True):
    """What tuning reads: the trace from its beginning to the last job of the range, and the jobs to predict.

    `in_range` is the number of jobs in the range, of which `jobs` are predicted.
    """

    trace: Trace
    jobs: dict[str, Truth]
    in_range: int

    @property
    def steps(self) -> int:
        """How often `tune` calls `advance`."""
        return PASSES * len(self.trace.jobs)


def stretch_of(trace: Trace, ids: tuple[int, int] | None, rows: tuple[int, int] | None, every: int) -> Stretch:
    """The stretch of these job numbers or positions. Nothing later than its last job is in it.

    Parameters:
        every: N, where every N-th of its jobs is predicted.

    Raises:
        UserError: there is no job in it.
    """
    names = jobs_in(trace, ids if ids or rows else DEFAULT_IDS, rows)
    places = [place for place, job in enumerate(trace.jobs) if str(job.number) in names]
    predicted = [trace.jobs[place] for place in places[::every]]
    jobs = {str(job.number): Truth(job.wait, max(job.run, 0.0) if job.started else 0.0) for job in predicted}
    return Stretch(msgspec.structs.replace(trace, jobs=trace.jobs[: places[-1] + 1]), jobs, len(places))


def events_in(stretch: Stretch, advance: Callable[[], None]) -> Iterator[AnyEvent]:
    """The events of a stretch's trace; `advance` is called at each submit."""
    for event in events_of(stretch.trace, stretch.trace.site):
        yield event
        if isinstance(event, Submit):
            advance()
