"""The methods by name: a new one is one file beside this and one line here."""

from models.distributions import QesperaDistributions
from models.median import Median
from models.method import WaitMethod
from models.qespera import Qespera
from models.zero import Zero

METHODS: dict[str, type[WaitMethod]] = {
    Zero.name: Zero,
    Median.name: Median,
    Qespera.name: Qespera,
    QesperaDistributions.name: QesperaDistributions,
}

DEFAULT = Qespera.name
TRIVIAL = (Zero.name, Median.name)


def method_named(name: str) -> WaitMethod:
    """A new method of this name.

    Raises:
        ValueError: there is no such method; the message lists those there are.
    """
    try:
        return METHODS[name]()
    except KeyError:
        raise ValueError(f"no method {name!r}; there are: {', '.join(METHODS)}") from None
