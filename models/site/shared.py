"""Common values of restored jobs, each in memory once."""

from operator import attrgetter

import msgspec

from models.site.job import EXTRAS, PROGRESS, REQUEST, Job

_TEXTS = tuple(name for name in REQUEST if name not in ("cpus", "nodes", "gpus", "memory", "walltime"))
_texts_of = attrgetter(*_TEXTS)
_set = msgspec.structs.force_setattr

_MAX_SHARED = 10_000
"""Maximum size of the tables of shared strings and bounds; beyond it they are cleared. Larger ones save little memory,
and freeing them in one step would block all other threads."""


class ValueInterner:
    """Interns common values of restored jobs (names, reasons, bounds), which halves their memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._bounds: dict[tuple[tuple[str, float], ...], dict[str, float]] = {}

    def settle(self, job: Job) -> Job:
        """Replace the job's values by the shared objects, and return it."""
        for known in (self._texts, self._bounds):
            if len(known) > _MAX_SHARED:
                known.clear()
        shared = self._texts.setdefault
        if job.extras == EXTRAS:
            job.extras = EXTRAS
        if job.progress == PROGRESS:
            job.progress = PROGRESS
        for name, text in zip(_TEXTS, _texts_of(job), strict=True):
            if text is not None:
                setattr(job, name, shared(text, text))
        for estimate in job.estimates.values():
            _set(estimate, "reason", shared(estimate.reason, estimate.reason))
            if (bounds := estimate.bounds) is not None:
                _set(estimate, "bounds", self._bounds.setdefault(tuple(bounds.items()), bounds))
        for run_estimate in job.run_estimates.values():
            _set(run_estimate, "reason", shared(run_estimate.reason, run_estimate.reason))
        job.estimates = {shared(name, name): estimate for name, estimate in job.estimates.items()}
        job.run_estimates = {shared(name, name): estimate for name, estimate in job.run_estimates.items()}
        return job
