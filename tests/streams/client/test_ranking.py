"""Many sites are asked at the same time, and ranked."""

import asyncio
from typing import Any

from models.engine.settings import SiteSettings
from models.ranking import JobRequest
from models.records import AnyAnswer, NoAnswer, WaitQuestion
from streams.client.grid import query_all, query_ranking
from streams.client.job_requests import RankRequest
from tests.support.asked import FakeClient, engine

HOUR = 3600.0


def test_rank_queries_all_sites_and_skips_silent_ones() -> None:
    client = FakeClient([engine("alder", 1), engine("birch", 2)], silent=["birch"])
    questions = [WaitQuestion(id=site, site=site) for site in ("alder", "birch", "elm")]
    found: dict[str, AnyAnswer | None] = asyncio.run(query_all(client, questions))
    assert found["birch"] is None
    assert isinstance(found["elm"], NoAnswer)
    assert found["alder"] is not None


class TestRanking:
    def rank(self, client: FakeClient, job: JobRequest, limits: dict[str, SiteSettings], *sites: str) -> Any:
        return asyncio.run(query_ranking(client, RankRequest(job, sites), limits))

    def test_every_site_of_which_estimates_stand_is_asked(self) -> None:
        client = FakeClient([engine("alder", 1), engine("birch", 2)])
        found = self.rank(client, JobRequest(cpus=4, walltime=HOUR), {})
        assert {(one.site, one.source) for one in found.ranking} == {("alder", "what-if"), ("birch", "what-if")}
        assert found.left_out == []

    def test_a_silent_site_is_taken_by_what_stands_of_a_job_like_it(self) -> None:
        client = FakeClient([engine("alder", 1), engine("birch", 2)], silent=["birch", "elm"])
        found = self.rank(client, JobRequest(cpus=5, walltime=HOUR), {}, "alder", "birch", "elm", "fir")
        told = {one.site: one for one in found.ranking}
        assert told["birch"].source == "grid"
        standing = client.cache.covering("birch", 5, HOUR, None)
        assert standing is not None
        assert told["birch"].predicted_wait_s == standing.predicted_wait_s
        assert [(out.site, out.reason) for out in found.left_out] == [
            ("elm", "no worker answers for this site"),
            ("fir", "unknown site: no event of it has been seen"),
        ]

    def test_a_silent_site_that_is_too_small_is_left_out_for_that(self) -> None:
        client = FakeClient([engine("alder", 1)], silent=["alder"])
        assert self.rank(client, JobRequest(cpus=65), {}).left_out[0].reason == "has 64 CPUs"

    def test_a_site_to_which_the_job_cannot_go_is_not_asked(self) -> None:
        client = FakeClient([engine("alder", 1), engine("birch", 2)])
        found = self.rank(client, JobRequest(cpus=4), {"alder": SiteSettings(max_cpus=3)})
        assert [question.site for question in client.asked] == ["birch"]
        assert [out.site for out in found.left_out] == ["alder"]

    def test_a_site_is_asked_for_the_walltime_at_its_speed(self) -> None:
        client = FakeClient([engine("alder", 1)])
        self.rank(client, JobRequest(cpus=4, walltime=HOUR), {"alder": SiteSettings(speed=4.0)})
        assert [question.walltime for question in client.asked if isinstance(question, WaitQuestion)] == [900.0]

    def test_a_site_is_asked_once_however_often_it_is_named(self) -> None:
        client = FakeClient([engine("alder", 1)])
        self.rank(client, JobRequest(), {}, "alder", "alder")
        assert len(client.asked) == 1
