"""Generate the reference from the code: commands, settings, records, metrics, and the Python package."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import typer

import queuecast
from deploy.cli import app
from streams.broker.schema import RECORDS, schema
from streams.settings import PREFIX, SECTIONS
from tests.site.metrics import MetricText, metrics_by_process

Fields = Sequence[str]

WIDTH = 100
"""Maximum width of a signature on one line."""


def _page(title: str, introduction: str, sections: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", introduction, *sections]) + "\n"


def _table(heads: Fields, rows: Iterable[Fields]) -> str:
    """Return a Markdown table, or an empty text without rows."""
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    rule = f"|{'---|' * len(heads)}"
    return "\n".join([f"| {' | '.join(heads)} |", rule, *lines]) if lines else ""


def _cell(text: str) -> str:
    """Return a table cell with escaped bars outside of code."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if place % 2 else part.replace("|", "&#124;") for place, part in enumerate(parts))


def _text(text: str | None) -> str:
    """Return a docstring as paragraphs, with escaped angle brackets."""
    return inspect.cleandoc(text or "").replace("<", "&lt;")


# Commands.


def commands() -> str:
    """Return the page of all commands and their options."""
    group = typer.main.get_group(app)
    found = (_command(f"queuecast {path}", command) for path, command in _leaves(group, ""))
    return _page(
        "Commands",
        "This page has the text of `queuecast COMMAND --help`. The exit code is 0 for success, 1 for an error of a "
        "server or a missing result, and 2 for an invalid command or file. Options before the command:\n\n"
        + _options(group),
        found,
    )


def _leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            arguments = "".join(
                f" {param.metavar or param.name.upper()}" for param in command.params if _argument(param)
            )
            yield from _leaves(command, f"{path}{name}{arguments} ")
        else:
            yield f"{path}{name}", command


def _command(title: str, command: Any) -> str:
    usage = " ".join([title, *_arguments_of(command), "[OPTIONS]"])
    example = (command.epilog or "").replace("\n", " ")
    parts = [f"## {title}", _text(command.help), f"    {usage}", _arguments(command), _options(command), example]
    return "\n\n".join(part for part in parts if part)


def _argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _arguments_of(command: Any) -> dict[str, str]:
    """Return the descriptions of the arguments by name."""
    return {param.metavar or param.name.upper(): _text(param.help) for param in command.params if _argument(param)}


def _arguments(command: Any) -> str:
    return _table(("argument", "meaning"), [(f"`{name}`", text) for name, text in _arguments_of(command).items()])


def _options(command: Any) -> str:
    shown = [param for param in command.params if not _argument(param) and not getattr(param, "hidden", False)]
    rows = [
        (f"`{', '.join(param.opts)}{f' {param.metavar}' if param.metavar else ''}`", _option_text(param))
        for param in shown
    ]
    return _table(("option", "effect"), rows)


def _option_text(param: Any) -> str:
    text, default = _text(param.help), param.default
    is_complete = default in (None, False, ()) or callable(default) or "Default:" in text
    return text if is_complete else f"{text} Default: {default}."


# Settings.


def settings() -> str:
    """Return the page of all settings, with the docstring of each section and the defaults."""
    return _page(
        "Settings",
        "The environment overrides the TOML file, and the file overrides the defaults: see "
        "[configuration](../howto/run.md#configuration). A setting that is a table can be set only in the file.",
        (_section(name, kind) for name, kind in SECTIONS.items()),
    )


def _section(name: str, kind: type[msgspec.Struct]) -> str:
    rows = [
        (f"`{field.name}`", f"`{_default(field)}`", f"`{PREFIX}_{name}_{field.name}`".upper())
        for field in msgspec.structs.fields(kind)
    ]
    return f"## {name}\n\n{_text(kind.__doc__)}\n\n{_table(('setting', 'default', 'environment variable'), rows)}"


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    else:
        value = None if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return "none" if value is None else msgspec.json.encode(value).decode()


# Records.


def records() -> str:
    """Return the page of all records on the topics, from their JSON Schema."""
    parts = schema()["$defs"]
    named = {name: parts[name] for name in RECORDS}
    kinds = [(f"`{name}`", ", ".join(map(_linked, _choices(found)))) for name, found in named.items()]
    return _page(
        "Records",
        "The records on the topics are JSON. This page is generated from their JSON Schema, which `queuecast schema` "
        "prints. Times are Unix seconds, durations are seconds.\n\n" + _table(("record", "types"), kinds),
        (_record(name, part) for name, part in parts.items() if name not in named),
    )


def _choices(part: dict[str, Any]) -> list[str]:
    refs = [one.get("$ref", "") for one in (part, *part.get("anyOf", ()))]
    return [ref.rpartition("/")[2] for ref in refs if ref]


def _linked(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _record(name: str, part: dict[str, Any]) -> str:
    needed = part.get("required", ())
    rows = [
        (f"`{field}`", _kind(found), _presence(field in needed, found))
        for field, found in part.get("properties", {}).items()
    ]
    return f"## {name}\n\n{_text(part.get('description'))}\n\n{_table(('field', 'type', 'default'), rows)}"


def _presence(needed: bool, found: dict[str, Any]) -> str:
    if needed:
        return "required"
    return f"`{msgspec.json.encode(found['default']).decode()}`" if "default" in found else "missing"


def _kind(found: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in found:
        return _linked(found["$ref"].rpartition("/")[2])
    if "anyOf" in found:
        return " or ".join(_kind(one) for one in found["anyOf"])
    if "const" in found or "enum" in found:
        return ", ".join(f"`{value}`" for value in found.get("enum", [found.get("const")]))
    if found.get("type") == "array":
        return f"list of {_kind(found['items'])}" if found.get("items") else "list"
    if found.get("type") == "object" and isinstance(found.get("additionalProperties"), dict):
        return f"object of {_kind(found['additionalProperties'])}"
    return str(found.get("type", "anything"))


# Metrics.


def metrics() -> str:
    """Return the page of all metrics, by process."""
    found = metrics_by_process()
    return _page(
        "Metrics",
        "These metrics are served at `/metrics`, in addition to those of every Python process. Counters end in "
        "`_total`. Histograms have `_bucket`, `_sum` and `_count`.",
        (
            f"## {process}\n\n{_table(('metric', 'labels', 'description'), map(_metric, of))}"
            for process, of in found.items()
        ),
    )


def _metric(one: MetricText) -> Fields:
    return f"`{one.name}`", ", ".join(f"`{label}`" for label in one.labels), f"{_text(one.text)} ({one.kind})"


# The package for programs.


def python() -> str:
    """Return the page of all public names of the package `queuecast`."""
    return _page(
        "Python",
        "These are the public names of `import queuecast`. [Use the client package](../howto/client.md) shows how to "
        "use them. Other modules can change at any time.",
        (_name(name, getattr(queuecast, name)) for name in queuecast.__all__),
    )


def _name(name: str, found: Any) -> str:
    if not callable(found):
        return f"## {name}\n\n`{found}`"
    parts = [f"## {name}", _signature(name, found), _documented(found)]
    if inspect.isclass(found):
        for method, function in inspect.getmembers(found, lambda one: callable(one) or isinstance(one, property)):
            if not method.startswith("_") and not hasattr(BaseException, method):
                signature = "" if isinstance(function, property) else _signature(method, function)
                parts += [f"### {name}.{method}", signature, _documented(function)]
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, found: Any) -> str:
    """Return the signature without `self`; an exception has none."""
    if inspect.isclass(found) and issubclass(found, BaseException):
        return ""
    signature = inspect.signature(found)
    signature = signature.replace(parameters=[one for one in signature.parameters.values() if one.name != "self"])
    text = re.sub(r"\b(?:[a-z]\w*\.)+(?=[A-Z])", "", str(signature))
    text = re.sub(r"\*<class '(\w+)'>", r"Unpack[\1]", text).replace("'", "")
    if len(name) + len(text) > WIDTH:
        inside, _, result = text[1:].rpartition(")")
        text = "(\n    " + re.sub(r", (?=\w+:|\*)", ",\n    ", inside) + f",\n){result}"
    return f"```python\n{name}{text}\n```"


def _documented(found: Any) -> str:
    """Return a docstring as Markdown, with its Google sections of arguments, results and errors as lists."""
    text = re.sub(
        r"^(Returns|Yields):\n((?: {4}.*(?:\n|$))+)", _result, _text(inspect.getdoc(found)), flags=re.MULTILINE
    )
    text = re.sub(r"^    (\w[\w, *]*): ", r"- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"^ {8}", "  ", text, flags=re.MULTILINE)
    return re.sub(r"^(Args|Attributes|Parameters|Raises):\n", r"\1:\n\n", text, flags=re.MULTILINE)


def _result(section: re.Match[str]) -> str:
    lines = inspect.cleandoc(section[2]).splitlines()
    return f"{section[1]}: {' '.join(line.strip() for line in lines)}\n"


REFERENCE: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/settings.md": settings,
    "reference/records.md": records,
    "reference/metrics.md": metrics,
    "reference/python.md": python,
}
"""Generators of the pages by their place on the site."""
