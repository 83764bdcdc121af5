"""Routers, which choose the site of a job: blind rules of meta-schedulers, and rules by expected wait.

All sites are equally fast, so the shortest wait gives the shortest response time. Of equal sites, the first is chosen.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Protocol

from msgspec import UNSET

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import RunMethod
from models.method_registry import DEFAULT
from models.records import AnyEvent, Cancel, Capacity, End, Start, Submit, WhatIfPrediction
from models.site.job import Job, Phase, RunEstimate
from models.site.runs import RunHistory
from models.site.shapes import MOST_QUEUES, WALLTIMES, covering, grid, sizes
from models.site.state import SITE, SiteState

WHAT_IF_SETTINGS = EngineSettings(method="zero", shadows=(), bounds="", what_if_method=DEFAULT)
"""Settings of engines that answer what-if questions and learn policies, but do not predict submitted jobs."""

REFRESH_S = 30.0
"""Minimum interval of a site's grid estimates (s)."""


class Router(Protocol):
    """Choose sites for jobs by the events of the sites."""

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Process events of one site, in order; the first event of a site is its capacity."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the site for a job at its submission; all of `sites` are large enough."""


class AtRandom:
    """Choose a random site, with a probability proportional to its CPUs."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._cpus: dict[str, int] = {}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Store the size of a site."""
        for event in events:
            if isinstance(event, Capacity):
                self._cpus[event.site] = event.cpus

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return a random site."""
        return self._random.choices(sites, [self._cpus[site] for site in sites])[0]


class Watching:
    """Track pending and running jobs of each site."""

    def __init__(self) -> None:
        self.cpus: dict[str, int] = {}
        self._states: defaultdict[str, SiteState] = defaultdict(SiteState)

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Update the jobs."""
        for event in events:
            state = self._states[event.site]
            if isinstance(event, Capacity):
                self.cpus[event.site] = event.cpus
            elif isinstance(event, Submit):
                state.enter(Job.of(event))
            elif isinstance(event, Start):
                state.move(state.jobs[event.key], Phase.RUNNING, event.time)
            elif isinstance(event, End | Cancel):
                state.leave(state.jobs[event.key])

    def queued(self, site: str) -> int:
        """Return the number of pending jobs."""
        return self._states[site].totals(SITE, Phase.QUEUED).count

    def free(self, site: str) -> int:
        """Return the number of free CPUs."""
        return self.cpus[site] - self._states[site].totals(SITE, Phase.RUNNING).cpus


class ShortestQueue(Watching):
    """Choose the site with the fewest pending jobs."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the site with the fewest pending jobs."""
        return min(sites, key=self.queued)


class MostFree(Watching):
    """Choose the site with the most free CPUs."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the site with the most free CPUs."""
        return max(sites, key=self.free)


class Everywhere:
    """Submit a job to all sites; when it starts at one of them, its other copies are cancelled in the same second."""

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Ignore the events."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the first site; the grid ignores it and submits the job to all."""
        return sites[0]


class ByWhatIf:
    """Choose the site with the shortest predicted wait, compared as in a ranking (`cautious_wait_s`).

    Parameters:
        settings: of the engines, with the method for what-if questions.
    """

    def __init__(self, settings: EngineSettings = WHAT_IF_SETTINGS) -> None:
        self._settings = settings
        self.engines: dict[str, Engine] = {}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Pass the events to the engine of the site."""
        for event in events:
            self._engine(event.site).apply(event)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the site with the shortest cautious wait."""
        return min(sites, key=lambda site: _compared_s(self.prediction(job, site)))

    def wait_s(self, job: Job, site: str) -> float:
        """Return the predicted wait at a site (s), or infinity without a prediction."""
        prediction = self.prediction(job, site)
        return inf if prediction is None or prediction.predicted_wait_s is None else prediction.predicted_wait_s

    def prediction(self, job: Job, site: str) -> WhatIfPrediction | None:
        """Return the prediction of the site's engine, or None."""
        (prediction,) = consider(self._engine(site), [job])
        return prediction

    def _engine(self, site: str) -> Engine:
        if site not in self.engines:
            self.engines[site] = Engine(site, self._settings)
        return self.engines[site]


class Nameless(ByWhatIf):
    """Route by what-if for the same job without its user, group, account and executable."""

    def prediction(self, job: Job, site: str) -> WhatIfPrediction | None:
        """Return the prediction for the anonymous job."""
        anonymous = Job(job.id, job.attempt, job.submit, queue=job.queue, cpus=job.cpus, nodes=job.nodes)
        anonymous.walltime, anonymous.memory = job.walltime, job.memory
        return super().prediction(anonymous, site)


def _compared_s(prediction: WhatIfPrediction | None) -> float:
    return inf if prediction is None or prediction.cautious_wait_s is UNSET else prediction.cautious_wait_s


class ByEstimates(ByWhatIf):
    """Choose the site by the grid estimates of the smallest shape that covers the job.

    A site's estimates are computed after an event there, but at most every `REFRESH_S`. They include the events up to
    that second, and are used from the next one on. So an engine gets the events only when estimates are computed.
    """

    def __init__(self, settings: EngineSettings = WHAT_IF_SETTINGS) -> None:
        super().__init__(settings)
        self._made: defaultdict[str, float] = defaultdict(lambda: -REFRESH_S)
        self._unseen: defaultdict[str, deque[AnyEvent]] = defaultdict(deque)

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Store the events until the site's estimates are due."""
        for event in events:
            self._unseen[event.site].append(event)

    def prediction(self, job: Job, site: str) -> WhatIfPrediction | None:
        """Return the estimate for the job's shape."""
        self._refresh(site, job.submit)
        engine = self._engine(site)
        shapes = grid(sizes(engine.context.cpus), WALLTIMES, engine.open_queues(MOST_QUEUES))
        shape = covering(shapes, job.cpus, job.walltime, job.queue)
        return None if shape is None else super().prediction(shape.job(self._made[site]), site)

    def _refresh(self, site: str, now: float) -> None:
        """Compute the estimates that were due before now."""
        engine, unseen = self._engine(site), self._unseen[site]
        while unseen and (due := max(unseen[0].time, self._made[site] + REFRESH_S)) < now:
            self._made[site] = due
            while unseen and unseen[0].time <= due:
                engine.apply(unseen.popleft())


class Clairvoyant(ByWhatIf):
    """Route by what-if with true run times; only later jobs are missing.

    Parameters:
        run_s: run time of each job (s), by name.
    """

    def __init__(self, run_s: Mapping[str, float], settings: EngineSettings = WHAT_IF_SETTINGS) -> None:
        super().__init__(settings)
        self._runtimes = _TrueRunTimes(run_s)

    def _engine(self, site: str) -> Engine:
        engine = super()._engine(site)
        engine.methods.runs = {engine.settings.runtimes: self._runtimes}
        engine.context.runtimes = self._runtimes
        return engine


class _TrueRunTimes(RunMethod):
    """Predict the true run time of each job."""

    name = "known"

    def __init__(self, run_s: Mapping[str, float]) -> None:
        self._run_s = run_s

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the true run time."""
        return RunEstimate(self._run_s[job.id], "known")
