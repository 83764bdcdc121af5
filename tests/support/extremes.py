"""Records made from their types: every field at its extremes, in any combination, as JSON that the schema lets pass."""

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

USUAL = ("a", "b", "ada", "all", "user")
"""Names that records share, so that they speak of the same things."""


def extreme(kind: Any, fixed: Mapping[str, st.SearchStrategy[Any]] | None = None) -> st.SearchStrategy[Any]:
    """Values of a type as JSON has them.

    Parameters:
        fixed: strategies of fields, which are always given then, by their names, such as "time" or "Pool.nodes".
    """
    return _of(inspect.type_info(kind), fixed or {})


def _of(kind: inspect.Type, fixed: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    if isinstance(kind, inspect.StructType):
        return _of_record(kind, fixed)
    if isinstance(kind, inspect.UnionType):
        return st.one_of([_of(one, fixed) for one in kind.types])
    if isinstance(kind, inspect.ListType):
        return st.lists(_of(kind.item_type, fixed), max_size=3)
    if isinstance(kind, inspect.TupleType):
        return st.tuples(*(_of(one, fixed) for one in kind.item_types))
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(_of(kind.key_type, fixed), _of(kind.value_type, fixed), max_size=3)
    return _of_value(kind)


def _of_value(kind: inspect.Type) -> st.SearchStrategy[Any]:
    if isinstance(kind, inspect.IntType):
        least = _first(kind.ge, None if kind.gt is None else kind.gt + 1, -(1 << 63))
        most = _first(kind.le, None if kind.lt is None else kind.lt - 1, (1 << 64) - 1)
        middle = [number for number in (0, 1, 2, 7, 1_000, 10_000_000, 1 << 31, 1 << 53) if least <= number <= most]
        return st.sampled_from([least, most, *middle])
    if isinstance(kind, inspect.FloatType):
        least, most = _first(kind.ge, -1.7e308), _first(kind.le, 1.7e308)
        middle = [number for number in (0.0, 5e-324, 0.5, 60.0, 86_400.0) if least <= number <= most]
        return st.sampled_from([least, most, *middle])
    if isinstance(kind, inspect.StrType):
        least, most = kind.min_length or 0, kind.max_length or 64
        return st.sampled_from(["x" * least, "\N{SNOWMAN}" * most, "a\n\0\u2028'\"", *USUAL])
    if isinstance(kind, inspect.BoolType):
        return st.booleans()
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    assert isinstance(kind, inspect.NoneType), kind
    return st.none()


def _first(*bounds: Any) -> Any:
    return next(bound for bound in bounds if bound is not None)


def _of_record(kind: inspect.StructType, fixed: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    own = {field.encode_name: f"{kind.cls.__name__}.{field.encode_name}" for field in kind.fields}
    given = {name: fixed[key] for name, one in own.items() for key in (name, one) if key in fixed}
    others = {field.encode_name: _of(field.type, fixed) for field in kind.fields if field.encode_name not in given}
    named = others | given
    needed = {field.encode_name for field in kind.fields if field.required} | given.keys()
    tag = {} if kind.tag_field is None else {kind.tag_field: st.just(kind.tag)}
    return st.fixed_dictionaries(
        {name: one for name, one in named.items() if name in needed} | tag,
        optional={name: one for name, one in named.items() if name not in needed},
    )


def read(kind: Any, value: Any) -> Any:
    """A record as a worker would read it from the wire."""
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)
