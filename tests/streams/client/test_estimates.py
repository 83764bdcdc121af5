"""The cache of grid estimates and outcomes."""

from itertools import count
from typing import Any

import msgspec
import pytest

from models.records import GridEstimate, LiveState
from models.site.shapes import Shape
from streams.broker.topics import partition_of
from streams.client.estimates import MAX_OUTCOMES, MAX_QUIET_S, EstimateCache
from streams.text.terminal import moment
from tests.support.fake_client import NOW, key, outcome

HOUR = 3600.0


def estimate(site: str, shape: Shape, **fields: Any) -> bytes:
    defaults = {
        "made_at": 1.0,
        "predicted_wait_s": 2.0,
        "predicted_run_s": 3.0,
        "predicted_start": 4.0,
        "method": "easy",
    }
    live = LiveState(queued_jobs=1, running_jobs=2, free_cpus=3)
    values = {**defaults, "reason": "", "live": live, "site_cpus": 16, **fields}
    return msgspec.json.encode(GridEstimate(site=site, **shape._asdict(), **values))


class TestEstimateCache:
    def put(self, cache: EstimateCache, site: str, shape: Shape, updated: float = NOW, **fields: Any) -> None:
        cache.put_estimate(key(site, shape), estimate(site, shape, **fields), 3, updated)

    def cache(self) -> EstimateCache:
        return EstimateCache(hours=24, clock=lambda: NOW)

    def test_cache_keeps_latest_estimate_per_shape(self) -> None:
        cache = self.cache()
        for wait_s in (1.0, 5.0):
            self.put(cache, "alder", Shape(4, 600.0), predicted_wait_s=wait_s)
        self.put(cache, "alder", Shape(8, 600.0), made_at=9.0)
        self.put(cache, "birch", Shape(4, 600.0, "long"))
        assert cache.sites == ["alder", "birch"]
        found = cache.estimates("alder")
        assert found is not None
        assert [(one.cpus, one.predicted_wait_s) for one in found.estimates] == [(4, 5.0), (8, 2.0)]
        assert found.latest.cpus == 8
        assert (cache.estimates("elm"), cache.knows("elm")) == (None, False)

    def test_latest_site_has_the_newest_estimate(self) -> None:
        cache = self.cache()
        assert cache.latest_site() is None
        for site, age_s in (("alder", 2.0), ("birch", 1.0), ("cedar", 3.0)):
            self.put(cache, site, Shape(4, 600.0), updated=NOW - age_s)
        assert cache.latest_site() == "birch"

    def test_latest_site_ignores_one_that_expires_meanwhile(self) -> None:
        expiry = NOW + 24 * HOUR
        cache = EstimateCache(hours=24, clock=count(expiry).__next__)
        self.put(cache, "alder", Shape(4, 600.0))
        assert cache.latest_site() == "alder"
        assert cache.latest_site() is None

    def test_cache_ignores_estimates_in_previous_partition(self) -> None:
        cache, shape = self.cache(), Shape(4, 600.0)
        cache.partitions = 5
        home = partition_of("alder", 5)
        cache.put_estimate(key("alder", shape), estimate("alder", shape, predicted_wait_s=7.0), home, NOW - 9)
        cache.put_estimate(key("alder", shape), estimate("alder", shape, predicted_wait_s=1.0), home - 1, NOW)
        cache.put_estimate(key("alder", shape), None, home - 1, NOW)
        found = cache.estimates("alder")
        assert found is not None and found.latest.predicted_wait_s == 7.0

    def test_gpu_shapes_are_separate_from_cpu_shapes(self) -> None:
        cache, plain, four = self.cache(), Shape(8, 600.0, "gpu"), Shape(8, 600.0, "gpu", 4)
        self.put(cache, "alder", plain, predicted_wait_s=1.0)
        self.put(cache, "alder", four, predicted_wait_s=9.0)
        found = [cache.covering("alder", 1, 60.0, "gpu", gpus) for gpus in (0, 1, 4, 5)]
        assert [one and one.predicted_wait_s for one in found] == [1.0, 9.0, 9.0, None]
        cache.put_estimate(b'["alder",8,600.0,"gpu",4]', None, 3, NOW)
        assert cache.covering("alder", 1, 60.0, "gpu", 1) is None
        assert cache.covering("alder", 1, 60.0, "gpu") is not None

    def test_tombstone_removes_estimate(self) -> None:
        cache = self.cache()
        self.put(cache, "alder", Shape(4, 600.0))
        cache.put_estimate(key("alder", Shape(4, 600.0)), None, 3, NOW)
        assert (cache.sites, cache.estimates("alder")) == ([], None)
        cache.put_estimate(key("elm", Shape(4, 600.0)), None, 3, NOW)
        assert cache.sites == []

    def test_estimates_hours_older_than_newest_are_dropped(self) -> None:
        cache = self.cache()
        self.put(cache, "alder", Shape(4, 600.0), NOW - 3 * HOUR)
        self.put(cache, "birch", Shape(4, 600.0), NOW - 3 * HOUR)
        self.put(cache, "alder", Shape(8, 600.0), NOW - 2 * HOUR)
        self.put(cache, "alder", Shape(16, 600.0), NOW)
        alder, birch = cache.estimates("alder"), cache.estimates("birch")
        assert alder is not None
        assert birch is not None
        assert [one.cpus for one in alder.estimates] == [8, 16]
        assert alder.updated == NOW
        assert len(birch.estimates) == 1

    def test_site_without_refresh_for_a_day_is_dropped(self) -> None:
        cache = self.cache()
        self.put(cache, "alder", Shape(4, 600.0), NOW - 25 * HOUR)
        assert cache.sites == []

    def test_covering_returns_smallest_shape_that_fits_job(self) -> None:
        cache = self.cache()
        for cpus in (4, 8, 16):
            self.put(cache, "alder", Shape(cpus, 600.0))
        found = cache.covering("alder", 5, 60.0, None)
        assert found is not None
        assert found.cpus == 8
        assert cache.covering("alder", 17, 60.0, None) is None
        assert cache.covering("elm", 1, 60.0, None) is None

    def test_outcomes_keep_each_job_once_newest_first(self) -> None:
        cache = self.cache()
        for job in range(MAX_OUTCOMES + 5):
            cache.put_outcome(outcome("alder", str(job)))
        cache.put_outcome(outcome("alder", "20", actual_run_s=7.0))
        cache.put_outcome(outcome("alder", "1", "zero"))
        found = cache.outcomes("alder", "qespera")
        assert [one.job for one in found[:3]] == ["20", "54", "53"]
        assert found[0].actual_run_s == 7.0
        assert len(found) == MAX_OUTCOMES
        assert [one.job for one in cache.outcomes("alder", "zero")] == ["1"]
        assert cache.outcomes("alder", "ibl") == found  # the site does not run this method
        assert cache.outcomes("elm", "qespera") == []

    @pytest.mark.parametrize(
        ("given", "value"), [(b"", None), (b'["alder"]', b"{}"), (b'["a",1,2.0,null]', b"{}"), (b"\xff", b"")]
    )
    def test_cache_rejects_invalid_estimate(self, given: bytes, value: bytes | None) -> None:
        with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
            self.cache().put_estimate(given, value, 0, NOW)

    def test_estimates_of_silent_worker_are_stale(self) -> None:
        now = [NOW]
        cache = EstimateCache(hours=24, clock=lambda: now[0])
        self.put(cache, "alder", Shape(4, 600.0))
        assert cache.stale("alder") is None
        now[0] += MAX_QUIET_S + 60
        assert cache.stale("alder") == f"no message from its worker since {moment(NOW)}"
        found = cache.covering("alder", 1, 60.0, None)
        assert found is not None and found.stale == cache.stale("alder")
        assert cache.stale("nowhere") is None
