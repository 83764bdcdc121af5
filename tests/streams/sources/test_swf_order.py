"""The order of a trace's events."""

from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import AnyEvent, Cancel, Capacity, End, Start, Submit
from streams.sources.swf import SwfJob, Trace, events_of

SECONDS = st.sampled_from((0, 0, 1, 2, 5)) | st.integers(0, 30)
"""Few values, so that much falls into the same second."""

ODD = SECONDS | st.floats(0, 30, allow_nan=False) | st.sampled_from((1e-9, 5e-324))


@st.composite
def made(draw: st.DrawFn) -> Trace:
    rows = draw(
        st.lists(st.tuples(SECONDS, ODD, ODD | st.just(-1), st.sampled_from((1, 0, 5))), min_size=1, max_size=25)
    )
    blank = dict.fromkeys(SwfJob.__struct_fields__, -1)
    jobs = [
        SwfJob(
            **blank | {"number": number, "submit": float(submit), "wait": float(wait), "run": float(run), "status": s}
        )
        for number, (submit, wait, run, s) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]
    start = draw(st.sampled_from(("0", "843480031")))
    return Trace(Path("made.swf"), {"UnixStartTime": start, "MaxProcs": "8"}, jobs, 0)


def by_job(found: list[AnyEvent]) -> Iterator[list[AnyEvent]]:
    jobs: dict[str, list[AnyEvent]] = {}
    for event in found:
        if not isinstance(event, Capacity):
            jobs.setdefault(event.job, []).append(event)
    return iter(jobs.values())


@given(made())
def test_swf_events_are_in_time_order(trace: Trace) -> None:
    found = list(events_of(trace, "s"))
    assert isinstance(found[0], Capacity)
    assert all(one.time <= other.time for one, other in pairwise(found))


@given(made())
def test_swf_job_has_submit_start_end_or_cancel(trace: Trace) -> None:
    stories = list(by_job(list(events_of(trace, "s"))))
    assert len(stories) == len(trace.jobs)
    for story in stories:
        job = trace.jobs[int(story[0].job)]
        assert [event.kind for event in story] == (["submit", "start", "end"] if job.started else ["submit", "cancel"])
        assert story[0].time == trace.start + job.submit
        assert story[1].time == pytest.approx(trace.start + job.submit + job.wait)
        assert story[-1].time == pytest.approx(trace.start + job.submit + job.wait + max(job.run, 0) * job.started)


@given(made())
def test_swf_equal_times_sort_ends_starts_submits(trace: Trace) -> None:
    found = list(events_of(trace, "s"))[1:]
    submitted = {event.job: event.time for event in found if isinstance(event, Submit)}
    started = {event.job: event.time for event in found if isinstance(event, Start)}

    def rank(event: AnyEvent) -> int:
        if isinstance(event, Submit):
            return 2
        if isinstance(event, End) and started[event.job] < event.time:
            return 0
        if submitted[event.job] == event.time:
            return 3
        return 0 if isinstance(event, Cancel) else 1

    order = [(event.time, rank(event)) for event in found]
    assert order == sorted(order)


@given(made(), st.data())
def test_swf_events_do_not_depend_on_later_jobs(trace: Trace, data: st.DataObject) -> None:
    horizon = data.draw(st.sampled_from([event.time for event in events_of(trace, "s")]))
    later, outcome = st.floats(1, 50), st.sampled_from((0, 1, 5))

    def altered(job: SwfJob) -> SwfJob:
        submit = trace.start + job.submit
        left = submit + job.wait
        change = msgspec.structs.replace
        if left > horizon:
            wait = max(horizon - submit, 0) + data.draw(later)
            return change(job, wait=wait, run=data.draw(later | st.just(0.0)), status=data.draw(outcome))
        if job.started and left + job.run > horizon:
            return change(job, run=horizon - left + data.draw(later), status=data.draw(outcome))
        return job

    other = msgspec.structs.replace(trace, jobs=[altered(job) for job in trace.jobs])

    def known(of: Trace) -> list[AnyEvent]:
        return list(takewhile(lambda event: event.time <= horizon, events_of(of, "s")))

    assert known(other) == known(trace)
