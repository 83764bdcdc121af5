"""States stored by another version are not read."""

import zlib
from contextlib import suppress

import msgspec
import pytest

from deploy.local.stack import StackError
from models.engine.saved_state import STATE_VERSION
from streams.broker.topics import partition_of
from streams.worker.checkpoint.checkpoint import HEAD_VERSION
from streams.worker.checkpoint.stored_site import StoredState, encode_stored
from tests.support.deployment import PARTITIONS, Deploy, until


@pytest.mark.long
def test_worker_ends_at_state_of_other_version(deploy: Deploy) -> None:
    here = deploy()
    partition = partition_of("alder", PARTITIONS)
    later = msgspec.msgpack.encode({"v": STATE_VERSION + 1, "something": "else"})
    head = StoredState(HEAD_VERSION, partition, 7, zlib.compress(later), tail=zlib.compress(b""))
    here.producer.send(here.topics.state, key=b"alder", value=encode_stored(head), partition=partition)
    here.producer.flush(timeout=30)
    with suppress(StackError):  # it may end before or after its start is detected
        here.worker.start()
    until(lambda: not here.worker.running)
    assert f"state has version {STATE_VERSION + 1}, of another queuecast release" in here.log
    here.read_all()
    assert not here.records()
