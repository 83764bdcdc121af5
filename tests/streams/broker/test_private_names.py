"""Private names of libraries that we assign or override: each is listed and exists."""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator

from streams.broker import consumer
from streams.broker.private_names import AIOKAFKA, CHECKED, FAUST, PrivateNames, check_private_names, has_attribute
from streams.errors import UserError
from streams.worker import faust_compat, kafka_compat

MODULES = (consumer, faust_compat, kafka_compat)
CONNECTION = next(kind for kind in kafka_compat.Connection.__mro__ if kind.__module__ == "aiokafka.conn")
LISTED = {name for one in (*AIOKAFKA, *FAUST) for name in one.names}


def test_installed_libraries_have_all_names() -> None:
    check_private_names((*AIOKAFKA, *FAUST))


@pytest.mark.parametrize("library", CHECKED)
def test_installed_version_was_checked(library: str) -> None:
    assert version(library) == CHECKED[library]


@pytest.mark.parametrize(
    ("owner", "name"), [(GroupCoordinator, "_push_error_to_user"), (CONNECTION, "_send_sasl_token")]
)
def test_missing_method_is_reported(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(UserError, match=rf"aiokafka {version('aiokafka')} has no aiokafka\..*{name}, .*; install aio"):
        check_private_names(AIOKAFKA)


def test_attribute_without_assignment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset(self: Any) -> None:
        self._error = None

    for name, method in list(vars(GroupCoordinator).items()):
        if "_pending_exception" in getattr(getattr(method, "__code__", None), "co_names", ()):
            monkeypatch.setattr(GroupCoordinator, name, reset)
    with pytest.raises(UserError, match=r"GroupCoordinator\._pending_exception"):
        check_private_names(AIOKAFKA)


@pytest.mark.parametrize("owner", ["aiokafka.conn:connect", "aiokafka.gone:create_conn", "aiokafka.conn:create_conn"])
def test_missing_owner_is_reported(owner: str) -> None:
    with pytest.raises(UserError, match="Connector, which queuecast needs"):
        check_private_names([PrivateNames("aiokafka", owner, ("Connector",), "")])


def accessed(module: ModuleType) -> Iterator[str]:
    """Yield private attributes of objects other than `self` and of modules: all belong to libraries."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "os"):
                yield node.attr


def inherited(module: ModuleType) -> Iterator[str]:
    """Yield private names of our classes that a base class of a library also has."""
    for found in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(found, ast.ClassDef):
            bases = getattr(module, found.name).__mro__
            theirs = [base for base in bases if base.__module__.partition(".")[0] in ("aiokafka", "faust", "mode")]
            own = {name for name in names_of(found) if not name.startswith("__")}
            yield from (name for name in own if any(has_attribute(base, name) for base in theirs))


def names_of(found: ast.ClassDef) -> Iterator[str]:
    for one in found.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            yield one.name
        elif isinstance(one, ast.Assign):
            yield from (target.id for target in ast.walk(one) if isinstance(target, ast.Name))
    for one in ast.walk(found):
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self" and one.attr.startswith("_"):
            yield one.attr


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_uses_of_private_names_are_listed(module: ModuleType) -> None:
    assert sorted({*accessed(module), *inherited(module)} - LISTED) == []
