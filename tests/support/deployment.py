"""A test's own part of the shared servers: topics, Redis keys, and a worker that runs as a process."""

import heapq
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import redis
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.up import ServeProcess, WorkerProcess
from models.engine.engine import Engine
from models.engine.saved_state import encode_array
from models.engine.settings import EngineSettings
from models.records import AnyEvent, DeadLetter, Prediction
from models.simulation import generate, run
from streams.broker.admin import create_topics
from streams.broker.topics import Topics, events_topic_of
from streams.settings import (
    EstimateSettings,
    KafkaSettings,
    RedisSettings,
    Settings,
    SitesSettings,
    TopicSettings,
    WorkerSettings,
)
from tests.support.replayed import replayed
from tests.support.topic_messages import messages_of

PARTITIONS = 4
PATIENCE_S = 90.0
"""Seconds after which what has not come is not waited for any longer."""

Message = tuple[bytes | None, bytes | None]
"""Key and value."""

RecordsByKey = dict[tuple[str, str], list[bytes]]
"""What came out, by (topic, site), in order."""

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder(enc_hook=encode_array).encode


def simulated(site: str, jobs: int, seed: int = 1, policy: str = "easy") -> list[AnyEvent]:
    """A busy site's events, the same each time."""
    return list(run(generate(seed, jobs, cpus=128, load=0.8), 128, site, policy))


def interleaved(*sites: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The sites' events by time, each site's in its own order."""
    return list(heapq.merge(*sites, key=lambda event: event.time))


def busy_sites(sites: Iterable[str], jobs: int) -> list[AnyEvent]:
    """Return the interleaved events of busy sites; the seed of each is its position."""
    return interleaved(*(simulated(site, jobs, seed) for seed, site in enumerate(sites)))


def unique(values: Iterable[bytes]) -> list[bytes]:
    """Values without their repeats, each where it came first."""
    return list(dict.fromkeys(values))


def until(true: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Wait for something to come true, and fail if it does not."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"it did not come true within {seconds:g} s"
        time.sleep(0.05)


def settings_on(
    bootstrap: str,
    redis_url: str,
    worker: dict[str, Any],
    engine: dict[str, Any],
    partitions: int = PARTITIONS,
    estimates: dict[str, Any] | None = None,
    dedicated_topics: tuple[str, ...] = (),
) -> Settings:
    """Settings of a deployment on these servers, under a prefix of its own."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    return Settings(
        kafka=KafkaSettings(bootstrap=bootstrap, prefix=f"{prefix}."),
        topics=TopicSettings(partitions=partitions),
        redis=RedisSettings(url=redis_url, prefix=prefix),
        worker=WorkerSettings(**{"processes": 1} | worker),
        engine=EngineSettings(**engine),
        estimates=EstimateSettings(**(estimates or {})),
        sites=SitesSettings(dedicated_topics=dedicated_topics),
    )


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """This is done in a thread of its own until the event is set that it is given, which is at the end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Deployment:
    """Topics and keys under a prefix of their own, and the worker that serves them.

    The worker is there unstarted: `worker.start`, `worker.stop` (SIGTERM), `worker.kill` (SIGKILL), as often as wanted.

    Parameters:
        client: reads what is in Redis; by default one of the settings' URL.
    """

    def __init__(self, settings: Settings, directory: Path, client: Any = None) -> None:
        create_topics(settings)
        self.settings = settings
        self.topics = Topics(settings.kafka.prefix)
        self.worker = WorkerProcess(directory, settings)
        self.redis: Any = client or redis.Redis.from_url(settings.redis.url)
        self.messages: dict[str, list[Any]] = defaultdict(list)
        self._distinct: set[tuple[str, bytes]] = set()
        self.producer = KafkaProducer(**settings.kafka.client_options(), linger_ms=5, acks="all")
        self._consumer = KafkaConsumer(**settings.kafka.client_options(), auto_offset_reset="earliest")
        outputs = (self.topics.predictions, self.topics.outcomes, self.topics.dead_letters)
        self._consumer.assign(
            [TopicPartition(name, part) for name in outputs for part in range(settings.topics.partitions)]
        )

    def close(self) -> None:
        """End the worker, and let go of the servers."""
        self.worker.kill()
        self.producer.close(timeout=1)
        self._consumer.close()
        self.redis.close()

    def send(self, events: Iterable[AnyEvent]) -> None:
        """Send events as they should be; done when the broker has them."""
        for event in events:
            self._send(event)
        self.producer.flush(timeout=30)

    def _send(self, event: AnyEvent) -> None:
        topic = events_topic_of(self.settings, event.site)
        self.producer.send(topic, key=event.site.encode(), value=_encode(event))

    def send_raw(self, messages: Iterable[Message]) -> None:
        """Send messages to the shared topic, whatever they are; done when the broker has them."""
        for key, value in messages:
            self.producer.send(self.topics.events, key=key, value=value)
        self.producer.flush(timeout=30)

    @contextmanager
    def fed(self, events: Iterator[AnyEvent], pace: float) -> Iterator[None]:
        """Events come in evenly meanwhile, so many a second; those that are left at the end stay in the iterator."""
        begin = time.monotonic()

        def feed(stop: threading.Event) -> None:
            for number in count():
                if stop.wait(max(begin + number / pace - time.monotonic(), 0.0)):
                    break
                for event in islice(events, 1):
                    self._send(event)

        try:
            with meanwhile(feed):
                yield
        finally:
            self.producer.flush(timeout=30)

    def await_outputs(self, count: int, seconds: float = PATIENCE_S) -> None:
        """Read until there are so many different records, of all sites and topics."""
        deadline = time.monotonic() + seconds
        while len(self._distinct) < count:
            self.read()
            assert time.monotonic() < deadline, f"{len(self._distinct)} of {count} records; {self.log[-2000:]}"

    def read(self) -> None:
        """Read what has come out since the last time."""
        for batch in self._consumer.poll(timeout_ms=50).values():
            for message in batch:
                self.messages[message.topic].append(message)
                self._distinct.add((message.topic, message.value))

    def stop(self) -> None:
        """Stop the worker in good order, and read its remaining records."""
        self.worker.stop()
        self.read_all()
        assert "Traceback" not in self.log

    def read_all(self) -> None:
        """Read what has come out up to now."""
        ends = self._consumer.end_offsets(self._consumer.assignment())
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            self.read()

    @property
    def log(self) -> str:
        """What the worker has logged, all its starts together."""
        return self.worker.log.read_text() if self.worker.log.exists() else ""

    def records(self) -> RecordsByKey:
        """The predictions and outcomes that came out."""
        found: RecordsByKey = defaultdict(list)
        for topic in (self.topics.predictions, self.topics.outcomes):
            for message in self.messages[topic]:
                found[topic, message.key.decode()].append(message.value)
        return dict(found)

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters that came out."""
        return [msgspec.json.decode(m.value, type=DeadLetter) for m in self.messages[self.topics.dead_letters]]

    def expected(self, events: Iterable[AnyEvent]) -> RecordsByKey:
        """What the same events give in this process, byte for byte."""
        found: RecordsByKey = defaultdict(list)
        for record in replayed(self.settings.engine).records(list(events)):
            topic = self.topics.predictions if record.is_prediction else self.topics.outcomes
            found[topic, record.site].append(record.value)
        return dict(found)

    def stored(self, site: str) -> dict[str, dict[bytes, bytes]]:
        """What Redis holds of a site's latest generation: its hashes, by the keys that they have in generation 0."""
        generation = int(self.redis.hget(self._key(site, "info"), "generation") or 0)
        own = self._key(site, f"g{generation}", "") if generation else self._key(site, "")
        kinds = ("history", "runs", "rows")
        keys = (key for kind in kinds for key in self.redis.scan_iter(f"{own}{kind}*", count=1000))
        return {self._key(site, "") + key.decode().removeprefix(own): self.redis.hgetall(key) for key in keys}

    def expected_in_redis(self, events: Iterable[AnyEvent], site: str) -> dict[str, dict[bytes, bytes]]:
        """What a site's events leave in Redis, once each."""
        entries = replayed(self.settings.engine).entries(list(events), site)
        found: dict[str, dict[bytes, bytes]] = defaultdict(dict)
        for row in entries.changes.started[entries.oldest :]:
            found[self._key(site, "history")][b"%d" % row.number] = _pack(row)
        for kept in entries.runs:
            category = [quote(part, safe="") for part in kept.category]
            found[self._key(site, "runs", *category)][b"%d" % kept.number] = _pack(kept)
        for name, rows in entries.changes.rows.items():
            for own in rows[entries.changes.oldest[name] :]:
                found[self._key(site, "rows", quote(name, safe=""))][b"%d" % own.number] = own.value
        return dict(found)

    def _key(self, site: str, *parts: str) -> str:
        return ":".join((self.settings.redis.prefix, f"{{{site}}}", *parts))


Deploy = Callable[..., Deployment]
"""What the fixture `deploy` gives."""


def page(worker: WorkerProcess) -> str:
    """What a worker shows Prometheus now."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(worker.url, timeout=PATIENCE_S) as answer:  # a busy machine is no fault of the worker's
        return str(answer.read(), "utf-8")


def metrics(worker: WorkerProcess) -> dict[str, dict[tuple[str, ...], float]]:
    """The samples of its page: by name, then by the labels' values in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(page(worker)):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            found[sample.name][labels] = sample.value
    return found


def readiness(process: WorkerProcess | ServeProcess) -> tuple[int, str]:
    """The response of /readyz of a worker or of the service: status and text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{process.address}/readyz", timeout=10) as answer:
            return answer.status, str(answer.read(), "utf-8")
    except urllib.error.HTTPError as error:
        return error.code, str(error.read(), "utf-8")


def ready(worker: WorkerProcess) -> bool:
    """Whether it processes events now."""
    return readiness(worker) == (200, "ready\n")


def jobs_predicted(here: Deployment) -> int:
    """How many different jobs were predicted; read one batch at a time, for there may be a million."""
    decode = msgspec.json.Decoder(Prediction).decode
    found = messages_of(here.settings.kafka.client_options(), here.topics.predictions)
    return len({(record.site, record.job) for record in (decode(message.value) for message in found)})


def sites(worker: WorkerProcess) -> set[str]:
    """The sites that a worker serves now."""
    return {site for (site,) in metrics(worker)["queuecast_events_total"]}


def engine_after(events: Iterable[AnyEvent], site: str, settings: EngineSettings) -> Engine:
    """A site's engine after its events."""
    engine = Engine(site, settings)
    for event in events:
        if event.site == site:
            engine.apply(event)
    return engine


def parts(events: list[AnyEvent], number: int) -> Iterator[list[AnyEvent]]:
    """Events in so many parts of about the same length."""
    size = -(-len(events) // number)
    return (events[begin : begin + size] for begin in range(0, len(events), size))
