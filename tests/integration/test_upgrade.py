"""An upgrade in place: what an earlier version stored, its topics and its states, is gone on with."""

import zlib
from contextlib import suppress

import msgspec
import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.partitioner.default import murmur2

from deploy.local.stack import StackError
from models.engine.checkpoint import STATE_VERSION
from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.records import Prediction
from models.site.runs import Run
from streams import topics
from streams.admin import admin, create_topics
from streams.worker.checkpoint.store import _category
from tests.support.deployment import PARTITIONS, Deploy, Deployment, until
from tests.support.golden import Golden, first_version

_encode = msgspec.json.Encoder().encode


def stored_by_the_first_version(here: Deployment, state: bytes, golden: Golden) -> None:
    """Put everything where that version left it, the events too."""
    partition = (murmur2(b"alder") & 0x7FFFFFFF) % PARTITIONS
    before = golden.events[: golden.applied]
    here.send_raw((b"alder", event) for event in before)
    kept = msgspec.msgpack.encode([1, partition, len(before) - 1, zlib.compress(state)])
    here.producer.send(here.topics.state, key=b"alder", value=kept, partition=partition)
    here.producer.flush(timeout=30)
    prefix = f"{here.settings.redis.prefix}:{{alder}}"
    for row in golden.started:
        here.redis.hset(f"{prefix}:history", str(msgspec.msgpack.decode(row)[0]), row)
    for row in golden.runs:
        run = msgspec.msgpack.decode(row, type=Run)
        here.redis.hset(f"{prefix}:runs:{_category(run.category)}", str(run.number), row)
        here.redis.sadd(f"{prefix}:categories", _category(run.category))


def test_a_worker_goes_on_from_what_the_first_version_stored(deploy: Deploy) -> None:
    here = deploy(history=64, method="qespera", bounds="qbets")
    golden = first_version()
    stored_by_the_first_version(here, golden.state, golden)
    engine = Engine.load(golden.state, *golden.entries, here.settings.engine)
    events = golden.decoded[golden.applied :]
    records = [record for event in events for record in engine.apply(event) if not isinstance(record, Anomaly)]
    predictions = [_encode(record) for record in records if isinstance(record, Prediction)]
    here.worker.start()
    here.send(events)
    here.await_outputs(len(records))
    here.stop()
    assert here.said()[here.topics.predictions, "alder"] == predictions
    new = here.redis.smembers(f"{here.settings.redis.prefix}:{{alder}}:methods")
    assert new == {b"qbets", b"engine.learnt"}  # what is new is kept from now on


def test_a_state_of_a_later_version_is_left_alone_and_named(deploy: Deploy) -> None:
    here = deploy(history=64, method="qespera", bounds="qbets")
    golden = first_version()
    later = msgspec.msgpack.encode({"v": STATE_VERSION + 1, "something": "else"})
    stored_by_the_first_version(here, later, golden)
    before = here.stored("alder")
    with suppress(StackError):  # it may end before or after it is seen to run
        here.worker.start()
    until(lambda: not here.worker.running)
    assert f"state of version {STATE_VERSION + 1}, of a later queuecast" in here.log
    assert here.stored("alder") == before != {}
    here.read_all()
    assert not here.said()


def test_topics_of_an_earlier_version_are_given_room(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    now = topics.STATE_MESSAGE_BYTES
    monkeypatch.setattr(topics, "STATE_MESSAGE_BYTES", 16 << 20)
    here = deploy()
    monkeypatch.setattr(topics, "STATE_MESSAGE_BYTES", now)
    assert not any(create_topics(here.settings).values())
    name = here.topics.state
    wanted = ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": None})
    with admin(here.settings.kafka) as client:
        found = client.describe_configs([wanted], config_filter="all")
    assert int(found["topic"][name]["max.message.bytes"]["value"]) == now
