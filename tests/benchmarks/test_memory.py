"""Resident memory of a worker with a hundred restored sites, with the default method."""

import gc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import msgspec
import psutil
import pytest

from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.saved_state import decode_array, encode_array
from models.engine.settings import EngineSettings
from models.engine.warm_up import warm_up
from streams.worker import process
from tests.benchmarks.test_start import HISTORY, LIVE, grown

pytestmark = pytest.mark.timeout(1800)

SITES = 100
WANTED_MB = 1500.0
SLACK = 4.0
"""Factor allowed over the target. Measured values are printed."""


def test_memory_of_hundred_sites_is_bounded() -> None:
    state, changes = stored(grown(EngineSettings()))
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        empty, few, all_ = fresh.submit(measured, state, changes).result()
    each = (all_ - few) / (SITES - SITES // 10)
    print(f"\n{SITES} sites, {HISTORY} jobs of history and {LIVE} live each: {all_:.0f} MB, wanted {WANTED_MB:.0f}")
    print(f"an empty worker {empty:.0f} MB, a site {each:.1f} MB")
    assert all_ <= SLACK * WANTED_MB


def stored(engine: Engine) -> tuple[bytes, bytes]:
    """Return a site as stored: its state and its entries."""
    state, changes = engine.checkpoint()
    changes.started = changes.started[engine.context.history.oldest :]
    for name, rows in changes.rows.items():
        changes.rows[name] = rows[changes.oldest[name] :]
    return state, msgspec.msgpack.encode(changes, enc_hook=encode_array)


def measured(
    state: bytes, changes: bytes, settings: EngineSettings | None = None, sites: int = SITES
) -> tuple[float, float, float]:
    """Return the memory of this process (MB) without sites, with a tenth, and with all; each is decoded separately."""
    settings = settings or EngineSettings()
    process._return_freed_memory()
    warm_up(settings)
    process.collect_seldom()
    empty, kept, found = rss_mb(), list[Any](), list[float]()
    for number in range(1, sites + 1):
        own = msgspec.msgpack.decode(changes, type=Changes, dec_hook=decode_array)
        kept.append(Engine.load(state, own.started, own.runs, settings, own.rows))
        kept[-1].take_changes()
        if number in (sites // 10, sites):
            gc.collect()
            found.append(rss_mb())
    return empty, found[0], found[1]


def rss_mb() -> float:
    """Return this process's resident size in megabytes (10⁶ bytes)."""
    return float(psutil.Process().memory_info().rss / 1e6)
