"""The methods by name. Naming one loads nothing: a method's module is imported when the method is first taken.

A new method of this package is one file and one line here. Methods of other packages are entry points of the groups
`queuecast.wait_methods` and `queuecast.run_methods`, whose names are the methods'.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:  # importing it loads numpy and numba
    from models.method import Method, RunMethod, WaitMethod

M = TypeVar("M", bound="Method")

DEFAULT = "qespera"
DEFAULT_BOUNDS = "qbets"
DEFAULT_WHAT_IF = "policy"
DEFAULT_RUN = "closest"
TRIVIAL = ("zero", "median")


class Registry(MutableMapping[str, "type[M]"]):
    """Methods of one kind by name, those of this package first. A name that is set counts in this process only.

    Parameters:
        title: what messages call a method of this kind.
        kind: the base class of its methods in `models.method`.
        group: the entry points' group for methods of other packages.
        built_in: where the class of each method of this package is, as "module:Class".

    Raises:
        ValueError: on first use, where two packages give the same name to a method, or one takes the name of a method
            of this package; on taking a method, where it cannot be loaded. The message names the package.
    """

    def __init__(self, title: str, kind: str, group: str, built_in: Mapping[str, str]) -> None:
        self._title = title
        self._kind = kind
        self._group = group
        self._built_in = built_in
        self._loaded: dict[str, type[M]] = {}

    @cached_property
    def _places(self) -> dict[str, EntryPoint]:
        """Where each method is, by name."""
        places = {name: EntryPoint(name, place, self._group) for name, place in self._built_in.items()}
        for found in entry_points(group=self._group):
            known = places.get(found.name)
            if known is not None and _package(known) != _package(found):
                raise ValueError(
                    f"{_package(found)} gives a method the name {found.name!r}, which is that of {_package(known)}"
                )
            places[found.name] = found
        return places

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._places, *self._loaded)))

    def __len__(self) -> int:
        return len(self._places.keys() | self._loaded.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._loaded

    def __getitem__(self, name: str) -> "type[M]":
        if name not in self._loaded:
            self._loaded[name] = self._load(self._places[name])
        return self._loaded[name]

    def __setitem__(self, name: str, method: "type[M]") -> None:
        self._loaded[name] = method

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def check(self, name: str) -> None:
        """Make sure that there is a method of this name. One of another package is loaded, to see whether it can be.

        Raises:
            ValueError: there is none, and the message lists those there are; or it cannot be loaded.
        """
        if name not in self:
            raise ValueError(f"{name!r} is not a {self._title}; there are: {', '.join(self)}")
        if name not in self._built_in:
            self[name]

    def _load(self, place: EntryPoint) -> "type[M]":
        """The class of a method.

        Raises:
            ValueError: it cannot be loaded, or is no method of this kind and name.
        """
        wanted: type[M] = getattr(import_module("models.method"), self._kind)
        try:
            method = place.load()
        except Exception as error:  # whatever another package does when it is imported
            raise ValueError(
                f"method {place.name!r} of {_package(place)} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if not (isinstance(method, type) and issubclass(method, wanted)):
            raise ValueError(f"method {place.name!r} of {_package(place)}: {place.value} is not a {self._kind}")
        if method.name != place.name:
            raise ValueError(f"method {place.name!r} of {_package(place)}: {place.value} has the name {method.name!r}")
        return method


def _package(place: EntryPoint) -> str:
    """Who gives a method: the distribution of an entry point, else this package."""
    return "queuecast" if place.dist is None else f"the package {place.dist.name} {place.dist.version}"


METHODS: "Registry[WaitMethod]" = Registry(
    "method",
    "WaitMethod",
    "queuecast.wait_methods",
    {
        "zero": "models.waits.zero:Zero",
        "median": "models.waits.median:Median",
        "qespera": "models.waits.qespera:Qespera",
        "qespera-distributions": "models.waits.distributions:QesperaDistributions",
        "qbets": "models.waits.qbets:Qbets",
        "fcfs": "models.waits.simulated:SimulatedFcfs",
        "lwf": "models.waits.simulated:SimulatedLwf",
        "easy": "models.waits.simulated:SimulatedEasy",
        "conservative": "models.waits.simulated:SimulatedConservative",
        "policy": "models.waits.policy:Policy",
        "ibl": "models.waits.ibl:Ibl",
    },
)
"""The methods for waits."""

RUN_METHODS: "Registry[RunMethod]" = Registry(
    "method for run times",
    "RunMethod",
    "queuecast.run_methods",
    {
        "closest": "models.runtimes.closest:Closest",
        "template": "models.runtimes.template:Templates",
        "ibl": "models.waits.ibl:IblRuns",
        "gibbons": "models.runtimes.gibbons:Gibbons",
        "downey": "models.runtimes.downey:Downey",
        "last-two": "models.runtimes.last_two:LastTwo",
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
