"""Brokers of other versions of Apache Kafka than the one that comes with the local stack."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafka.admin import KafkaAdminClient

from deploy.local.stack import Kafka
from deploy.local.stack.jars import VERSION, kafka_jars, pinned, require
from tests.support.deployment import until

OLDEST, NEWEST = "3.9.1", "4.4.0"
"""The versions before and after the local stack's; `pin` made the lists of their jars here."""


class KafkaOf(Kafka):
    """A broker of a version of Kafka; another one after `version` was set and it was started again."""

    version = VERSION

    def __init__(self, directory: Path, version: str = VERSION, **options: Any) -> None:
        super().__init__(directory, **options)
        self.version = version

    def _jars(self) -> Sequence[Path]:
        if self.version == VERSION:
            return super()._jars()
        jars = pinned(Path(__file__).with_name(f"kafka-{self.version}.txt"))
        return kafka_jars(self._on_progress, jars=jars, version=self.version)


def cluster_of_three(directory: Path, version: str) -> list[KafkaOf]:
    """Three brokers of a cluster, which keep three copies; not started yet."""
    found = [KafkaOf(directory / f"broker{number}", version, ready_within=120.0) for number in (1, 2, 3)]
    voters = ",".join(f"{number}@127.0.0.1:{broker._ports['controller']}" for number, broker in enumerate(found, 1))
    for number, broker in enumerate(found, 1):
        broker.cluster = found[0].cluster
        broker.properties |= {
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
        }
    return found


def start_all(brokers: Sequence[KafkaOf]) -> None:
    """Start brokers together, for none is ready before there is a majority, and wait until each knows all others."""
    with ThreadPoolExecutor(len(brokers)) as pool:
        list(pool.map(lambda broker: broker.start(), brokers))
    until(lambda: all(_known_to(broker) == len(brokers) for broker in brokers))


def _known_to(broker: Kafka) -> int:
    """The number of brokers that this one returns to a client, itself included."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        return len(client._manager.cluster.brokers())
    finally:
        client.close()


COORDINATES = f"org.apache.kafka:kafka_2.13:{VERSION}+org.slf4j:slf4j-simple:1.7.36"


def pin(coordinates: str = COORDINATES) -> str:
    """Resolve Maven coordinates (joined by +) and all that they need, and give the lines of `kafka_jars.txt`."""
    lines = []
    for artifact in require("jgo").resolve(coordinates):
        content = Path(artifact.resolve()).read_bytes()
        coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        lines.append(f"{coordinate} {len(content)} {hashlib.sha256(content).hexdigest()}\n")
    return "".join(sorted(lines))
