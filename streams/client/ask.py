"""The command `ask`: asks for a ranking of sites, through Kafka or from an HTTP service, and prints it."""

import json
import math
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from models.durations import duration
from models.ranking import JobRequest, LeftOut, RankedSite, Ranking
from models.records import Alternative
from streams.client.ranking import ask_ranking
from streams.client.run import with_client
from streams.errors import Unreachable, UserError
from streams.settings import Settings
from streams.sizes import size_text
from streams.terminal import moment, printable

MIN_COLUMNS_FOR_REASONS = 110
"""A terminal this wide has room for the reasons in the table; a narrower one gets them below it."""

SHOWN_BOUND = "0.9"
"""The bound that the table shows."""

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
    return with_client(settings, lambda client: ask_ranking(client, job, settings.serve.sites, sites, run_s, why=True))


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
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if not url.startswith(("http://", "https://")):
        raise UserError(f"--url is {url!r}; expected http://host:port or https://…")
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
    except (OSError, ValueError) as error:
        raise Unreachable(f"{url}: {error}") from None


def _with_unit(seconds: float | None) -> str | None:
    """A duration as the service reads it."""
    return None if seconds is None else f"{math.ceil(seconds)}s"


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"


def check(ranking: Ranking) -> None:
    """Make sure that at least one site has an estimate.

    Raises:
        UserError: none has; the message says why.
    """
    if any(ranked.predicted_wait_s is not None for ranked in ranking.ranking):
        return
    if not ranking.ranking and not ranking.left_out:
        raise UserError("no site is known yet: no estimates stand; does a worker run, and have events come to it?")
    reasons = [f"{ranked.site}: {ranked.reason}" for ranked in ranking.ranking]
    reasons += [f"{_place(out)}: {out.reason}" for out in ranking.left_out]
    raise UserError(f"no site has an estimate for this job; {'; '.join(reasons)}")


def show(ranking: Ranking, width: int | None = None) -> None:
    """Print what was asked, the ranking as a table, and below it the reasons and the sites that were left out.

    Parameters:
        width: in columns; by default the terminal's.
    """
    console = Console(file=sys.stdout, width=width, highlight=False)
    console.print(Text(printable(understood(ranking.job))))
    with_reasons = console.width >= MIN_COLUMNS_FOR_REASONS
    if ranking.ranking:
        console.print(_table(ranking.ranking, with_reasons))
    _list(console, "why", [] if with_reasons else [(ranked.site, _why(ranked)) for ranked in ranking.ranking])
    _list(console, "sooner", [(ranked.site, _sooner(ranked)) for ranked in ranking.ranking if _sooner(ranked)])
    _list(console, "left out", [(_place(out), out.reason) for out in ranking.left_out])


def _place(out: LeftOut) -> str:
    return f"{out.site} {out.partition}" if out.partition else out.site


def understood(job: JobRequest) -> str:
    """A job as it was understood, in words: `8 cpus and 2 gpus for 4h, memory 64G, partition gpu`."""
    words = f"{job.cpus} {'cpu' if job.cpus == 1 else 'cpus'}"
    if job.counted_gpus:
        words += f" and {job.counted_gpus} {'gpu' if job.counted_gpus == 1 else 'gpus'}"
        words += f" of type {job.gpu_type}" if job.gpu_type else ""
    words += " without a walltime" if job.walltime is None else f" for {_span(job.walltime)}"
    memory = None if job.memory is None else size_text(job.memory)
    named = ("queue", "partition", "user", "group", "account", "qos", "reservation", "executable")
    more = {"nodes": job.nodes, "tasks": job.tasks, "memory": memory, **{name: getattr(job, name) for name in named}}
    whole = ["whole nodes"] if job.exclusive else []
    return ", ".join([words, *whole, *(f"{name} {value}" for name, value in more.items() if value)])


def _table(ranking: Sequence[RankedSite], with_reasons: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("site", overflow="fold", min_width=6)
    for head in ("response", "wait", "90 % within", "run", "start"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("queued, running, free", justify="right")
    if with_reasons:
        table.add_column("why", overflow="fold", ratio=1)
    for ranked in ranking:
        live = ranked.live
        cells = [
            ranked.site,
            _span(ranked.predicted_response_s),
            _span(ranked.predicted_wait_s),
            _span((ranked.bounds or {}).get(SHOWN_BOUND)),
            _span(ranked.predicted_run_s),
            "–" if ranked.predicted_start is None else moment(ranked.predicted_start)[:-3],
            f"{live.queued_jobs}, {live.running_jobs}, {live.free_cpus}",
            *([_why(ranked)] if with_reasons else []),
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _span(seconds: float | None) -> str:
    return "–" if seconds is None else re.sub("(?<=[dhm])0[hms]$", "", duration(seconds))


def _why(ranked: RankedSite) -> str:
    standing = " [by a standing estimate: its worker is silent]" if ranked.source == "standing" else ""
    degraded = f" [{ranked.degraded}]" if ranked.degraded else ""
    reason = f"{ranked.method}: {ranked.reason}" if ranked.why is None else ranked.why.text
    return f"{reason}{standing}{degraded}"


def _sooner(ranked: RankedSite) -> str:
    """What would start sooner: `ask for 2h instead of 4h: 40m sooner`."""
    found = [] if ranked.why is None else ranked.why.instead
    return "; ".join(f"{_instead(one)}: {_span(one.sooner_s)} sooner" for one in found)


def _instead(one: Alternative) -> str:
    if one.walltime is not None:
        return f"ask for {_span(one.walltime)}"
    return f"ask for {one.cpus} cpus" if one.cpus is not None else f"queue {one.queue}"


def _list(console: Console, head: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print lines under a heading, each behind its site's name; a long line is broken within its column."""
    if not lines:
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold", max_width=24)
    table.add_column(overflow="fold")
    for site, text in lines:
        table.add_row(Text(f"  {printable(site)}"), Text(printable(text)))
    console.print(f"\n{head}:")
    console.print(table)
