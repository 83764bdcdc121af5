"""The methods by name: a new one is one file beside this and one line here."""

from collections.abc import Mapping

import msgspec

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


def method_named(name: str, parameters: Mapping[str, object] | None = None) -> WaitMethod:
    """A new method of this name, with these of its parameters and the defaults of the others.

    Raises:
        ValueError: there is no such method or parameter, and the message lists those there are; or a value is out of
            its bounds.
    """
    kind = METHODS.get(name)
    if kind is None:
        raise ValueError(f"no method {name!r}; there are: {', '.join(METHODS)}")
    return kind(**{key: _checked(kind, key, value) for key, value in (parameters or {}).items()})


def _checked(kind: type[WaitMethod], key: str, value: object) -> object:
    """The value as the type that the parameter has: a whole number may stand for a float."""
    if key not in kind.tunable:
        there_are = f"there are: {', '.join(kind.tunable)}" if kind.tunable else "it has none"
        raise ValueError(f"{kind.name}.{key} is not a parameter; {there_are}")
    try:
        return msgspec.convert(value, kind.tunable[key])
    except msgspec.ValidationError as error:
        problem = str(error)
        raise ValueError(f"{kind.name}.{key} is {value!r}: {problem[0].lower()}{problem[1:]}") from None
