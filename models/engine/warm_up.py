"""Compiling beforehand what the methods compile."""

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, End, Pool, Start, Submit


def warm_up(settings: EngineSettings | None = None) -> None:
    """Have the methods compile what they compile, so that no real event has to wait for it; up to 20 s."""
    _run(settings)
    _run(settings, Pool(name="nodes", nodes=4, cpus=4))


def _run(settings: EngineSettings | None, *pools: Pool) -> None:
    """Have some jobs come, start and end at a site, which consists of these pools where there are any."""
    engine = Engine("warm-up", settings)
    if pools:
        engine.apply(Capacity(site=engine.site, time=0.0, cpus=16, pools=list(pools)))
    for number in range(32):
        job, time = str(number), 100.0 * number
        walltime = 60.0 * (1 + number % 4)
        engine.apply(Submit(site=engine.site, time=time, job=job, user="u", cpus=1 + number % 3, walltime=walltime))
        engine.apply(Start(site=engine.site, time=time + number, job=job))
        engine.apply(End(site=engine.site, time=time + 99.0, job=job))
    state, changes = engine.checkpoint()
    Engine.load(state, changes.started, changes.runs, settings, changes.rows)
