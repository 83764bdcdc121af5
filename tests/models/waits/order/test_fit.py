"""The fit of the learned order: the share of pairs of jobs that started in it."""

import math
from collections.abc import Callable, Sequence

import msgspec
import pytest

from models.engine.asking.engine_answers import answer
from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Capacity, End, OrderFit, SiteAnswer, SiteQuestion, Start, Submit
from models.site.job import Job
from models.waits.blend.quantiles import Quantiles
from models.waits.order import LearntOrder
from models.waits.order.fit import KIND_NAMES, MIN_FIT_PAIRS, FitSeen, PairsSeen, PrioritiesSeen, fit_of

HOUR_S = 3600.0
SETTINGS = EngineSettings(method="order", shadows=(), bounds="", what_if_method="order", history=200)

Choose = Callable[[Sequence[int], int], int]
"""Returns the job that starts of the queued ones, at the nth start."""


def run_site(choose: Choose, settings: EngineSettings = SETTINGS, priorities: bool = False) -> Engine:
    """Run a site of 4 CPUs where one job runs and ten others queue; `choose` is its scheduler."""
    engine = Engine("alder", settings)
    engine.apply(Capacity(site="alder", time=0.0, cpus=4))
    queued, running, clock = [], -1, 0.0
    for number in range(60):
        clock += 600.0
        priority = float(number) if priorities else None
        fields = {"user": f"u{number % 17}", "cpus": 4, "walltime": (1 + number % 2) * HOUR_S, "priority": priority}
        engine.apply(Submit(site="alder", time=clock, job=str(number), **fields))
        queued.append(number)
        if len(queued) > 10:
            if running >= 0:
                engine.apply(End(site="alder", time=clock + 1.0, job=str(running)))
            running = choose(queued, number)
            queued.remove(running)
            engine.apply(Start(site="alder", time=clock + 1.0, job=str(running)))
    return engine


def first(queued: Sequence[int], number: int) -> int:
    return queued[0]


def last(queued: Sequence[int], number: int) -> int:
    return queued[-1]


def lottery(queued: Sequence[int], number: int) -> int:
    return queued[(number * 7919) % len(queued)]


def order_fit(engine: Engine) -> OrderFit:
    found = answer(SiteQuestion(id="q", site="alder"), engine, engine.time)
    assert isinstance(found, SiteAnswer) and found.order_fit
    return found.order_fit


def test_fit_is_high_only_if_starts_follow_an_order() -> None:
    assert order_fit(run_site(first)).share > 0.9
    assert 0.7 < order_fit(run_site(last)).share < 1.0  # learned from the first starts on
    assert order_fit(run_site(lottery)).share < 0.7


def test_fit_is_reported_by_time_limit() -> None:
    fit = order_fit(run_site(first))
    assert fit.order == "learned" and [*fit.kinds] == ["up to 1 h", "1 to 12 h"]
    assert min(fit.kinds.values()) <= fit.share <= max(fit.kinds.values())


def test_fit_is_absent_with_few_pairs() -> None:
    engine = Engine("alder", SETTINGS)
    found = answer(SiteQuestion(id="q", site="alder"), engine, 0.0)
    assert found.order_fit is msgspec.UNSET
    assert engine.methods.counting.order_fit is None


def test_fit_is_that_of_priorities_while_these_decide() -> None:
    assert order_fit(run_site(last, priorities=True)).order == "priorities"
    assert order_fit(run_site(first, priorities=True)).order == "learned"


def reason_of(engine: Engine) -> str:
    (found,) = consider(engine, [Job("", 0, engine.time, user="new", cpus=4, walltime=HOUR_S)])
    return found.reason


def test_reason_states_the_fit_of_the_order() -> None:
    engine = run_site(first)
    assert reason_of(engine).endswith(
        f"; the learned order explains {order_fit(engine).share:.0%} of recent starts".replace("%", " %")
    )


def test_mixed_reason_states_the_fit_if_it_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = run_site(first, EngineSettings(shadows=(), bounds="", history=200))
    for share in (0.0, 0.25):
        monkeypatch.setattr(Quantiles, "schedule_share", share)
        assert ("; the learned order explains" in reason_of(engine)) == bool(share)


def test_fit_counts_about_the_last_1000_pairs() -> None:
    seen = PairsSeen()
    for _ in range(1000):
        seen.see(10, 0)
    assert 990 < seen.pairs <= 1000 + 10 and seen.share == 1.0
    for _ in range(100):
        seen.see(0, 10)
    assert seen.share == pytest.approx(1 / 2.718, abs=0.01)


def test_fit_needs_50_pairs_and_skips_starts_without() -> None:
    seen = FitSeen.empty()
    for _ in range(int(MIN_FIT_PAIRS) + 2):
        seen.see(HOUR_S, 0, 0)
        seen.see(13 * HOUR_S, 1, 0)
        assert (fit_of(PrioritiesSeen(), seen) is None) == (seen.site.pairs < MIN_FIT_PAIRS)
    assert seen.by_kind == {KIND_NAMES[-1]: 1.0}


def test_fit_survives_a_restart() -> None:
    engine, other = run_site(lottery), Engine("alder", SETTINGS)
    other.methods.load(engine.methods.save(), with_rows=True)
    assert other.methods.counting.order_fit == engine.methods.counting.order_fit is not None


@pytest.mark.parametrize("pairs", [math.nan, math.inf, -1.0, 1e300])
def test_state_with_invalid_number_of_pairs_is_rejected(pairs: float) -> None:
    engine = Engine("alder", SETTINGS)
    order = engine.methods.counting
    assert isinstance(order, LearntOrder)
    order._fit.site.pairs = pairs
    with pytest.raises(ValueError, match="not what the order saved"):
        Engine("alder", SETTINGS).methods.load(engine.methods.save(), with_rows=True)
