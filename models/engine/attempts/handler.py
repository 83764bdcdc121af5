"""What the handlers of attempts have in common: the parts that they work on."""

from models.engine.parts import Parts
from models.method import Happened
from models.site.job import Job


class AttemptHandler:
    """Does what some kinds of events do to an attempt."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._settings, self._context, self._live = parts.settings, parts.context, parts.live
        self._arrays, self._groups, self._suspensions = parts.arrays, parts.groups, parts.suspensions
        self._methods, self._scores, self._outgoing = parts.methods, parts.scores, parts.outgoing
        self._histories, self._past = parts.histories, parts.past
        self._queues, self._reestimates = parts.queues, parts.reestimates

    def _observe(self, job: Job, what: Happened, at: float) -> None:
        """Methods see what befalls an attempt, whether or not it is scored."""
        self._parts.observe(job, what, at)

    def _predict_run(self, job: Job) -> None:
        """How long a job will run is predicted, before anything else is."""
        self._methods.predict_run(job, self._context)
        if not job.progress.past:
            self._scores.count_runs()
