"""The stretch of a trace that is tuned on: the jobs to predict, and what comes before them."""

from collections.abc import Callable, Iterator

import msgspec

from models.records import AnyEvent, Submit
from models.search.tuning import PASSES, Truth
from streams.offline.replay import jobs_in
from streams.sources.swf import Trace, events_of

IDS = (16_000, 20_000)
"""Job numbers that are tuned on where none are named: the paper's, just before those that it tests on."""

FEW = 500
"""Of fewer jobs than this, what is chosen owes much to chance."""


class Stretch(msgspec.Struct, frozen=True):
    """What tuning reads of a trace: it from its beginning to the last job of the stretch, and the jobs to predict."""

    trace: Trace
    jobs: dict[str, Truth]
    of: int

    @property
    def steps(self) -> int:
        """How often `tune` reports that it goes on."""
        return PASSES * len(self.trace.jobs)


def stretch_of(trace: Trace, ids: tuple[int, int] | None, rows: tuple[int, int] | None, every: int) -> Stretch:
    """The stretch of these job numbers or positions, and of its jobs every so manieth. Nothing later is in it.

    Raises:
        UserError: there is no job in it.
    """
    names = jobs_in(trace, ids if ids or rows else IDS, rows)
    places = [place for place, job in enumerate(trace.jobs) if str(job.number) in names]
    picked = [trace.jobs[place] for place in places[::every]]
    jobs = {str(job.number): Truth(job.wait, max(job.run, 0.0) if job.started else 0.0) for job in picked}
    return Stretch(msgspec.structs.replace(trace, jobs=trace.jobs[: places[-1] + 1]), jobs, len(places))


def events_in(stretch: Stretch, advance: Callable[[], None]) -> Iterator[AnyEvent]:
    """The events of a stretch's trace; `advance` is called at each submit."""
    for event in events_of(stretch.trace, stretch.trace.site):
        yield event
        if isinstance(event, Submit):
            advance()
