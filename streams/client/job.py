"""The command `job`: prints when a live job starts."""

import sys
from collections.abc import Iterator, Sequence

import msgspec

from models.chances import chance_within
from models.records import JobAnswer, ToldStart
from streams.client.ask import chance
from streams.errors import UserError
from streams.text.terminal import minute, moment, show_named, show_table, show_wrapped, span


def check(answers: Sequence[JobAnswer]) -> None:
    """Make sure that a site knows the job. Raises UserError: none does."""
    if not any(map(_is_known, answers)):
        said = {text: [answer.site for answer in answers if answer.text == text] for text in (a.text for a in answers)}
        raise UserError("; ".join(f"{', '.join(sites)}: {text}" for text, sites in said.items()))


def show(answers: Sequence[JobAnswer], within_s: float | None = None, told: bool = False) -> None:
    """Print a line for each site that knows the job, with why it waits, how probable it is that it starts within
    `within_s` seconds, and, if wanted, what was `told` of it over time.
    """
    for answer in filter(_is_known, answers):
        start = "" if answer.expected_start is None else f" ({minute(answer.expected_start)})"
        show_wrapped(f"{answer.site} {answer.job}: {answer.text}{start}")
        show_named([*_in_time(answer, within_s), *_details(answer)])
        if told and answer.told:
            sys.stdout.write("\n")
            show_table(["told (UTC)", "starts (UTC)", "90 % by (UTC)"], [_told(one) for one in answer.told])


def _told(said: ToldStart) -> list[str]:
    times = (said.at, said.start, said.starts_by.get("0.9"))
    return ["–" if time is None else minute(time, zone=False) for time in times]


def _is_known(answer: JobAnswer) -> bool:
    return answer.expected_start is not None or answer.live is not None


def _in_time(answer: JobAnswer, within_s: float | None) -> Iterator[tuple[str, str]]:
    """How probable it is that a job that queues starts in time; the time is the site's own."""
    if within_s is not None and answer.expected_start is not None and answer.starts_by:
        now = answer.as_of or answer.made_at
        bounds = {share: at - now for share, at in answer.starts_by.items()}
        share = chance_within(within_s, answer.expected_start - now, bounds)
        yield "in time", f"{chance(share, max(map(float, bounds)))}: within {span(within_s)}"


def _details(answer: JobAnswer) -> Iterator[tuple[str, str]]:
    passed = max(answer.expected_start or 0.0, answer.as_of or 0.0)  # a bound before it has not held
    by = [(share, at) for share, at in answer.starts_by.items() if float(share) > 0.5 and at >= passed]
    if by:
        yield "at the latest", ", ".join(f"{minute(at)} with {100 * float(share):g} %" for share, at in by)
    if (live := answer.live) is not None:
        now = answer.as_of or answer.made_at
        if live.start is None:
            yield "since", f"{minute(live.submit)}, {span(max(now - live.submit, 0.0))} in the queue"
        else:
            yield "since", f"{minute(live.start)}, after {span(max(live.start - live.submit, 0.0))} in the queue"
        if live.eligible is not msgspec.UNSET:
            yield "eligible", f"{minute(live.eligible)}, {span(live.eligible - live.submit)} after its submission"
        asked = f"{live.cpus} {'cpu' if live.cpus == 1 else 'cpus'}"
        yield "asked for", asked + ("" if live.walltime is None else f" for {span(live.walltime)}")
        if live.why:
            yield "why", live.why
    if answer.as_of is not None:
        yield "as of", moment(answer.as_of)
    if answer.stale is not None:
        yield "stale", answer.stale
