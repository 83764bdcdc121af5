"""What doctor finds out by asking the workers about their sites."""

from collections.abc import Iterable, Iterator

from models.records import SiteAnswer
from streams.client.blocking import Client
from streams.errors import UserError
from streams.operate.checks import CheckResult
from streams.settings import Settings
from streams.text.terminal import moment

MAX_LISTED = 8
"""Sites, or fields, that a result names at most."""


def check_sites(settings: Settings) -> Iterator[CheckResult]:
    """Ask each site's worker how old what it knows is, and which fields of events it did not understand."""
    try:
        answers, silent = _ask(settings)
    except UserError as error:
        yield CheckResult("sites", "warn", f"cannot be asked about: {error}")
        return
    yield freshness(answers, silent)
    yield fields(answers)
    yield changes(answers)


def _ask(settings: Settings) -> tuple[list[SiteAnswer], list[str]]:
    with Client(settings, patience_s=0) as grid:
        by_site = grid.every_site()
    answers = [answer for answer in by_site.values() if answer is not None]
    return answers, sorted(site for site, answer in by_site.items() if answer is None)


def freshness(answers: Iterable[SiteAnswer], silent: Iterable[str] = ()) -> CheckResult:
    """Whether what is known of the sites is too old to go by."""
    found = list(answers)
    old = [f"{answer.site}: {answer.stale}" for answer in found if answer.stale is not None]
    if old:
        advice = "see whether their sources run; answers say `stale`, and rankings have these sites last"
        return CheckResult("sites", "warn", f"{len(old)} of {len(found)} are stale: {_listed(old)}", advice)
    if names := list(silent):
        return CheckResult("sites", "warn", f"no worker answers for {_listed(names)}", "see whether workers run")
    return CheckResult("sites", "ok", f"{len(found)} asked about, none is stale" if found else "none is known yet")


def fields(answers: Iterable[SiteAnswer]) -> CheckResult:
    """Whether events have fields that no event has, such as misspelt ones."""
    unknown = [
        f"{name!r} of {answer.site} {count} times"
        for answer in answers
        for name, count in answer.unknown_fields.items()
    ]
    if unknown:
        advice = "they are ignored; `queuecast schema event` has the names that are read"
        return CheckResult("fields of events", "warn", f"unknown: {_listed(unknown)}", advice)
    return CheckResult("fields of events", "ok", "none is unknown")


def changes(answers: Iterable[SiteAnswer]) -> CheckResult:
    """What operators changed lately, who did it, and when."""
    found = [(done, answer.site) for answer in answers for done in answer.operations]
    found.sort(key=lambda one: -one[0].at)
    told = [f"{moment(done.at)} {site}: {done.done}, by {done.by} {done.why}".rstrip() for done, site in found]
    return CheckResult("operators' changes", "ok", _listed(told) or "none")


def _listed(found: list[str]) -> str:
    more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return ", ".join(found[:MAX_LISTED]) + more
