"""Components of an engine, and the base class of its event handlers. Each component changes only its own state."""

from collections.abc import Callable
from functools import partial

from models.engine.events.groups import Groups
from models.engine.events.job_arrays import Arrays
from models.engine.histories import Gaps, SiteHistories
from models.engine.landmarks import Landmarks
from models.engine.live_jobs import LiveJobs
from models.engine.methods import SiteMethods
from models.engine.outgoing import Outgoing
from models.engine.queues import Queues
from models.engine.reestimates import Reestimates
from models.engine.scores import Scores
from models.engine.settings import EngineSettings
from models.engine.trends import Trends
from models.method import JobTransition, SiteContext
from models.site.history import History
from models.site.job import Job
from models.site.state import SiteState

LEARNT_ROWS = "engine.learnt"  # storage key of the rows of departed jobs


class EngineComponents:
    """The components of an engine.

    `context` is the knowledge about the site, `methods` predict and learn from it, `scores` measure their accuracy, and
    `live` holds the pending and running jobs.
    """

    def __init__(self, site: str, settings: EngineSettings) -> None:
        self.settings = settings
        self.methods = SiteMethods(site, settings)
        runtimes = self.methods.runs[settings.runtimes]
        history = History(settings.history)
        self.context = SiteContext(SiteState(), history, self.methods.run_history(), runtimes)
        self.scores = Scores.of(site, settings)
        self.queues = Queues()
        self.trends = Trends()
        self.gaps = Gaps()
        self.outgoing = Outgoing(site, settings, self.scores.rivals)
        self.live = LiveJobs(self.context, settings.live_jobs, self.methods.per_job)
        self.reestimates = Reestimates(self.context.state, self.methods.counting.re_estimates, self.live.touch)
        self.landmarks = Landmarks(self.context.state, settings.method, settings.bounds, self.live.touch)
        self.observe: Callable[[Job, JobTransition, float], None] = partial(self.methods.observe, context=self.context)
        """Reports a transition of an attempt and its time to the methods, whether or not the attempt is scored."""
        self.arrays = Arrays(self.live, self.methods.forget)
        self.groups = Groups(self.live)
        self.histories = SiteHistories(self.context, {**self.methods.rows, LEARNT_ROWS: self.live.learnt.rows})
        self.arrived: float | None = None  # when the current event arrived at the broker

    @property
    def degraded(self) -> str | None:
        """The reason why predictions are currently degraded; None if they are not."""
        started, gaps, capacity = self.context.history.count, self.gaps, self.context.capacity
        down = 0 if capacity is None else capacity.down_nodes
        found = (
            "history lost: learning restarted" if gaps.lost else None,
            "history has a gap" if started < gaps.gap_until else None,
            "events were lost" if started < gaps.missed_until else None,
            self.methods.counting.degraded,
            f"{down} of {(capacity and capacity.nodes) or 'unknown'} nodes down" if down else None,
        )
        return "; ".join(filter(None, found)) or None


class AttemptHandler:
    """Base class of the handlers for attempt events."""

    def __init__(self, parts: EngineComponents) -> None:
        self._parts = parts
        self._settings, self._context, self._live = parts.settings, parts.context, parts.live
        self._arrays, self._groups = parts.arrays, parts.groups
        self._methods, self._scores, self._outgoing = parts.methods, parts.scores, parts.outgoing
        self._histories, self._trends = parts.histories, parts.trends
        self._queues, self._reestimates, self._landmarks = parts.queues, parts.reestimates, parts.landmarks
        self._observe = parts.observe

    def _predict_run(self, job: Job) -> None:
        """Predict the run time of a job, before any other prediction."""
        self._methods.predict_run(job, self._context)
        if not job.progress.historical:
            self._scores.count_runs()
