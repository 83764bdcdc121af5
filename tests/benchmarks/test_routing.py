"""What it is worth to route a grid's jobs by their expected waits, beside rules that know of none."""

from collections.abc import Callable, Sequence
from statistics import mean

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.registry import METHODS
from models.simulation.grid import EIGHT_SITES, THREE_SITES, GridSite, JobMeans, Load, route
from models.simulation.routing import (
    WHAT_IF_SETTINGS,
    AtRandom,
    ByEstimates,
    ByWhatIf,
    Clairvoyant,
    MostFree,
    Router,
    ShortestQueue,
)

pytestmark = pytest.mark.timeout(3600)

SEEDS = (1, 2, 3, 4, 5)
"""None of those by which the grids and the rules were settled."""

SHARE = 0.2
"""Of all processors, for the routed jobs; with the sites' own it is 0.7 to 0.8."""

BLIND = ("at random", "shortest queue", "most free processors")
OURS = ("by estimates", "by what-if")
NAMED, EASY = "; policies named", "; all taken for EASY"

SUPPOSING_EASY = msgspec.structs.replace(WHAT_IF_SETTINGS, what_if="easy")

Make = Callable[[Sequence[GridSite], Load, int], Router]


def named(sites: Sequence[GridSite]) -> EngineSettings:
    """Settings with the methods that simulate the sites' policies, where there are such."""
    return msgspec.structs.replace(
        WHAT_IF_SETTINGS, policies={site.name: site.policy for site in sites if site.policy in METHODS}
    )


def true_run_s(load: Load) -> dict[str, float]:
    """How long each job will run, in seconds, by its name."""
    return {job.job: float(job.seconds) for job in load.jobs}


RULES: dict[str, Make] = {
    "at random": lambda sites, load, seed: AtRandom(seed),
    "shortest queue": lambda sites, load, seed: ShortestQueue(),
    "most free processors": lambda sites, load, seed: MostFree(),
    "by estimates": lambda sites, load, seed: ByEstimates(),
    "by what-if": lambda sites, load, seed: ByWhatIf(),
    f"by estimates{EASY}": lambda sites, load, seed: ByEstimates(SUPPOSING_EASY),
    f"by what-if{EASY}": lambda sites, load, seed: ByWhatIf(SUPPOSING_EASY),
    f"by estimates{NAMED}": lambda sites, load, seed: ByEstimates(named(sites)),
    f"by what-if{NAMED}": lambda sites, load, seed: ByWhatIf(named(sites)),
    "told all run times": lambda sites, load, seed: Clairvoyant(true_run_s(load), named(sites)),
}


@pytest.mark.parametrize(("sites", "days", "unscored"), [(THREE_SITES, 60, 15), (EIGHT_SITES, 40, 10)])
def test_jobs_respond_sooner_where_they_are_expected_to_wait_least(
    sites: Sequence[GridSite], days: int, unscored: int
) -> None:
    found: dict[str, list[tuple[JobMeans, JobMeans]]] = {name: [] for name in RULES}
    for seed in SEEDS:
        load = Load.of(sites, seed, days, SHARE)
        for name, make in RULES.items():
            found[name].append(route(sites, load, make(sites, load, seed)).means(unscored))
    show(f"{len(sites)} sites", found)
    responses = {name: mean(routed.response_s for routed, _ in runs) for name, runs in found.items()}
    others = {name: mean(own.response_s for _, own in runs) for name, runs in found.items()}
    for ours in OURS:
        assert responses[ours] < min(responses[name] for name in BLIND)
        assert others[ours] < others["at random"]


def show(title: str, found: dict[str, list[tuple[JobMeans, JobMeans]]]) -> None:
    """Print a table in Markdown: hours, and the response of each seed."""
    jobs = [
        f"{sum(fared[kind].jobs for fared in found[BLIND[0]])} {name}" for kind, name in enumerate(("routed", "own"))
    ]
    print(f"\n\n{title}; {len(SEEDS)} seeds, {' and '.join(jobs)} jobs scored\n")
    print("| rule | response h | by seed | wait h | slowdown | own jobs: response h | wait h | slowdown |")
    print("|---|---|---|---|---|---|---|---|")
    for name, runs in found.items():
        routed, own = zip(*runs, strict=True)
        by_seed = " ".join(f"{fared.response_s / 3600:.1f}" for fared in routed)
        cells = [name, hours(routed, "response_s"), by_seed, hours(routed, "wait_s"), slowdown(routed)]
        cells += [hours(own, "response_s"), hours(own, "wait_s"), slowdown(own)]
        print(f"| {' | '.join(cells)} |")


def hours(runs: Sequence[JobMeans], name: str) -> str:
    return f"{mean(getattr(fared, name) for fared in runs) / 3600:.2f}"


def slowdown(runs: Sequence[JobMeans]) -> str:
    return f"{mean(fared.slowdown for fared in runs):.1f}"
