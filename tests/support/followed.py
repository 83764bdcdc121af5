"""A source of the command line as a process, on a test's own topics, and what it has sent there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.records import AnyEvent
from streams.broker.topics import events_topic_of
from tests.support.deployment import Deployment, until
from tests.support.topic_messages import messages_of

ROOT = Path(__file__).parents[2]
SITE = "alder"


def command(here: Deployment, cursors: Path, *more: str) -> tuple[list[str], dict[str, str]]:
    """`queuecast source NAME LOCATION …` on the deployment's Kafka: words and environment."""
    words = [sys.executable, "-m", "queuecast", "source", *more, "--site", SITE, "--cursors", str(cursors)]
    kafka = here.settings.kafka
    own = {
        "QUEUECAST_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "QUEUECAST_KAFKA_PREFIX": kafka.prefix,
        "PYTHONPATH": str(ROOT),
    }
    return words, os.environ | own


@contextmanager
def following(words: list[str], environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The source as a process, ended by SIGTERM unless it has ended before."""
    with log.open("ab") as file, subprocess.Popen(words, env=environment, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def sent(here: Deployment) -> list[Any]:
    """All messages of the site's events, in their order."""
    return [*messages_of(here.settings.kafka.client_options(), events_topic_of(here.settings, SITE))]


def events(here: Deployment) -> list[Any]:
    """The site's events, in their order."""
    return [msgspec.json.decode(message.value, type=AnyEvent) for message in sent(here)]


class Made(NamedTuple):
    """When a job's first prediction was made, by the scheduler's time, and when it was sent, by the worker's clock."""

    at: float
    sent: float


def await_predictions(here: Deployment, wanted: set[str]) -> dict[str, Made]:
    """The first prediction of each job, when all of these have one."""
    made: dict[str, Made] = {}

    def predicted() -> bool:
        here.read()
        for message in here.messages[here.topics.predictions]:
            record = json.loads(message.value)
            made.setdefault(record["job"], Made(record["made_at"], message.timestamp / 1000))
        return wanted <= made.keys()

    until(predicted)
    return made
