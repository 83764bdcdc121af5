"""Report as text: what was read of a log, its machine, and the accuracy that predictions would have had."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

import msgspec

from models.durations import counted, duration
from models.method_registry import TRIVIAL
from models.records import Capacity
from streams.bulk.event_log import EventLog
from streams.bulk.reading import Report
from streams.bulk.survey import Survey
from streams.offline.breakdown import WAIT_NAMES, Breakdown, GroupScores
from streams.text.terminal import minute, printable

FEW_JOBS = 2000  # with fewer jobs than this a method has hardly learnt when the log ends
MAX_LOST = 0.01  # the share of records without an event above which the verdict states it first
MANY = 0.5  # a field that fewer than this share of the jobs have is reported as missing
MAX_PARTITIONS = 12  # how many partitions are listed, those with the most jobs
COLUMNS = 80


def findings(log: EventLog, report: Report) -> list[tuple[str, list[str]]]:
    """Return the findings by heading, as lines of plain, printable text."""
    found = [("read", _read(report)), ("kept", _kept(log, report))]
    if report.skipped:
        found.append(("skipped", _skipped(report)))
    if report.left_out:
        found.append(("left out", _left_out(report)))
    found += [("machine", _machine(log, site)) for site in log.surveys]
    lacks = [line for survey in log.surveys.values() for line in lacking(survey)]
    found.append(("missing for good predictions", lacks or ["nothing that a log can have"]))
    return [(head, [printable(line) for line in lines]) for head, lines in found]


def text_of(found: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Format the findings as text of `COLUMNS` columns."""
    text = []
    for head, lines in found:
        text.append(f"{head}:")
        for line in lines:
            text += wrap(line, COLUMNS, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(text)


def show(log: EventLog, report: Report) -> None:
    """Print the findings before the long computation."""
    sys.stdout.write(text_of(findings(log, report)) + "\n\n")
    sys.stdout.flush()


def document(log: EventLog, report: Report) -> dict[str, Any]:
    """Return the findings as data for `--json`."""
    return {
        "report": msgspec.to_builtins(report),
        "sites": {
            site: {
                "events": survey.events,
                "begin": survey.begin,
                "end": survey.end,
                "jobs": survey.submits,
                "started": survey.starts,
                "cancelled": survey.cancels,
                "requeued": survey.requeues,
                "before_the_log": survey.before if site in log.cuts else 0,
                "states": dict(survey.states),
                "cpus": _capacity(log, site).cpus,
                "cpus_inferred": site in log.capacity,
                "partitions": {
                    name: {"cpus": use.cpus.size, "gpus": use.gpus.size} for name, use in survey.partitions.items()
                },
                "gpus": survey.machine.gpus.size,
                "gpu_types": {name: level.size for name, level in survey.gpu_types.items()},
                "missing": lacking(survey),
            }
            for site, survey in log.surveys.items()
        },
    }


def lacking(survey: Survey) -> list[str]:
    """List the fields missing from the log that would improve predictions."""
    jobs, fields = max(survey.submits, 1), survey.fields

    def had(what: str, count: int, why: str = "") -> tuple[bool, str]:
        return count < MANY * jobs, f"{what}: {_share(count, jobs)} of the jobs have one{why}"

    size = "taken from what was in use" if survey.starts else "unknown"
    found = (
        (
            survey.submits < FEW_JOBS,
            f"jobs: only {survey.submits:,}; methods learn from past jobs, so give some months",
        ),
        had("walltimes", fields.walltime, "; they show when nodes become free"),
        had("users", fields.user, "; a user's jobs are alike"),
        had("queues or partitions", fields.queue),
        (not fields.eligible, "eligible times: none after a submission; without them waits count from there"),
        (not survey.cancels, "jobs cancelled in the queue: none; are they left out of the log?"),
        (survey.capacity is None, f"the machine's size: {size}"),
        (survey.unsubmitted, f"submissions: {survey.unsubmitted:,} jobs start without one; their waits are not scored"),
        (not survey.expected_by, "the scheduler's own estimates of starts: none, so they cannot be compared with"),
    )
    return [text for is_lacking, text in found if is_lacking]


def _share(part: int, whole: int) -> str:
    return "none" if not part else f"{100 * part / whole:.0f} %"


def _read(report: Report) -> list[str]:
    lines = []
    for file in report.files:
        records = f"{counted(file.records, 'record')}, " if file.records else ""
        lines.append(f"{file.file}: {records}{counted(file.events, 'event')}, read as {file.format}")
    return lines


def _kept(log: EventLog, report: Report) -> list[str]:
    lines = []
    for site, survey in log.surveys.items():
        span = f"{minute(survey.begin, zone=False)} to {minute(survey.end)} ({duration(survey.end - survey.begin)})"
        arrays = " (an array counts once)" if survey.arrays else ""
        lines.append(f"{counted(survey.submits, 'job')}{arrays} of {site}, {span}")
        states = ", ".join(f"{count:,} {state}" for state, count in survey.states.most_common())
        more = [
            counted(survey.starts, "start"),
            f"{survey.cancels:,} cancelled in the queue",
            *([f"{survey.requeues:,} requeued"] if survey.requeues else []),
            *([f"{survey.unended:,} still running at the end"] if survey.unended else []),
        ]
        lines.append(", ".join(more) + (f"; ends: {states}" if states else ""))
        if (cut := log.cuts.get(site)) is not None:
            lines.append(
                f"{counted(survey.before, 'job')} from before {minute(cut)}, where the log begins: of that time it has "
                "those alone that were not over by then, so they are part of the state and are not scored"
            )
        lines += [f"{counted(count, 'start')} expected by {by}" for by, count in survey.expected_by.items()]
    if twice := report.events - sum(survey.events for survey in log.surveys.values()):
        lines.append(f"{twice:,} events came twice and count once")
    return lines


def _skipped(report: Report) -> list[str]:
    lines = []
    for reason, parts in sorted(report.skipped.items(), key=lambda item: -item[1].count):
        places = ", ".join(parts.places) + (", …" if parts.count > len(parts.places) else "")
        lines.append(f"{counted(parts.count, 'time')}: expected {reason}; found {parts.found} first ({places})")
    return lines


def _left_out(report: Report) -> list[str]:
    """Return the count of each kind, with the first record as an example."""
    lines = []
    for what, count in sorted(report.left_out.items()):
        example = report.examples.get(what)
        lines.append(f"{count:,} {what}" + (f"; the first is {example}" if example else ""))
    return lines


def losses(report: Report) -> list[str]:
    """Warn, in a sentence, if too many records gave no event for the rest to be reliable."""
    lost = report.lost_records
    count, records = sum(lost.values()), report.records
    if not count or count <= MAX_LOST * records:
        return []
    what, most = max(lost.items(), key=lambda item: item[1])
    reason = f"expected {what}" if what in report.skipped else what
    return [
        f"{count:,} of {records:,} records ({100 * count / records:.1f} %) gave no event, so what follows may mislead; "
        f"most of them, {most:,}: {reason}."
    ]


def _machine(log: EventLog, site: str) -> list[str]:
    survey, capacity = log.surveys[site], _capacity(log, site)
    size = counted(capacity.cpus, "cpu") + (f" on {counted(capacity.nodes, 'node')}" if capacity.nodes else "")
    if survey.capacity is not None:
        lines = [f"{size}, according to the log"]
    elif site in log.capacity:
        lines = [f"{size}, inferred: so many were in use 1 % of the time or more"]
    else:
        lines = ["unknown, since no job has run"]
    if survey.machine.gpus.size:
        types = ", ".join(f"{level.size:,} {name}" for name, level in survey.gpu_types.items())
        lines.append(f"{counted(survey.machine.gpus.size, 'GPU')}, by what was in use{f': {types}' if types else ''}")
    partitions = sorted(survey.partitions.items(), key=lambda item: -item[1].jobs)
    for name, use in partitions[:MAX_PARTITIONS]:
        gpus = f", {counted(use.gpus.size, 'GPU')}" if use.gpus.size else ""
        in_use = f"{counted(use.cpus.size, 'cpu')}{gpus} in use"
        lines.append(f"partition {name}: {counted(use.jobs, 'job')}, up to {in_use}")
    if len(partitions) > MAX_PARTITIONS:
        lines.append(f"and {len(partitions) - MAX_PARTITIONS} more partitions")
    return lines


def _capacity(log: EventLog, site: str) -> Capacity:
    capacity = log.surveys[site].capacity or log.capacity.get(site)
    return capacity or Capacity(site=site, time=log.surveys[site].begin, cpus=0)


MIN_JOBS = 30  # with fewer jobs no verdict is given, because it would not be significant
MAX_LOSSES = 4  # maximum number of queues and wait classes listed where a baseline is better

COVERAGE_SLACK = 0.02
"""Maximum difference between the coverage of a bound and its probability that counts as on target."""

BOUND = "0.9"
SAME = 0.5  # percent by which errors differ that are called the same
WORTH = 5.0  # percent by which an error is smaller that is called worth it
RULES = {"zero": "always zero", "median": "the recent median"}  # names of the baselines in text


def better_rule(breakdowns: Mapping[str, Breakdown]) -> str | None:
    """Return the baseline with the smallest error."""
    known = [name for name in TRIVIAL if name in breakdowns]
    return min(known, key=lambda name: breakdowns[name].every.error_h, default=None)


def headline(breakdowns: Mapping[str, Breakdown], method: str) -> str:
    """Return the verdict in one line: error against the better baseline, coverage of bounds, and benefit."""
    ours, rule = breakdowns[method].every, better_rule(breakdowns)
    if ours.jobs < MIN_JOBS:
        return f"Only {counted(ours.jobs, 'job')} scored: too few to judge."
    if rule is None or rule == method:
        return f"{method} erred by {_mean(ours.error_s, ours)} on average."
    theirs_h, held = breakdowns[rule].every.error_h, ours.held(BOUND)
    change = 100 * (ours.error_h / theirs_h - 1) if theirs_h else 0.0
    holds = held is None or held >= float(BOUND) - COVERAGE_SLACK
    worth = "worth it" if change <= -WORTH and holds else "no gain" if change > -SAME else "judge by the details"
    size = "smaller" if change < 0 else "larger"
    error = f"{abs(change):.0f} % {size} error than" if abs(change) >= SAME else "the same error as"
    bounds = "" if held is None else "bounds hold" if holds else f"bounds hold for {100 * held:.0f} %, not 90 %"
    claims = "; ".join(filter(None, (f"{error} the best simple rule ({RULES[rule]})", bounds)))
    return f"{claims[0].upper()}{claims[1:]}: {worth}."


def verdict(
    breakdowns: Mapping[str, Breakdown], method: str, rivals: Iterable[str] = (), report: Report | None = None
) -> list[str]:
    """Describe a method's accuracy in sentences: overall, its bounds, against external estimates, and where it is
    worse.

    A warning comes first if many records of the log gave no event.
    """
    return [*(losses(report) if report is not None else ()), *_worth(breakdowns, method, rivals)]


def _worth(breakdowns: Mapping[str, Breakdown], method: str, rivals: Iterable[str]) -> list[str]:
    ours = breakdowns[method]
    rule = better_rule(breakdowns)
    jobs = "1 job is scored; it" if ours.every.jobs == 1 else f"{ours.every.jobs:,} jobs are scored; they"
    sentences = [f"{jobs} waited {_mean(ours.every.wait_s, ours.every)} on average."]
    if rule is None or rule == method:
        return [*sentences, f"{method} erred by {_mean(ours.every.error_s, ours.every)}."]
    sentences.append(_in_all(ours, method, breakdowns[rule], rule))
    sentences += _bound(ours)
    for rival in rivals:
        sentences += _compare_external(breakdowns[rival], rival, ours, method)
    return sentences + _losses(ours, breakdowns[rule], rule)


def show_verdict(
    breakdowns: Mapping[str, Breakdown], method: str, rivals: Iterable[str] = (), report: Report | None = None
) -> None:
    """Print the accuracy of a method if it ran."""
    if method in breakdowns:
        lost = losses(report) if report is not None else []
        lines = [*lost, headline(breakdowns, method), *verdict(breakdowns, method, rivals)]
        worth = ("what it would have been worth", lines)
        sys.stdout.write(f"\n{text_of([worth])}\n")


def _in_all(ours: Breakdown, method: str, theirs: Breakdown, rule: str) -> str:
    mine, trivial = ours.every.error_h, theirs.every.error_h
    erred, rule_erred = _mean(ours.every.error_s, ours.every), _mean(theirs.every.error_s, theirs.every)
    words = (
        f"queuecast ({method}), queried at each job's submission, had a mean error of {erred}; "
        f"the better rule without a model ({RULES[rule]}) had {rule_erred}"
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


def _compare_external(theirs: Breakdown, rival: str, ours: Breakdown, method: str) -> list[str]:
    """Compare an external estimator on the jobs that it has an estimate for."""
    same = ours.beside.get(rival)
    if same is None or not same.jobs:
        return []
    them = theirs.every
    return [
        f"{rival} had an estimate of its own for {them.jobs:,} of the jobs: it erred by {_mean(them.error_s, them)} on "
        f"average, {method} on the same jobs by {_mean(same.error_s, same)}."
    ]


def _losses(ours: Breakdown, theirs: Breakdown, rule: str) -> list[str]:
    """Describe where the better baseline has the smaller error."""
    sentences = []
    waits = zip(WAIT_NAMES, ours.by_wait, theirs.by_wait, strict=True)
    if lost := _lost(waits):
        sentences.append(f"{RULES[rule].capitalize()} has the smaller error for jobs that waited: {lost}.")
    queues = ((name, cell, theirs.by_queue[name]) for name, cell in ours.by_queue.items() if name in theirs.by_queue)
    if len(ours.by_queue) > 1 and (lost := _lost(queues)):
        sentences.append(f"{RULES[rule].capitalize()} has the smaller error in these queues: {lost}.")
    weeks = [week for week in ours.by_week if week in theirs.by_week]
    worse = sum(ours.by_week[week].error_s > theirs.by_week[week].error_s for week in weeks)
    if len(weeks) > 1:
        where = f"in {worse} of {len(weeks)} weeks" if worse else "in any week"
        sentences.append(
            f"{RULES[rule].capitalize()} {'has' if worse else 'does not have'} the smaller mean error {where}."
        )
    return sentences or [f"{RULES[rule].capitalize()} has no smaller error for any length of wait or queue."]


def _lost(cells: Iterable[tuple[str, GroupScores, GroupScores]]) -> str:
    """List the parts in which the second has the smaller error, those with the most jobs first."""
    lost = [
        (mine.jobs, f"{name} ({mine.jobs:,} jobs: {_mean(mine.error_s, mine)} against {_mean(rule.error_s, rule)})")
        for name, mine, rule in cells
        if mine.jobs >= MIN_JOBS and mine.error_s > 1.005 * rule.error_s
    ]
    lost.sort(reverse=True)
    more = f", and {len(lost) - MAX_LOSSES} more" if len(lost) > MAX_LOSSES else ""
    return ", ".join(text for _, text in lost[:MAX_LOSSES]) + more


def _mean(seconds: float, cell: GroupScores) -> str:
    return duration(seconds / max(cell.jobs, 1))
