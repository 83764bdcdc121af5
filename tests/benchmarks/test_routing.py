"""Gain of routing a grid's jobs by expected waits, compared with blind rules and an oracle.

The oracle runs copies of the sites' own schedulers (`tests.simulation.oracle`). A rule's gain is the share of what the
oracle gains over the best blind rule: (blind − rule) / (blind − oracle), in the mean response of all seeds; it is
below 0 if a blind rule is better. The rule "everywhere" submits each job to all sites and cancels the copies when one
starts: it performs well at the cost of the sites' own jobs, as the last columns show.

For work on a method, the environment selects grids, seeds and rules. The blind rules and the oracle always run, since
the gain is computed from them. Seeds other than the reported ones are for tuning.

    TESTS_ROUTING_GRIDS=multifactor TESTS_ROUTING_SEEDS=201 TESTS_ROUTING_RULES="by what-if: policy" \\
        .venv/bin/python -m pytest -m benchmark -s tests/benchmarks/test_routing.py

`GRIDS` names the grids below; "by what-if: METHOD" is a rule for each wait method.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import NamedTuple

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.method_registry import DEFAULT, METHODS
from tests.simulation.drawn import TURNS, draw
from tests.simulation.grid import (
    EIGHT_SITES,
    MULTIFACTOR_SITES,
    OTHER_SITES,
    THREE_SITES,
    GridSite,
    JobMeans,
    Load,
    route,
    same_policy,
)
from tests.simulation.oracle import Oracle
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
)

pytestmark = pytest.mark.timeout(7200)

SHARE = 0.2
"""Load of the routed jobs as a share of all CPUs; with the sites' own jobs it is 0.7 to 0.8."""

BLIND = ("at random", "shortest queue", "most free CPUs")
OURS = ("by estimates", "by what-if")
EVERYWHERE = "everywhere, the rest withdrawn"
ORACLE, LEARNING_ORACLE = "oracle", "oracle, run times predicted"
BY_WHAT_IF = "by what-if: "
NAMELESS = "by what-if without the user"
EASY, NAMED, CLAIRVOYANT = "by what-if; all taken for EASY", "by what-if; policies named", "all run times known"


def by_what_if(*methods: str) -> tuple[str, ...]:
    """Return the rules of the available methods, without the default method of "by what-if"."""
    return tuple(BY_WHAT_IF + name for name in methods if name in METHODS and name != DEFAULT)


SUPPOSING_EASY = msgspec.structs.replace(WHAT_IF_SETTINGS, what_if_method="easy")

Make = Callable[[Sequence[GridSite], Load, int], Router]


class Grid(NamedTuple):
    """A grid for routing: its seeds, none used for tuning, its days, its first unscored days, and its rules."""

    sites: Sequence[GridSite]
    seeds: tuple[int, ...]
    days: int
    unscored: int
    rules: tuple[str, ...]


SIMULATED = (EVERYWHERE, *OURS, *by_what_if("policy", "blend"), EASY, NAMED, CLAIRVOYANT, ORACLE)
UNLIKE = (EVERYWHERE, *OURS, *by_what_if("policy", "order", "boosted", "blend"), LEARNING_ORACLE, ORACLE)

GRIDS = {
    "three": Grid(THREE_SITES, (1, 2, 3, 4, 5), 60, 15, SIMULATED),
    "eight": Grid(EIGHT_SITES, (1, 2, 3, 4, 5), 40, 10, SIMULATED),
    "multifactor": Grid(MULTIFACTOR_SITES, (101, 102, 103, 104, 105), 40, 10, UNLIKE),
    "other": Grid(OTHER_SITES, (101, 102, 103), 40, 10, UNLIKE),
    "turns": Grid(same_policy(TURNS), (1, 2, 3, 4), 30, 10, (EVERYWHERE, *OURS, ORACLE)),
}
"""Sites whose policies `policy` simulates, and sites of policies that no method has."""

DRAWN = {
    f"drawn {number}": Grid(same_policy(draw(number)), (number,), 25, 10, (EVERYWHERE, *OURS, ORACLE))
    for number in range(50)
}
"""Grids of schedulers drawn at random, by name: the first 30 are for tuning, the others for reporting. With an
oracle's gain below an hour over the best blind rule, a rule's share of the gain is noise.
"""


def named(sites: Sequence[GridSite]) -> EngineSettings:
    """Return settings with the methods that simulate the sites' policies, if available."""
    policies = {site.name: site.policy for site in sites if isinstance(site.policy, str) and site.policy in METHODS}
    return msgspec.structs.replace(WHAT_IF_SETTINGS, policy_by_site=policies)


def true_run_s(load: Load) -> dict[str, float]:
    """Return the run time of each job (s), by job."""
    return {job.job: float(job.seconds) for job in load.jobs}


RULES: dict[str, Make] = {
    "at random": lambda sites, load, seed: AtRandom(seed),
    "shortest queue": lambda sites, load, seed: ShortestQueue(),
    "most free CPUs": lambda sites, load, seed: MostFree(),
    EVERYWHERE: lambda sites, load, seed: Everywhere(),
    "by estimates": lambda sites, load, seed: ByEstimates(),
    "by what-if": lambda sites, load, seed: ByWhatIf(),
    NAMELESS: lambda sites, load, seed: Nameless(),
    EASY: lambda sites, load, seed: ByWhatIf(SUPPOSING_EASY),
    NAMED: lambda sites, load, seed: ByWhatIf(named(sites)),
    CLAIRVOYANT: lambda sites, load, seed: Clairvoyant(true_run_s(load), named(sites)),
    ORACLE: lambda sites, load, seed: Oracle(load.jobs),
    LEARNING_ORACLE: lambda sites, load, seed: Oracle(load.jobs, knows_run_times=False),
}


def router(rule: str, sites: Sequence[GridSite], load: Load, seed: int) -> Router:
    """Return a new router of the rule."""
    if rule.startswith(BY_WHAT_IF):
        return ByWhatIf(msgspec.structs.replace(WHAT_IF_SETTINGS, what_if_method=rule.removeprefix(BY_WHAT_IF)))
    return RULES[rule](sites, load, seed)


def option_values(what: str, default: Iterable[str]) -> list[str]:
    """Return the comma-separated values of the environment, or all."""
    given = os.environ.get(f"TESTS_ROUTING_{what}")
    return list(default) if given is None else [name.strip() for name in given.split(",") if name.strip()]


@pytest.mark.parametrize("name", option_values("GRIDS", GRIDS))
def test_routing_by_expected_wait_shortens_responses(name: str) -> None:
    grid = (GRIDS | DRAWN)[name]
    rules = dict.fromkeys((*BLIND, *option_values("RULES", grid.rules), ORACLE))
    found: dict[str, list[tuple[JobMeans, JobMeans]]] = {rule: [] for rule in rules}
    for seed in map(int, option_values("SEEDS", map(str, grid.seeds))):
        load = Load.of(grid.sites, seed, grid.days, SHARE)
        for rule, runs in found.items():
            runs.append(route(grid.sites, load, router(rule, grid.sites, load, seed)).means(grid.unscored))
    show(f"{name}: {len(grid.sites)} sites", found)
    responses = {rule: mean(routed.response_s for routed, _ in runs) for rule, runs in found.items()}
    others = {rule: mean(own.response_s for _, own in runs) for rule, runs in found.items()}
    assert responses[ORACLE] < min(responses[rule] for rule in BLIND)
    for ours in rules.keys() & (set(OURS) if grid.rules is SIMULATED else set()):
        assert responses[ours] < min(responses[rule] for rule in BLIND)
        assert others[ours] < others["at random"]


def gains(found: dict[str, list[tuple[JobMeans, JobMeans]]]) -> dict[str, float]:
    """Return each rule's share of the oracle's gain over the best blind rule."""
    responses = {rule: mean(routed.response_s for routed, _ in runs) for rule, runs in found.items()}
    blind = min(responses[rule] for rule in BLIND)
    return {rule: (blind - response) / (blind - responses[ORACLE]) for rule, response in responses.items()}


def show(title: str, found: dict[str, list[tuple[JobMeans, JobMeans]]]) -> None:
    """Print a table in Markdown: hours, the response of each seed, and the share of the oracle's gain."""
    counts = [sum(fared[kind].jobs for fared in found[ORACLE]) for kind in (0, 1)]
    print(f"\n\n{title}; {len(found[ORACLE])} seeds, {counts[0]} routed and {counts[1]} own jobs scored\n")
    print("| rule | response h | gain | by seed | wait h | slowdown | own jobs: response h | wait h | slowdown |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (rule, runs), gain in zip(found.items(), gains(found).values(), strict=True):
        routed, own = zip(*runs, strict=True)
        by_seed = " ".join(f"{fared.response_s / 3600:.2f}" for fared in routed)
        cells = [rule, hours(routed, "response_s"), f"{gain:.0%}", by_seed, hours(routed, "wait_s"), slowdown(routed)]
        cells += [hours(own, "response_s"), hours(own, "wait_s"), slowdown(own)]
        print(f"| {' | '.join(cells)} |")


def hours(runs: Sequence[JobMeans], name: str) -> str:
    return f"{mean(getattr(fared, name) for fared in runs) / 3600:.2f}"


def slowdown(runs: Sequence[JobMeans]) -> str:
    return f"{mean(fared.slowdown for fared in runs):.1f}"
