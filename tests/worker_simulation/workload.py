"""Random events of small sites: in order, late, old and repeated, with requeues, operations and junk."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from models.records import (
    AnyEvent,
    Capacity,
    End,
    ForgetJob,
    Heartbeat,
    LoadPrior,
    Rebuild,
    Requeue,
    ResetSite,
    SetCapacity,
    Start,
    Submit,
    bundled,
)
from models.simulation import generate, run

SITES = {"alder": 0, "cedar": 0, "elm": 0, "birch": 1, "oak": 1}  # partition of each site
PARTITIONS = 2
CPUS = 32
START = 1_700_000_000
POISON = "poison"  # user of a job whose events crash processes
BROKEN = "broken"  # user of a job at which the engine fails
YEARS_S = 1e8


class Sent(NamedTuple):
    """A message of the events topic before it is sent."""

    time: float
    partition: int
    key: bytes | None
    value: bytes | None


def workload(random: Random) -> list[Sent]:
    """Return messages in sending order."""
    found = [sent for site in SITES for sent in _site(random, site)]
    found += [_junk(random) for _ in range(random.randint(0, 6))]
    if random.random() < 0.5:  # much later sites, beyond the maximum number of sites
        later = START + YEARS_S
        found += [_sent(Submit(site=site, time=later + place, job="1"), 0) for place, site in enumerate(("fir", "ash"))]
    found.sort(key=lambda sent: sent.time)
    return found


def _sent(event: AnyEvent, partition: int, time: float | None = None) -> Sent:
    value = msgspec.json.encode(event)
    return Sent(event.time if time is None else time, partition, event.site.encode(), value)


def _site(random: Random, site: str) -> Iterator[Sent]:
    """Yield the messages of one site."""
    partition, jobs = SITES[site], random.randint(4, 24)
    events = list(run(generate(random.randrange(1000), jobs, CPUS, 0.9, start_time=START), CPUS, site))
    poisonous = {random.randrange(len(events)): random.choice((POISON, BROKEN)) for _ in range(random.randint(0, 1))}
    last = events[-1].time
    for place, event in enumerate(events):
        if isinstance(event, Submit) and (user := poisonous.get(place)):
            event = replace(event, user=user)
        yield _sent(event, partition, event.time + (random.random() * 5000.0 if random.random() < 0.05 else 0.0))
        if random.random() < 0.05:
            yield _sent(event, partition, event.time + random.random() * 9000.0)
        if random.random() < 0.2:
            yield _sent(Heartbeat(site=site, time=event.time + 300.0 * random.random()), partition)
        if random.random() < 0.1:
            yield from _odd(random, site, event)
    for _ in range(random.choice((0, 0, 1, 3))):
        operation = _operation(random, site, START + random.random() * (last - START))
        value = msgspec.json.encode(operation)
        yield Sent(operation.time, partition, site.encode(), value)


def _odd(random: Random, site: str, event: AnyEvent) -> Iterator[Sent]:
    """Yield unusual messages."""
    now, partition, job = event.time, SITES[site], getattr(event, "job", "1")
    name = f"x{random.randrange(10**6)}"
    match random.randrange(5):
        case 0:
            yield _sent(Requeue(site=site, time=now, job=job), partition, now + 1.0)
        case 1:
            array = Submit(site=site, time=now, job=name, user="ada", array_size=3, array_limit=2, walltime=600.0)
            yield _sent(array, partition)
            yield _sent(Start(site=site, time=now + 5.0, job=f"{name}_1", array=name), partition)
            yield _sent(End(site=site, time=now + 50.0, job=f"{name}_1", array=name), partition)
        case 2:
            yield _sent(Capacity(site=site, time=now, cpus=CPUS, nodes=4, down_nodes=random.randrange(4)), partition)
        case 3:
            yield _sent(replace(event, time=now - 40 * 86_400.0), partition, now)
        case 4:
            old = [
                Submit(site=site, time=now - 900.0 + 9 * n, job=f"{name}.{n}", user="bob", historical=True)
                for n in range(30)
            ]
            yield Sent(now, partition, site.encode(), bundled(site, map(msgspec.json.encode, old)))


def _operation(random: Random, site: str, now: float) -> ResetSite | Rebuild | ForgetJob | SetCapacity | LoadPrior:
    match random.randrange(5):
        case 0:
            return ResetSite(site=site, time=now, by="ada")
        case 1:
            return Rebuild(site=site, time=now, by="ada")
        case 2:
            return ForgetJob(site=site, time=now, by="ada", job=str(random.randrange(20)))
        case 3:
            return SetCapacity(site=site, time=now, by="ada", cpus=16)
        case _:
            return LoadPrior(site=site, time=now, by="ada", prior=b"no prior")


def _junk(random: Random) -> Sent:
    partition, now = random.randrange(PARTITIONS), START + random.random() * 50_000.0
    key = random.choice((None, b"", b"alder" if partition == 0 else b"birch", b"\xff\xfe", b"nobody", b"elm\x00"))
    value = random.choice((None, b"", b"{", b"\x00\xff", b'{"type":"submit"}', b'{"type":"operator_rebuild"}', b"[]"))
    return Sent(now, partition, key, value)
