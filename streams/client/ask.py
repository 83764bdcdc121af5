"""The command `ask`: asks for a ranking of sites, through Kafka or from an HTTP service, and prints it."""

import json
import math
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec

from models.ranking import JobRequest, LeftOut, RankedSite, Ranking
from models.records import Alternative
from streams.client.blocking import Client
from streams.errors import NotUnderstood, Unreachable, UserError
from streams.settings import Settings
from streams.sizes import size_text
from streams.terminal import minute, moment, printable, show_listed, show_table, span

if TYPE_CHECKING:
    from urllib.error import HTTPError

SHOWN_BOUND = "0.9"
"""The bound that the table shows."""

NO_SITE = "no site is known yet: does a worker run, and have events come to it?"

SERVICE_TIMEOUT_S = 90.0
"""How long to wait for a service, which itself waits `serve.answer_seconds` for workers, a minute at most."""

Fetched = TypeVar("Fetched")


def ask(settings: Settings, job: JobRequest, sites: Sequence[str] = (), run_s: float | None = None) -> Ranking:
    """Rank the sites for a job, asking their workers through Kafka.

    Parameters:
        sites: only these; by default all that are known.
        run_s: the job's run time at a site of speed 1, in seconds, where the user knows it.

    Raises:
        UserError: Kafka cannot be reached or refuses, or no site is known.
    """
    with Client(settings, patience_s=0) as grid:
        return grid.rank(job, sites=sites, run_s=run_s, why=True)


def ask_service(
    url: str, token: str | None, job: JobRequest, sites: Sequence[str] = (), run_s: float | None = None
) -> Ranking:
    """Rank the sites for a job, asking an HTTP service. The other parameters are those of `ask`.

    Parameters:
        url: the service's address, http://host:port or https://….
        token: the service's token, where it asks for one.

    Raises:
        UserError: the service cannot be reached or refuses, or the address is not one.
    """
    durations = {"walltime": _with_unit(job.walltime), "run": _with_unit(run_s)}
    fields: dict[str, Any] = {**msgspec.structs.asdict(job), **durations, "site": list(sites), "why": "true"}
    fields["exclusive"] = "true" if job.exclusive else None
    query = urlencode({name: value for name, value in fields.items() if value is not None}, doseq=True)
    return fetched(url, f"/v1/rank?{query}", token, Ranking)


def fetched(url: str, path: str, token: str | None, kind: type[Fetched]) -> Fetched:
    """What an HTTP service answers at a path.

    Raises:
        UserError: the service cannot be reached or refuses, or the address is not one.
    """
    import urllib.error  # who asks through Kafka needs none of these
    import urllib.request
    from http.client import HTTPException

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if not url.startswith(("http://", "https://")):
        raise NotUnderstood(f"--url is {url!r}; expected http://host:port or https://…")
    request = urllib.request.Request(f"{url.rstrip('/')}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=SERVICE_TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(), type=kind)
    except urllib.error.HTTPError as error:
        raise UserError(f"{url}: {_detail(error)}") from None
    except msgspec.MsgspecError:
        raise UserError(f"{url}: what answers there is no service of queuecast's") from None
    except urllib.error.URLError as error:
        raise Unreachable(f"{url}: {error.reason}; does `queuecast serve` run there?") from None
    except (OSError, ValueError, HTTPException) as error:  # the last: the service died in mid-answer
        raise Unreachable(f"{url}: {error}") from None


def _with_unit(seconds: float | None) -> str | None:
    """A duration as the service reads it."""
    return None if seconds is None else f"{math.ceil(seconds)}s"


def _detail(error: "HTTPError") -> str:
    from http.client import HTTPException

    try:
        return str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return f"status {error.code}"


def silence(asked: Collection[str]) -> UserError:
    """What to raise where no worker answered for any of the sites that were asked."""
    return UserError(f"no worker answers for {', '.join(asked)}" if asked else NO_SITE)


def check(ranking: Ranking) -> None:
    """Make sure that at least one site has an estimate.

    Raises:
        UserError: none has; the message says why.
    """
    if any(ranked.predicted_wait_s is not None for ranked in ranking.ranking):
        return
    if not ranking.ranking and not ranking.left_out:
        raise UserError(NO_SITE)
    reasons = [f"{ranked.site}: {ranked.reason}" for ranked in ranking.ranking]
    reasons += [f"{_place(out)}: {out.reason}" for out in ranking.left_out]
    raise UserError(f"no site has an estimate for this job; {'; '.join(reasons)}")


def show(ranking: Ranking, width: int | None = None) -> None:
    """Print what was asked, the ranking as a table, and below it each site's state, the reasons and who is left out.

    Parameters:
        width: in columns, of what is below the table; by default the terminal's.
    """
    sys.stdout.write(printable(understood(ranking.job)) + "\n\n")
    if ranking.ranking:
        show_table(["site", "starts (UTC)", "wait", "90 % within", "run", "response"], map(_row, ranking.ranking))
    show_listed("now", [(ranked.site, _state(ranked)) for ranked in ranking.ranking], width)
    show_listed("why", [(ranked.site, _why(ranked)) for ranked in ranking.ranking], width)
    show_listed("sooner", [(ranked.site, _sooner(ranked)) for ranked in ranking.ranking if _sooner(ranked)], width)
    show_listed("left out", [(_place(out), out.reason) for out in ranking.left_out], width)


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
    named = ("queue", "partition", "user", "group", "account", "qos", "reservation", "executable")
    more = {"nodes": job.nodes, "tasks": job.tasks, "memory": memory, **{name: getattr(job, name) for name in named}}
    whole = ["whole nodes"] if job.exclusive else []
    return ", ".join([words, *whole, *(f"{name} {value}" for name, value in more.items() if value)])


def _row(ranked: RankedSite) -> list[str]:
    start = "–" if ranked.predicted_start is None else minute(ranked.predicted_start, zone=False)
    bound = span((ranked.bounds or {}).get(SHOWN_BOUND))
    times = ranked.predicted_wait_s, ranked.predicted_run_s, ranked.predicted_response_s
    wait, run, response = map(span, times)
    return [ranked.site, start, wait, bound, run, response]


def _state(ranked: RankedSite) -> str:
    """The site's state that the answer is of, and the moment of that state."""
    live = ranked.live
    jobs = f"{live.queued_jobs} jobs queued, {live.running_jobs} running"
    as_of = "" if ranked.as_of is None else f"; as of {moment(ranked.as_of)}"
    stale = "" if ranked.stale is None else f"; stale: {ranked.stale}"
    return f"{jobs}, {live.free_cpus} of {ranked.site_cpus} processors free{as_of}{stale}"


def _why(ranked: RankedSite) -> str:
    standing = " [by a standing estimate: its worker is silent]" if ranked.source == "standing" else ""
    doubts = "; ".join(dict.fromkeys(f"{ranked.degraded or ''}; {ranked.weak or ''}".strip("; ").split("; ")))
    behind = "ranked behind: " if ranked.weak else ""
    reason = f"{ranked.method}: {ranked.reason}" if ranked.why is None else ranked.why.text
    return f"{reason}{standing} [{behind}{doubts}]" if doubts else f"{reason}{standing}"


def _sooner(ranked: RankedSite) -> str:
    """What would start sooner: `ask for 2h instead of 4h: 40m sooner`."""
    found = [] if ranked.why is None else ranked.why.instead
    return "; ".join(f"{_instead(one)}: {span(one.sooner_s)} sooner" for one in found)


def _instead(one: Alternative) -> str:
    if one.walltime is not None:
        return f"ask for {span(one.walltime)}"
    return f"ask for {one.cpus} cpus" if one.cpus is not None else f"queue {one.queue}"
