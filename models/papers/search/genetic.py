"""A genetic algorithm. A search brings its individuals, their errors and how they breed; what is common is here."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

ELITE = 2
"""The best individuals of a generation, which live on unchanged."""

Individual = TypeVar("Individual")


class SearchPlan(msgspec.Struct, frozen=True):
    """How large a search is: individuals of a generation, generations, and the seed of its random numbers."""

    population: int = 40
    generations: int = 30
    seed: int = 1


class Generation(msgspec.Struct, Generic[Individual], frozen=True):
    """A generation with the errors of its individuals, in their order; the first generation has number 1."""

    number: int
    individuals: list[Individual]
    errors: list[float] = msgspec.field(name="errors_s")  # its name in the state files of searches

    @property
    def best(self) -> int:
        """The place of the individual with the least error."""
        return self.errors.index(min(self.errors))


class SearchProblem(Protocol[Individual]):
    """What is searched for."""

    def first(self) -> list[Individual]:
        """The individuals of the first generation."""

    def errors(self, individuals: Sequence[Individual]) -> Iterable[float]:
        """The error of each individual, in their order."""

    def children(self, parents: Generation[Individual], count: int) -> list[Individual]:
        """So many individuals, bred from a generation."""

    def tie_break(self, individual: Individual) -> Any:
        """What ranks individuals of the same error, the least first; where this is equal too, their order does."""


def evolve(
    problem: SearchProblem[Individual], plan: SearchPlan, after: Generation[Individual] | None = None
) -> Iterator[Generation[Individual]]:
    """Breed generations up to the plan's last, each from the one before and its best individuals.

    Parameters:
        after: the generation to go on from; it is not given again.
    """
    if after is None:
        after = _judged(problem, 1, problem.first())
        yield after
    while after.number < plan.generations:
        elite = ranked(problem, after)[:ELITE]
        after = _judged(problem, after.number + 1, [*elite, *problem.children(after, plan.population - ELITE)])
        yield after


def ranked(problem: SearchProblem[Individual], generation: Generation[Individual]) -> list[Individual]:
    """The individuals of a generation, the least error first."""
    pairs = list(zip(generation.individuals, generation.errors, strict=True))
    pairs.sort(key=lambda pair: (pair[1], problem.tie_break(pair[0])))
    return [individual for individual, _ in pairs]


def _judged(problem: SearchProblem[Individual], number: int, individuals: list[Individual]) -> Generation[Individual]:
    return Generation(number, individuals, list(problem.errors(individuals)))
