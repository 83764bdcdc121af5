"""Classes by name: those of this package, and those of other packages by entry points."""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # importing it loads numpy and numba
    from models.method import Method

M = TypeVar("M", bound="Method")


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
