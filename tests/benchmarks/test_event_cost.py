from time import perf_counter

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import End, Start, Submit
from models.site.spearman import warm_up

FEW, MANY = 100, 100_000
CYCLES = 200
ROUNDS = 60


def engine_with(queued: int) -> Engine:
    """A site with so many jobs in its queue, whose history is short, so that the events' own cost shows."""
    engine = Engine("s", EngineSettings(method="median", shadows=(), history=100))
    for number in range(queued):
        engine.apply(
            Submit(
                site="s",
                time=float(number),
                job=f"queued{number}",
                user=f"u{number % 50}",
                group=f"g{number % 7}",
                queue="batch",
                cpus=1 + number % 64,
                walltime=3600.0,
            )
        )
    assert len(engine.context.state) == queued
    return engine


def cycles(engine: Engine, begin: int) -> float:
    """Seconds that it takes for jobs to be submitted, start and end beside those that are queued; three events each."""
    time = 1e6 + begin
    before = perf_counter()
    for number in range(begin, begin + CYCLES):
        job = f"passing{number}"
        engine.apply(Submit(site="s", time=time, job=job, user=f"u{number % 50}", queue="batch", cpus=4, walltime=60.0))
        engine.apply(Start(site="s", time=time + 1, job=job))
        engine.apply(End(site="s", time=time + 2, job=job))
    return perf_counter() - before


def test_an_event_costs_the_same_however_many_jobs_are_queued() -> None:
    warm_up()
    engines = {queued: engine_with(queued) for queued in (FEW, MANY)}
    spent: dict[int, list[float]] = {queued: [] for queued in engines}
    for turn in range(ROUNDS):
        for queued, engine in engines.items():  # in turns, so that other load on the machine disturbs both alike
            spent[queued].append(cycles(engine, turn * CYCLES))
    events = 3 * CYCLES
    mean = {queued: sum(times) / len(times) / events * 1e6 for queued, times in spent.items()}
    print()
    for queued, times in spent.items():
        best = min(times) / events * 1e6
        print(f"{queued:>7} jobs queued: an event takes {mean[queued]:.1f} µs in the mean, {best:.1f} µs at best")
    assert mean[MANY] / mean[FEW] <= 1.5
