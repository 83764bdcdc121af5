"""A template as bits, so that sets of templates can be bred (Smith, Taylor and Foster 1999, section 2.1.3)."""

import msgspec

from models.papers.run_template import PREDICTORS, RunTemplate
from models.papers.search.genetic import Gene, Part, read_gene, write_gene
from models.papers.search.templates.workload import Workload

NODES = tuple(2**exponent for exponent in range(10))
"""Ranges of processors, 1 to 512."""

ELAPSED = tuple(2**exponent for exponent in range(6, 17))
"""Ranges of the elapsed time, 64 to 65536 s."""

HISTORY = tuple(2**exponent for exponent in range(1, 17))
"""Lengths of the history, 2 to 65536; one that is not limited has the last."""


class Encoding(msgspec.Struct, frozen=True):
    """What the bits of a template stand for, in the paper's order.

    The predictor (2 bits), absolute or relative data (1), a bit an attribute; and whether the processors, the elapsed
    time and a limit of the history are used, with the power of two (5 bits each; 4 of them can count further than the
    ranges go, and begin again there).

    Where no job of the workload is predicted while it runs, the best range of the elapsed time cannot be found: then
    those bits are not read, and templates use the finest range.

    >>> encoding = Encoding(("queue", "user"))
    >>> str(encoding.decode(encoding.gene(RunTemplate.parse("user,cpus/8,elapsed/64 mean relative 128"))))
    'user,cpus/8,elapsed/64 mean relative 128'
    """

    attributes: tuple[str, ...]
    relative: bool = True
    running: bool = False

    @classmethod
    def of(cls, workload: Workload) -> "Encoding":
        """The encoding that a workload asks for: its attributes, and relative data where it has walltimes."""
        return cls(workload.attributes, workload.has_walltimes, workload.has_running)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What a gene consists of."""
        return (
            Part("predictor", tuple(PREDICTORS)),
            Part("relative", (False, True)),
            Part("attributes", self.attributes, several=True),
            Part("cpus", NODES, optional=True),
            Part("elapsed", ELAPSED, optional=True),
            Part("history", HISTORY, optional=True),
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
