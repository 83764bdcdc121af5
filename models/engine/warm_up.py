"""Compile the numba functions of the methods in advance."""

import numpy as np

from models import linear
from models.engine.asking.engine_answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, End, JobQuestion, Pool, SiteQuestion, Start, Submit, WaitQuestion
from models.site import seen
from models.site.job import Job
from models.site.topology import layout
from models.waits.blend.conditional import waits_after
from models.waits.blend.mixture import scaled, seconds
from models.waits.blend.mixture_snapshot import BEHIND, QUANTILES, MixtureSnapshot
from models.waits.boosted import forest, forests
from models.waits.simulated import SimulatedEasy

POOL = Pool(name="nodes", nodes=4, cpus=4)
HALF = EngineSettings(method="qespera", shadows=("boosted", "conservative"))
"""Methods that have some half of the kernels of the default method: those that its learnt order does not need."""


def warm_up(settings: EngineSettings | None = None) -> None:
    """Compile the functions of the methods, so that no event or question has to wait for it.

    This takes two minutes or so of one CPU on a new machine; `models.kernels` caches the result.
    """
    _run(settings)
    _run(settings, POOL)
    _warm_up_rest()


def warm_up_half() -> None:
    """Compile the kernels that `warm_up` needs last, for a second process that runs at the same time."""
    _warm_up_rest()
    _run(HALF)
    _run(EngineSettings(method="order", shadows=()), POOL)


def _warm_up_rest() -> None:
    linear.warm_up()
    seen.warm_up()
    layout.warm_up()
    forest.warm_up()
    forests.warm_up()
    seconds(scaled(0.0))
    MixtureSnapshot.decode(MixtureSnapshot(np.zeros((QUANTILES, 1 + BEHIND)), 0, False, 1.0).encode(), 1)
    waits_after(np.zeros(1), np.array([0.5, 0.9]), np.zeros((1, 2)), np.array([0.5]))


def _run(settings: EngineSettings | None, *pools: Pool) -> None:
    """Run some jobs at a site, which consists of these pools if there are any."""
    engine = Engine("warm-up", settings)
    if pools:
        engine.apply(Capacity(site=engine.site, time=0.0, cpus=16, pools=list(pools)))
    for number in range(32):
        job, time = str(number), 100.0 * number
        walltime = 60.0 * (1 + number % 4)
        engine.apply(Submit(site=engine.site, time=time, job=job, user="u", cpus=1 + number % 3, walltime=walltime))
        engine.apply(Start(site=engine.site, time=time + number, job=job))
        engine.apply(End(site=engine.site, time=time + 99.0, job=job))
    _query(engine)
    for number in range(3):  # jobs that could have started wait longer than their bounds
        later = engine.time + 3600.0
        engine.apply(Submit(site=engine.site, time=later, job=f"late{number}", user="u", cpus=1, walltime=60.0))
        engine.apply(Start(site=engine.site, time=later, job=f"late{number}"))
        engine.apply(Start(site=engine.site, time=later + 60.0, job=f"queued{number}"))
    state, changes = engine.checkpoint()
    Engine.load(state, changes.started, changes.runs, settings, changes.rows)


def _query(engine: Engine) -> None:
    """Query a queue, and a policy that answers for many jobs in one call."""
    site, now = engine.site, engine.time + 100.0
    for number in range(3):
        engine.apply(Submit(site=site, time=now, job=f"queued{number}", user="u", cpus=1 + 8 * number, walltime=60.0))
    answer(WaitQuestion(id="", site=site, cpus=2, walltime=3600.0, user="u", why=True), engine, now)
    answer(JobQuestion(id="", site=site, job="queued0"), engine, now)
    answer(SiteQuestion(id="", site=site), engine, now)
    context = engine.context.views()[0]
    list(SimulatedEasy().what_ifs([Job("", 0, now, cpus=1, walltime=60.0)], context))
