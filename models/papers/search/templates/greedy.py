"""The greedy search for a set of templates (Smith, Foster and Taylor 1998, sections 2.4.1 and 3.1).

From the set of the one template without attributes, that template of one attribute is added which lowers the error
most, then one of two attributes, and so on to all. A range of processors counts as an attribute of ten kinds. The
predictor and the type of data are the same within a set, and each of them is tried; the history is not limited.
"""

from collections.abc import Iterator
from itertools import combinations

import msgspec

from models.papers.run_template import MAX_HISTORY_RUNS, RunTemplate
from models.papers.search.templates.encoding import ELAPSED, NODES
from models.papers.search.templates.genetic import Evaluate
from models.papers.search.templates.workload import TemplateEstimates, TemplateSet, Workload
from models.papers.template import Choice

PREDICTORS = ("mean", "linear")


class GreedyStep(msgspec.Struct, frozen=True):
    """A set of the search, and its error in seconds."""

    templates: TemplateSet
    error_s: float


def search(workload: Workload, evaluate: Evaluate, choice: Choice) -> Iterator[GreedyStep]:
    """The sets as they grow, for each predictor and type of data; the one with the least error is the result."""
    for predictor in PREDICTORS:
        for relative in (False, True)[: 1 + workload.has_walltimes]:
            yield from _grow(workload, evaluate, choice, predictor, relative)


def steps(workload: Workload) -> int:
    """How many sets `search` gives."""
    return len(PREDICTORS) * (1 + workload.has_walltimes) * (len(workload.attributes) + 2)


def _grow(
    workload: Workload, evaluate: Evaluate, choice: Choice, predictor: str, relative: bool
) -> Iterator[GreedyStep]:
    chosen: TemplateSet = ()
    told: list[TemplateEstimates] = []
    for size in range(len(workload.attributes) + 2):
        candidates = [
            RunTemplate.of(names, predictor, relative, MAX_HISTORY_RUNS, ELAPSED[0])
            for names in _named(workload.attributes, size)
        ]
        best: tuple[float, RunTemplate, TemplateEstimates] | None = None
        for candidate, estimates in zip(candidates, evaluate(candidates), strict=True):
            error_s = workload.error_s([*told, estimates], choice)
            if best is None or error_s < best[0]:
                best = (error_s, candidate, estimates)
        assert best is not None
        chosen, told = (*chosen, best[1]), [*told, best[2]]
        yield GreedyStep(chosen, best[0])


def _named(attributes: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    """The sets of `size` attributes, of which a range of processors may be one."""
    plain = list(combinations(attributes, size))
    ranged = (
        [(*names, f"cpus/{nodes}") for names in combinations(attributes, size - 1) for nodes in NODES] if size else []
    )
    return plain + ranged
