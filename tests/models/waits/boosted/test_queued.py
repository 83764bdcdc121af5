"""Features of queued jobs computed in a batch equal those of a new job."""

import numpy as np
import pytest

from models.engine.settings import EngineSettings
from models.site.job import Job, Phase
from models.waits.blend.blend import Blend
from models.waits.blend.remaining.queued_features import SUBMISSION
from models.waits.boosted.queued import QueuedFeatures
from models.waits.boosted.submit_features import NAMES, as_they_are
from tests.models.waits.test_blend_remaining import busy_days
from tests.support.engines import engine_after

BLEND = EngineSettings(method="blend", shadows=(), bounds="", what_if_method="blend")


def test_features_of_queued_jobs_equal_those_of_submissions() -> None:
    engine = engine_after(*list(busy_days(4, jobs=200))[:-30], settings=BLEND)
    context, method, now = engine.context, engine.methods.waits["blend"], engine.time + 77.0
    assert isinstance(method, Blend)
    jobs = list(context.state.in_phase(Phase.QUEUED))
    assert len(jobs) > 3
    rows = np.array([context.state.table.row(job.key) for job in jobs])
    found = method._boosted.queued(SUBMISSION, jobs, rows, context, now)
    names = SUBMISSION.names
    scaled = np.where(as_they_are(names), found, np.copysign(np.log2(1.0 + np.abs(found)), found))
    for job, row in zip(jobs, scaled, strict=True):
        again = Job("", 0, now, **job.request, run_s=job.run_s, planned_run_s=job.planned_run_s)
        expected = method._boosted.features(again, context, None)[[NAMES.index(name) for name in names]]
        assert np.array_equal(row.astype(np.float16), expected)


def test_feature_that_is_not_read_for_many_jobs_is_rejected() -> None:
    with pytest.raises(ValueError, match="simulated"):
        QueuedFeatures(("simulated",))
