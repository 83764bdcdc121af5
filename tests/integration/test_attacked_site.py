"""One site receives hostile events that the schema allows: the outputs of other sites stay identical.

A longer run: `TESTS_HOSTILE_EVENTS=100000 pytest tests/integration/test_attacked_site.py`.
"""

import os
import random
from collections.abc import Callable

import msgspec
import pytest

from tests.support.deployment import PARTITIONS, PATIENCE_S, Deployment, busy_sites, metrics, simulated, until
from tests.support.hostile import Hostile

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

EVENTS = int(os.environ.get("TESTS_HOSTILE_EVENTS", "3000"))
GOOD = ("alder", "birch")
MAX_SITES = 4

_encode = msgspec.json.Encoder().encode


def test_hostile_site_keeps_outputs_of_other_sites_identical(deploy: Callable[..., Deployment]) -> None:
    here = deploy(worker={"max_sites_per_partition": MAX_SITES})
    good = busy_sites(GOOD, 150)
    attacked = simulated("evil", 150, 9)
    dice, sent = random.Random(1), 0
    place = 1 + max(next(i for i, event in enumerate(good) if event.site == site) for site in GOOD)
    here.worker.start()
    here.send([*attacked, *good[:place]])  # so that these sites are admitted first
    for event in Hostile(attacked, cpus=64, seed=1).events(EVENTS):
        name = dice.choice(("evil", "evil", *GOOD, "junk", f"junk-{sent}"))
        key = dice.choice((name, name, "evil", *GOOD))
        if key == name and name in GOOD:  # any producer may write with its key
            key = "evil"
        value = _encode(msgspec.structs.replace(event, site=name))
        partition = dice.choice((None, None, dice.randrange(PARTITIONS)))
        here.producer.send(here.topics.events, key=key.encode(), value=value, partition=partition)
        sent += 1
        if dice.random() < len(good) / EVENTS and place < len(good):
            here.send(good[place : place + 1])
            place += 1
    here.send(good[place:])
    total = len(attacked) + sent + len(good)
    until(lambda: metrics(here.worker)["queuecast_messages_read_total"][()] == total, EVENTS / 10 + PATIENCE_S)
    metric_values = metrics(here.worker)
    here.stop()
    reasons = {letter.reason for letter in here.dead_letters()}
    assert {"wrong_key", "too_many_sites", "wrong_partition", "implausible_time", "implausible_size"} <= reasons
    assert "engine_failed" not in reasons
    implausible = sum(letter.implausible for letter in here.dead_letters())
    assert sum(metric_values["queuecast_events_implausible_total"].values()) == implausible > 0
    assert len(metric_values["queuecast_events_total"]) <= MAX_SITES * PARTITIONS
    records, expected = here.records(), here.expected(good)
    assert {where: values for where, values in records.items() if where in expected} == expected
