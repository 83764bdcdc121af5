"""The genetic search for a set of templates (Smith, Taylor and Foster 1999, section 2.1.3).

Individuals are sets of templates. The less its error on the workload, the more children a set has; children are made
by crossover of sets of unequal lengths, and mutated; the two best sets survive as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from models.runtimes.run_template import RunTemplate
from models.runtimes.template import Choice
from models.search.templates.encoding import Encoding, Gene
from models.search.templates.workload import Estimates, Set, Workload, complete

MOST_TEMPLATES = 10
"""Templates of an individual at most."""

ELITE = 2
"""Individuals that survive unchanged."""

FITNESS = (1.0, 4.0)
"""Of the worst and the best individual of a generation."""

MUTATION = 0.01
"""Probability with which a bit is flipped; 0.001 in the paper of 1998."""

Individual = tuple[Gene, ...]

Evaluate = Callable[[Sequence[RunTemplate]], Iterable[Estimates]]
"""Gives what each of these templates says at the workload's predictions, in their order; maybe on many cores."""


class Plan(msgspec.Struct, frozen=True):
    """How large the search is: individuals (an even number), generations, and what chance is drawn from.

    `choice` is how a set's estimates become one, in the search and for whoever uses what it finds.

    Raises:
        ValueError: fewer than four individuals, or an odd number.
    """

    population: int = 20
    generations: int = 20
    seed: int = 1
    choice: Choice = "weighted"

    def __post_init__(self) -> None:
        if self.population < 4 or self.population % 2:
            raise ValueError(f"population is {self.population}; expected an even number from 4")


class Generation(msgspec.Struct, frozen=True):
    """A generation that has been judged: its number from 1, and each individual's error in seconds."""

    number: int
    individuals: list[Individual]
    errors_s: list[float]

    @property
    def best(self) -> int:
        """The place of the individual with the least error."""
        return self.errors_s.index(min(self.errors_s))


def search(
    workload: Workload,
    plan: Plan,
    evaluate: Evaluate,
    after: Generation | None = None,
    founders: Iterable[Set] = (),
) -> Iterator[Generation]:
    """Breed generations, each judged as it is given, to the plan's last.

    The same plan on the same workload gives the same generations, however they are evaluated and wherever the search
    was broken off.

    Parameters:
        after: the generation to go on from; without it the search begins with random sets.
        founders: sets that the first generation is to contain; templates that the encoding cannot express are left
            out.
    """
    encoding = Encoding.of(workload)
    judge = Judge(workload, encoding, evaluate, plan.choice)
    if after is None:
        after = judge(1, _first(encoding, plan, founders))
        yield after
    while after.number < plan.generations:
        after = judge(after.number + 1, breed(after, plan, encoding.bits))
        yield after


class Judge:
    """Finds the errors of individuals. What a template says is asked once for as long as it is in the population."""

    def __init__(self, workload: Workload, encoding: Encoding, evaluate: Evaluate, choice: Choice) -> None:
        self._workload = workload
        self._encoding = encoding
        self._evaluate = evaluate
        self._choice = choice
        self._told: dict[RunTemplate, Estimates] = {}

    def __call__(self, number: int, individuals: list[Individual]) -> Generation:
        """The generation of these individuals."""
        sets = [complete(tuple(map(self._encoding.decode, one)), self._choice) for one in individuals]
        needed = dict.fromkeys(template for templates in sets for template in templates)
        told = {template: self._told[template] for template in needed if template in self._told}
        new = [template for template in needed if template not in told]
        self._told = told | dict(zip(new, self._evaluate(new), strict=True))
        errors = [self._error_s(templates) for templates in sets]
        return Generation(number, individuals, errors)

    def _error_s(self, templates: Set) -> float:
        return self._workload.error_s([self._told[template] for template in templates], self._choice)


def _first(encoding: Encoding, plan: Plan, founders: Iterable[Set]) -> list[Individual]:
    genes = (tuple(filter(None, map(encoding.gene, templates)))[:MOST_TEMPLATES] for templates in founders)
    individuals: list[Individual] = [individual for individual in genes if individual]
    dice = np.random.default_rng([plan.seed, 0])
    while len(individuals) < plan.population:
        count = int(dice.integers(1, MOST_TEMPLATES + 1))
        rows = dice.integers(0, 2, (count, encoding.bits))
        individuals.append(tuple("".join(map(str, row)) for row in rows))
    return individuals[: plan.population]


def breed(generation: Generation, plan: Plan, bits: int) -> list[Individual]:
    """The next generation's individuals: children of this one's, and its best."""
    dice = np.random.default_rng([plan.seed, generation.number])
    fitness = np.array(fitnesses(generation.errors_s))
    parents = dice.choice(len(fitness), plan.population - ELITE, p=fitness / fitness.sum())
    children: list[Individual] = []
    for one, other in zip(parents[::2], parents[1::2], strict=True):
        pair = crossover(generation.individuals[one], generation.individuals[other], bits, dice)
        children.extend(mutated(child, dice) for child in pair)
    ranked = np.argsort(generation.errors_s, kind="stable")
    return [*(generation.individuals[place] for place in ranked[:ELITE]), *children]


def fitnesses(errors_s: Sequence[float]) -> list[float]:
    """Each individual's fitness: from the least for the greatest error, in proportion, to four times that."""
    least, most = min(errors_s), max(errors_s)
    low, high = FITNESS
    if least == most:
        return [high] * len(errors_s)
    return [low + (most - error) / (most - least) * (high - low) for error in errors_s]


def crossover(
    one: Individual, other: Individual, bits: int, dice: np.random.Generator
) -> tuple[Individual, Individual]:
    """Two children: each begins as one of the parents and ends as the other, cut within a template of each.

    The cuts are drawn among those that give no child more than `MOST_TEMPLATES` templates.
    """
    cuts = [
        (i, j)
        for i in range(len(one))
        for j in range(len(other))
        if i + len(other) - j <= MOST_TEMPLATES and j + len(one) - i <= MOST_TEMPLATES
    ]
    i, j = cuts[dice.integers(len(cuts))]
    p = int(dice.integers(bits + 1))
    first = (*one[:i], one[i][:p] + other[j][p:], *other[j + 1 :])
    second = (*other[:j], other[j][:p] + one[i][p:], *one[i + 1 :])
    return first, second


def mutated(individual: Individual, dice: np.random.Generator) -> Individual:
    """The individual with each bit flipped with probability `MUTATION`."""
    flips = dice.random((len(individual), len(individual[0]))) < MUTATION
    return tuple(
        "".join("10"[int(bit)] if flip else bit for bit, flip in zip(gene, row, strict=True))
        for gene, row in zip(individual, flips, strict=True)
    )
