"""The methods by name. A name alone imports nothing: the module of a method is imported on first use.

A new method of this package is one file and one line here. Methods of other packages are entry points of the groups
`queuecast.wait_methods` and `queuecast.run_methods`, named like the methods; so are those of `models.papers`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from models.plugins import Registry

if TYPE_CHECKING:  # importing it loads numpy and numba
    from models.method import Method, RunMethod, WaitMethod

M = TypeVar("M", bound="Method")

DEFAULT = "blend"
DEFAULT_RUN = "closest"
TRIVIAL = ("zero", "median")

METHODS: "Registry[WaitMethod]" = Registry(
    "method",
    "models.method:WaitMethod",
    "queuecast.wait_methods",
    {
        "zero": "models.waits.trivial:Zero",
        "median": "models.waits.trivial:Median",
        "qespera": "models.waits.qespera:Qespera",
        "fcfs": "models.waits.simulated:SimulatedFcfs",
        "lwf": "models.waits.simulated:SimulatedLwf",
        "easy": "models.waits.simulated:SimulatedEasy",
        "conservative": "models.waits.simulated:SimulatedConservative",
        "policy": "models.waits.policy:Policy",
        "boosted": "models.waits.boosted.alone:BoostedAlone",
        "order": "models.waits.order:LearntOrder",
        "blend": "models.waits.blend:Blend",
    },
)
"""The methods for waits."""

RUN_METHODS: "Registry[RunMethod]" = Registry(
    "method for run times",
    "models.method:RunMethod",
    "queuecast.run_methods",
    {
        "closest": "models.runtimes.closest:Closest",
        "walltime": "models.runtimes.walltime:Walltime",
    },
)
"""The methods for run times."""


def method_named(name: str, parameters: Mapping[str, object] | None = None) -> "WaitMethod":
    """A new method for waits of this name, with these of its parameters and the defaults of the others.

    Raises:
        ValueError: there is no such method or parameter, and the message lists those there are; or a value is out of
            its bounds; or the method cannot be loaded.
    """
    return _made(METHODS, name, parameters)


def run_method_named(name: str, parameters: Mapping[str, object] | None = None) -> "RunMethod":
    """A new method for run times; as `method_named`."""
    return _made(RUN_METHODS, name, parameters)


def check_parameters(name: str, parameters: Mapping[str, object]) -> None:
    """Make sure that a method has these parameters; where a name is of both kinds, the method for waits counts.

    Raises:
        ValueError: as `method_named`.
    """
    registry: Mapping[str, Any] = METHODS if name in METHODS or name not in RUN_METHODS else RUN_METHODS
    if name not in registry:
        raise ValueError(_unknown(name, dict.fromkeys((*METHODS, *RUN_METHODS))))
    _made(registry, name, parameters)


def _made(registry: "Mapping[str, type[M]]", name: str, parameters: Mapping[str, object] | None) -> M:
    if name not in registry:
        raise ValueError(_unknown(name, registry))
    method = registry[name]
    return method(**{key: _checked(method, key, value) for key, value in (parameters or {}).items()})


def _unknown(name: str, names: Mapping[str, object]) -> str:
    return f"no method {name!r}; there are: {', '.join(names)}"


def _checked(method: "type[Method]", key: str, value: object) -> object:
    """The value as the type that the parameter has: a whole number may stand for a float."""
    if key not in method.tunable:
        there_are = f"there are: {', '.join(method.tunable)}" if method.tunable else "it has none"
        raise ValueError(f"{method.name}.{key} is not a parameter; {there_are}")
    try:
        return msgspec.convert(value, method.tunable[key])
    except msgspec.ValidationError as error:
        problem = str(error)
        raise ValueError(f"{method.name}.{key} is {value!r}: {problem[0].lower()}{problem[1:]}") from None
