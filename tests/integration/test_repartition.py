"""Added partitions: workers stop with advice, and moved sites continue without a change of outputs."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaProducer

from deploy.local.up import as_toml
from models.records import AnyEvent, SiteAnswer, SiteQuestion
from streams.broker.admin import partitions_of
from streams.broker.topics import partition_of
from streams.cli.app import main
from streams.client.pending_questions import new_id
from streams.errors import UserError
from streams.operate import repartition as repartitioning
from streams.settings import Settings, TopicSettings
from streams.worker.startup import check_partitions
from tests.integration.test_ask import query
from tests.integration.test_doctor import looked
from tests.support.deployment import Deploy, Deployment, busy_sites, parts, unique, until
from tests.support.fake_client import FRESH_ESTIMATES

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

OWN, SHARED = ("birch",), ("alder", "cedar", "oak", "hazel")
SITES = (*OWN, *SHARED)
BEFORE, AFTER = 2, 5
MOVED = {
    site: (partition_of(site, BEFORE), partition_of(site, AFTER))
    for site in SITES
    if partition_of(site, BEFORE) != partition_of(site, AFTER)
}

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return busy_sites(SITES, 80)


@pytest.fixture
def here(deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    found = deploy(partitions=BEFORE, dedicated_topics=OWN, history=50, estimates=FRESH_ESTIMATES)
    monkeypatch.setenv("QUEUECAST_CONFIG", str(file := tmp_path / "queuecast.toml"))
    file.write_text(as_toml(found.settings))
    return found


def add_partitions(here: Deployment, *topics: str) -> None:
    """Add partitions as `kafka-topics.sh --alter --partitions` does, and wait until clients see them."""
    with KafkaAdminClient(**here.settings.kafka.client_options()) as client:
        client.create_partitions(dict.fromkeys(topics, AFTER))
        until(lambda: {len(topic["partitions"]) for topic in client.describe_topics([*topics])} == {AFTER})


def producer_of(settings: Settings) -> Any:
    """Return a new producer, which uses all partitions."""
    return closing(KafkaProducer(**settings.kafka.client_options(), acks="all"))


def count(here: Deployment, events: list[AnyEvent]) -> int:
    """Return the number of predictions and outcomes of the events."""
    return sum(map(len, here.expected(events).values()))


def nothing_is_lost_or_doubled(there: Deployment, events: list[AnyEvent]) -> None:
    """Check that distinct outputs and stored entries equal a replay."""
    there.read_all()
    records, expected = there.records(), there.expected(events)
    assert records.keys() == expected.keys()
    for where, values in expected.items():
        assert sorted(unique(records[where])) == sorted(values), where
    for site in SITES:
        assert there.stored(site) == there.expected_in_redis(events, site)


def test_added_partitions_stop_workers_with_instructions(
    here: Deployment, events: list[AnyEvent], capsys: Capture
) -> None:
    here.send(events[:100])
    here.worker.start()
    here.await_outputs(count(here, events[:100]))
    assert main(["topics", "create", "--partitions", str(AFTER), "--json"]) == 0
    printed = capsys.readouterr()
    assert f"existing topics keep their {BEFORE} partitions" in printed.err
    topics = {line["topic"]: (line["partitions"], line["created"]) for line in json.loads(printed.out)}
    assert topics[here.topics.events] == (BEFORE, False)
    assert main(["topics", "repartition", "--partitions", str(AFTER)]) == 1
    assert "1 workers are running" in capsys.readouterr().err
    add_partitions(here, *partitions_of(here.settings))
    until(lambda: not here.worker.running)
    assert f"{here.topics.events} has {AFTER} partitions, and the sites' states are for {BEFORE}" in here.log
    assert "then run `queuecast topics repartition`" in here.log
    with pytest.raises(UserError, match=r"then run `queuecast topics repartition`"):
        check_partitions(here.settings)
    found = looked(capsys, 1)["partitions"]
    assert (found["state"], "repartition" in found["found"]) == ("fail", True)


def test_repartition_moves_sites_with_full_state(
    here: Deployment,
    events: list[AnyEvent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    first, unread, later, last = parts(events, 4)
    here.send(first)
    here.worker.start()
    here.await_outputs(count(here, first))
    here.stop()
    here.send(unread)
    add_partitions(here, here.topics.events)  # by mistake, while a source continues
    assert "repartition" in looked(capsys, 1)["topics"]["advice"]
    with producer_of(here.settings) as here.producer:
        here.send(later)

    with monkeypatch.context() as patched:  # interrupted after it sent the unread events again

        def crash(*_: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(repartitioning, "_move", crash)
        with pytest.raises(KeyboardInterrupt):
            repartitioning.repartition(here.settings)
    with pytest.raises(UserError, match=r"then run `queuecast topics repartition`"):
        check_partitions(here.settings)

    capsys.readouterr()
    assert main(["topics", "repartition"]) == 0
    output = capsys.readouterr().err
    assert [f"{site}: partition {old} -> {new}" in output for site, (old, new) in MOVED.items()] == [True] * len(MOVED)
    assert len(MOVED) >= 3 and output.count("->") == len(MOVED)
    assert set(partitions_of(here.settings).values()) == {AFTER} == {check_partitions(here.settings)}
    settings = msgspec.structs.replace(here.settings, topics=TopicSettings(partitions=AFTER))
    with closing(Deployment(settings, tmp_path / "there")) as there:
        there.worker.start()
        there.send(last)
        elsewhere = sum(event.site in MOVED for event in unread) + sum(event.site in OWN for event in later)
        there.await_outputs(count(there, events) + elsewhere)
        until(lambda: answering_sites(settings) == sorted(SITES))
        there.stop()
        nothing_is_lost_or_doubled(there, events)
        refused = there.dead_letters()
    assert {letter.reason for letter in refused} == {"wrong_partition"}
    found = {(letter.topic, letter.partition, letter.offset) for letter in refused}
    assert len(found) == elsewhere
    assert repartitioning.repartition(settings) == {}  # a repetition moves no site
    assert looked(capsys)["partitions"]["state"] == "ok"


def answering_sites(settings: Settings) -> list[str]:
    """Return the sites with estimates for a client and with answers of workers."""

    async def ask(client: Any) -> list[str]:
        answers = [await client.ask(SiteQuestion(id=new_id(), site=site)) for site in client.cache.sites]
        return [answer.site for answer in answers if isinstance(answer, SiteAnswer)]

    found: list[str] = query(settings, ask)
    return found


def test_repartition_detects_active_source(
    here: Deployment, events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    here.send(events[:100])
    send = repartitioning._await_sent

    def meanwhile(pending: list[Any]) -> None:
        here.send(events[100:101])
        send(pending)

    monkeypatch.setattr(repartitioning, "_await_sent", meanwhile)
    assert main(["topics", "repartition", "--partitions", str(AFTER)]) == 1
    assert "meanwhile; stop the sources, then repeat the command" in capsys.readouterr().err
    assert main(["topics", "repartition", "--partitions", str(BEFORE)]) == 2
    assert f"cannot reduce partitions from {AFTER} to {BEFORE}" in capsys.readouterr().err
