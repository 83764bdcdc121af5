"""Rules that say to which site of a grid a job goes: blind ones, which meta-schedulers have, and those by its wait.

All sites are equally fast, so a job responds soonest where it waits least; of equal sites the first is chosen.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from models.engine.engine import Engine
from models.engine.settings import Settings
from models.engine.what_if import consider
from models.method import RunMethod
from models.records import AnyEvent, Cancel, Capacity, End, Start, Submit
from models.site.runs import RunHistory
from models.site.shapes import WALLTIMES, covering, grid, sizes
from models.site.state import SITE, Job, Phase, RunEstimate, SiteState

ASKED = Settings(method="zero", shadows=(), bounds="")
"""Nothing is predicted of jobs as they are submitted: the engines are but asked, and find out their sites' policies."""

REFRESH_S = 30.0
"""A site's standing estimates are made anew at most so often."""


class Router(Protocol):
    """Chooses sites for jobs, from what it has seen happen at them."""

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Events of one site, in order; the first of each site tells its capacity."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The site for a job that comes at its `submit`: one of these, which are large enough."""


class AtRandom:
    """To any site, by lot: the more processors it has, the likelier. Else the small ones would be swamped."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._cpus: dict[str, int] = {}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Take in how large a site is."""
        for event in events:
            if isinstance(event, Capacity):
                self._cpus[event.site] = event.cpus

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """One of the sites by lot."""
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
        """How many processors are free."""
        return self.cpus[site] - self._states[site].totals(SITE, Phase.RUNNING).cpus


class ShortestQueue(Watching):
    """To the site with the fewest queued jobs."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one with the fewest."""
        return min(sites, key=self.queued)


class MostFree(Watching):
    """To the site with the most free processors."""

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one with the most."""
        return max(sites, key=self.free)


class ByWhatIf:
    """To the site whose engine says, asked about this very job, that it would wait least.

    Parameters:
        settings: the engines', which say by which method they answer.
    """

    def __init__(self, settings: Settings = ASKED) -> None:
        self._settings = settings
        self.engines: dict[str, Engine] = {}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Show a site's engine what happened there."""
        for event in events:
            self._engine(event.site).apply(event)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one with the least wait."""
        return min(sites, key=lambda site: self.wait_s(job, site))

    def wait_s(self, job: Job, site: str) -> float:
        """What a site says, in seconds; infinity where it says nothing."""
        (told,) = consider(self._engine(site), [job])
        return float("inf") if told.predicted_wait_s is None else told.predicted_wait_s

    def _engine(self, site: str) -> Engine:
        if site not in self.engines:
            self.engines[site] = Engine(site, self._settings)
        return self.engines[site]


class ByEstimates(ByWhatIf):
    """To the site whose standing estimate for the shape of this job is least: the least shape that the job fits into.

    A site's estimates are made when something happened there, but at most every `REFRESH_S`. They know what happened up
    to that second, and are there from the next one on. So an engine is shown the events only when estimates are made.
    """

    def __init__(self, settings: Settings = ASKED) -> None:
        super().__init__(settings)
        self._made: defaultdict[str, float] = defaultdict(lambda: -REFRESH_S)
        self._unseen: defaultdict[str, deque[AnyEvent]] = defaultdict(deque)

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Keep what happened for when the site's estimates are due."""
        for event in events:
            self._unseen[event.site].append(event)

    def wait_s(self, job: Job, site: str) -> float:
        """What stands for the job's shape, in seconds; infinity where nothing does."""
        self._refresh(site, job.submit)
        engine = self._engine(site)
        shape = covering(grid(sizes(engine.context.cpus), WALLTIMES, ()), job.cpus, job.walltime, None)
        return float("inf") if shape is None else super().wait_s(shape.job(self._made[site]), site)

    def _refresh(self, site: str, now: float) -> None:
        """Make the estimates that were due before now."""
        engine, unseen = self._engine(site), self._unseen[site]
        while unseen and (due := max(unseen[0].time, self._made[site] + REFRESH_S)) < now:
            self._made[site] = due
            while unseen and unseen[0].time <= due:
                engine.apply(unseen.popleft())


class Clairvoyant(ByWhatIf):
    """By what-if, but told how long each job will run: of what is to come it only does not know the jobs.

    Parameters:
        run_s: how long each job will run, seconds by its name.
    """

    def __init__(self, run_s: Mapping[str, float], settings: Settings = ASKED) -> None:
        super().__init__(settings)
        self._runtimes = _Told(run_s)

    def _engine(self, site: str) -> Engine:
        engine = super()._engine(site)
        engine.methods.runs = {engine.settings.runtimes: self._runtimes}
        engine.context.runtimes = self._runtimes
        return engine


class _Told(RunMethod):
    """Knows how long each job will run."""

    name = "told"

    def __init__(self, run_s: Mapping[str, float]) -> None:
        self._run_s = run_s

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """As it was told."""
        return RunEstimate(self._run_s[job.id], "told")
