"""What deploy/README.md says of backups: which go on as before, which do not, and what the events bring back."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from integration.conftest import deploy  # noqa: F401  # the fixture
from integration.worker import Deployment, Said, settings_on, simulated, unique, until
from kafka.admin import KafkaAdminClient

from deploy.stack import LocalStack
from deploy.stack.process import Server
from models.records import AnyEvent
from streams.settings import Settings
from streams.topics import create_topics, partitions_of

pytestmark = pytest.mark.stack

SITE = "alder"
JOBS = 300
WORKER = {"checkpoint_events": 50, "checkpoint_seconds": 0.5}


@pytest.fixture
def own(require_stack: None, tmp_path: Path) -> Iterator[LocalStack]:
    with LocalStack(tmp_path / "own") as stack:
        yield stack


def back_up(server: Server, place: Path) -> None:
    """Copy what a server has on its disk, while it stands still."""
    server.stop()
    shutil.copytree(server.directory, place / server.name)
    server.start()


def restore(server: Server, place: Path) -> None:
    """Put that back in the place of what it has now."""
    server.stop()
    shutil.rmtree(server.directory)
    shutil.copytree(place / server.name, server.directory)
    server.start()


def take(settings: Settings, directory: Path, events: list[AnyEvent], more: int) -> Said:
    """A worker takes these events, until there are so many more records; gives all that there are then."""
    with closing(Deployment(settings, directory)) as here:
        here.read_all()
        before = sum(map(len, here.said().values()))
        here.worker.start()
        here.send(events)
        here.await_outputs(before + more)
        here.stop()
        return here.said()


def records(said: Said) -> int:
    return sum(map(len, said.values()))


def degraded(said: Said, last: int) -> set[str | None]:
    """What the last predictions say of it."""
    (name,) = (name for name in said if name[0].endswith("predictions"))
    return {msgspec.json.decode(record)["degraded"] for record in said[name][-last:]}


def test_kafka_and_redis_go_on_together_and_not_apart(own: LocalStack, tmp_path: Path) -> None:
    events = simulated(SITE, JOBS)
    first, second = events[:500], events[500:650]
    settings = settings_on(own.kafka.bootstrap, own.redis.url, WORKER, {"history": 50}, partitions=1)
    directory, backup = tmp_path / "worker-1", tmp_path / "backup"
    create_topics(settings)
    with closing(Deployment(settings, tmp_path / "none")) as here:
        wanted = {count: here.expected(events[:count]) for count in (500, 650)}
    numbers = {count: records(said) for count, said in wanted.items()}

    assert take(settings, directory, first, numbers[500]) == wanted[500]
    for server in (own.kafka, own.redis):
        back_up(server, backup)
    assert take(settings, directory, second, numbers[650] - numbers[500]) == wanted[650]

    for server in (own.kafka, own.redis):
        restore(server, backup)
    assert take(settings, directory, second, numbers[650] - numbers[500]) == wanted[650]

    restore(own.kafka, backup)  # Redis is newer than the states, and has deleted what they still need
    said = take(settings, directory, second, numbers[650] - numbers[500])
    assert None not in degraded(said, last=10)


def test_the_events_bring_everything_back(deploy: Callable[..., Deployment]) -> None:  # noqa: F811
    here = deploy(worker=WORKER)
    events = simulated(SITE, JOBS)
    wanted = here.expected(events)
    here.worker.start()
    here.send(events)
    here.await_outputs(records(wanted))
    here.stop()
    client = KafkaAdminClient(**here.settings.kafka.client_options())
    client.delete_topics([here.topics.state])
    until(lambda: partitions_of(here.settings)[here.topics.state] == 0)
    client.delete_groups([here.topics.group])
    client.close()
    create_topics(here.settings)
    here.worker.start()
    until(lambda: here.read() or records(here.said()) >= 2 * records(wanted))
    here.stop()
    assert {name: unique(values) for name, values in here.said().items()} == wanted
    assert records(here.said()) == 2 * records(wanted)
    assert here.stored(SITE) == here.expected_in_redis(events, SITE)
