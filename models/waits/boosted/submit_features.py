"""Features of a job at its submission, as one row of numbers for the trees."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from models.arrays import Flags, Floats
from models.durations import DAY_S
from models.kernels import njit
from models.method import SiteContext
from models.site.history import FEATURES
from models.site.history import features_of as summaries_of
from models.site.job import Job
from models.waits.boosted import live_features, recent
from models.waits.boosted.recent import Codes, Recent

Stored = npt.NDArray[np.float16]
"""A row as it is stored. Trees use only these numbers, in training and later, so that both are equal."""

WEEK_DAYS: Final = 7
THURSDAY: Final = 3  # the first of January 1970

_OF_JOB = ("walltime", "run", "share", "nodes", "memory", "hour", "weekday", "down", "site", "simulated")

NAMES = (*FEATURES, *_OF_JOB, *live_features.NAMES, *recent.NAMES)
"""The features in their order. Seconds, CPUs and work are stored as log2(1 + x), with the sign of x. `run` is the
predicted run time, and `simulated` the wait in a simulated schedule: -1 if there is none."""

_LIVE = len(FEATURES) + len(_OF_JOB)
_RECENT = _LIVE + len(live_features.NAMES)
"""First positions of the features of `live_features` and of `recent`."""

AS_THEY_ARE = np.array(
    [
        name in ("share", "hour", "weekday", "down")
        or (name.startswith(("recent_", "last_")) and not name.endswith("_ago"))
        for name in NAMES
    ]
)


def as_they_are(names: Sequence[str]) -> Flags:
    """Return which of these features are stored as they are, and not on a logarithmic scale."""
    return AS_THEY_ARE[[NAMES.index(name) for name in names]]


def row_of(job: Job, codes: Codes, rows: int, context: SiteContext, waits: Recent, simulated_s: float | None) -> Stored:
    """Return the features of `NAMES` for a job that is not yet part of the state.

    Args:
        codes: those of `models.waits.boosted.recent.codes_of`.
        rows: number of rows of notes.
        waits: the recent waits.
        simulated_s: the wait in a simulated schedule, seconds.
    """
    now = job.submit
    summaries = summaries_of(job, context.state, now) if job.features is None else job.features
    found = np.zeros(len(NAMES))
    found[: len(FEATURES)], found[len(FEATURES) : _LIVE] = summaries, _of_job(job, context, simulated_s)
    live_features.live_features(job, context.state.table, now, context.cpus, found[_LIVE:_RECENT])
    waits.features(codes, now, rows, found[_RECENT:])
    return stored(found)


def stored(values: Floats) -> Stored:
    """The features as they are stored: finite, in 16 bits, most on a logarithmic scale. `values` are changed."""
    _scale(values)
    return values.astype(np.float16)


@njit(cache=True, nogil=True)
def _scale(values: Floats) -> None:
    for place in range(len(values)):
        value = values[place]
        if not AS_THEY_ARE[place]:
            value = np.copysign(np.log2(1.0 + abs(value)), value)
        values[place] = min(max(value, -60_000.0), 60_000.0)


def _of_job(job: Job, context: SiteContext, simulated_s: float | None) -> list[float]:
    capacity = context.capacity
    down = capacity.down_nodes / capacity.nodes if capacity is not None and capacity.nodes else 0.0
    return [
        job.walltime or 0.0,
        -1.0 if job.run_s is None else job.run_s,
        job.cpus / max(context.cpus, 1),
        float(job.nodes or 0),
        float(job.memory or 0),
        job.submit % DAY_S / 3600.0,
        (job.submit // DAY_S + THURSDAY) % WEEK_DAYS,
        down,
        float(context.cpus),
        -1.0 if simulated_s is None else simulated_s,
    ]
