from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import mean

import msgspec
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, Start, Submit
from models.simulation.workload import DAY, SimulatedJob
from models.site.job import Job
from tests.simulation.drawn import TURNS, Rules, draw
from tests.simulation.grid import (
    MONDAY,
    THREE_SITES,
    GridSite,
    JobMeans,
    Load,
    Placed,
    RoutingResult,
    route,
    same_policy,
)
from tests.simulation.routing import (
    WHAT_IF_SETTINGS,
    AtRandom,
    ByEstimates,
    ByWhatIf,
    Clairvoyant,
    Everywhere,
    MostFree,
    Nameless,
    Router,
    ShortestQueue,
    Watching,
)
from tests.simulation.schedulers import run_changing
from tests.support.events import capacity, end, start, submit

BY_POLICY = msgspec.structs.replace(WHAT_IF_SETTINGS, what_if_method="policy")
"""Settings of a method that predicts without training."""

SITES = (GridSite("large", 64, 0.4, "fcfs"), GridSite("small", 8, 0.4, "easy"))


def job(name: str, submit: int, cpus: int = 1, run_s: int = 100, walltime: int = 600) -> SimulatedJob:
    return SimulatedJob(
        job=name,
        submit=MONDAY + submit,
        user="ada",
        group=None,
        queue=None,
        executable=None,
        cpus=cpus,
        run=run_s,
        walltime=walltime,
    )


def queued(site: str, job: str, cpus: int, time: float = 0.0) -> Submit:
    return submit(job, time, site, cpus=cpus, walltime=600.0)


def considered(cpus: int = 1, time: float = 0.0, walltime: float = 600.0) -> Job:
    return Job("new", 0, time, cpus=cpus, walltime=walltime)


class Recording:
    """Send all jobs to one site, and record the events."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.events: defaultdict[str, list[AnyEvent]] = defaultdict(list)
        self.choices: list[tuple[Job, Sequence[str], int]] = []

    def observe(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            self.events[event.site].append(event)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        self.choices.append((job, sites, sum(map(len, self.events.values()))))
        return self.site


# The grid.


def test_load_of_a_seed_is_deterministic_with_unique_names() -> None:
    load = Load.of(SITES, 3, 5, 0.2)
    assert load == Load.of(SITES, 3, 5, 0.2) != Load.of(SITES, 4, 5, 0.2)
    jobs = list(load.jobs)
    assert len({job.job for job in jobs}) == len(jobs) == len(load.routed) + sum(map(len, load.own.values()))
    assert {job.user for job in load.routed}.isdisjoint(job.user for jobs in load.own.values() for job in jobs)
    assert all(MONDAY <= job.submit < MONDAY + 5 * DAY and job.patience is None for job in jobs)
    assert max(job.submit for job in jobs) > MONDAY + 4 * DAY


def test_load_has_requested_share_of_capacity() -> None:
    load = Load.of(THREE_SITES, 3, 60, 0.2)
    capacity = sum(site.cpus for site in THREE_SITES) * 60 * DAY
    assert sum(job.cpus * job.seconds for job in load.routed) / capacity == pytest.approx(0.2, rel=0.25)
    own = sum(job.cpus * job.seconds for jobs in load.own.values() for job in jobs) / capacity
    assert own == pytest.approx(sum(site.cpus * site.load for site in THREE_SITES) / 896, rel=0.25)


def test_router_receives_past_events_but_no_run_time() -> None:
    own = {"large": [job("a", 0, cpus=64, run_s=50), job("b", 10, run_s=20)], "small": [job("c", 5, run_s=60)]}
    router = Recording("large")
    done = route(SITES, Load(own, [job("r1", 30, cpus=4), job("r2", 65, cpus=9)]), router)
    (first, sites, seen), (second, larger, seen_later) = router.choices
    assert (first.id, first.submit, first.cpus, first.walltime, first.run_s) == ("r1", MONDAY + 30, 4, 600.0, None)
    assert (list(sites), list(larger)) == (["large", "small"], ["large"])
    assert seen == 2 + 3 + 2  # capacities; submits of a and b, start of a; submit and start of c
    assert seen_later == seen + 1 + 3 + 1  # submit of r1, end of a, starts of b and r1, end of c in the same second
    assert second.id == "r2"
    assert [type(event).__name__ for event in router.events["small"]] == ["Capacity", "Submit", "Start", "End"]
    assert [(one.site, one.wait_s) for one in done.routed] == [("large", 20.0), ("large", 0.0)]
    assert {one.job.job: one.wait_s for one in done.own} == {"a": 0.0, "b": 40.0, "c": 0.0}


def test_grid_site_events_equal_single_site_run() -> None:
    load = Load.of(SITES, 2, 4, 0.1)
    router = Recording("large")
    route(SITES, load._replace(routed=[]), router)
    for site in SITES:
        expected = list(run_changing(load.own[site.name], site.cpus, site.name, site.policy))
        assert router.events[site.name][1:] == expected[1:]


def test_routing_means_equal_values_by_hand() -> None:
    def placed(submit: int, run_s: int, wait_s: float) -> Placed:
        return Placed(job("x", submit, run_s=run_s), "s", wait_s)

    assert JobMeans.of([placed(0, 5, 15.0), placed(0, 700, 600.0)]) == (2, 610.0, 307.5, 2.0)  # 700 s are cut to 600
    assert JobMeans.of([placed(0, 1, 0.0)]).slowdown == 1.0
    done = RoutingResult([placed(0, 10, 90.0), placed(DAY, 10, 10.0)], [placed(DAY, 20, 0.0)])
    assert done.means(after_days=1.0) == ((1, 20.0, 10.0, 2.0), (1, 20.0, 0.0, 1.0))


# The rules.


def feed(router: Router, *events: AnyEvent) -> Router:
    for event in events:
        router.observe([event])
    return router


def test_random_router_is_deterministic_and_weighted_by_cpus() -> None:
    def chosen() -> list[str]:
        router = feed(AtRandom(1), capacity(300, site="a"), capacity(100, site="b"), capacity(9, site="c"))
        return [router.choose(considered(), ["a", "b"]) for _ in range(1000)]

    assert chosen() == chosen()
    assert set(chosen()) == {"a", "b"} and 700 < chosen().count("a") < 800


def test_blind_routers_count_queued_jobs_and_free_cpus() -> None:
    events = [
        *(capacity(10, site="a"), queued("a", "1", 8), start("1", site="a"), queued("a", "2", 8), queued("a", "3", 1)),
        *(capacity(10, site="b"), queued("b", "1", 9), start("1", site="b"), queued("b", "2", 8)),
    ]
    shortest, freest = ShortestQueue(), MostFree()
    feed(shortest, *events)
    feed(freest, *events)
    assert shortest.choose(considered(), ["a", "b"]) == "b"
    assert freest.choose(considered(), ["a", "b"]) == "a"
    feed(shortest, start("2", site="a"), start("3", site="a"))
    feed(freest, end("1", 9.0, "b"))
    assert shortest.choose(considered(), ["a", "b"]) == "a"
    assert freest.choose(considered(), ["a", "b"]) == "b"


def busy(site: str, seconds: float, router: Router) -> Router:
    """Occupy all ten CPUs of a site for this walltime (s)."""
    request = submit("1", site=site, cpus=10, walltime=seconds)
    return feed(router, capacity(10, site=site), request, start("1", site=site))


@pytest.mark.parametrize("kind", [ByWhatIf, ByEstimates])
def test_router_chooses_site_with_shortest_wait(kind: type[ByWhatIf]) -> None:
    router = kind(BY_POLICY)
    busy("a", 3000.0, router)
    busy("b", 2000.0, router)
    assert router.choose(considered(time=50.0), ["a", "b"]) == "b"
    assert router.choose(considered(time=50.0), ["a"]) == "a"
    feed(router, end("1", 60.0, "a"))
    assert router.choose(considered(time=100.0), ["a", "b"]) == "a"


def test_router_by_what_if_equals_engine_prediction() -> None:
    events = [capacity(10, site="a"), queued("a", "1", 6), start("1", site="a"), queued("a", "2", 8, time=10.0)]
    job = considered(4, 50.0, walltime=60.0)
    waits = {}
    for policy in ("easy", "fcfs"):
        router = ByWhatIf(msgspec.structs.replace(WHAT_IF_SETTINGS, policy_by_site={"a": policy}))
        engine = Engine("a", EngineSettings(method="zero", shadows=(), bounds="", policy_by_site={"a": policy}))
        feed(router, *events)
        for event in events:
            engine.apply(event)
        (prediction,) = consider(engine, [job])
        waits[policy] = router.wait_s(job, "a")
        assert prediction.method == policy and waits[policy] == prediction.predicted_wait_s
    assert waits == {"easy": 0.0, "fcfs": 1150.0}  # backfilled; after both jobs
    assert router.wait_s(considered(11, 50.0), "a") == float("inf")


def test_nameless_what_if_omits_user_group_and_account(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    def answer(router: ByWhatIf, job: Job, site: str) -> None:
        jobs.append(job)

    monkeypatch.setattr(ByWhatIf, "prediction", answer)
    job = considered(4, 50.0, walltime=60.0)
    Nameless(BY_POLICY).wait_s(msgspec.structs.replace(job, user="ada", group="g", account="a"), "a")
    assert jobs == [job]


def test_router_by_estimates_keeps_estimates_until_refresh() -> None:
    router = ByEstimates(BY_POLICY)
    busy("a", 3000.0, router)  # all at 0 s: included in the estimates of 0 s
    assert router.wait_s(considered(time=10.0), "a") == 3000.0
    feed(router, end("1", 20.0, "a"))
    assert router.wait_s(considered(time=25.0), "a") == 3000.0
    assert router.wait_s(considered(time=30.0), "a") == 3000.0
    assert router.wait_s(considered(time=31.0), "a") == 0.0
    feed(router, queued("a", "2", 10, time=1000.0), start("2", 1000.0, "a"))
    assert router.wait_s(considered(time=1000.0), "a") == 0.0  # the estimates are computed in this second
    assert router.wait_s(considered(time=1001.0), "a") == 600.0
    feed(router, queued("a", "3", 10, time=1010.0), queued("a", "4", 10, time=1040.0))
    assert router.wait_s(considered(time=1040.0), "a") == 1170.0  # the estimates of 1030 s: one job runs, one is queued


def test_router_by_estimates_rounds_job_up_to_shape() -> None:
    router = ByEstimates(BY_POLICY)
    wide = submit("1", site="a", cpus=6, walltime=4000.0)
    feed(router, capacity(10, site="a"), wide, start("1", site="a"))
    assert router.wait_s(considered(4, 50.0), "a") == 0.0
    assert router.wait_s(considered(3, 50.0), "a") == 0.0
    assert router.wait_s(considered(5, 50.0), "a") == 4000.0  # as a shape of eight CPUs
    assert router.wait_s(considered(9, 50.0), "a") == 4000.0  # as a shape of all ten CPUs
    assert router.wait_s(considered(11, 50.0), "a") == float("inf")


def test_grid_estimate_for_routing_is_of_the_open_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    def answer(router: ByWhatIf, job: Job, site: str) -> None:
        jobs.append(job)

    monkeypatch.setattr(ByWhatIf, "prediction", answer)
    router = ByEstimates(BY_POLICY)
    feed(router, capacity(10, site="a"), submit("1", site="a", queue="long"), submit("2", site="a", queue="short"))
    for queue in ("long", "short", "other"):
        router.wait_s(Job("", 0, 50.0, queue=queue, cpus=3, walltime=600.0), "a")
    assert [(job.queue, job.cpus) for job in jobs] == [("long", 4), ("short", 4), ("long", 4)]


def test_router_ignores_site_without_events() -> None:
    router = ByEstimates(BY_POLICY)
    busy("a", 3000.0, router)
    assert router.choose(considered(time=50.0), ["b", "a"]) == "a"


def test_clairvoyant_router_uses_true_run_times() -> None:
    runs = {"1": 100.0, "new": 50.0}
    router = Clairvoyant(runs, BY_POLICY)
    busy("a", 3000.0, router)
    assert router.wait_s(considered(time=30.0), "a") == 70.0


def test_watching_router_ends_without_queued_jobs() -> None:
    load = Load.of(SITES, 2, 4, 0.1)

    class Counting(Watching):
        def choose(self, job: Job, sites: Sequence[str]) -> str:
            return sites[0]

    router = Counting()
    route(SITES, load, router)
    assert [(router.queued(site.name), router.free(site.name)) for site in SITES] == [(0, 64), (0, 8)]


def test_routing_by_expected_wait_beats_rules_without_it() -> None:
    load = Load.of(THREE_SITES, seed=105, days=30, share=0.2)
    ours: dict[str, Router] = {"estimates": ByEstimates(BY_POLICY), "what-if": ByWhatIf(BY_POLICY)}
    blind: dict[str, Router] = {"at random": AtRandom(105), "shortest": ShortestQueue(), "free": MostFree()}
    fared = {name: route(THREE_SITES, load, router).means(6.0)[0] for name, router in (ours | blind).items()}
    assert len({one.jobs for one in fared.values()}) == 1
    run_s = fared["what-if"].response_s - fared["what-if"].wait_s
    assert all(one.response_s - one.wait_s == pytest.approx(run_s) for one in fared.values())  # the same jobs
    for name in ours:
        assert fared[name].response_s < min(fared[other].response_s for other in blind)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rules", [TURNS, draw(4), draw(25)])
def test_job_queued_at_all_sites_runs_once(seed: int, rules: Rules) -> None:
    sites = [site._replace(cpus=site.cpus // 4) for site in same_policy(rules)]
    load = Load.of(sites, seed, days=6, share=0.2)
    events: list[AnyEvent] = []

    class Seeing(Everywhere):
        def observe(self, seen: Sequence[AnyEvent]) -> None:
            events.extend(seen)

    done = route(sites, load, Seeing())
    starts = [event.job for event in events if isinstance(event, Start)]
    assert sorted(starts) == sorted(job.job for job in load.jobs)
    gone = Counter(event.job for event in events if isinstance(event, Cancel))
    came = Counter(event.job for event in events if isinstance(event, Submit))
    assert all(came[job] == 1 + gone[job] for job in came) and sum(gone.values()) > 10
    assert {one.site for one in done.routed} == {site.name for site in sites}
    times = [event.time for event in events[len(sites) :]]
    assert times == sorted(times)


@pytest.mark.long
def test_bursts_are_spread_over_the_sites() -> None:
    sites = [site._replace(cpus=site.cpus // 4) for site in same_policy(TURNS)]
    spread = [spread_of_a_burst(sites, seed) for seed in range(1, 9)]
    for site in sites:
        counts = [chosen[site.name] for chosen in spread]
        assert min(counts) > 0 and mean(counts) >= 5, counts  # of 42


def spread_of_a_burst(sites: Sequence[GridSite], seed: int) -> Counter[str]:
    """Return the number of 42 equal jobs, routed one by one in one second, per site."""
    router = ByWhatIf()
    route(sites, Load.of(sites, seed=seed, days=5, share=0.2), router)
    now = 1.0 + max(engine.time for engine in router.engines.values())
    chosen: Counter[str] = Counter()
    for number in range(42):
        request = Job(f"burst {number}", 0, now, user="burst", cpus=8, walltime=14400.0, queue="batch")
        site = router.choose(request, [site.name for site in sites])
        chosen[site] += 1
        router.observe([submit(request.id, now, site, user="burst", cpus=8, walltime=14400.0, queue="batch")])
    return chosen
