import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.papers.run_template import RunTemplate
from models.papers.search.evaluation_jobs import TemplateEstimates, TemplateSet, Workload, complete
from models.papers.search.genetic import (
    ELITE,
    Generation,
    Individual,
    SearchPlan,
    crossover,
    evolve,
    fitnesses,
    mutated,
    offspring,
)
from models.papers.search.templates import MAX_SET_TEMPLATES, Encoding, Evaluate, TemplateSets
from tests.support.template_searches import in_turn, workload

BITS = 12


class Genes:
    """Individuals with a number of bits per gene, without errors."""

    most_genes = MAX_SET_TEMPLATES
    mutation = 0.01

    def __init__(self, bits: int = BITS) -> None:
        self.bits = bits

    def errors(self, individuals: Sequence[Individual]) -> list[float]:
        raise NotImplementedError


def search(
    work: Workload,
    plan: SearchPlan,
    evaluate: Evaluate,
    after: Generation | None = None,
    founders: Iterable[TemplateSet] = (),
) -> Iterator[Generation]:
    sets = TemplateSets(work, "weighted", evaluate)
    return evolve(sets, plan, after, sets.individuals(founders))


def individuals(sizes: Iterable[int]) -> list[Individual]:
    dice = random.Random(1)
    return [tuple("".join(dice.choice("01") for _ in range(BITS)) for _ in range(size)) for size in sizes]


def test_fitness_ranges_from_one_to_four() -> None:
    assert fitnesses([10.0, 40.0, 20.0, 25.0]) == [4.0, 1.0, 3.0, 2.5]
    assert fitnesses([7.0, 7.0]) == [4.0, 4.0]


@given(st.integers(1, MAX_SET_TEMPLATES), st.integers(1, MAX_SET_TEMPLATES), st.integers(0, 10**6))
def test_crossover_of_unequal_lengths_keeps_all_genes(n: int, m: int, seed: int) -> None:
    one, other = tuple("0" * BITS for _ in range(n)), tuple("1" * BITS for _ in range(m))
    first, second = crossover(Genes(), one, other, np.random.default_rng(seed))
    assert len(first) + len(second) == n + m
    assert min(len(first), len(second)) >= 1 and max(len(first), len(second)) <= MAX_SET_TEMPLATES
    # Each child begins as one parent and ends as the other, and no bit is in both children.
    a, b = "".join(first), "".join(second)
    cut, back = a.rstrip("1"), b.rstrip("0")
    assert set(cut) <= {"0"} and set(back) <= {"1"}
    assert (len(cut) + len(b) - len(back), len(cut) % BITS) == (n * BITS, len(back) % BITS)


def test_crossover_produces_each_possible_cut() -> None:
    one, other = ("0" * 2,) * 2, ("1" * 2,)
    dice = np.random.default_rng(0)
    found = Counter("|".join(crossover(Genes(2), one, other, dice)[0]) for _ in range(1000))
    assert set(found) == {"11", "01", "00", "00|11", "00|01", "00|00"}
    assert min(found.values()) > 100


def test_mutated_flips_one_bit_of_a_hundred() -> None:
    dice = np.random.default_rng(0)
    after = mutated(("0" * 100_000, "1" * 100_000), 0.01, dice)
    assert 900 < after[0].count("1") < 1100
    assert 900 < after[1].count("0") < 1100


def test_offspring_favors_parents_with_high_fitness() -> None:
    parents = [("0" * BITS,)] * 10 + [("1" * BITS,)] * 10  # the genes of 1 are the worst
    generation = Generation(1, parents, [10.0, 1.0, 5.0, 2.0, *[6.0] * 6, *[50.0] * 10])
    mean = np.mean([sum(gene[0].count("1") for gene in offspring(Genes(), generation, 18, seed)) for seed in range(50)])
    assert mean / (18 * BITS) == pytest.approx(
        1 / 5, abs=0.05
    )  # those with error 50 have about a fourth of the fitness
    mixed = individuals([3, 1, 10, 4, 2, 7])
    children = offspring(Genes(), Generation(4, mixed, [9.0, 3.0, 8.0, 2.0, 3.0, 11.0]), 4, 1)
    assert len(children) == 4 and all(1 <= len(individual) <= MAX_SET_TEMPLATES for individual in children)


def test_search_keeps_the_best_two_unchanged() -> None:
    work = workload(120)
    plan = SearchPlan(6, 4)
    generations = list(search(work, plan, in_turn(work)))
    for parents, generation in pairwise(generations):
        assert generation.individuals[:ELITE] == parents.ranked()[:ELITE]
        assert len(generation.individuals) == plan.population


def test_ranked_puts_the_first_of_equal_sets_first() -> None:
    mixed = individuals([3, 1, 10, 4, 2, 7])
    assert Generation(4, mixed, [9.0, 3.0, 8.0, 2.0, 3.0, 11.0]).ranked()[:3] == [mixed[3], mixed[1], mixed[4]]


def test_search_best_error_decreases_to_a_good_one() -> None:
    work = workload()
    errors = [min(found.errors) for found in search(work, SearchPlan(10, 12), in_turn(work))]
    assert errors == sorted(errors, reverse=True)
    by_user = complete((RunTemplate.parse("user mean relative 64"),), "weighted")
    good = work.error_s([work.estimates(template) for template in by_user], "weighted")
    assert errors[-1] <= 1.05 * good < errors[0]


def test_search_is_a_function_of_its_seed_for_any_evaluator() -> None:
    work = workload(120)
    plan = SearchPlan(6, 5, seed=7)
    found = list(search(work, plan, in_turn(work)))

    def lazily(templates: Sequence[RunTemplate]) -> Iterable[TemplateEstimates]:
        return (workload(120).estimates(template) for template in templates)

    assert list(search(work, plan, lazily)) == found
    assert list(search(work, SearchPlan(6, 5, seed=8), in_turn(work))) != found


@pytest.mark.parametrize("broken_off", [1, 3])
def test_interrupted_search_resumes_with_same_result(broken_off: int) -> None:
    work = workload(120)
    whole = list(search(work, SearchPlan(6, 5), in_turn(work)))
    first = list(search(work, SearchPlan(6, broken_off), in_turn(work)))
    rest = list(search(work, SearchPlan(6, 5), in_turn(work), after=first[-1]))
    assert first + rest == whole
    assert list(search(work, SearchPlan(6, 5), in_turn(work), after=whole[-1])) == []


def test_search_evaluates_a_template_only_if_new() -> None:
    work, evaluated = workload(120), list[RunTemplate]()
    found = list(search(work, SearchPlan(6, 6), in_turn(work, evaluated)))
    encoding = Encoding.of(work)
    sets = [
        {
            template
            for genes in generation.individuals
            for template in complete(tuple(map(encoding.decode, genes)), "weighted")
        }
        for generation in found
    ]
    new = sets[0] | set().union(*(later - before for before, later in pairwise(sets)))
    assert set(evaluated) == new
    assert len(evaluated) == len(sets[0]) + sum(len(b - a) for a, b in pairwise(sets))


def test_founders_are_in_the_first_generation() -> None:
    work = workload(60)
    good = RunTemplate.parse("user,elapsed/64 mean relative 64")
    beyond = RunTemplate.parse("executable mean relative 64")
    founders = [(beyond,), (good, beyond), (good, good)]
    first = next(iter(search(work, SearchPlan(4, 1), in_turn(work), founders=founders)))
    encoding = Encoding.of(work)
    assert [tuple(map(encoding.decode, one)) for one in first.individuals[:2]] == [(good,), (good, good)]
    assert len(first.individuals) == 4


@pytest.mark.parametrize("population", [2, 5])
def test_search_plan_rejects_odd_or_small_population(population: int) -> None:
    with pytest.raises(ValueError, match="expected an even number from 4"):
        SearchPlan(population=population)
