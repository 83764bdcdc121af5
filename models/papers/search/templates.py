"""Searches for the set of templates that best predicts a site's run times (`models.papers.template`).

**Genetic** (Smith, Taylor and Foster 1999, section 2.1.3): a template is a gene, a set of templates an individual.

**Greedy** (Smith, Foster and Taylor 1998, sections 2.4.1 and 3.1): start from the set of the one template without
attributes. Add the template of one attribute that lowers the error most, then one of two attributes, and continue up to
all attributes. A range of CPUs counts as an attribute of ten kinds. The predictor and the type of data are the same
within a set, and each of them is tried; the history is not limited.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

import msgspec

from models.papers.run_template import MAX_HISTORY_RUNS, PREDICTORS, RunTemplate
from models.papers.search.evaluation_jobs import TemplateEstimates, TemplateSet, Workload, complete
from models.papers.search.genetic import Gene, GenePart, Individual, read_gene, write_gene
from models.papers.template import Choice

NODES = tuple(2**exponent for exponent in range(10))  # ranges of CPUs, 1 to 512
ELAPSED = tuple(2**exponent for exponent in range(6, 17))  # ranges of the elapsed time, 64 to 65536 s

HISTORY = tuple(2**exponent for exponent in range(1, 17))
"""Lengths of the history, 2 to 65536; one that is not limited has the last."""

MAX_SET_TEMPLATES = 10  # maximum number of templates of an individual

Evaluate = Callable[[Sequence[RunTemplate]], Iterable[TemplateEstimates]]
"""Return the estimates of each of these templates at the workload's predictions, in their order; may use several
CPUs."""

GREEDY_PREDICTORS = ("mean", "linear")


class Encoding(msgspec.Struct, frozen=True):
    """Meaning of a template's bits, in the paper's order.

    They encode the predictor (2 bits), absolute or relative data (1) and one bit for each attribute. Then come the
    CPUs, the elapsed time and a limit of the history: whether each is used, and its power of two. These have 5 bits
    each; 4 of the 5 can exceed the range, and then wrap around to its first value.

    Where no job of the workload is predicted while it runs, the best range of the elapsed time cannot be found. Its
    bits are then ignored, and templates use the finest range.

    >>> encoding = Encoding(("queue", "user"))
    >>> str(encoding.decode(encoding.gene(RunTemplate.parse("user,cpus/8,elapsed/64 mean relative 128"))))
    'user,cpus/8,elapsed/64 mean relative 128'
    """

    attributes: tuple[str, ...]
    relative: bool = True
    running: bool = False

    @classmethod
    def of(cls, workload: Workload) -> "Encoding":
        """Return the encoding for a workload: its attributes, and relative data if it has walltimes."""
        return cls(workload.attributes, workload.has_walltimes, workload.has_running)

    @property
    def parts(self) -> tuple[GenePart, ...]:
        """Parts of a gene."""
        return (
            GenePart("predictor", tuple(PREDICTORS)),
            GenePart("relative", (False, True)),
            GenePart("attributes", self.attributes, several=True),
            GenePart("cpus", NODES, optional=True),
            GenePart("elapsed", ELAPSED, optional=True),
            GenePart("history", HISTORY, optional=True),
        )

    @property
    def bits(self) -> int:
        """The length of a gene."""
        return sum(part.length for part in self.parts)

    def decode(self, gene: Gene) -> RunTemplate:
        """The template of a gene; each text of `bits` zeros and ones has one."""
        found = read_gene(self.parts, gene)
        attributes = found["attributes"]
        return RunTemplate.of(
            attributes if found["cpus"] is None else [*attributes, f"cpus/{found['cpus']}"],
            predictor=found["predictor"],
            relative=self.relative and found["relative"],
            history=found["history"] or HISTORY[-1],
            elapsed=found["elapsed"] if self.running else ELAPSED[0],
        )

    def gene(self, template: RunTemplate) -> Gene | None:
        """The gene of a template; None where there is none: an attribute or a size is not one of those encoded."""
        sizes = [int(name.partition("/")[2]) for name in template.attributes if name.startswith("cpus/")]
        gene = write_gene(self.parts, msgspec.structs.asdict(template) | {"cpus": sizes[0] if sizes else None})
        return gene if self.decode(gene) == template else None


class TemplateSets:
    """The sets of templates for a workload, as a `SearchProblem`; errors are in seconds.

    `choice` combines the estimates of a set into one. A template's estimates are cached while it is in the population.
    """

    most_genes = MAX_SET_TEMPLATES
    mutation = 0.01  # 0.001 in the paper of 1998

    def __init__(self, workload: Workload, choice: Choice, evaluate: Evaluate) -> None:
        self._workload = workload
        self._encoding = Encoding.of(workload)
        self._choice: Choice = choice
        self._evaluate = evaluate
        self._estimates: dict[RunTemplate, TemplateEstimates] = {}
        self.bits = self._encoding.bits

    def templates(self, individual: Individual) -> TemplateSet:
        """Return the set of templates, completed so that it has an estimate for every job."""
        return complete(tuple(map(self._encoding.decode, individual)), self._choice)

    def individuals(self, sets: Iterable[TemplateSet]) -> list[Individual]:
        """The sets as individuals; templates that the encoding cannot express are left out."""
        genes = (tuple(filter(None, map(self._encoding.gene, one)))[:MAX_SET_TEMPLATES] for one in sets)
        return [individual for individual in genes if individual]

    def errors(self, individuals: Sequence[Individual]) -> list[float]:
        """The mean absolute error of each set, in seconds."""
        sets = list(map(self.templates, individuals))
        needed = dict.fromkeys(template for templates in sets for template in templates)
        known = {template: self._estimates[template] for template in needed if template in self._estimates}
        new = [template for template in needed if template not in known]
        self._estimates = known | dict(zip(new, self._evaluate(new), strict=True))
        return [self._workload.error_s([self._estimates[one] for one in templates], self._choice) for templates in sets]


class GreedyStep(msgspec.Struct, frozen=True):
    """A set of the search, and its error in seconds."""

    templates: TemplateSet
    error_s: float


def greedy(workload: Workload, evaluate: Evaluate, choice: Choice) -> Iterator[GreedyStep]:
    """Yield the growing sets, for each predictor and type of data; the one with the least error is the result."""
    for predictor in GREEDY_PREDICTORS:
        for relative in (False, True)[: 1 + workload.has_walltimes]:
            yield from _grow(workload, evaluate, choice, predictor, relative)


def _grow(
    workload: Workload, evaluate: Evaluate, choice: Choice, predictor: str, relative: bool
) -> Iterator[GreedyStep]:
    chosen: TemplateSet = ()
    kept: list[TemplateEstimates] = []
    for size in range(len(workload.attributes) + 2):
        candidates = [
            RunTemplate.of(names, predictor, relative, MAX_HISTORY_RUNS, ELAPSED[0])
            for names in _named(workload.attributes, size)
        ]
        best: tuple[float, RunTemplate, TemplateEstimates] | None = None
        for candidate, estimates in zip(candidates, evaluate(candidates), strict=True):
            error_s = workload.error_s([*kept, estimates], choice)
            if best is None or error_s < best[0]:
                best = (error_s, candidate, estimates)
        assert best is not None
        chosen, kept = (*chosen, best[1]), [*kept, best[2]]
        yield GreedyStep(chosen, best[0])


def _named(attributes: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    """The sets of `size` attributes, of which a range of CPUs may be one."""
    plain = list(combinations(attributes, size))
    ranged = (
        [(*names, f"cpus/{nodes}") for names in combinations(attributes, size - 1) for nodes in NODES] if size else []
    )
    return plain + ranged
