import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.papers.run_template import RunTemplate
from models.papers.search.templates import ELAPSED, HISTORY, NODES, Encoding

ATTRIBUTES = ("type", "queue", "user", "walltime")
FULL = Encoding(ATTRIBUTES, relative=True, running=True)


def genes(encoding: Encoding) -> st.SearchStrategy[str]:
    return st.text("01", min_size=encoding.bits, max_size=encoding.bits)


@given(genes(FULL))
def test_gene_and_template_encoding_round_trips(gene: str) -> None:
    template = FULL.decode(gene)
    assert RunTemplate.parse(str(template)) == template
    encoded = FULL.gene(template)
    assert encoded is not None and FULL.decode(encoded) == template


def test_encoding_covers_all_ranges_of_the_paper() -> None:
    assert (NODES[0], NODES[-1], ELAPSED[0], ELAPSED[-1], HISTORY[0], HISTORY[-1]) == (1, 512, 64, 65536, 2, 65536)
    for place in range(16):
        template = RunTemplate.of(
            ["user", f"cpus/{NODES[place % 10]}"], "inverse", True, HISTORY[place], ELAPSED[place % 11]
        )
        encoded = FULL.gene(template)
        assert encoded is not None and FULL.decode(encoded) == template


def test_gene_is_decoded_bit_by_bit() -> None:
    assert FULL.bits == 2 + 1 + 4 + 15
    gene = "01" + "1" + "0110" + "10010" + "10001" + "10110"
    assert str(FULL.decode(gene)) == "queue,user,cpus/4,elapsed/128 linear relative 128"
    assert str(FULL.decode("0" * FULL.bits)) == "site mean absolute 65536"
    assert FULL.gene(FULL.decode(gene)) == gene


def test_encoding_without_walltimes_or_running_jobs_is_fixed() -> None:
    plain = Encoding(ATTRIBUTES, relative=False, running=False)
    dice = random.Random(1)
    for _ in range(50):
        template = plain.decode("".join(dice.choice("01") for _ in range(plain.bits)))
        assert (template.relative, template.elapsed) == (False, ELAPSED[0])


@pytest.mark.parametrize(
    "text",
    [
        "executable mean relative 64",
        "user,cpus mean relative 64",
        "user,cpus/3 mean relative 64",
        "user mean relative 63",
        "user,elapsed/60 mean relative 64",
    ],
)
def test_template_outside_encoding_has_no_gene(text: str) -> None:
    assert FULL.gene(RunTemplate.parse(text)) is None
