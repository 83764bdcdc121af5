"""Rules that choose the site of a grid for a job: blind ones, as meta-schedulers have, and those by the expected wait.

All sites are equally fast, so the response time is shortest where the wait is; of equal sites the first is chosen.
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
"""Of engines that only answer what-if questions, and learn their sites' policies: submitted jobs are not predicted."""

REFRESH_S = 30.0
"""Seconds between two makings of a site's grid estimates, at least."""


class Router(Protocol):
    """Chooses sites for jobs, from what it has seen happen at them."""

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Events of one site, in order; the first of each site tells its capacity."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The site for a job that comes at its `submit`: one of these, which are large enough."""


class AtRandom:
    """To a random site, with probability in proportion to its CPUs, so that small ones are not flooded."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._cpus: dict[str, int] = {}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Take in how large a site is."""
        for event in events:
            if isinstance(event, Capacity):
                self._cpus[event.site] = event.cpus

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """A random site."""
        return self._random.choices(sites, [self._cpus[site] for site in sites])[0]


class Watching:
    """Knows who queues and who runs at each site."""

    def __init__(self) -> None:
        self.cpus: dict[str, int] = {}
        self._states: defaultdict[str, SiteState] = defaultdict(SiteState)

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Follow the jobs."""
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
        """How many jobs queue."""
        return self._states[site].totals(SITE, Phase.QUEUED).count

    def free(self, site: str) -> int:
        """How many CPUs are free."""
        return self.cpus[site] - self._states[site].totals(SITE, Phase.RUNNING).cpus


class ShortestQueue(Watching):
    """To the site with the fewest queued jobs."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one with the fewest."""
        return min(sites, key=self.queued)


class MostFree(Watching):
    """To the site with the most free CPUs."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one with the most."""
        return max(sites, key=self.free)


class Everywhere:
    """To all sites at once: where the job starts first it runs, and it leaves the queues of the others that second."""

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Nothing is to be known."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The first, which says nothing: a grid has the job queue at each of them."""
        return sites[0]


class ByWhatIf:
    """To the site whose engine predicts the least wait for this job, compared as in a ranking (`cautious_wait_s`).

    Parameters:
        settings: the engines', which say by which method they answer.
    """

    def __init__(self, settings: EngineSettings = WHAT_IF_SETTINGS) -> None:
        self._settings = settings
        self.engines: dict[str, Engine] = {}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Show a site's engine what happened there."""
        for event in events:
            self._engine(event.site).apply(event)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one with the least wait, the less sure ones being taken for longer."""
        return min(sites, key=lambda site: _compared_s(self.prediction(job, site)))

    def wait_s(self, job: Job, site: str) -> float:
        """The wait that a site predicts, in seconds; infinity where it predicts none."""
        prediction = self.prediction(job, site)
        return inf if prediction is None or prediction.predicted_wait_s is None else prediction.predicted_wait_s

    def prediction(self, job: Job, site: str) -> WhatIfPrediction | None:
        """What its engine predicts, where it does."""
        (prediction,) = consider(self._engine(site), [job])
        return prediction

    def _engine(self, site: str) -> Engine:
        if site not in self.engines:
            self.engines[site] = Engine(site, self._settings)
        return self.engines[site]


class Nameless(ByWhatIf):
    """By what-if for the same job without its user, group, account and executable."""

    def prediction(self, job: Job, site: str) -> WhatIfPrediction | None:
        """The prediction for such a job that nobody named."""
        anonymous = Job(job.id, job.attempt, job.submit, queue=job.queue, cpus=job.cpus, nodes=job.nodes)
        anonymous.walltime, anonymous.memory = job.walltime, job.memory
        return super().prediction(anonymous, site)


def _compared_s(prediction: WhatIfPrediction | None) -> float:
    return inf if prediction is None or prediction.cautious_wait_s is UNSET else prediction.cautious_wait_s


class ByEstimates(ByWhatIf):
    """To the site with the least grid estimate for the smallest shape of its queue that the job fits into.

    A site's estimates are made after an event there, but at most every `REFRESH_S`. They include the events up to that
    second, and are used from the next one on. So an engine is given the events only when estimates are made.
    """

    def __init__(self, settings: EngineSettings = WHAT_IF_SETTINGS) -> None:
        super().__init__(settings)
        self._made: defaultdict[str, float] = defaultdict(lambda: -REFRESH_S)
        self._unseen: defaultdict[str, deque[AnyEvent]] = defaultdict(deque)

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Keep what happened for when the site's estimates are due."""
        for event in events:
            self._unseen[event.site].append(event)

    def prediction(self, job: Job, site: str) -> WhatIfPrediction | None:
        """The estimate for the job's shape."""
        self._refresh(site, job.submit)
        engine = self._engine(site)
        shapes = grid(sizes(engine.context.cpus), WALLTIMES, engine.open_queues(MOST_QUEUES))
        shape = covering(shapes, job.cpus, job.walltime, job.queue)
        return None if shape is None else super().prediction(shape.job(self._made[site]), site)

    def _refresh(self, site: str, now: float) -> None:
        """Make the estimates that were due before now."""
        engine, unseen = self._engine(site), self._unseen[site]
        while unseen and (due := max(unseen[0].time, self._made[site] + REFRESH_S)) < now:
            self._made[site] = due
            while unseen and unseen[0].time <= due:
                engine.apply(unseen.popleft())


class Clairvoyant(ByWhatIf):
    """By what-if with true run times: only the jobs that are still to come are unknown.

    Parameters:
        run_s: how long each job will run, seconds by its name.
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
    """Predicts the true run time of each job."""

    name = "known"

    def __init__(self, run_s: Mapping[str, float]) -> None:
        self._run_s = run_s

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """The true run time."""
        return RunEstimate(self._run_s[job.id], "known")
