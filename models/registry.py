"""The methods by name: a new one is one file beside this and one line here."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from models.method import Method, RunMethod, WaitMethod
from models.runtimes.closest import Closest
from models.runtimes.downey import Downey
from models.runtimes.gibbons import Gibbons
from models.runtimes.last_two import LastTwo
from models.runtimes.template import Templates
from models.runtimes.walltime import Walltime
from models.waits.distributions import QesperaDistributions
from models.waits.ibl import Ibl, IblRuns
from models.waits.median import Median
from models.waits.policy import Policy
from models.waits.qbets import Qbets
from models.waits.qespera import Qespera
from models.waits.simulated import SimulatedConservative, SimulatedEasy, SimulatedFcfs, SimulatedLwf
from models.waits.zero import Zero

METHODS: dict[str, type[WaitMethod]] = {
    Zero.name: Zero,
    Median.name: Median,
    Qespera.name: Qespera,
    QesperaDistributions.name: QesperaDistributions,
    Qbets.name: Qbets,
    SimulatedFcfs.name: SimulatedFcfs,
    SimulatedLwf.name: SimulatedLwf,
    SimulatedEasy.name: SimulatedEasy,
    SimulatedConservative.name: SimulatedConservative,
    Policy.name: Policy,
    Ibl.name: Ibl,
}
"""The methods for waits."""

RUN_METHODS: dict[str, type[RunMethod]] = {
    Closest.name: Closest,
    Templates.name: Templates,
    IblRuns.name: IblRuns,
    Gibbons.name: Gibbons,
    Downey.name: Downey,
    LastTwo.name: LastTwo,
    Walltime.name: Walltime,
}
"""The methods for run times."""

DEFAULT = Qespera.name
DEFAULT_BOUNDS = Qbets.name
DEFAULT_WHAT_IF = Policy.name
DEFAULT_RUN = Closest.name
TRIVIAL = (Zero.name, Median.name)

M = TypeVar("M", bound=Method)


def method_named(name: str, parameters: Mapping[str, object] | None = None) -> WaitMethod:
    """A new method for waits of this name, with these of its parameters and the defaults of the others.

    Raises:
        ValueError: there is no such method or parameter, and the message lists those there are; or a value is out of
            its bounds.
    """
    return _made(METHODS, name, parameters)


def run_method_named(name: str, parameters: Mapping[str, object] | None = None) -> RunMethod:
    """A new method for run times; as `method_named`."""
    return _made(RUN_METHODS, name, parameters)


def check_parameters(name: str, parameters: Mapping[str, object]) -> None:
    """Make sure that a method, of either kind, has these parameters.

    Raises:
        ValueError: as `method_named`.
    """
    kinds: dict[str, type[Method]] = {**METHODS, **RUN_METHODS, **METHODS}
    _made(kinds, name, parameters)


def _made(kinds: Mapping[str, type[M]], name: str, parameters: Mapping[str, object] | None) -> M:
    kind = kinds.get(name)
    if kind is None:
        raise ValueError(f"no method {name!r}; there are: {', '.join(kinds)}")
    return kind(**{key: _checked(kind, key, value) for key, value in (parameters or {}).items()})


def _checked(kind: type[Method], key: str, value: object) -> object:
    """The value as the type that the parameter has: a whole number may stand for a float."""
    if key not in kind.tunable:
        there_are = f"there are: {', '.join(kind.tunable)}" if kind.tunable else "it has none"
        raise ValueError(f"{kind.name}.{key} is not a parameter; {there_are}")
    try:
        return msgspec.convert(value, kind.tunable[key])
    except msgspec.ValidationError as error:
        problem = str(error)
        raise ValueError(f"{kind.name}.{key} is {value!r}: {problem[0].lower()}{problem[1:]}") from None
