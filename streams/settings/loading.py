"""Read and validate the settings; an error names the file or variable, and the field."""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import fields

from models.engine.settings import EngineSettings, SiteSettings
from models.method_registry import METHODS, RUN_METHODS, check_parameters
from models.plugins import Registry
from streams.errors import InvalidInput, place_and_problem
from streams.settings.sections import SECTIONS, ServeToken, Settings, check_secret, check_tokens, checked_tables
from streams.text.toml import read_toml

PREFIX = "QUEUECAST"
DEFAULT_FILE = Path("queuecast.toml")

_HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_ADDRESSES = re.compile(rf"{_HOST}:\d{{1,5}}(,{_HOST}:\d{{1,5}})*")
_SERVERS = rf"([^@/\s]*@)?{_HOST}(:\d{{1,5}})?"
_SEVERAL = rf"{_SERVERS}(,{_HOST}(:\d{{1,5}})?)*"
_REDIS_URL = re.compile(
    rf"rediss?://{_SERVERS}(/\d*)?(\?\S*)?"
    rf"|rediss?\+sentinel://{_SEVERAL}/[^/\s]+(/\d*)?"
    rf"|rediss?\+cluster://{_SEVERAL}/?"
)
NO_SETTINGS = frozenset(
    f"{PREFIX}_{name}" for name in ("CONFIG", "CACHE", "DEBUG", "UP_OPEN", "URL", "SERVICE", "WORKER", "SLURM")
)
"""Variables of queuecast's that are no settings: of commands, of Compose's files and of the examples."""

_INJECTED = re.compile(r"_SERVICE_(HOST|PORT)|_PORT$|(?<!WEB)_PORT_")
"""Variables that Kubernetes makes for services, which may be named as a section is."""


_SECTIONS = ", ".join(SECTIONS)


def load_settings(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings in force.

    Raises:
        UserError: names the file or variable, the field, and the expected value.
    """
    environment = os.environ if environment is None else environment
    file = settings_file(file, environment)
    values = _from_file(file) if file else {}
    settings = _convert(values, str(file or DEFAULT_FILE))
    settings = _convert(_over(settings, _from_environment(environment)), "environment")
    _check(settings)
    return settings


def settings_file(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the settings file: the given one, the one in the environment, or the one in the current directory."""
    environment = os.environ if environment is None else environment
    if file is None and (named := environment.get(f"{PREFIX}_CONFIG")):
        return Path(named)
    return file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)


def _from_file(path: Path) -> dict[str, dict[str, Any]]:
    values = read_toml(path)
    for name, section in values.items():
        known = SECTIONS.get(name)
        if known is None or not isinstance(section, dict):
            raise InvalidInput(f"{path}: [{name}] is not a section; there are: {_SECTIONS}")
        names = [field.name for field in fields(known)]
        for field in section:
            if field not in names:
                raise InvalidInput(f"{path}: [{name}] {field} is not a setting; there are: {', '.join(names)}")
    _check_parameters(path, values.get("engine", {}).get("parameters", {}))
    for name, kind in (("sites", SiteSettings), ("tokens", ServeToken)):
        tables = values.get("serve", {}).get(name)
        if isinstance(tables, dict):
            checked_tables(path, f"serve.{name}", tables, kind)
    return values


def _check_parameters(path: Path, parameters: Any) -> None:
    if not (isinstance(parameters, dict) and all(isinstance(values, dict) for values in parameters.values())):
        raise InvalidInput(f"{path}: engine.parameters: expected a table for each method, [engine.parameters.METHOD]")
    for method, values in parameters.items():
        try:
            check_parameters(method, values)
        except ValueError as error:
            raise InvalidInput(f"{path}: engine.parameters: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    _check_names(environment)
    values: dict[str, dict[str, Any]] = {}
    for name, section in SECTIONS.items():
        for field in fields(section):
            variable = f"{PREFIX}_{name}_{field.name}".upper()
            text = environment.get(variable)
            kind = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type
            if text is not None and get_origin(kind) is dict:
                raise InvalidInput(f"environment: {variable}: can only be set in a file, as [{name}.{field.name}.…]")
            if text is not None:
                listed = get_origin(kind) is tuple
                values.setdefault(name, {})[field.name] = _words(text) if listed else text
    return values


def _check_names(environment: Mapping[str, str]) -> None:
    """Check that each of our environment variables is a setting: a misspelt token would leave a service open."""
    known = [f"{name}_{field.name}".upper() for name, kind in SECTIONS.items() for field in fields(kind)]
    ours = (name for name in environment if name.startswith(f"{PREFIX}_") and not _INJECTED.search(name))
    for variable in sorted(set(ours) - NO_SETTINGS - {f"{PREFIX}_{name}" for name in known}):
        nearest = get_close_matches(variable.removeprefix(f"{PREFIX}_"), known, 1)
        meant = f"is {PREFIX}_{nearest[0]} meant?" if nearest else f"they are {PREFIX}_SECTION_FIELD, of {_SECTIONS}"
        raise InvalidInput(f"environment: {variable} is not a setting; {meant}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _over(settings: Settings, values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sections = {name: msgspec.structs.asdict(getattr(settings, name)) for name in SECTIONS}
    return {name: sections[name] | values.get(name, {}) for name in sections}


def _convert(values: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=source != "environment")
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error)
        if source == "environment":
            place = f"{PREFIX}_{place}".replace(".", "_").upper()
        raise InvalidInput(f"{source}: {place}: {problem}") from None


def _check(settings: Settings) -> None:
    _check_methods(settings.engine)
    if not _ADDRESSES.fullmatch(settings.kafka.bootstrap):
        raise InvalidInput(f"kafka: bootstrap is {settings.kafka.bootstrap!r}; expected host:port, several with commas")
    if not _REDIS_URL.fullmatch(settings.redis.url):  # which may hold a password, and is not shown
        raise InvalidInput(
            "redis: url is not one; expected redis://host:port/database, redis+sentinel://host:port,host:port/service"
            " or redis+cluster://host:port,host:port; with TLS rediss…"
        )
    if settings.kafka.sasl and not (settings.kafka.username and settings.kafka.password):
        raise InvalidInput("kafka: SASL needs both username and password")
    check_secret("kafka.password", settings.kafka.password)
    check_secret("redis.sentinel_password", settings.redis.sentinel_password)
    check_secret("redis.password", settings.redis.password or urlsplit(settings.redis.url).password)
    check_secret("serve.token", settings.serve.token)
    check_secret("notify.secret", settings.notify.secret)
    check_tokens("serve.tokens", settings.serve.tokens)


def _check_methods(engine: EngineSettings) -> None:
    """Check that the named methods exist, without importing our own."""
    named: list[tuple[str, Registry[Any], str]] = [
        *(("engine", METHODS, name) for name in engine.methods),
        ("engine.what_if_method", METHODS, engine.what_if_method or engine.method),
        *((f"engine.policy_by_site.{site}", METHODS, name) for site, name in engine.policy_by_site.items()),
        *(("engine", RUN_METHODS, name) for name in engine.run_methods),
    ]
    for field, registry, name in named:
        try:
            registry.check(name)
        except ValueError as error:
            raise InvalidInput(f"{field}: {error}") from None
