"""Concurrent queries to several sites, and the ranking."""

import asyncio
from typing import Any

from models.engine.settings import SiteSettings
from models.ranking import JobRequest
from models.records import AnyAnswer, NoAnswer, WaitQuestion
from streams.client.grid import query_all, query_ranking
from streams.client.job_requests import RankRequest
from tests.support.fake_client import FakeClient, engine

HOUR = 3600.0


def test_query_all_returns_null_for_silent_site() -> None:
    client = FakeClient([engine("alder", 1), engine("birch", 2)], silent=["birch"])
    questions = [WaitQuestion(id=site, site=site) for site in ("alder", "birch", "elm")]
    found: dict[str, AnyAnswer | None] = asyncio.run(query_all(client, questions))
    assert found["birch"] is None
    assert isinstance(found["elm"], NoAnswer)
    assert found["alder"] is not None


class TestRanking:
    def rank(self, client: FakeClient, job: JobRequest, limits: dict[str, SiteSettings], *sites: str) -> Any:
        return asyncio.run(query_ranking(client, RankRequest(job, sites), limits))

    def test_rank_queries_sites_that_have_cached_estimates(self) -> None:
        client = FakeClient([engine("alder", 1), engine("birch", 2)])
        found = self.rank(client, JobRequest(cpus=4, walltime=HOUR), {})
        assert {(one.site, one.source) for one in found.ranking} == {("alder", "what-if"), ("birch", "what-if")}
        assert found.left_out == []

    def test_silent_site_is_ranked_by_cached_estimate(self) -> None:
        client = FakeClient([engine("alder", 1), engine("birch", 2)], silent=["birch", "elm"])
        found = self.rank(client, JobRequest(cpus=5, walltime=HOUR), {}, "alder", "birch", "elm", "fir")
        by_site = {one.site: one for one in found.ranking}
        assert by_site["birch"].source == "grid"
        cached = client.cache.covering("birch", 5, HOUR, None)
        assert cached is not None
        assert by_site["birch"].predicted_wait_s == cached.predicted_wait_s
        assert [(out.site, out.reason) for out in found.left_out] == [
            ("elm", "no worker answers for this site"),
            ("fir", "unknown site: no event of it has been seen"),
        ]

    def test_silent_site_with_too_few_cpus_reports_its_size(self) -> None:
        client = FakeClient([engine("alder", 1)], silent=["alder"])
        assert self.rank(client, JobRequest(cpus=65), {}).left_out[0].reason == "has 64 CPUs"

    def test_site_with_exceeded_limits_is_not_queried(self) -> None:
        client = FakeClient([engine("alder", 1), engine("birch", 2)])
        found = self.rank(client, JobRequest(cpus=4), {"alder": SiteSettings(max_cpus=3)})
        assert [question.site for question in client.requests] == ["birch"]
        assert [out.site for out in found.left_out] == ["alder"]

    def test_walltime_is_scaled_by_site_speed(self) -> None:
        client = FakeClient([engine("alder", 1)])
        self.rank(client, JobRequest(cpus=4, walltime=HOUR), {"alder": SiteSettings(speed=4.0)})
        assert [question.walltime for question in client.requests if isinstance(question, WaitQuestion)] == [900.0]

    def test_site_named_twice_is_queried_one_time(self) -> None:
        client = FakeClient([engine("alder", 1)])
        self.rank(client, JobRequest(), {}, "alder", "alder")
        assert len(client.requests) == 1
