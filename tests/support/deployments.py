"""What tests ask of every way in which queuecast is deployed: that it runs what there is to run, as it is to be run."""

import inspect
import re
import shlex
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import typer

import deploy.local.up
import streams.serve.web
import streams.worker.app
from deploy.cli import app
from deploy.local.stack import Kafka, Redis
from deploy.local.stack.process import Server
from streams.serve.service import Service
from streams.settings import PREFIX, SECTIONS, ServeSettings, Settings, WorkerSettings
from tests.support.fake_client import FakeClient

ROOT = Path(__file__).parents[2]

VARIABLES = {
    f"{PREFIX}_{name}_{field.name}".upper(): name
    for name, section in SECTIONS.items()
    for field in msgspec.structs.fields(section)
} | {f"{PREFIX}_CONFIG": "file"}
"""The variables of the environment that set something, with their section."""

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

PROGRAMS = {
    program.name.lower()
    for _, program in inspect.getmembers(deploy.local.up, inspect.isclass)
    if issubclass(program, Server) and hasattr(program, "name")
} | {Kafka.name.lower(), Redis.name.lower()}
"""What `queuecast up` keeps running."""


def check_command(arguments: Sequence[str]) -> str:
    """Make sure that `queuecast` understands these arguments; gives the command's name."""
    group = typer.main.get_group(app)
    context = group.make_context("queuecast", list(arguments))
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, rest, parent=context)
    return str(name)


def check_variables(names: Iterable[str]) -> None:
    """Make sure that every variable with our prefix is a setting's."""
    unknown = {name for name in names if name.startswith(f"{PREFIX}_")} - set(VARIABLES)
    assert not unknown


def check_image(image: str) -> None:
    """Make sure that an image is pinned to a version, ours to the project's, Kafka's to the local stack's."""
    name, _, tag = image.rpartition(":")
    assert re.search(r"\d+\.\d+\.\d+", tag), image
    if name.split("/")[-1] == "queuecast":
        assert tag == VERSION
    if name == "apache/kafka":
        assert tag == kafka_version()


def kafka_version() -> str:
    from deploy.local.stack.jars import VERSION

    return VERSION


def check_kafka(environment: dict[str, str], directory: Path) -> None:
    """Make sure that a broker, set by its image's variables, keeps its data as the local stack's does."""
    wanted = Kafka(directory / "kafka").properties
    found = {name.removeprefix("KAFKA_").lower().replace("_", "."): str(value) for name, value in environment.items()}
    concerns = ("replication.factor", "min.isr", "auto.create", "log.retention", "rebalance.delay", "process.roles")
    for key, value in wanted.items():
        if any(word in key for word in concerns):
            assert found.get(key) == value, key


def check_redis(command: Sequence[str], directory: Path) -> None:
    """Make sure that Redis is started with the local stack's settings."""
    shell, option, script = command
    assert (shell, option) == ("sh", "-c")
    password, _, server = script.replace("$$", "$").partition(" | exec ")
    assert password == 'echo "requirepass $REDISCLI_AUTH"'  # not in a command line, which all may read
    entry, program, standard_input, *arguments = shlex.split(server)
    assert entry == "docker-entrypoint.sh"  # the image's, which gives up root's rights
    own = {"bind", "port", "dir"}
    wanted = {f"--{key}": value for key, value in Redis(directory / "redis").config.items() if key not in own}
    assert (program, standard_input) == ("redis-server", "-")
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == wanted


def section_of(program: str) -> WorkerSettings | ServeSettings:
    """The defaults of a program that has a web port: worker or serve."""
    return WorkerSettings() if program == "worker" else ServeSettings()


@cache
def pages(program: str) -> set[str]:
    """The pages that a program shows: worker or serve."""
    if program == "worker":
        with TemporaryDirectory() as directory:
            return set(streams.worker.app.build_app(Settings(), directory).web.views)
    service = streams.serve.web.build_app(Service(FakeClient(), Settings()), Settings())
    return {route.path for route in service.routes}


def seconds(text: str) -> float:
    """A duration as compose files and units have it: seconds, with or without their s."""
    return float(text.removesuffix("s"))
