"""The order of events: by time, and within one moment so that a site's state is what the scheduler saw."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from models.records import AnyEvent, Event, JobEvent, Start, Submit

_STEPS = {"submit": 0, "start": 2, "suspend": 3, "resume": 3, "end": 4, "cancel": 4, "requeue": 4}
"""Where each kind comes among the events of one attempt at one moment; all others are 1."""

_TURNS = {"end": 0, "cancel": 0, "requeue": 0, "suspend": 0, "submit": 2}
"""Where each kind comes among the jobs of one moment; all others are 1, and what follows a submit is 3."""


def in_order(events: Iterable[AnyEvent]) -> Iterator[Event]:
    """Events that are sorted by time, those of one moment put in order, and each once; some 3 µs an event.

    What leaves comes before what starts, then what is submitted; a job that starts as it is submitted starts after
    that. A submission counts once, also where the second one says something else: files of one log may tell of a job
    when it was queued, and when it had ended. Nothing else is changed: where there is no reason for another order, it
    is that of the input.
    """
    for _, moment in groupby(events, key=lambda event: event.time):
        found = list(moment)
        yield from found if len(found) == 1 else _of_one_moment(found)


def _of_one_moment(events: Sequence[AnyEvent]) -> list[Event]:
    arrays = {event.job: event.array for event in events if isinstance(event, Start) and event.array}
    stories: dict[tuple[str, str], list[tuple[int, int, int, JobEvent]]] = {}
    capacities: list[Event] = []
    seen: dict[tuple[str, str, str, int], list[Event]] = {}
    for place, event in enumerate(events):
        job, attempt = (event.job, event.attempt) if isinstance(event, JobEvent) else ("", 0)
        alike = seen.setdefault((event.kind, event.site, job, attempt), [])
        if event in alike or (alike and isinstance(event, Submit)):
            continue
        alike.append(event)
        if isinstance(event, JobEvent):
            story = stories.setdefault((event.site, arrays.get(job, job)), [])
            story.append((attempt, _STEPS.get(event.kind, 1), place, event))
        else:
            capacities.append(event)
    turns: list[tuple[int, int, int, Event]] = []
    for first, story in enumerate(stories.values()):
        story.sort(key=lambda item: item[:3])
        turn, submitted = 0, False
        for step, (*_, one) in enumerate(story):
            turn = max(turn, 3 if submitted else _TURNS.get(one.kind, 1))
            submitted |= isinstance(one, Submit)
            turns.append((turn, first, step, one))
    turns.sort(key=lambda item: item[:3])
    return [*capacities, *(one for *_, one in turns)]
