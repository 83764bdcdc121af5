"""Plausible sizes of a site and its jobs."""

import pytest

from models.durations import DAY_S
from models.records import Capacity
from models.site.size import MAX_CPUS, SizeSeen, implausible_capacity, implausible_job


@pytest.mark.parametrize(
    ("cpus", "declared", "seen", "settled", "believed"),
    [
        (400, 100, 0, True, True),
        (401, 100, 9999, True, False),
        (1024, 0, 3, True, True),
        (1025, 0, 3, True, False),
        (4000, 0, 1000, True, True),
        (4001, 0, 1000, True, False),
        (1_000_000, 0, 0, False, True),
        (1_000_001, 0, 0, False, False),
        (MAX_CPUS + 1, MAX_CPUS, 0, True, False),
    ],
)
def test_implausible_job_is_detected_by_the_size_of_its_site(
    cpus: int, declared: int, seen: int, settled: bool, believed: bool
) -> None:
    assert (implausible_job(cpus, declared, seen, settled) is None) is believed


@pytest.mark.parametrize(
    ("event", "declared", "settled", "believed"),
    [
        ({"cpus": 200}, 100, True, True),
        ({"cpus": 10**9}, 0, False, False),
        ({"cpus": 65_537}, 100, True, False),
        ({"cpus": 65_537}, 0, False, True),
        ({"cpus": 15}, 100, True, False),
        ({"cpus": 16}, 100, True, True),
        ({"cpus": 0}, 100, True, True),
        ({"cpus": 100, "nodes": 10, "down_nodes": 11}, 100, True, False),
        ({"cpus": 100, "nodes": 10**8}, 100, True, False),
    ],
)
def test_implausible_capacity_is_detected_by_the_known_size(
    event: dict[str, int], declared: int, settled: bool, believed: bool
) -> None:
    capacity = Capacity(site="s", time=0.0, **event)
    assert (implausible_capacity(capacity, declared, 50, 64, settled) is None) is believed


def test_guessed_size_grows_at_most_fourfold_per_day() -> None:
    size = SizeSeen()
    size.see(800, 0.0, settled=False)
    for start in range(1000):
        size.see(10**6, 100.0 + start, settled=True)
    assert size.most == 3200
    size.see(10**6, 2 * DAY_S, settled=True)
    assert size.most == 4 * 3200


def test_guessed_size_grows_if_most_jobs_are_larger() -> None:
    size = SizeSeen(most=64)
    for job in range(20):
        size.doubt(10.0 * job)
        size.see(64, 10.0 * job, settled=True) if job % 2 else None
    size.see(64, 2 * DAY_S, settled=True)
    assert size.most == 1024
    for job in range(20):  # a minority is ignored
        size.see(64, 2 * DAY_S + job, settled=True)
        size.doubt(2 * DAY_S + job)
    size.see(64, 4 * DAY_S, settled=True)
    assert size.most == 1024
