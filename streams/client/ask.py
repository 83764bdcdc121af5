"""The command `ask`: prints a ranking of sites."""

import sys

from models.ranking import JobRequest, LeftOut, RankedSite, Ranking
from models.records import Alternative
from streams.client.listing import NO_SITE
from streams.errors import UserError
from streams.text.sizes import size_text
from streams.text.terminal import minute, moment, printable, show_listed, show_table, span

SHOWN_BOUND = "0.9"
"""The bound that the table shows."""


def check(ranking: Ranking) -> None:
    """Make sure that at least one site has an estimate. Raises UserError: none has."""
    if any(ranked.predicted_wait_s is not None for ranked in ranking.ranking):
        return
    if not ranking.ranking and not ranking.left_out:
        raise UserError(NO_SITE)
    raise UserError("no site has an estimate for this job")


def show(ranking: Ranking) -> None:
    """Print what was asked, the ranking as a table, and below it each site's state, the reasons and who is left out."""
    within_s = ranking.start_within_s
    deadline = "" if within_s is None else f", to start within {span(within_s)}"
    sys.stdout.write(printable(understood(ranking.job) + deadline) + "\n")
    if ranking.ranking:
        last = "response" if within_s is None else "in time"  # the response follows from the wait and the run time
        heads = ["site", "starts (UTC)", "wait", "90 % within", "run", last, "best"]
        sys.stdout.write("\n")
        show_table(heads, [_row(ranked, within_s is not None) for ranked in ranking.ranking])
    show_listed("now", [(ranked.site, _state(ranked)) for ranked in ranking.ranking])
    show_listed("why", [(ranked.site, _why(ranked)) for ranked in ranking.ranking])
    show_listed("sooner", [(ranked.site, _sooner(ranked)) for ranked in ranking.ranking if _sooner(ranked)])
    show_listed("left out", [(_place(out), out.reason) for out in ranking.left_out])


def _place(out: LeftOut) -> str:
    return f"{out.site} {out.partition}" if out.partition else out.site


def understood(job: JobRequest) -> str:
    """A job as it was understood, in words: `8 cpus and 2 gpus for 4h, memory 64G, partition gpu`."""
    words = f"{job.cpus} {'cpu' if job.cpus == 1 else 'cpus'}"
    if job.counted_gpus:
        words += f" and {job.counted_gpus} {'gpu' if job.counted_gpus == 1 else 'gpus'}"
        words += f" of type {job.gpu_type}" if job.gpu_type else ""
    words += " without a walltime" if job.walltime is None else f" for {span(job.walltime)}"
    memory = None if job.memory is None else size_text(job.memory)
    named = ("queue", "partition", "user", "group", "account", "qos", "reservation", "constraint", "executable")
    more = {"nodes": job.nodes, "tasks": job.tasks, "memory": memory, **{name: getattr(job, name) for name in named}}
    whole = ["whole nodes"] if job.exclusive else []
    return ", ".join([words, *whole, *(f"{name} {value}" for name, value in more.items() if value)])


def _row(ranked: RankedSite, in_time: bool) -> list[str]:
    start = "–" if ranked.predicted_start is None else minute(ranked.predicted_start, zone=False)
    bound = span((ranked.bounds or {}).get(SHOWN_BOUND))
    times = ranked.predicted_wait_s, ranked.predicted_run_s, ranked.predicted_response_s
    wait, run, response = map(span, times)
    best = "–" if ranked.p_best is None else f"{100 * ranked.p_best:.0f} %"
    return [ranked.site, start, wait, bound, run, _in_time(ranked) if in_time else response, best]


def _in_time(ranked: RankedSite) -> str:
    if ranked.p_start is None:
        return "–"
    highest = max(map(float, ranked.bounds or {"0": 0.0}))
    return chance(ranked.p_start, highest)


def chance(share: float, highest: float) -> str:
    """A probability by bounds, of which the highest says so much: beyond it nothing more is known.

    >>> chance(0.723, 0.95), chance(0.95, 0.95), chance(0.004, 0.95)
    ('72 %', 'over 95 %', 'under 1 %')
    """
    if share >= highest:
        return f"over {100 * highest:.0f} %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def _state(ranked: RankedSite) -> str:
    live = ranked.live
    jobs = f"{live.queued_jobs} job{'' if live.queued_jobs == 1 else 's'} queued, {live.running_jobs} running"
    as_of = "" if ranked.as_of is None else f"; as of {moment(ranked.as_of)}"
    stale = "" if ranked.stale is None else f"; stale: {ranked.stale}"
    return f"{jobs}, {live.free_cpus} of {ranked.site_cpus} processors free{as_of}{stale}"


def _why(ranked: RankedSite) -> str:
    standing = " [by a standing estimate: its worker is silent]" if ranked.source == "standing" else ""
    stale = f"stale: {ranked.stale}"  # it is told with the site's state
    told = "; ".join(filter(None, ((ranked.degraded or "").replace(stale, ""), ranked.weak)))
    problems = "; ".join(filter(None, dict.fromkeys(told.split("; "))))  # both may tell of the same
    behind = "ranked behind: " if ranked.weak else ""
    reason = f"{ranked.method}: {ranked.reason}" if ranked.why is None else ranked.why.text
    return f"{reason}{standing} [{behind}{problems}]" if problems else f"{reason}{standing}"


def _sooner(ranked: RankedSite) -> str:
    """What would start sooner: `ask for 2h instead of 4h: 40m sooner`."""
    found = [] if ranked.why is None else ranked.why.instead
    return "; ".join(f"{_instead(one)}: {span(one.sooner_s)} sooner" for one in found)


def _instead(one: Alternative) -> str:
    if one.walltime is not None:
        return f"ask for {span(one.walltime)}"
    return f"ask for {one.cpus} cpus" if one.cpus is not None else f"queue {one.queue}"
