"""Registries of classes by name: those of this package, and those of other packages by entry points.

A name alone imports nothing: the module of a class is imported when the class is first used.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

T = TypeVar("T")
OWN = "queuecast"  # this package


class Registry(MutableMapping[str, type[T]]):
    """Classes of one kind by name, those of this package first. A name that is set is valid in this process only.

    Args:
        title: the name of the kind in messages, such as "method".
        base: the base class, as "module:Class". Each class has its name in the attribute `name`.
        group: the entry point group for classes of other packages.
        built_in: the classes of this package without an entry point, as "module:Class".

    Raises:
        ValueError: on first use, if two packages use the same name, or one uses a name of this package; on access to a
            class, if it cannot be loaded. The message names the package.
    """

    def __init__(self, title: str, base: str, group: str, built_in: Mapping[str, str]) -> None:
        self._title = title
        self._base = base
        self._group = group
        self._built_in = built_in
        self._loaded: dict[str, type[T]] = {}

    @cached_property
    def _places(self) -> dict[str, EntryPoint]:
        """The entry point of each class, by name."""
        places = {name: EntryPoint(name, place, self._group) for name, place in self._built_in.items()}
        for found in entry_points(group=self._group):
            known = places.get(found.name)
            if known is not None and _package(known) != _package(found):
                gives = f"{_package(found)} registers a {self._title} with the name {found.name!r}"
                raise ValueError(f"{gives}, which {_package(known)} already uses")
            places[found.name] = found
        return places

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._places, *self._loaded)))

    def __len__(self) -> int:
        return len(self._places.keys() | self._loaded.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._loaded

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._loaded:
            self._loaded[name] = self._load(self._places[name])
        return self._loaded[name]

    def __setitem__(self, name: str, kind: type[T]) -> None:
        self._loaded[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def check(self, name: str) -> None:
        """Check that this name exists. A class of another package is loaded, to check that it can be.

        Raises:
            ValueError: the name does not exist, and the message lists those that do; or the class cannot be loaded.
        """
        if name not in self:
            raise ValueError(f"{name!r} is not a {self._title}; there are: {', '.join(self)}")
        if name not in self._loaded and _package(self._places[name]) != OWN:
            self[name]

    def _load(self, place: EntryPoint) -> type[T]:
        """Load the class of an entry point.

        Raises:
            ValueError: the class cannot be loaded, or has another base class or name.
        """
        base: type[T] = EntryPoint("base", self._base, self._group).load()
        who = f"{self._title} {place.name!r} of {_package(place)}"
        try:
            found = place.load()
        except Exception as error:  # another package may raise any error on import
            raise ValueError(f"{who} cannot be loaded: {type(error).__name__}: {error}") from error
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ValueError(f"{who}: {place.value} is not a {base.__name__}")
        if (name := getattr(found, "name", None)) != place.name:
            raise ValueError(f"{who}: {place.value} has the name {name!r}")
        return found


def _package(place: EntryPoint) -> str:
    """Return the package that provides a class: this one, by its own table or an entry point, or another one."""
    if place.dist is None or place.dist.name == OWN:
        return OWN
    return f"the package {place.dist.name} {place.dist.version}"
