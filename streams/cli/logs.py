"""The commands that tell how good predictions would be on a log: replay and compare."""

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
    Range,
    SourceOptions,
    arg,
    flag,
    names_in,
    opt,
    print_json,
    progress,
    settings_without_servers,
    tell,
)
from streams.errors import UserError
from streams.text.terminal import show_accuracy

if TYPE_CHECKING:
    from streams.bulk.event_log import EventLog, JobRange
    from streams.bulk.reading import Report
    from streams.offline.excerpt import Excerpt

commands = typer.Typer()

METHODS, RUN_METHODS = (names_in("models.registry", table) for table in ("METHODS", "RUN_METHODS"))

LogFiles = Annotated[
    list[Path],
    arg("A site's log, in one file or several, or a folder, plain or zipped; - is standard input.", "FILE..."),
]
MapName = Annotated[str | None, opt("What the columns of a table (--format table) are.", "--map", "NAME|FILE")]
SiteName = Annotated[str | None, opt("The site's name. Default: the file's.")]
Ids = Annotated[Range | None, opt("Score these job numbers, inclusive.", "LO HI")]
Rows = Annotated[Range | None, opt("Score these positions in submit order, from 1, inclusive.", "LO HI")]
Since = Annotated[
    datetime | None,
    opt("Score jobs submitted since then, UTC; those before are learnt.", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
]
Started = Annotated[bool, flag("--started", "Leave out jobs cancelled in the queue.")]
SkipBroken = Annotated[bool, flag("--skip-broken", "Tell each broken line on stderr, beside the report's counts.")]


def _writable(path: Path | None) -> Path | None:
    """A file that can be written; it is looked at before the work, which takes long."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"{path}: cannot be written; is {path.parent} a directory of yours?")
    return path


Html = Annotated[
    Path | None, opt("Write the report with plots there, one page that needs no other.", "FILE", callback=_writable)
]
Anonymise = Annotated[
    Path | None, opt("Write the log's events there with other names, to be shared, and predict nothing.", "FILE")
]
Key = Annotated[Path | None, opt("With --anonymise: the key of the names. Default: random, kept nowhere.", "FILE")]
Fast = Annotated[bool, flag("--fast", "For a first answer: of a long log the last jobs alone, some of them predicted.")]
Resume = Annotated[
    Path | None, opt("Keep the state there; the same command goes on where it was stopped.", "FILE", callback=_writable)
]
PriorFile = Annotated[
    Path | None, opt("Start from what these sites taught (`queuecast prior`), not the package's.", "--prior", "FILE")
]
Earlier = Annotated[str | None, opt("With --anonymise: all times so much earlier, such as 500d.", "DURATION")]


@contextmanager
def _opened(context: typer.Context) -> "Iterator[tuple[EventLog, Report]]":
    from streams.bulk.reading import read_log

    given = context.params
    options, format_name = given["options"] or [], given["format_name"]
    if given["map_name"] is not None:
        format_name, options = format_name or "table", [*options, f"map={given['map_name']}"]
    told = (lambda part: tell(str(part))) if given["skip_broken"] else None
    with read_log(given["files"], given["site"], format_name, told, options, progress) as found:
        yield found


@contextmanager
def _scored(context: typer.Context) -> "Iterator[tuple[EventLog, Report, JobRange, Excerpt]]":
    """The log that a command's options name, which jobs of it are scored, and what of it is replayed."""
    from streams.bulk.event_log import jobs_in
    from streams.process.compiling import told_of_compiling

    given = context.params
    _check_ranges(given)
    since = given["since"]
    with told_of_compiling(tell), _opened(context) as (log, report):
        range_ = jobs_in(log, given["ids"], given["rows"], since.replace(tzinfo=UTC).timestamp() if since else None)
        yield log, report, range_, _excerpt(log, range_, given["fast"])


@commands.command(epilog="Example: queuecast replay sacct.txt --method qespera --rows 10001 20000")
def replay(
    context: typer.Context,
    files: LogFiles,
    method: Annotated[
        list[str] | None,
        opt("Method to run; repeatable, the first one counts. Default: the settings'.", "NAME", autocompletion=METHODS),
    ] = None,
    runtimes: Annotated[
        list[str] | None, opt("Method for run times; repeatable, as --method.", "NAME", autocompletion=RUN_METHODS)
    ] = None,
    out: Annotated[Path | None, opt("Write the predictions there, JSON lines.", "FILE")] = None,
    outcomes: Annotated[Path | None, opt("Write the outcomes there.", "FILE")] = None,
    shadows: Annotated[bool, flag("--shadows", "Write every method's records, not the first's.")] = False,
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
    skip_broken: SkipBroken = False,
    html: Html = None,
    anonymise: Anonymise = None,
    key: Key = None,
    earlier: Earlier = None,
    as_json: Annotated[bool, flag("--json", "Print the report and the tables as JSON.")] = False,
) -> None:
    """Predict every job of a log in time order, in this process, and print how good that was.

    First it says what was read, what was skipped and why, and what is missing.
    Then each job is predicted at its submission, from what was known by then.
    The trivial rules, "zero" and "median", always run beside, and so do the
    scheduler's own estimates where the log has them.

    The columns: mean absolute error (AAE) and median error in hours; error as a
    share of the response time (PPE; PPE600 and PPE1200 with that at least 600 or
    1200 s); shares of jobs predicted within a factor of 2 or 3, within 1 or 10
    minutes; jobs without an estimate; jobs; and for each bound the share of jobs
    at or below it (cov). A second table has the run times: mean absolute error in
    hours and as a share of the mean run time, and the share within its interval.

    A third table has the estimates in force of jobs that still wait at an age:
    their mean absolute error in hours, beside those of the first estimate, of "it
    starts now", and of the median of what was left for the last 500 jobs that
    waited as long; the ratio to the better of these two; for each bound the share
    that started within it; and the share of bounds of 0.9 that had passed.
    """
    from streams.offline import waiting
    from streams.offline.prior import read_prior
    from streams.offline.replay import settings_for
    from streams.offline.report import findings, page
    from streams.offline.scored import ScoredReplay

    _check_names(anonymise, key, earlier)
    settings = settings_for(settings_without_servers(context).engine, method or (), runtimes or ())
    if prior is not None and settings.prior != "grid":
        raise UserError(f"--prior {prior}: engine.prior is {settings.prior!r}; only with 'grid' is another one taken")
    others = None if prior is None else read_prior(prior)
    if anonymise is not None:
        with _opened(context) as (log, report):
            _anonymise(log, report, anonymise, key, earlier)
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
            raise UserError(f"{files[0]}: no job {which} is scored: none has a wait that is known")
        if html:
            counted = run.waiting.counted
            parts = (breakdowns.found, settings.method, breakdowns.rivals, counted, excerpt.said)
            page.write(html, page.Told(log, report, *parts), tell)
        if as_json:
            without = report.left_out["jobs without a wait"]
            head = {"trace": str(files[0]), "jobs": log.jobs, "without_wait": without, "sample": excerpt.said or None}
            tables = {"methods": found, "run_times": scores.run_rows(), "anomalies": anomalies}
            print_json(head | tables | waiting.document(run.waiting.counted) | {"log": findings.document(log, report)})
            return
        show_accuracy(found, "waits")
        show_accuracy(scores.run_rows(), "run times")
        waiting.show(run.waiting.counted)
        findings.show_verdict(breakdowns.found, settings.method, breakdowns.rivals, report)
        for reason, count in anomalies.most_common():
            tell(f"{count} × {reason}")


@commands.command(epilog="Example: queuecast compare sacct.txt --html report.html")
def compare(
    context: typer.Context,
    files: LogFiles,
    method: Annotated[
        list[str] | None, opt("Only this method; repeatable. Default: every one.", "NAME", autocompletion=METHODS)
    ] = None,
    ids: Ids = None,
    rows: Rows = None,
    since: Since = None,
    started: Started = False,
    workers: Annotated[int | None, opt("Processes. Default: as many as there are cores.", min=1)] = None,
    fast: Fast = False,
    resume: Resume = None,
    site: SiteName = None,
    format_name: Format = None,
    map_name: MapName = None,
    options: SourceOptions = None,
    skip_broken: SkipBroken = False,
    html: Html = None,
    as_json: Annotated[bool, flag("--json", "Print the report and the tables as JSON.")] = False,
) -> None:
    """Run every method over a log, and print how good each was: waits, run times, bounds on waits.

    First it says what was read, what was skipped and why, and what is missing.
    The trivial rules stand on top, then the scheduler's own estimates where the
    log has them. The columns are those of `queuecast replay`; of a bound, the
    share of jobs at or below it, its mean, and its mean quantile loss.
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
            processes = workers or os.cpu_count() or 1
            found = compared(excerpt, range_, settings, method or (), processes, not started, advance, resume)
        ours = found.told_of(settings.method)
        if html:
            told = page.Told(log, report, found.breakdowns, ours, found.rivals, sample=excerpt.said)
            page.write(html, told, tell)
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
        raise typer.BadParameter(f"{' and '.join(f'--{name}' for name in ranges)} exclude each other.")
    for name in ("ids", "rows"):
        if (range_ := given[name]) and range_[0] > range_[1]:
            raise typer.BadParameter(f"--{name} {range_[0]} {range_[1]}: expected the last not to be before the first.")
    if given["fast"] and ranges:
        raise typer.BadParameter("--fast chooses the jobs itself, without --ids, --rows and --since.")


def _check_names(anonymise: Path | None, key: Path | None, earlier: str | None) -> None:
    for option, given in (("--key", key), ("--earlier", earlier)):
        if given is not None and anonymise is None:
            raise typer.BadParameter(f"{option} goes with --anonymise.")


def _excerpt(log: "EventLog", jobs: "JobRange", fast: bool) -> "Excerpt":
    from streams.offline.excerpt import fast as sampled
    from streams.offline.excerpt import until_scored, whole

    if not fast:
        return whole(log) if jobs.ids is None and jobs.names is None else until_scored(log, jobs)
    excerpt = sampled(log)
    tell(excerpt.said or "a fast replay: the log is short, so nothing is left out")
    return excerpt


@contextmanager
def _share_of_work() -> Iterator[Callable[[int], None]]:
    """A bar of thousandths; gives what moves it on to so many."""
    with progress("thousandths", 1000) as advance:
        told = 0

        def move(share: int) -> None:
            nonlocal told
            for _ in range(told, share):
                advance()
            told = max(told, share)

        yield move


def _anonymise(log: "EventLog", report: "Report", out: Path, key: Path | None, earlier: str | None) -> None:
    from streams.bulk.anonymise import Anonymiser, key_of, write_anonymous
    from streams.errors import read_as
    from streams.offline.report import findings
    from streams.text.quantities import seconds_of

    shift_s = 0.0 if earlier is None else read_as("--earlier", seconds_of, earlier)
    anonymiser = Anonymiser(key_of(key), shift_s)
    count = write_anonymous(out, log.events(), anonymiser)
    findings.show(log, report)
    sys.stdout.write(f"{out}: {count:,} events with other names; `queuecast replay {out}` reads them\n")
