"""The names in the documents exist: settings, metrics, commands and options."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from msgspec.structs import fields

from deploy.cli import app
from streams.settings import PREFIX, SECTIONS
from streams.settings.loading import NO_SETTINGS
from tests.site.metrics import metrics_by_process
from tests.site.pages import DOCS, READMES, ROOT

PAGES = sorted({*READMES, *(path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*.md"))})
DEPLOYED = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "deploy").rglob("*")
    if path.suffix in (".conf", ".env", ".erb", ".json", ".lua", ".service", ".target", ".toml", ".yaml")
)
"""Files in `deploy` that an operator installs."""

FILES = ("env", "password", "yaml", "toml", "md", "py", "json")
"""Endings of file names that look like settings, such as `serve.password`."""

OTHER_NAMES = {
    "queuecast_cache",
    "queuecast_optimist",
    "queuecast_pause_s",
    "queuecast_site",
    "queuecast_token",
    "queuecast_url",
}
"""Names of a volume, a module and attributes that look like metrics."""

COMMANDS = typer.main.get_group(app)


def options(command: Any) -> Iterator[str]:
    for param in command.params:
        yield from (*param.opts, *param.secondary_opts)
    for child in getattr(command, "commands", {}).values():
        yield from options(child)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_settings_of_a_page_exist(page: str) -> None:
    known = {f"{name}.{field.name}" for name, kind in SECTIONS.items() for field in fields(kind)}
    named = re.findall(rf"`((?:{'|'.join(SECTIONS)})\.(\w+))`", text_of(page))
    assert not {name for name, ending in named if ending not in FILES} - known


@pytest.mark.parametrize("page", PAGES)
def test_metrics_of_a_page_exist(page: str) -> None:
    known = {one.name for found in metrics_by_process().values() for one in found}
    named = {re.sub(r"_(sum|count|bucket)$", "", name) for name in re.findall(r"\bqueuecast_[a-z]\w+", text_of(page))}
    assert not named - known - OTHER_NAMES


QUERIES = [file for file in DEPLOYED if file.endswith((".json", ".yaml"))]


@pytest.mark.parametrize("file", QUERIES)
def test_metrics_of_deployed_queries_exist(file: str) -> None:
    known = {one.name for found in metrics_by_process().values() for one in found}
    read = re.findall(r"(?<![\w:])queuecast_[a-z]\w+(?![\w:])", text_of(file))  # not those that a rule records
    assert not {re.sub(r"_(sum|count|bucket)$", "", name) for name in read} - known


def test_deployed_files_include_dashboards_and_alerts() -> None:
    assert {"deploy/grafana/dashboards/flow.json", "deploy/prometheus/alerts.yaml"} <= set(QUERIES)


@pytest.mark.parametrize("file", DEPLOYED)
def test_variables_of_a_deployed_file_are_accepted(file: str) -> None:
    """A command refuses unknown variables, so it fails beside a file that uses one."""
    settings = {f"{PREFIX}_{name}_{one.name}".upper() for name, kind in SECTIONS.items() for one in fields(kind)}
    assert not set(re.findall(rf"\b{PREFIX}_[A-Z_]*[A-Z]", text_of(file))) - settings - NO_SETTINGS


@pytest.mark.parametrize("page", [*PAGES, *DEPLOYED])
def test_commands_and_options_of_a_page_exist(page: str) -> None:
    text = text_of(page)
    assert not set(re.findall(r"(?:`|/bin/)queuecast ([a-z][\w-]*)", text)) - set(COMMANDS.commands)
    named = set(re.findall(r"queuecast (?:[\w ]+ )?(--[a-z][\w-]+)", text))
    assert not named - set(options(COMMANDS)) - {"--help", "--install-completion"}


OF_LIBRARIES = {"certificate verify failed", "Missing Authority Key Identifier"}


def test_error_messages_of_the_troubleshooting_page_exist() -> None:
    """The parts between values and names are somewhere in the code."""
    sources = [path for folder in ("deploy", "models", "streams") for path in (ROOT / folder).rglob("*.py")]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text(encoding="utf-8") for path in sources))
    table, _, _ = text_of("docs/howto/troubleshoot.md").partition("## Predictions")
    messages = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    assert len(messages) >= 12
    parts = {part.strip(" ,;`") for part in re.split(r"…|\d+|: |`, `| is refused", "`, `".join(messages))}
    assert not {part for part in parts if part not in code} - OF_LIBRARIES


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield the names of classes and functions; method names follow the name of their class."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, f"{node.name}.")


def test_architecture_names_existing_files_and_code() -> None:
    text = text_of("docs/explanation/architecture.md")
    steps = re.findall(r"\| `([\w/]+\.py)` \| `([\w.]+)` \|", text)
    assert len(steps) >= 15
    for file, name in steps:
        assert name in set(definitions(ast.parse(text_of(file)).body)), (file, name)
    assert not [
        file
        for file in re.findall(r"`((?:models|streams|deploy|tests)/[\w/]+\.py)`", text)
        if not (ROOT / file).exists()
    ]
