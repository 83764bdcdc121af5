"""Jobs as a scheduler knows them, for tests that write them in a format and read their events back."""

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from models.records import AnyEvent, Cancel, End, Start, Submit
from streams.bulk.reading import Report, read_log

T = 1_750_000_000
ODD = "|,;:\"'\\ {}[]()=#%$&*/.-_\tabz019äßé漢🙂"  # what users type, separators of every format among it


class WrittenJob(NamedTuple):
    """One attempt at a job; times are Unix seconds, the limit is in seconds, infinite for none and 0 if unknown."""

    number: int
    submit: int
    start: int | None
    end: int
    cpus: int
    limit_s: float
    user: str
    text: str


class JobFacts(NamedTuple):
    """The facts of an attempt that its events contain."""

    submit: float
    start: float | None
    end: float | None
    cancel: float | None
    cpus: int
    limit_s: float


texts = st.text(st.sampled_from(ODD), max_size=12)
names = st.from_regex(r"\A[a-z][a-z0-9_]{0,7}\Z")
limits = st.one_of(st.just(0.0), st.just(float("inf")), st.integers(1, 60 * 24 * 7).map(lambda minutes: minutes * 60.0))


@st.composite
def jobs(draw: st.DrawFn, text: st.SearchStrategy[str] = texts, limit: st.SearchStrategy[float] = limits) -> WrittenJob:
    """A job that ran, or left the queue."""
    submit = T + draw(st.integers(0, 10_000))
    start = draw(st.one_of(st.none(), st.integers(submit, submit + 100_000)))
    end = draw(st.integers(1, 200_000)) + (submit if start is None else start)
    return WrittenJob(0, submit, start, end, draw(st.integers(1, 4096)), draw(limit), draw(names), draw(text))


def lists_of(one: st.SearchStrategy[WrittenJob], most: int = 5) -> st.SearchStrategy[list[WrittenJob]]:
    """Jobs with numbers of their own."""
    return st.lists(one, min_size=1, max_size=most).map(
        lambda found: [job._replace(number=101 + place) for place, job in enumerate(found)]
    )


def facts(job: WrittenJob) -> JobFacts:
    """The facts that the events of a job must contain."""
    if job.start is None:
        return JobFacts(job.submit, None, None, job.end, job.cpus, job.limit_s)
    return JobFacts(job.submit, job.start, job.end, None, job.cpus, job.limit_s)


def facts_by_job(events: Iterable[AnyEvent]) -> dict[str, JobFacts]:
    """The facts of each job that its events contain."""
    found: dict[str, JobFacts] = {}
    times: dict[str, dict[str, float]] = {}
    for event in events:
        if isinstance(event, Submit):
            limit_s = float("inf") if event.unlimited else event.walltime or 0.0
            found[event.job] = JobFacts(event.time, None, None, None, event.cpus, limit_s)
        elif isinstance(event, Start | End | Cancel):
            times.setdefault(event.job, {})[event.kind] = event.time
    return {job: known._replace(**times.get(job, {})) for job, known in found.items()}


def read_back(
    text: str | bytes, format_name: str, options: Sequence[str] = (), beside: dict[str, str] | None = None
) -> tuple[dict[str, JobFacts], Report]:
    """What a source makes of a text, as a replay reads it; FOLDER in options is where the files `beside` lie."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        for name, content in (beside or {}).items():
            (Path(folder) / name).write_text(content)
        placed = [option.replace("FOLDER", folder) for option in options]
        with read_log([path], "s", format_name, options=placed) as (log, report):
            return facts_by_job(log.events(len(log.capacity))), report
