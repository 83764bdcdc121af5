"""The kernels and the kinds of arguments that they were compiled for.

`python -m tests.support.kernels late` compiles beforehand what a worker needs, has sites with and without partitions go
through every kind of event and question, and prints what was compiled, or read from numba's cache, only then.
`python -m tests.support.kernels several` lists the kernels that were compiled for several kinds of arguments.
"""

import sys
from collections.abc import Iterable

import msgspec
import numpy as np
from numba.core.registry import CPUDispatcher

from models.engine.asking.engine_answers import answer, grid_estimates
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.engine.warm_up import warm_up
from models.method_registry import METHODS, RUN_METHODS
from models.records import AnyEvent, JobQuestion, JobsQuestion, SiteQuestion, WaitQuestion
from models.site.seen import MOST_WAITING, see
from models.site.shapes import Shape
from tests.simulation.cluster import SMALL, generate_for, run_cluster
from tests.support.engines import workload

QUESTIONS_EVERY = 40
"""Number of events between two rounds of questions."""

LATER_S = 600.0


def signatures() -> dict[str, set[str]]:
    """Of each kernel that was imported, the types of arguments that it is ready for."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "models"]
    kernels = {value for module in modules for value in vars(module).values() if isinstance(value, CPUDispatcher)}
    return {f"{one.py_func.__module__}.{one.py_func.__qualname__}": set(map(str, one.overloads)) for one in kernels}


def lead(events: Iterable[AnyEvent], settings: EngineSettings) -> None:
    """Have a site's events happen, ask now and then, and go on from a stored state once."""
    engine = Engine("s", settings)
    for number, event in enumerate(events, 1):
        engine.apply(event)
        if number % QUESTIONS_EVERY == 0:
            _ask(engine)
        if number == 5 * QUESTIONS_EVERY:
            state, changes = engine.checkpoint()
            engine = Engine.load(state, changes.started, changes.runs, settings, changes.rows)


def _ask(engine: Engine) -> None:
    site, now = engine.site, engine.time
    answer(WaitQuestion(id="", site=site, cpus=2, walltime=3600.0, user="u1", why=True), engine, now)
    answer(SiteQuestion(id="", site=site), engine, now)
    list(grid_estimates(engine, [Shape(1, 3600.0), Shape(4, 600.0)], now))
    for job in list(engine.context.state.jobs.values())[-2:]:
        answer(JobQuestion(id="", site=site, job=job.id), engine, now + LATER_S)
        if job.user is not None:
            answer(JobsQuestion(id="", site=site, user=job.user), engine, now + LATER_S)


def several() -> dict[str, list[str]]:
    """Compile the kernels of all methods, and return those that were compiled for more than one kind of arguments."""
    warm_up(EngineSettings(shadows=tuple(METHODS), run_shadows=tuple(RUN_METHODS)))
    return {name: sorted(kinds) for name, kinds in signatures().items() if len(kinds) > 1}


def late() -> dict[str, list[str]]:
    """Return the kernels with what was not compiled beforehand."""
    settings = EngineSettings()
    warm_up(settings)
    before = signatures()
    lead(workload(seed=1, jobs=200), settings)
    jobs = generate_for(SMALL, seed=1, days=0.5, start_time=10**9)
    lead(run_cluster(jobs, SMALL.cluster, "s"), settings)
    see(np.ones(MOST_WAITING + 1, np.uint8), MOST_WAITING + 1)
    found = {name: sorted(kinds - before.get(name, set())) for name, kinds in signatures().items()}
    return {name: kinds for name, kinds in found.items() if kinds and not name.startswith("models.simulation.")}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode({"late": late, "several": several}[sys.argv[1]]()))
