"""Commands that evaluate predictions on a log: replay and compare."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.options import (
    Format,
    Heartbeats,
    Range,
    SourceOptions,
    arg,
    flag,
    names_in,
    opt,
    print_json,
    progress,
    settings_without_servers,
    warn,
)
from streams.errors import UserError
from streams.settings.usable_cpus import usable_cpus
from streams.text.terminal import show_accuracy

if TYPE_CHECKING:
    from streams.bulk.event_log import EventLog, JobRange
    from streams.bulk.reading import Report
    from streams.offline.excerpt import Excerpt

commands = typer.Typer()

METHODS, RUN_METHODS = (names_in("models.method_registry", table) for table in ("METHODS", "RUN_METHODS"))

LogFiles = Annotated[
    list[Path],
    arg("Log of one site: files or a directory, plain or compressed; - is standard input.", "FILE..."),
]
MapName = Annotated[str | None, opt("Column mapping of a table (--format table).", "--map", "NAME|FILE")]
SiteName = Annotated[str | None, opt("Site name. Default: the file name.")]
Ids = Annotated[Range | None, opt("Range of job ids to score, inclusive.", "LO HI")]
Rows = Annotated[Range | None, opt("Range of positions in submit order to score, from 1, inclusive.", "LO HI")]
Since = Annotated[
    datetime | None,
    opt(
        "Score jobs submitted since then, UTC; earlier ones are for learning.",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
    ),
]
Started = Annotated[bool, flag("--started", "Exclude jobs cancelled in the queue.")]
SkipInvalid = Annotated[bool, flag("--skip-invalid", "Print each invalid line on stderr.")]


def _writable(path: Path | None) -> Path | None:
    """Return the path if it can be written; the check comes before the long work."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"{path}: cannot be written; do you have write access to {path.parent}?")
    return path


Html = Annotated[Path | None, opt("Write a self-contained report with plots.", "FILE", callback=_writable)]
Anonymise = Annotated[Path | None, opt("Write the events with pseudonyms, for sharing, and predict nothing.", "FILE")]
Key = Annotated[Path | None, opt("With --anonymise: key of the pseudonyms. Default: random, not stored.", "FILE")]
Fast = Annotated[bool, flag("--fast", "Quick result: use the last jobs of a long log, and predict some of them.")]
Resume = Annotated[Path | None, opt("State file; the same command resumes from it.", "FILE", callback=_writable)]
PriorFile = Annotated[
    Path | None, opt("Prior to start from (`queuecast prior`). Default: the package's.", "--prior", "FILE")
]
ShiftTime = Annotated[str | None, opt("With --anonymise: shift all times back, such as 500d.", "DURATION")]


@contextmanager
def _opened(context: typer.Context) -> "Iterator[tuple[EventLog, Report]]":
    from streams.bulk.reading import read_log

    given = context.params
    options, format_name = given["options"] or [], given["format_name"]
    if given["map_name"] is not None:
        format_name, options = format_name or "table", [*options, f"map={given['map_name']}"]
    on_skipped = (lambda part: warn(str(part))) if given["skip_invalid"] else None
    heartbeat_s = given["heartbeat"] if given.get("anonymise") is None else 0.0
    with read_log(
        given["files"], given["site"], format_name, on_skipped, options, progress, heartbeat_s=heartbeat_s
    ) as found:
        yield found


@contextmanager
def _scored(context: typer.Context) -> "Iterator[tuple[EventLog, Report, JobRange, Excerpt]]":
    """Open the log of a command, and select the jobs to score and the excerpt to replay."""
    from streams.bulk.event_log import jobs_in
    from streams.process.compiling import compilation_warning

    given = context.params
    _check_ranges(given)
    since = given["since"]
    with compilation_warning(warn), _opened(context) as (log, report):
        range_ = jobs_in(log, given["ids"], given["rows"], since.replace(tzinfo=UTC).timestamp() if since else None)
        yield log, report, range_, _excerpt(log, range_, given["fast"])


@commands.command(epilog="Example: queuecast replay sacct.txt --method qespera --rows 10001 20000")
def replay(
    context: typer.Context,
    files: LogFiles,
    method: Annotated[
        list[str] | None,
        opt(
            "Method; repeatable, the first is the default method. Default: from the settings.",
            "NAME",
            autocompletion=METHODS,
        ),
    ] = None,
    runtimes: Annotated[
        list[str] | None, opt("Method for run times; repeatable, as --method.", "NAME", autocompletion=RUN_METHODS)
    ] = None,
    out: Annotated[Path | None, opt("Write the predictions, JSON lines.", "FILE")] = None,
    outcomes: Annotated[Path | None, opt("Write the outcomes, JSON lines.", "FILE")] = None,
    shadows: Annotated[bool, flag("--shadows", "Write the records of every method, not of the first only.")] = False,
    ids: Ids = None,
    rows: Rows = None,
    since: Since = None,
    started: Started = False,
    fast: Fast = False,
    resume: Resume = None,
    prior: PriorFile = None,
    site: SiteName = None,
    format_name: Format = None,
    map_name: MapName = None,
    options: SourceOptions = None,
    heartbeat: Heartbeats = 300.0,
    skip_invalid: SkipInvalid = False,
    html: Html = None,
    anonymise: Anonymise = None,
    key: Key = None,
    shift_time: ShiftTime = None,
    as_json: Annotated[bool, flag("--json", "Print the report and the tables as JSON.")] = False,
) -> None:
    """Predict every job of a log in time order, and print the accuracy.

    The report first states what was read, what was skipped and why, and what is
    missing. Each job is predicted at its submission, from earlier events only. The
    baselines "zero" and "median" always run too, and so do the scheduler's own
    estimates if the log has them.

    Columns: mean absolute error (AAE) and median error in hours; error relative to
    the response time (PPE; PPE600 and PPE1200 with at least 600 or 1200 s); shares
    of jobs predicted within a factor of 2 or 3, within 1 or 10 minutes; jobs
    without an estimate; jobs; and the coverage of each upper bound (cov). A second
    table has the run times: mean absolute error in hours and relative to the mean
    run time, and the share within the interval.

    A third table has the estimates in force for jobs pending at fixed ages: their
    mean absolute error in hours, that of the first estimate, of "it starts now",
    and of the median remaining wait of the last 500 jobs that had waited as long;
    the ratio to the better of these two; the coverage of each bound; and the share
    of bounds of 0.9 that were in the past.
    """
    from streams.offline import waiting_scores
    from streams.offline.pretraining import read_prior
    from streams.offline.replay import settings_for
    from streams.offline.report import findings, page
    from streams.offline.scored import ScoredReplay

    _check_names(anonymise, key, shift_time)
    settings = settings_for(settings_without_servers(context).engine, method or (), runtimes or ())
    if prior is not None and settings.prior != "grid":
        raise UserError(f"--prior {prior}: requires engine.prior = 'grid'; it is {settings.prior!r}")
    others = None if prior is None else read_prior(prior)
    if anonymise is not None:
        with _opened(context) as (log, report):
            _anonymise(log, report, anonymise, key, shift_time)
        return
    with _scored(context) as (log, report, range_, excerpt):
        written = None if shadows else settings.method
        run = ScoredReplay(excerpt, settings, range_, not started, (out, outcomes), written, resume, prior=others)
        with progress("jobs", excerpt.jobs) as advance:
            if not as_json:
                findings.show(log, report)
            run.run(advance)
        scores, breakdowns, anomalies = run.scores, run.breakdowns, run.anomalies
        found = scores.rows()
        if not found:
            which = "of that range" if ids or rows or since else "in it"
            raise UserError(f"{files[0]}: no job {which} can be scored: none has a known wait")
        if html:
            counted = run.waiting.counted
            parts = (breakdowns.found, settings.method, breakdowns.rivals, counted, excerpt.description)
            page.write(html, page.ReportData(log, report, *parts), warn)
        if as_json:
            without = report.left_out["jobs without a wait"]
            head = {
                "trace": str(files[0]),
                "jobs": log.jobs,
                "without_wait": without,
                "sample": excerpt.description or None,
            }
            tables = {"methods": found, "run_times": scores.run_rows(), "anomalies": anomalies}
            print_json(
                head | tables | waiting_scores.document(run.waiting.counted) | {"log": findings.document(log, report)}
            )
            return
        show_accuracy(found, "waits")
        show_accuracy(scores.run_rows(), "run times")
        waiting_scores.show(run.waiting.counted)
        findings.show_verdict(breakdowns.found, settings.method, breakdowns.rivals, report)
        for reason, count in anomalies.most_common():
            warn(f"{count} × {reason}")


@commands.command(epilog="Example: queuecast compare sacct.txt --html report.html")
def compare(
    context: typer.Context,
    files: LogFiles,
    method: Annotated[
        list[str] | None, opt("Method; repeatable. Default: all.", "NAME", autocompletion=METHODS)
    ] = None,
    ids: Ids = None,
    rows: Rows = None,
    since: Since = None,
    started: Started = False,
    workers: Annotated[int | None, opt("Number of processes. Default: the number of CPUs.", min=1)] = None,
    fast: Fast = False,
    resume: Resume = None,
    site: SiteName = None,
    format_name: Format = None,
    map_name: MapName = None,
    options: SourceOptions = None,
    heartbeat: Heartbeats = 300.0,
    skip_invalid: SkipInvalid = False,
    html: Html = None,
    as_json: Annotated[bool, flag("--json", "Print the report and the tables as JSON.")] = False,
) -> None:
    """Run every method over a log, and print the accuracy of waits, run times and bounds.

    The report first states what was read, what was skipped and why, and what is
    missing. The baselines come first, then the scheduler's own estimates if the
    log has them. The columns are those of `queuecast replay`; for each bound its
    coverage, its mean, and its mean quantile loss.
    """
    from streams.offline.compare import compare as compared
    from streams.offline.replay import settings_for
    from streams.offline.report import findings, page

    settings = settings_without_servers(context).engine
    settings_for(settings, method or ())  # a mistyped name is an error before the log is read
    with _scored(context) as (log, report, range_, excerpt):
        if not as_json:
            findings.show(log, report)
        with _share_of_work() as advance:
            processes = workers or usable_cpus()
            found = compared(excerpt, range_, settings, method or (), processes, not started, advance, resume)
        ours = found.pending_reasons_of(settings.method)
        if html:
            data = page.ReportData(log, report, found.breakdowns, ours, found.rivals, sample=excerpt.description)
            page.write(html, data, warn)
        if as_json:
            tables = {"waits": found.waits, "run_times": found.run_times, "bounds": found.bounds}
            print_json(tables | {"log": findings.document(log, report)})
            return
    plain = {name: {key: row[key] for key in row if not key.startswith("cov_")} for name, row in found.waits.items()}
    show_accuracy(plain, "waits")
    show_accuracy(found.run_times, "run times")
    if found.bounds:
        show_accuracy(found.bounds, "bounds")
    findings.show_verdict(found.breakdowns, ours, found.rivals, report)


def _check_ranges(given: Mapping[str, Any]) -> None:
    ranges = [name for name in ("ids", "rows", "since") if given[name]]
    if len(ranges) > 1:
        raise typer.BadParameter(f"{' and '.join(f'--{name}' for name in ranges)} are mutually exclusive.")
    for name in ("ids", "rows"):
        if (range_ := given[name]) and range_[0] > range_[1]:
            raise typer.BadParameter(f"--{name} {range_[0]} {range_[1]}: expected the first not to exceed the last.")
    if given["fast"] and ranges:
        raise typer.BadParameter("--fast cannot be combined with --ids, --rows or --since.")


def _check_names(anonymise: Path | None, key: Path | None, shift_time: str | None) -> None:
    for option, given in (("--key", key), ("--shift-time", shift_time)):
        if given is not None and anonymise is None:
            raise typer.BadParameter(f"{option} requires --anonymise.")


def _excerpt(log: "EventLog", jobs: "JobRange", fast: bool) -> "Excerpt":
    from streams.offline.excerpt import fast as sampled
    from streams.offline.excerpt import until_scored, whole

    if not fast:
        return whole(log) if jobs.ids is None and jobs.names is None else until_scored(log, jobs)
    excerpt = sampled(log)
    warn(excerpt.description or "fast replay: the log is short, so no job is skipped")
    return excerpt


@contextmanager
def _share_of_work() -> Iterator[Callable[[int], None]]:
    """Show a progress bar of thousandths; yield a function that sets it."""
    with progress("thousandths", 1000) as advance:
        done = 0

        def move(share: int) -> None:
            nonlocal done
            for _ in range(done, share):
                advance()
            done = max(done, share)

        yield move


def _anonymise(log: "EventLog", report: "Report", out: Path, key: Path | None, shift_time: str | None) -> None:
    from streams.bulk.anonymise import Anonymiser, key_of, write_anonymous
    from streams.errors import read_as
    from streams.offline.report import findings
    from streams.text.quantities import seconds_of

    shift_s = 0.0 if shift_time is None else read_as("--shift-time", seconds_of, shift_time)
    anonymiser = Anonymiser(key_of(key), shift_s)
    count = write_anonymous(out, log.events(), anonymiser)
    findings.show(log, report)
    sys.stdout.write(f"{out}: {count:,} events with pseudonyms; evaluate them with `queuecast replay {out}`\n")
