"""What predictions would have been worth on a log, in words: gains and losses."""

from collections.abc import Iterable, Mapping

from models.durations import duration
from models.registry import TRIVIAL
from streams.offline.breakdown import WAIT_NAMES, Breakdown, Cell

MIN_JOBS = 30
"""Of fewer jobs nothing is said: it would be chance."""

MAX_LOSSES = 4
"""How many queues, and how many classes of waits, are named where a trivial rule is better."""

COVERAGE_SLACK = 0.02
"""How far the share of jobs within a bound may be from the promised one and still be called as promised."""

BOUND = "0.9"

RULES = {"zero": "always zero", "median": "the recent median"}
"""The trivial rules in words."""


def better_rule(breakdowns: Mapping[str, Breakdown]) -> str | None:
    """The trivial rule that errs least."""
    known = [name for name in TRIVIAL if name in breakdowns]
    return min(known, key=lambda name: breakdowns[name].every.error_h, default=None)


def verdict(breakdowns: Mapping[str, Breakdown], method: str, rivals: Iterable[str] = ()) -> list[str]:
    """What a method was worth, sentence by sentence: in all, its bounds, beside rivals, and where it loses."""
    ours = breakdowns[method]
    rule = better_rule(breakdowns)
    jobs = "1 job is scored; it" if ours.every.jobs == 1 else f"{ours.every.jobs:,} jobs are scored; they"
    said = [f"{jobs} waited {_mean(ours.every.wait_s, ours.every)} on average."]
    if rule is None or rule == method:
        return [*said, f"{method} erred by {_mean(ours.every.error_s, ours.every)}."]
    said.append(_in_all(ours, method, breakdowns[rule], rule))
    said += _bound(ours)
    for rival in rivals:
        said += _beside(breakdowns[rival], rival, ours, method)
    return said + _losses(ours, breakdowns[rule], rule)


def _in_all(ours: Breakdown, method: str, theirs: Breakdown, rule: str) -> str:
    mine, trivial = ours.every.error_h, theirs.every.error_h
    erred, rule_erred = _mean(ours.every.error_s, ours.every), _mean(theirs.every.error_s, theirs.every)
    words = (
        f"queuecast ({method}), asked at each job's submission, erred by {erred} on average; "
        f"the better of the rules without a model ({RULES[rule]}) by {rule_erred}"
    )
    if not trivial:
        return f"{words}."
    change = 100 * (mine / trivial - 1)
    if change <= -0.5:
        return f"{words}: {-change:.0f} % less."
    if change < 0.5:
        return f"{words}: no difference; here a rule without a model does as well."
    return f"{words}: {change:.0f} % more. On this log the rule without a model is better."


def _bound(ours: Breakdown) -> list[str]:
    held = ours.every.held(BOUND)
    if held is None:
        return []
    promised = float(BOUND)
    judged = "as promised"
    if held < promised - COVERAGE_SLACK:
        judged = "fewer than promised"
    elif held > promised + COVERAGE_SLACK:
        judged = "more than promised: its bounds are wider than need be"
    by_burst = f"; {100 * each:.0f} % by burst" if (each := ours.held_by_burst(BOUND)) is not None else ""
    return [f"{100 * held:.0f} % of the jobs started within its bound for {100 * promised:.0f} %: {judged}{by_burst}."]


def _beside(theirs: Breakdown, rival: str, ours: Breakdown, method: str) -> list[str]:
    """A rival, on the jobs that it has an estimate for."""
    same = ours.beside.get(rival)
    if same is None or not same.jobs:
        return []
    them = theirs.every
    return [
        f"{rival} had an estimate of its own for {them.jobs:,} of the jobs: it erred by {_mean(them.error_s, them)} on "
        f"average, {method} on the same jobs by {_mean(same.error_s, same)}."
    ]


def _losses(ours: Breakdown, theirs: Breakdown, rule: str) -> list[str]:
    """Where the better trivial rule errs less."""
    said = []
    waits = zip(WAIT_NAMES, ours.by_wait, theirs.by_wait, strict=True)
    if lost := _lost(waits):
        said.append(f"{RULES[rule].capitalize()} has the smaller error for jobs that waited: {lost}.")
    queues = ((name, cell, theirs.by_queue[name]) for name, cell in ours.by_queue.items() if name in theirs.by_queue)
    if len(ours.by_queue) > 1 and (lost := _lost(queues)):
        said.append(f"{RULES[rule].capitalize()} has the smaller error in these queues: {lost}.")
    weeks = [week for week in ours.by_week if week in theirs.by_week]
    worse = sum(ours.by_week[week].error_s > theirs.by_week[week].error_s for week in weeks)
    if len(weeks) > 1:
        where = f"in {worse} of {len(weeks)} weeks" if worse else "in any week"
        said.append(f"{RULES[rule].capitalize()} {'has' if worse else 'does not have'} the smaller mean error {where}.")
    return said or [f"{RULES[rule].capitalize()} has no smaller error for any length of wait or queue."]


def _lost(cells: Iterable[tuple[str, Cell, Cell]]) -> str:
    """Where the second errs less than the first, those with most jobs first."""
    lost = [
        (mine.jobs, f"{name} ({mine.jobs:,} jobs: {_mean(mine.error_s, mine)} against {_mean(rule.error_s, rule)})")
        for name, mine, rule in cells
        if mine.jobs >= MIN_JOBS and mine.error_s > 1.005 * rule.error_s
    ]
    lost.sort(reverse=True)
    more = f", and {len(lost) - MAX_LOSSES} more" if len(lost) > MAX_LOSSES else ""
    return ", ".join(text for _, text in lost[:MAX_LOSSES]) + more


def _mean(seconds: float, cell: Cell) -> str:
    return duration(seconds / max(cell.jobs, 1))
