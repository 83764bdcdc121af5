"""Create Java's cache of loaded and linked classes (JEP 514): Kafka starts in a third of the CPU time.

`python -m deploy.local.stack.class_cache` creates it. Without a cache, or with one that does not fit, Java loads the
classes from the jars.
"""

import tempfile
from contextlib import suppress
from pathlib import Path

from deploy.local.stack.jars import class_cache, kafka_jars
from deploy.local.stack.process import StackUnavailable
from deploy.local.stack.servers import Kafka

MAX_DUMP_S = 300.0  # maximum time for the end of the training run, in which Java writes the cache


def create() -> None:
    """Create the cache unless it exists or cannot be written: start Kafka in a temporary directory, and stop it.

    Raises:
        StackUnavailable: Java or a jar is not available.
        StackError: Kafka does not start.
    """
    place = class_cache(kafka_jars())
    if place.exists():
        return
    with suppress(OSError), tempfile.TemporaryDirectory(dir=place.parent) as directory:  # it may be read-only
        written = Path(directory) / "new"
        kafka = Kafka(Path(directory) / "kafka", class_cache_output=written)
        try:
            kafka.start()
            kafka.stop(MAX_DUMP_S)
        finally:
            kafka.kill()
        if written.exists():  # not if Java had too little memory or time
            written.replace(place)


if __name__ == "__main__":
    with suppress(StackUnavailable):  # then the tests that need Kafka are skipped
        create()
