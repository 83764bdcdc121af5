"""The genetic search of the papers, for any parameters that can be encoded in bits.

An individual is a tuple of genes, and a gene is a string of zeros and ones. Breeding follows Smith, Taylor and Foster
1999 (section 2.1.3), who breed sets of templates: the lower its error, the more children an individual has. Children
are made by crossover of individuals of unequal lengths, then mutated; the two best individuals survive unchanged. Li,
Groep and Wolters 2005 (section 4.2) do not specify their operators, so the same ones are used, for individuals of one
gene.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

ELITE = 2  # the best individuals of a generation, which survive unchanged
FITNESS = (1.0, 4.0)  # of the worst and the best individual of a generation
Gene = str
Individual = tuple[Gene, ...]


class GenePart(NamedTuple):
    """The bits of one parameter: a bit for each choice if several may be taken, else the number of one choice.

    If it is `optional`, its first bit is 1 where the parameter is used. Numbers beyond the choices wrap around to the
    first.
    """

    name: str
    choices: tuple[Any, ...]
    several: bool = False
    optional: bool = False

    @property
    def length(self) -> int:
        """Number of bits."""
        return len(self.choices) if self.several else (len(self.choices) - 1).bit_length() + self.optional

    def read(self, bits: str) -> Any:
        """The parameter; None where it is not used."""
        if self.several:
            return tuple(choice for choice, bit in zip(self.choices, bits, strict=True) if bit == "1")
        if self.optional and bits[0] == "0":
            return None
        return self.choices[int(bits[self.optional :], 2) % len(self.choices)]

    def write(self, value: Any) -> str:
        """Encode a value as bits; a value that is not among the choices is encoded as unused if optional.

        Raises:
            ValueError: it is not among the choices and not optional.
        """
        if self.several:
            return "".join(str(int(choice in value)) for choice in self.choices)
        if self.optional and value not in self.choices:
            return "0" * self.length
        return f"{'1' * self.optional}{self.choices.index(value):0{self.length - self.optional}b}"


def read_gene(parts: Iterable[GenePart], gene: Gene) -> dict[str, Any]:
    """The parameters of a gene."""
    values, at = {}, 0
    for part in parts:
        values[part.name] = part.read(gene[at : at + part.length])
        at += part.length
    return values


def write_gene(parts: Iterable[GenePart], values: Mapping[str, Any]) -> Gene:
    """Return the gene of these parameters.

    Raises:
        ValueError: there is none.
    """
    return "".join(part.write(values[part.name]) for part in parts)


class SearchPlan(msgspec.Struct, frozen=True):
    """Size of a search: individuals of a generation (four or more, an even number), generations, and the seed."""

    population: int = 20
    generations: int = 20
    seed: int = 1

    def __post_init__(self) -> None:
        if self.population < 4 or self.population % 2:
            raise ValueError(f"population is {self.population}; expected an even number from 4")


class Generation(msgspec.Struct, frozen=True):
    """A generation with the errors of its individuals, in their order; the first generation has number 1."""

    number: int
    individuals: list[Individual]
    errors: list[float]

    def ranked(self) -> list[Individual]:
        """The individuals, the least error first; those of the same error in their order."""
        pairs = sorted(zip(self.errors, self.individuals, strict=True), key=lambda pair: pair[0])
        return [individual for _, individual in pairs]


class SearchProblem(Protocol):
    """The problem that a search optimises.

    A gene has `bits` bits, an individual has `most_genes` genes at most, and `mutation` is the probability that a bit
    of a child is flipped.
    """

    bits: int
    most_genes: int
    mutation: float

    def errors(self, individuals: Sequence[Individual]) -> Iterable[float]:
        """The error of each individual, in their order."""


def evolve(
    problem: SearchProblem,
    plan: SearchPlan,
    after: Generation | None = None,
    founders: Iterable[Individual] = (),
) -> Iterator[Generation]:
    """Breed and yield generations up to the plan's last.

    Each generation is bred from the one before and keeps its best individuals. The same plan for the same problem gives
    the same generations, also if it resumes after a generation.

    Args:
        problem: the problem to optimise.
        plan: the size of the search.
        after: the generation to resume after; None to start from the beginning.
        founders: individuals of the first generation; random individuals complete it.
    """
    if after is None:
        after = _judged(problem, 1, _first(problem, plan, founders))
        yield after
    while after.number < plan.generations:
        children = offspring(problem, after, plan.population - ELITE, plan.seed)
        after = _judged(problem, after.number + 1, [*after.ranked()[:ELITE], *children])
        yield after


def _judged(problem: SearchProblem, number: int, individuals: list[Individual]) -> Generation:
    return Generation(number, individuals, list(problem.errors(individuals)))


def _first(problem: SearchProblem, plan: SearchPlan, founders: Iterable[Individual]) -> list[Individual]:
    individuals = list(founders)
    dice = np.random.default_rng([plan.seed, 0])
    while len(individuals) < plan.population:
        count = int(dice.integers(1, problem.most_genes + 1))
        rows = dice.integers(0, 2, (count, problem.bits))
        individuals.append(tuple("".join(map(str, row)) for row in rows))
    return individuals[: plan.population]


def offspring(problem: SearchProblem, parents: Generation, count: int, seed: int) -> list[Individual]:
    """Return `count` children, an even number, of parents that are drawn by their fitness."""
    dice = np.random.default_rng([seed, parents.number])
    fitness = np.array(fitnesses(parents.errors))
    places = dice.choice(len(fitness), count, p=fitness / fitness.sum())
    children: list[Individual] = []
    for one, other in zip(places[::2], places[1::2], strict=True):
        pair = crossover(problem, parents.individuals[one], parents.individuals[other], dice)
        children.extend(mutated(child, problem.mutation, dice) for child in pair)
    return children


def fitnesses(errors: Sequence[float]) -> list[float]:
    """Return each individual's fitness: proportional, from the least for the greatest error to four times that."""
    least, most = min(errors), max(errors)
    low, high = FITNESS
    if least == most:
        return [high] * len(errors)
    return [low + (most - error) / (most - least) * (high - low) for error in errors]


def crossover(
    problem: SearchProblem, one: Individual, other: Individual, dice: np.random.Generator
) -> tuple[Individual, Individual]:
    """Return two children: each begins as one of the parents and ends as the other, cut within a gene of each.

    The cuts are drawn from those with which no child has too many genes.
    """
    cuts = [
        (i, j)
        for i in range(len(one))
        for j in range(len(other))
        if i + len(other) - j <= problem.most_genes and j + len(one) - i <= problem.most_genes
    ]
    i, j = cuts[dice.integers(len(cuts))]
    p = int(dice.integers(problem.bits + 1))
    first = (*one[:i], one[i][:p] + other[j][p:], *other[j + 1 :])
    second = (*other[:j], other[j][:p] + one[i][p:], *one[i + 1 :])
    return first, second


def mutated(individual: Individual, mutation: float, dice: np.random.Generator) -> Individual:
    """The individual with each bit flipped with this probability."""
    flips = dice.random((len(individual), len(individual[0]))) < mutation
    return tuple(
        "".join("10"[int(bit)] if flip else bit for bit, flip in zip(gene, row, strict=True))
        for gene, row in zip(individual, flips, strict=True)
    )
