"""Cost of a checkpoint with few and many live jobs: event loop time, and bytes to the changelog."""

import zlib
from time import perf_counter

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import End, Start, Submit
from streams.worker.checkpoint.job_log import JobLog
from streams.worker.checkpoint.stored_site import StoredSegment, StoredState, encode_stored, read_state

FEW, SOME, MANY = 100, 10_000, 100_000
EVENTS = 100
"""Events per checkpoint: two seconds at 50 a second."""

ROUNDS = 40


def site_with(queued: int) -> Engine:
    engine = Engine("s", EngineSettings(method="median", shadows=("zero",)))
    for number in range(queued):
        engine.apply(submit(f"queued{number}", number, float(number)))
    return engine


def submit(job: str, number: int, time: float) -> Submit:
    user, group, queue = f"u{number % 50}", f"g{number % 7}", f"q{number % 4}"
    return Submit(
        site="s", time=time, job=job, user=user, group=group, queue=queue, cpus=1 + number % 64, walltime=3600.0
    )


def events(engine: Engine, begin: int) -> None:
    """Submit new jobs, and start and end the first queued ones."""
    time = 1e6 + 10.0 * begin
    for number in range(begin, begin + EVENTS // 3):
        engine.apply(submit(f"new{number}", number, time))
        first = next(iter(engine.context.state.jobs))
        engine.apply(Start(site="s", time=time + 1, job=first[0]))
        engine.apply(End(site="s", time=time + 2, job=first[0]))


def size(log: JobLog, engine: Engine) -> tuple[float, int]:
    """Return the time of a checkpoint between two events (s), and its bytes."""
    before = perf_counter()
    cut, jobs = log.cut(engine)
    seconds = perf_counter() - before
    parts = (cut.state, jobs.tail, *(segment for _, segment in jobs.segments))
    return seconds, sum(len(zlib.compress(part, 1)) for part in parts)


def test_checkpoint_cost_is_independent_of_live_jobs() -> None:
    spent, written = {}, {}
    print()
    for queued in (FEW, SOME, MANY):
        engine, log = site_with(queued), JobLog("s")
        log.fill(engine)
        size(log, engine)
        found = []
        for turn in range(ROUNDS):
            events(engine, turn * EVENTS)
            found.append(size(log, engine))
        seconds = sorted(second for second, _ in found)
        spent[queued], written[queued] = seconds[ROUNDS // 2], sum(size for _, size in found) / ROUNDS
        times, ratio = f"{1e3 * spent[queued]:.2f} ms (at most {1e3 * seconds[-1]:.2f})", written[queued] / written[FEW]
        print(f"{queued:>7} live jobs: {times}, {written[queued] / 1e3:.1f} KB a checkpoint, {ratio:.2f} times")
    assert written[MANY] <= 3.0 * written[FEW]
    assert spent[MANY] <= 5.0 * spent[FEW]


@pytest.mark.parametrize("queued", [MANY])
def test_large_site_restore_time_is_printed(queued: int) -> None:
    engine, log, table = site_with(queued), JobLog("s"), dict[bytes, bytes]()
    before = perf_counter()
    log.fill(engine)
    filled = perf_counter()
    cut, jobs = log.cut(engine)
    for key, segment in jobs.segments:
        table[key] = encode_stored(StoredSegment(1, 0, zlib.compress(segment, 1)))
    stored = StoredState(2, 0, 0, zlib.compress(cut.state, 1), runs=jobs.runs, tail=zlib.compress(jobs.tail, 1))
    begin = perf_counter()
    saved, read_log = read_state("s", stored, table.get)
    decoded = perf_counter()
    again = Engine.load(saved, [], [], engine.settings, {name: [] for name in saved.histories.rows})
    end = perf_counter()
    print(
        f"\n{queued} live jobs: {sum(map(len, table.values())) / 1e6:.1f} MB; stored whole in {filled - before:.1f} s; "
        f"read in {decoded - begin:.1f} s and taken in in {end - decoded:.1f} s, beside the event loop"
    )
    assert read_log.fault is None and len(again.context.state) == queued
