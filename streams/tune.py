"""Tuning on a trace: its validation stretch, the tables of what was found, and the profile to run the site with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from models.engine import Settings
from models.measures import Accuracy
from models.records import AnyEvent, Submit
from models.tuning import PASSES, STATISTICS, Truth, Tuning, aae_s
from models.tuning import tune as tuned
from streams.errors import UserError
from streams.replay import jobs_in
from streams.swf import Trace, events_of
from streams.terminal import show_table

IDS = (16_000, 20_000)
"""Job numbers that are tuned on where none are named: the paper's, just before those that it tests on."""

FEW = 500
"""Of fewer jobs than this, what is chosen owes much to chance."""

SHOWN = dict(zip(STATISTICS, ("summaries", "distributions"), strict=True))
"""How the tables call the methods."""


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


def tune(stretch: Stretch, settings: Settings, advance: Callable[[], None] = lambda: None) -> Tuning:
    """Tune on a stretch; `advance` is called at each of its `steps`."""

    def events() -> Iterator[AnyEvent]:
        for event in events_of(stretch.trace, stretch.trace.site):
            yield event
            if isinstance(event, Submit):
                advance()

    return tuned(events, stretch.jobs, settings)


def show(tuning: Tuning, stretch: Stretch) -> None:
    """Print the statistics as the paper's table VI has them, then the parameters."""
    best = tuning.profile.method
    heads = [f"{SHOWN[name]} AAE s" for name in STATISTICS]
    errors = [f"{_seconds(tuning.statistics[name])}{' *' if name == best else ''}" for name in STATISTICS]
    jobs = f"{len(stretch.jobs)} of {stretch.of}"
    line = [stretch.trace.site, *errors, f"{tuning.non_uniformity:.2f}", jobs]
    show_table(["", *heads, "non-uniformity", "jobs"], [line])
    lines, last = [], ""
    for row in tuning.rows:
        mark = "*" if row.chosen else "in force" if row.in_force else ""
        lines.append([row.parameter if row.parameter != last else "", f"{row.value:g}", *_figures(row.accuracy), mark])
        last = row.parameter
    lines.append(["as in force", "", *_figures(tuning.before), ""])
    lines.append(["all chosen, together", "", *_figures(tuning.together), ""])
    show_table([f"with {SHOWN[best]}", "value", "AAE s", "PPE", "* chosen"], lines)


def _figures(accuracy: Accuracy) -> tuple[str, str]:
    return _seconds(accuracy), f"{accuracy.measures()['PPE']:.3f}"


def _seconds(accuracy: Accuracy) -> str:
    return f"{aae_s(accuracy):.2f}"


def profile(settings: Settings) -> str:
    """The method, its history and its parameters as TOML that `queuecast --config` reads."""
    parameters = settings.parameters.get(settings.method, {})
    values = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in parameters.items()]
    engine = ["[engine]", f'method = "{settings.method}"', f"history = {settings.history}", ""]
    return "\n".join([*engine, f"[engine.parameters.{settings.method}]", *values, ""])


def save(settings: Settings, file: Path) -> None:
    """Write the profile.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        file.write_text(profile(settings), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None
