"""A template as bits, so that sets of templates can be bred (Smith, Taylor and Foster 1999, section 2.1.3)."""

from collections.abc import Sequence

import msgspec

from models.papers.run_template import PREDICTORS, RunTemplate
from models.papers.search.genetic import Gene
from models.papers.search.templates.workload import Workload

PREDICTOR_BITS = 2
RANGE_BITS = 5
"""Whether something is used, and one of up to 16 powers of two."""

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
    def bits(self) -> int:
        """The length of a gene."""
        return PREDICTOR_BITS + 1 + len(self.attributes) + 3 * RANGE_BITS

    def decode(self, gene: Gene) -> RunTemplate:
        """The template of a gene; each text of `bits` zeros and ones has one."""
        at = PREDICTOR_BITS + 1
        chosen = [name for name, bit in zip(self.attributes, gene[at:], strict=False) if bit == "1"]
        at += len(self.attributes)
        nodes, elapsed, history = (
            _range(gene[at + RANGE_BITS * place : at + RANGE_BITS * (place + 1)], sizes)
            for place, sizes in enumerate((NODES, ELAPSED, HISTORY))
        )
        return RunTemplate.of(
            chosen if nodes is None else [*chosen, f"cpus/{nodes}"],
            predictor=list(PREDICTORS)[int(gene[:PREDICTOR_BITS], 2)],
            relative=self.relative and gene[PREDICTOR_BITS] == "1",
            history=history or HISTORY[-1],
            elapsed=elapsed if self.running else ELAPSED[0],
        )

    def gene(self, template: RunTemplate) -> Gene | None:
        """The gene of a template; None where there is none: an attribute or a size is not one of those encoded."""
        plain = [name for name in template.attributes if not name.startswith("cpus/")]
        sizes = [int(name.partition("/")[2]) for name in template.attributes if name.startswith("cpus/")]
        gene = "".join(
            (
                f"{list(PREDICTORS).index(template.predictor):0{PREDICTOR_BITS}b}",
                str(int(template.relative)),
                *(str(int(name in plain)) for name in self.attributes),
                _bits(sizes[0] if sizes else None, NODES),
                _bits(template.elapsed, ELAPSED),
                _bits(template.history, HISTORY),
            )
        )
        return gene if self.decode(gene) == template else None


def _range(bits: str, sizes: Sequence[int]) -> int | None:
    return sizes[int(bits[1:], 2) % len(sizes)] if bits[0] == "1" else None


def _bits(size: int | None, sizes: Sequence[int]) -> str:
    """The inverse of `_range`; a size that is not one of them is not used."""
    return f"1{sizes.index(size):0{RANGE_BITS - 1}b}" if size in sizes else "0" * RANGE_BITS
