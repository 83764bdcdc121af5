"""Rank sites for a job by the predicted response time, from the answers of the sites."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Literal

import msgspec

from models.chances import cautious_s, chance_within, chances_of_least, spread
from models.durations import counted, duration
from models.engine.settings import SiteSettings
from models.records import (
    Bytes,
    Count,
    GridEstimate,
    LiveState,
    MethodAccuracy,
    Name,
    Seconds,
    Size,
    WaitAnswer,
    WaitQuestion,
    Why,
)
from models.site.node_features import alternatives

Reply = WaitAnswer | GridEstimate | str
"""Reply of a site: the worker's answer, else a grid estimate, else the reason why both are missing."""


class JobRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A job that may be submitted to any site; `walltime` is in seconds at a site of speed 1, `memory` bytes in total.

    `unlimited` means no time limit. `partition` is one name, or several separated by commas; the first one is also the
    queue if `queue` is not set. `gpu_type` is the type of all GPUs, and implies at least one. `constraint` is an
    expression of required node features in Slurm's syntax: `ib&(a100|h100)`.
    """

    cpus: Size = 1
    walltime: Seconds | None = None
    nodes: Size | None = None
    gpus: Count = 0
    memory: Bytes | None = None
    queue: Name | None = None
    user: Name | None = None
    group: Name | None = None
    account: Name | None = None
    executable: Name | None = None
    partition: Name | None = None
    gpu_type: Name | None = None
    tasks: Size | None = None
    exclusive: bool = False
    qos: Name | None = None
    reservation: Name | None = None
    constraint: Name | None = None
    unlimited: bool = False

    @property
    def partitions(self) -> list[str]:
        """The requested partitions."""
        return [name for name in (self.partition or "").split(",") if name]

    @property
    def counted_gpus(self) -> int:
        """The number of requested GPUs."""
        return max(self.gpus, 1) if self.gpu_type else self.gpus

    def question(self, question_id: str, site: str, speed: float = 1.0, why: bool = False) -> WaitQuestion:
        """Create the question for the wait of the job at a site of this speed."""
        fields = msgspec.structs.asdict(self) | {"walltime": self.walltime_at(speed), "gpus": self.counted_gpus}
        partitions, gpu_type = self.partitions, self.gpu_type
        del fields["partition"], fields["gpu_type"], fields["constraint"]
        if partitions and self.queue is None:
            fields["queue"] = partitions[0]
        return WaitQuestion(
            id=question_id,
            site=site,
            why=why,
            partitions=partitions or None,
            gpu_types={gpu_type: self.counted_gpus} if gpu_type else None,
            node_features=alternatives(self.constraint) if self.constraint else None,
            **fields,
        )

    def walltime_at(self, speed: float) -> float | None:
        """Return the walltime in seconds to request at a site of this speed."""
        return None if self.walltime is None or self.unlimited else self.walltime / speed


class RankedSite(msgspec.Struct, kw_only=True, frozen=True):
    """The prediction for the job at a site: durations in seconds, times in Unix seconds of the site's own clock.

    `p_best` is the probability that the job ends first at this site, by the bounds of the sites with a reliable
    estimate. It is null for a site without bounds, and for a stale or `low_confidence` one. It is also null for the
    only reliable site next to `low_confidence` ones. `cautious_wait_s` is the wait by which the site is ranked; it is
    longer if `predicted_wait_s` is less certain. `p_start` is the probability that the job starts within the ranking's
    `start_within_s`, limited to that of the highest bound. `as_of` to `stale` are as in `models.records.Answer`.
    `unverified` lists requested resources that the site does not report. `low_confidence` is why the estimate is based
    on little data. `recent` is the accuracy of the site's predictions in the last one to two weeks; null if its worker
    did not answer. `source` is "what-if" for an answer to this question, and "grid" for the estimate of a shape that
    the job fits into, and "median" for the recent median wait.
    """

    site: str
    predicted_response_s: float | None
    predicted_wait_s: float | None
    predicted_run_s: float | None
    predicted_start: float | None
    bounds: dict[str, float] | None
    cautious_wait_s: float | None = None
    p_best: float | None = None
    p_start: float | None = None
    speed: float
    method: str
    reason: str
    degraded: str | None
    live: LiveState
    site_cpus: int
    source: Literal["what-if", "grid", "median"]
    as_of: float | None = None
    lag_messages: int = 0
    lag_s: float = 0.0
    stale: str | None = None
    low_confidence: str | None = None
    unverified: str | None = None
    why: Why | None = None
    recent: MethodAccuracy | None = None


class ExcludedSite(msgspec.Struct, kw_only=True, frozen=True):
    """A site that is not ranked, or a partition of a ranked site where the job cannot run, with the reason."""

    site: str
    reason: str
    partition: str | msgspec.UnsetType = msgspec.UNSET


class Ranking(msgspec.Struct, kw_only=True, frozen=True):
    """The sites for a job, by response time; a less certain wait counts as a longer one (`cautious_s`).

    Sites with a reliable estimate come first. Sites of low confidence follow (`low_confidence`), then those without an
    estimate, then those that may lack a requested resource (`unverified`), then stale ones.

    `reference_run_s` is the job's run time at a site of speed 1, in seconds. `start_within_s` repeats the request.
    """

    job: JobRequest
    reference_run_s: float | None
    ranking: list[RankedSite]
    left_out: list[ExcludedSite]
    start_within_s: float | None = None


def exclusion(job: JobRequest, site: SiteSettings) -> str | None:
    """Return why the site's settings exclude the job; None if they do not."""
    if site.max_cpus is not None and job.cpus > site.max_cpus:
        return f"takes jobs of at most {site.max_cpus} CPUs"
    walltime = job.walltime_at(site.speed)
    if job.unlimited and site.max_walltime is not None:
        return f"takes jobs of at most {duration(site.max_walltime)}, this one has no time limit"
    if walltime is not None and site.max_walltime is not None and walltime > site.max_walltime:
        return f"takes jobs of at most {duration(site.max_walltime)}, this is one of {duration(walltime)} there"
    return None


def rank(
    job: JobRequest,
    replies: Mapping[str, Reply],
    sites: Mapping[str, SiteSettings],
    run_s: float | None = None,
    start_within_s: float | None = None,
) -> Ranking:
    """Rank the sites. A site's response time is its predicted wait plus the reference run time divided by its speed.

    All sites share one reference run time, so that the ranking does not depend on which similar jobs each of them has
    in its history.

    Args:
        replies: the reply of each site for the walltime that the job would have there.
        sites: the settings of the sites that have any.
        run_s: the job's run time at a site of speed 1, in seconds. By default the median of the sites' predictions,
            each times the site's speed, else the job's walltime.
        start_within_s: the requested maximum wait in seconds.
    """
    left_out, found = [], {}
    for site, reply in replies.items():
        known = sites.get(site, SiteSettings())
        reason = exclusion(job, known) or (reply if isinstance(reply, str) else _never_runs_reason(job, reply))
        if reason or isinstance(reply, str):
            left_out.append(ExcludedSite(site=site, reason=reason or ""))
        else:
            found[site] = (reply, known.speed)
            left_out.extend(_partitions_left_out(site, reply))
    reference = run_s if run_s is not None else _reference(found.values())
    limits = [seconds for seconds in (reference, job.walltime_at(1.0)) if seconds is not None]
    reference = min(limits, default=None)
    ranking = [_ranked(job, site, reply, speed, reference, start_within_s) for site, (reply, speed) in found.items()]
    return Ranking(
        job=job,
        reference_run_s=reference,
        ranking=sorted(_with_chances(ranking), key=_order),
        left_out=sorted(left_out, key=lambda out: (out.site, out.partition or "")),
        start_within_s=start_within_s,
    )


def _never_runs_reason(job: JobRequest, answer: WaitAnswer | GridEstimate) -> str | None:
    """Return why the job can never run at the site; None if it can, as far as known."""
    if isinstance(answer, WaitAnswer) and answer.cannot_run:
        return answer.cannot_run
    cpus = answer.site_cpus
    return f"has {counted(cpus, 'CPU')}" if 0 < cpus < job.cpus else None


def _partitions_left_out(site: str, answer: WaitAnswer | GridEstimate) -> Iterable[ExcludedSite]:
    if isinstance(answer, WaitAnswer) and answer.left_out:
        for partition, reason in answer.left_out.items():
            yield ExcludedSite(site=site, reason=reason, partition=partition)


def _reference(found: Iterable[tuple[WaitAnswer | GridEstimate, float]]) -> float | None:
    runs = [answer.predicted_run_s * speed for answer, speed in found if answer.predicted_run_s is not None]
    return median(runs) if runs else None


_ESTIMATE = ("predicted_start", "bounds", "method", "reason", "degraded", "live", "site_cpus")
_AS_ANSWERED = (*_ESTIMATE, "as_of", "lag_messages", "lag_s", "stale")
"""Fields of a ranked site that are copied from its reply."""


def _ranked(
    job: JobRequest,
    site: str,
    answer: WaitAnswer | GridEstimate,
    speed: float,
    reference: float | None,
    start_within_s: float | None,
) -> RankedSite:
    run_s = None if reference is None else reference / speed
    wait_s, bounds = answer.predicted_wait_s, answer.bounds
    source = answer.source if isinstance(answer, WaitAnswer) else "grid"
    unverified = (answer.unverified or None) if isinstance(answer, WaitAnswer) else unverified_by_grid(job, answer)
    any_nodes = "a grid estimate is for any nodes" if job.constraint and source == "grid" else None
    doubts = (answer.low_confidence or None, None if isinstance(answer, WaitAnswer) else unverified, any_nodes)
    return RankedSite(
        site=site,
        predicted_response_s=None if wait_s is None or run_s is None else wait_s + run_s,
        predicted_wait_s=wait_s,
        predicted_run_s=run_s,
        cautious_wait_s=_compared(answer),
        p_start=_p_start(start_within_s, wait_s, bounds),
        speed=speed,
        source=source,
        low_confidence="; ".join(filter(None, doubts)) or None,
        unverified=unverified,
        why=answer.why if isinstance(answer, WaitAnswer) else None,
        recent=(answer.recent or None) if isinstance(answer, WaitAnswer) else None,
        **{name: getattr(answer, name) for name in _AS_ANSWERED},
    )


def _compared(answer: WaitAnswer | GridEstimate) -> float | None:
    """Return the wait by which the site is compared; None without a prediction."""
    if answer.cautious_wait_s is not msgspec.UNSET:
        return answer.cautious_wait_s
    return None if answer.predicted_wait_s is None else cautious_s(answer.predicted_wait_s, answer.bounds)


def _p_start(within_s: float | None, wait_s: float | None, bounds: dict[str, float] | None) -> float | None:
    if within_s is None or wait_s is None or not bounds:
        return None
    return chance_within(within_s, wait_s, bounds)


def _with_chances(ranking: list[RankedSite]) -> Iterable[RankedSite]:
    """Yield the sites with the probability that each is the best.

    The waits of the sites are treated as independent, and the job's run time is the reference divided by their speeds.
    A single reliable site next to sites of low confidence has no probability: there is nothing to compare it with.
    """
    values = {}
    for ranked in ranking:
        wait_s, bounds = ranked.predicted_wait_s, ranked.bounds
        if wait_s is not None and bounds and ranked.low_confidence is None and ranked.stale is None:
            values[ranked.site] = [one_s + (ranked.predicted_run_s or 0.0) for one_s in spread(wait_s, bounds)]
    low_confidence = any(one.low_confidence is not None and one.stale is None for one in ranking)
    if len(values) == 1 and low_confidence:
        return ranking
    chances = dict(zip(values, chances_of_least(list(values.values())), strict=True))
    return (msgspec.structs.replace(ranked, p_best=chances.get(ranked.site)) for ranked in ranking)


def unverified_by_grid(job: JobRequest, estimate: GridEstimate) -> str | None:
    """Return the requested resources that a grid estimate ignores; None if there are none.

    Queues without estimates are unknown, or beyond the `estimates.max_queues` of the settings.
    """
    found = []
    kind, named = ("partition", job.partitions) if job.queue is None else ("queue", [job.queue, *job.partitions])
    if named and estimate.queue is not None and estimate.queue not in named:
        names = " or ".join(map(repr, dict.fromkeys(named)))
        found.append(f"the site has no grid estimates for {kind} {names}; this one is for {estimate.queue!r}")
    if job.counted_gpus and not (estimate.gpus or 0):
        found.append("a grid estimate is for jobs without GPUs")
    return "; ".join(found) or None


def _order(ranked: RankedSite) -> tuple[bool, bool, bool, bool, float, bool, float, str]:
    wait_s, run_s = ranked.predicted_wait_s, ranked.predicted_run_s
    unsure = (ranked.stale is not None, ranked.unverified is not None)
    trusted = (*unsure, ranked.predicted_response_s is None, ranked.low_confidence is not None)
    compared_s = ranked.cautious_wait_s or 0.0
    response_s = 0.0 if ranked.predicted_response_s is None else compared_s + (run_s or 0.0)
    return *trusted, response_s, wait_s is None, compared_s, ranked.site
