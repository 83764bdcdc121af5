"""Tune `qespera` on a stretch of a trace, one parameter at a time: the tables, and the site's profile."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.papers.search.tuning import PASSES, STATISTICS, ActualTimes, TuningResult, aae_s
from models.papers.search.tuning import tune as tuned
from models.records import AnyEvent, Submit
from streams.errors import UserError
from streams.offline.output_files import as_profile
from streams.sources.swf import Trace, events_of
from streams.text.terminal import show_table

DEFAULT_IDS = (16_000, 20_000)  # the job numbers to tune on by default: the paper's, just before those that it tests on
MIN_JOBS = 500  # with fewer jobs the choice is not significant


class TuningInput(msgspec.Struct, frozen=True):
    """Input of tuning: the trace from its beginning to the last job of the range, and the jobs to predict.

    `in_range` is the number of jobs in the range, of which `jobs` are predicted.
    """

    trace: Trace
    jobs: dict[str, ActualTimes]
    in_range: int

    @property
    def steps(self) -> int:
        """Number of calls of `advance` by `tune`."""
        return PASSES * len(self.trace.jobs)


def stretch_of(trace: Trace, ids: tuple[int, int] | None, rows: tuple[int, int] | None, every: int) -> TuningInput:
    """Return the stretch of these job numbers (`ids`) or positions (`rows`, in submission order, from 1).

    Every N-th of its jobs (`every`) is predicted.

    Raises:
        UserError: the stretch has no job.
    """
    if rows is not None:
        places = [*range(max(rows[0], 1) - 1, min(rows[1], len(trace.jobs)))]
        known = f"no job at these positions; they are 1 to {len(trace.jobs)}"
    else:
        low, high = ids or DEFAULT_IDS
        numbers = [job.number for job in trace.jobs]
        places = [place for place, number in enumerate(numbers) if low <= number <= high]
        known = f"no job with these numbers; they are {min(numbers)} to {max(numbers)}"
    if not places:
        raise UserError(f"{trace.path}: {known}")
    predicted = [trace.jobs[place] for place in places[::every]]
    jobs = {str(job.number): ActualTimes(job.wait, max(job.run, 0.0) if job.started else 0.0) for job in predicted}
    return TuningInput(msgspec.structs.replace(trace, jobs=trace.jobs[: places[-1] + 1]), jobs, len(places))


def events_in(stretch: TuningInput, advance: Callable[[], None]) -> Iterator[AnyEvent]:
    """The events of a stretch's trace; `advance` is called at each submit."""
    for event in events_of(stretch.trace, stretch.trace.site):
        yield event
        if isinstance(event, Submit):
            advance()


STATISTIC_NAMES = dict(zip(STATISTICS, ("summaries", "distributions"), strict=True))  # the methods' names in the tables


def tune(stretch: TuningInput, settings: EngineSettings, advance: Callable[[], None] = lambda: None) -> TuningResult:
    """Tune on a stretch; `advance` is called at each of its `steps`."""
    return tuned(lambda: events_in(stretch, advance), stretch.jobs, settings)


def show(tuning: TuningResult, stretch: TuningInput) -> None:
    """Print the statistics as in table VI of the paper, then the parameters."""
    best = tuning.profile.method
    heads = [f"{STATISTIC_NAMES[name]} AAE s" for name in STATISTICS]
    errors = [f"{_seconds(tuning.statistics[name])}{' *' if name == best else ''}" for name in STATISTICS]
    jobs = f"{len(stretch.jobs)} of {stretch.in_range}"
    line = [stretch.trace.site, *errors, f"{tuning.non_uniformity:.2f}", jobs]
    show_table(["", *heads, "non-uniformity", "jobs"], [line])
    lines, last = [], ""
    for row in tuning.rows:
        mark = "*" if row.chosen else "in force" if row.in_force else ""
        lines.append([row.parameter if row.parameter != last else "", f"{row.value:g}", *_figures(row.accuracy), mark])
        last = row.parameter
    lines.append(["as in force", "", *_figures(tuning.before), ""])
    lines.append(["all chosen, together", "", *_figures(tuning.together), ""])
    show_table([f"with {STATISTIC_NAMES[best]}", "value", "AAE s", "PPE", "* chosen"], lines)


def errors(tuning: TuningResult) -> dict[str, Any]:
    """The mean absolute errors in seconds: of the statistics, of each value that was tried, before and after."""
    tried = [
        {"parameter": row.parameter, "value": row.value, "aae_s": aae_s(row.accuracy), "chosen": row.chosen}
        for row in tuning.rows
    ]
    statistics = {STATISTIC_NAMES[name]: aae_s(accuracy) for name, accuracy in tuning.statistics.items()}
    ends = {"before_s": aae_s(tuning.before), "found_s": aae_s(tuning.together)}
    return ends | {"statistics": statistics, "tried": tried}


def _figures(accuracy: Accuracy) -> tuple[str, str]:
    return _seconds(accuracy), f"{accuracy.measures()['PPE']:.3f}"


def _seconds(accuracy: Accuracy) -> str:
    return f"{aae_s(accuracy):.2f}"


def profile(settings: EngineSettings) -> str:
    """The method, its history and its parameters as TOML that `queuecast --config` reads."""
    engine = {"method": settings.method, "history": settings.history}
    return as_profile(engine, settings.method, settings.parameters.get(settings.method, {}))
