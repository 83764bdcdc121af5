"""Traces into the events topic: several sites at once, as fast as it goes or at the pace at which they happened."""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

import msgspec

from models.records import AnyEvent
from streams.errors import UserError
from streams.sources.swf import Trace, check_site, events_of


class Source(msgspec.Struct, frozen=True):
    """A trace and the site whose events it holds."""

    trace: Trace
    site: str

    def first(self, jobs: int) -> "Source":
        """The source with its first `jobs` jobs alone, and what became of them."""
        return Source(msgspec.structs.replace(self.trace, jobs=self.trace.jobs[:jobs]), self.site)

    @property
    def count(self) -> int:
        """How many events it has."""
        return bool(self.trace.cpus) + sum(3 if job.started else 2 for job in self.trace.jobs)

    def events(self) -> Iterator[tuple[float, AnyEvent]]:
        """Its events, each with the seconds since the trace's first submission."""
        begin = self.trace.begin
        return ((event.time - begin, event) for event in events_of(self.trace, self.site))


def timeline(sources: Iterable[Source]) -> Iterator[tuple[float, AnyEvent]]:
    """The events of all sources by the seconds since each one's beginning; a site's own stay in their order."""
    return heapq.merge(*(source.events() for source in sources), key=itemgetter(0))


def paced(
    events: Iterable[tuple[float, AnyEvent]],
    speed: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[AnyEvent]:
    """Events when they are due: at `speed` times the pace at which they happened, infinity for no waiting."""
    began = clock()
    for since_s, event in events:
        ahead_s = since_s / speed - (clock() - began)
        if ahead_s > 0:
            sleep(ahead_s)
        yield event


def until(events: Iterable[tuple[float, AnyEvent]], seconds: float) -> Iterator[tuple[float, AnyEvent]]:
    """The events of the first `seconds`."""
    for since_s, event in events:
        if since_s > seconds:
            return
        yield since_s, event


def sources_of(traces: Sequence[Trace], sites: Sequence[str]) -> list[Source]:
    """Traces with their sites.

    Parameters:
        sites: one for each trace, in their order; the files' names where there are none.

    Raises:
        UserError: there are not as many sites as traces, two are the same, or one is no name.
    """
    names = list(sites) or [trace.site for trace in traces]
    if len(names) != len(traces):
        raise UserError(f"{len(names)} sites for {len(traces)} traces; name one for each, in their order, or none")
    for name in names:
        check_site(name)
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"two traces for site {', '.join(sorted(twice))}; name the sites with --site")
    return [Source(trace, site) for trace, site in zip(traces, names, strict=True)]
