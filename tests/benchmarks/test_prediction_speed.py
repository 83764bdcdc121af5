"""Time of a prediction over 6000 jobs, compared with the same work in numpy and scikit-learn."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.cluster import DBSCAN

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.simulation import generate, run
from models.site.job import Job, Phase
from models.waits.qespera import Qespera

HISTORY = 6000
LEAST_RATIO = 50.0


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return the engine of a busy site with a full history and queued jobs."""
    engine = Engine("alder", EngineSettings(method="median", shadows=(), history=HISTORY))
    for event in run(generate(1, 7000, cpus=128, load=0.85), 128, "alder"):
        if len(engine.context.history) == HISTORY and engine.context.state.jobs:
            break
        engine.apply(event)
    return engine


def with_libraries(job: Job, engine: Engine, method: Qespera) -> np.ndarray:
    """Compute the distances and the noise jobs, the two slow steps."""
    window, p = engine.context.history.window, method.parameters
    assert job.features is not None
    extent = np.maximum(window.maximum, job.features) - np.minimum(window.minimum, job.features)
    apart = np.abs(window.values - job.features) / np.where(extent > 0, extent, 1.0)
    apart[:, 0] = window.values[:, 0] != job.features[0]
    distance = apart @ (window.weights / window.weights.sum())
    close = distance < p.reach
    plane = np.column_stack((distance[close], window.targets[close] / window.targets.max()))
    return DBSCAN(eps=p.eps, min_samples=p.min_pts).fit(plane).labels_


def fastest(action: Callable[[], object], times: int) -> float:
    """Return the shortest time (s)."""
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - begin)
    return best


def test_prediction_is_faster_than_numpy_and_scikit_learn(engine: Engine) -> None:
    method = Qespera()
    job = next(job for job in engine.context.state.jobs.values() if job.phase in (Phase.QUEUED, Phase.RUNNING))
    assert len(engine.context.history) == HISTORY
    assert method.predict(job, engine.context).wait_s is not None
    ours = fastest(lambda: method.predict(job, engine.context), 200)
    theirs = fastest(lambda: with_libraries(job, engine, method), 5)
    print(f"\none prediction {1000 * ours:.2f} ms, with numpy and scikit-learn {1000 * theirs:.1f} ms")
    assert theirs >= LEAST_RATIO * ours
