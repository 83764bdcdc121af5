"""Rank sites for a job by its expected response time."""

from typing import Any

import msgspec
import pytest

from models.engine.settings import SiteSettings
from models.ranking import JobRequest, RankedSite, Ranking, Reply, rank
from models.records import GridEstimate, LiveState, WaitAnswer

LIVE = LiveState(queued_jobs=3, running_jobs=4, free_cpus=5)
JOB = JobRequest(cpus=8, walltime=7200.0, user="ada")


def reply(wait_s: float | None, run_s: float | None = 3600.0, cpus: int = 64, made_at: float = 1000.0) -> WaitAnswer:
    start = None if wait_s is None else made_at + wait_s
    times = {"predicted_wait_s": wait_s, "predicted_run_s": run_s, "predicted_start": start}
    fields = {"method": "qespera", "reason": "as before", "live": LIVE, "site_cpus": cpus, "bounds": {"0.9": 99.0}}
    return WaitAnswer(id="1", site="", made_at=made_at, **times, **fields)


def stands(wait_s: float, run_s: float = 3600.0) -> GridEstimate:
    times = {"predicted_wait_s": wait_s, "predicted_run_s": run_s, "predicted_start": 1000.0 + wait_s}
    shape = {"cpus": 8, "walltime": 14400.0, "queue": None, "live": LIVE, "site_cpus": 64}
    return GridEstimate(site="", made_at=1000.0, method="easy", reason="stands", **times, **shape)


def ranked(found: Ranking) -> dict[str, RankedSite]:
    return {one.site: one for one in found.ranking}


def responses(found: Ranking) -> list[tuple[str, float | None]]:
    return [(one.site, one.predicted_response_s) for one in found.ranking]


def test_rank_sorts_by_response_time() -> None:
    found = rank(JOB, {"far": reply(900.0), "near": reply(60.0), "now": reply(0.0)}, {})
    assert responses(found) == [("now", 3600.0), ("near", 3660.0), ("far", 4500.0)]
    assert found.job == JOB
    near = ranked(found)["near"]
    assert (near.predicted_wait_s, near.predicted_run_s, near.predicted_start) == (60.0, 3600.0, 1060.0)
    assert (near.bounds, near.live, near.site_cpus, near.source) == ({"0.9": 99.0}, LIVE, 64, "what-if")


def test_rank_puts_the_surer_of_similar_estimates_first() -> None:
    bold = msgspec.structs.replace(reply(0.0), bounds={"0.9": 9000.0})
    found = rank(JOB, {"bold": bold, "sure": reply(60.0), "far": reply(1800.0)}, {})
    assert responses(found) == [("sure", 3660.0), ("bold", 3600.0), ("far", 5400.0)]


def test_ranking_compares_the_wait_that_the_site_names() -> None:
    doubtful = msgspec.structs.replace(reply(0.0), cautious_wait_s=7200.0)
    found = rank(JOB, {"doubtful": doubtful, "far": reply(3600.0)}, {})
    assert [(one.site, one.cautious_wait_s) for one in found.ranking] == [("far", 3609.9), ("doubtful", 7200.0)]
    assert ranked(rank(JOB, {"mute": reply(None)}, {}))["mute"].cautious_wait_s is None


def test_rank_prefers_fast_site_despite_longer_wait() -> None:
    answers = {"fast": reply(1200.0, run_s=1800.0), "slow": reply(0.0)}
    found = rank(JOB, answers, {"fast": SiteSettings(speed=2.0)})
    assert found.reference_run_s == 3600.0
    assert responses(found) == [("fast", 3000.0), ("slow", 3600.0)]
    assert [one.speed for one in found.ranking] == [2.0, 1.0]


def test_common_run_time_is_the_median_of_the_sites() -> None:
    answers = {
        "a": reply(0.0, 1000.0),
        "b": reply(0.0, 2000.0),
        "c": reply(0.0, 3000.0),
        "d": reply(0.0, None),
    }
    found = rank(JOB, answers, {"a": SiteSettings(speed=4.0)})
    assert found.reference_run_s == 3000.0  # of 4000, 2000 and 3000
    assert responses(found) == [("a", 750.0), ("b", 3000.0), ("c", 3000.0), ("d", 3000.0)]


@pytest.mark.parametrize(
    ("run_s", "predicted", "walltime", "expected"),
    [
        (600.0, 3600.0, 7200.0, 600.0),  # the given run time
        (9000.0, 3600.0, 7200.0, 7200.0),  # no job outlives its walltime
        (None, 9000.0, 7200.0, 7200.0),
        (None, None, 7200.0, 7200.0),
        (None, 3600.0, None, 3600.0),
        (None, None, None, None),
    ],
)
def test_rank_reference_run_time_depends_on_available_estimates(
    run_s: float | None, predicted: float | None, walltime: float | None, expected: float | None
) -> None:
    found = rank(JobRequest(cpus=1, walltime=walltime), {"a": reply(10.0, predicted)}, {}, run_s)
    assert found.reference_run_s == expected
    assert responses(found) == [("a", None if expected is None else 10.0 + expected)]


def test_site_with_little_history_ranks_last_with_reason() -> None:
    new = msgspec.structs.replace(reply(0.0), low_confidence="only 1 of its jobs started so far")
    old = msgspec.structs.replace(reply(1.0), stale="its last event came 2h ago")
    found = rank(JOB, {"new": new, "slow": reply(90_000.0), "old": old, "none": reply(None)}, {})
    assert [one.site for one in found.ranking] == ["slow", "new", "none", "old"]
    assert [one.low_confidence for one in found.ranking[:2]] == [None, "only 1 of its jobs started so far"]
    assert found.ranking[1].predicted_wait_s == 0.0


def test_sites_without_an_estimate_come_last_and_ties_go_by_name() -> None:
    answers = {"none": reply(None), "b": reply(5.0), "a": reply(5.0), "also none": reply(None)}
    assert [one.site for one in rank(JOB, answers, {}).ranking] == ["a", "b", "also none", "none"]
    unknown_run = {name: reply(wait_s, None) for name, wait_s in (("x", None), ("late", 9.0), ("soon", 1.0))}
    assert [one.site for one in rank(JobRequest(), unknown_run, {}).ranking] == ["soon", "late", "x"]


def test_impossible_sites_are_excluded_with_reason() -> None:
    answers: dict[str, Reply] = {
        "small": reply(0.0, cpus=4),
        "nameless": reply(0.0, cpus=0),
        "limited": reply(0.0),
        "short": reply(0.0),
        "silent": "no worker answers for this site",
    }
    limits = {"limited": SiteSettings(max_cpus=7), "short": SiteSettings(max_walltime=3600.0)}
    found = rank(JOB, answers, limits)
    assert list(ranked(found)) == ["nameless"]  # its size is missing
    assert [(out.site, out.reason) for out in found.left_out] == [
        ("limited", "takes jobs of at most 7 CPUs"),
        ("short", "takes jobs of at most 1h, this is one of 2h there"),
        ("silent", "no worker answers for this site"),
        ("small", "has 4 CPUs"),
    ]


def test_ranking_limit_applies_to_the_walltime_at_the_site() -> None:
    limit = SiteSettings(speed=2.0, max_walltime=3600.0)
    assert ranked(rank(JOB, {"fast": reply(0.0)}, {"fast": limit}))
    assert JOB.question("1", "fast", limit.speed).walltime == 3600.0
    assert not ranked(rank(JobRequest(walltime=7201.0), {"fast": reply(0.0)}, {"fast": limit}))


def test_excluded_site_does_not_affect_the_reference_run_time() -> None:
    found = rank(JOB, {"small": reply(0.0, 60.0, cpus=4), "large": reply(0.0, 3600.0)}, {})
    assert found.reference_run_s == 3600.0


def test_grid_estimate_replaces_a_reply() -> None:
    found = rank(JOB, {"live": reply(100.0), "stood": stands(10.0)}, {})
    assert [(one.site, one.source) for one in found.ranking] == [("stood", "grid"), ("live", "what-if")]


def test_job_request_becomes_a_question_with_the_same_fields() -> None:
    job = JobRequest(
        cpus=4, walltime=60.0, nodes=2, gpus=1, memory=8, queue="q", user="u", group="g", account="a", executable="x"
    )
    question = job.question("7", "alder")
    assert (question.id, question.site) == ("7", "alder")
    alike = [name for name in JobRequest.__struct_fields__ if hasattr(question, name)]
    assert {name: getattr(question, name) for name in alike} == {name: getattr(job, name) for name in alike}
    assert {*JobRequest.__struct_fields__} - {*alike} == {"partition", "gpu_type", "constraint"}
    assert JobRequest().question("7", "alder", 2.0).walltime is None


def test_job_request_partitions_become_question_partitions() -> None:
    question = JobRequest(gpu_type="a100", partition="gpu,old", qos="high", tasks=2, exclusive=True).question(
        "7", "alder"
    )
    assert (question.queue, question.partitions, question.gpus, question.gpu_types) == (
        "gpu",
        ["gpu", "old"],
        1,
        {"a100": 1},
    )
    assert (question.qos, question.tasks, question.exclusive) == ("high", 2, True)
    both = JobRequest(queue="batch", partition="gpu", gpus=4).question("7", "alder")
    assert (both.queue, both.partitions, both.gpus, both.gpu_types) == ("batch", ["gpu"], 4, None)
    assert JobRequest().question("7", "alder").partitions is None


def test_impossible_site_and_partition_are_excluded_with_reason() -> None:
    never = msgspec.structs.replace(reply(None), cannot_run="needs 8 GPUs a node: none has more than 4")
    some = msgspec.structs.replace(reply(60.0), left_out={"debug": "walltime 2h: at most 30m in debug"})
    found = rank(JOB, {"alder": never, "birch": some}, {})
    assert [one.site for one in found.ranking] == ["birch"]
    assert [(out.site, out.partition, out.reason) for out in found.left_out] == [
        ("alder", msgspec.UNSET, "needs 8 GPUs a node: none has more than 4"),
        ("birch", "debug", "walltime 2h: at most 30m in debug"),
    ]
    assert b"partition" not in msgspec.json.encode(found.left_out[0])


def test_stale_sites_come_last_for_any_estimate() -> None:
    old = msgspec.structs.replace(
        reply(1.0), stale="its last event came 5h ago", as_of=900.0, lag_messages=3, lag_s=4.0
    )
    found = rank(JOB, {"dead": old, "far": reply(9000.0), "mute": reply(None)}, {})
    assert [one.site for one in found.ranking] == ["far", "mute", "dead"]
    dead = ranked(found)["dead"]
    assert (dead.stale, dead.as_of, dead.lag_messages, dead.lag_s) == (old.stale, 900.0, 3, 4.0)


def bounded(wait_s: float, wide_s: float = 0.0, **more: str) -> WaitAnswer:
    bounds = {"0.1": max(wait_s - wide_s, 0.0), "0.5": wait_s, "0.9": wait_s + wide_s, "0.95": wait_s + 1.2 * wide_s}
    return msgspec.structs.replace(reply(wait_s), bounds=bounds, **more)


def test_p_best_is_the_probability_that_a_site_is_best() -> None:
    answers = {"near": bounded(3600.0, 3000.0), "far": bounded(7200.0, 3000.0), "never": bounded(90_000.0, 10.0)}
    answers |= {
        "old": bounded(0.0, stale="old"),
        "new": bounded(0.0, low_confidence="2 jobs"),
        "bare": reply(None),
    }
    found = ranked(rank(JOB, answers, {}))
    assert 0.75 < (near := found["near"].p_best or 0.0) < 0.95
    assert found["far"].p_best == pytest.approx(1.0 - near)
    assert found["never"].p_best == 0.0
    assert [found[site].p_best for site in ("old", "new", "bare")] == [None] * 3


def test_single_settled_site_is_not_certainly_the_best() -> None:
    found = ranked(rank(JOB, {"young": bounded(0.0, low_confidence="2 jobs"), "settled": bounded(10.0, 5.0)}, {}))
    assert (found["settled"].p_best, found["young"].p_best) == (None, None)
    assert ranked(rank(JOB, {"settled": bounded(10.0, 5.0)}, {}))["settled"].p_best == 1.0


@pytest.mark.parametrize("count", [1, 3, 500])
def test_sites_alike_are_equally_likely_the_best(count: int) -> None:
    for estimate in (bounded(0.0), bounded(3600.0, 1800.0)):
        found = rank(JOB, {str(place): estimate for place in range(count)}, {}).ranking
        assert [one.p_best for one in found] == pytest.approx([1.0 / count] * count)


def test_fast_site_ranks_first_if_its_run_offsets_the_wait() -> None:
    answers = {"fast": bounded(600.0, 60.0), "slow": bounded(0.0, 60.0)}
    assert ranked(rank(JOB, answers, {"fast": SiteSettings(speed=2.0)}))["fast"].p_best == pytest.approx(1.0)


def test_grid_estimate_without_node_kinds_ranks_last() -> None:
    found = rank(JobRequest(constraint="ib"), {"stood": stands(10.0), "live": reply(20.0)}, {})
    low_confidence = "a grid estimate is for any nodes"
    assert [(one.site, one.low_confidence) for one in found.ranking] == [("live", None), ("stood", low_confidence)]


def test_rank_site_without_stated_gpus_comes_last() -> None:
    request = JobRequest(gpus=4, gpu_type="a100", walltime=7200.0)
    unsure = msgspec.structs.replace(
        reply(1.0), low_confidence="the site does not report whether it has such GPUs", unverified="GPUs"
    )
    low_confidence = msgspec.structs.replace(reply(7200.0), low_confidence="only 3 of its jobs started so far")
    found = rank(request, {"cpus": unsure, "stands": stands(0.0), "mute": reply(None), "gpus": low_confidence}, {})
    assert [one.site for one in found.ranking] == ["gpus", "mute", "stands", "cpus"]
    assert ranked(found)["stands"].unverified == "a grid estimate is for jobs without GPUs"


@pytest.mark.parametrize(("limit_s", "left_out"), [(None, []), (86400.0, ["short"])])
def test_rank_unlimited_job_leaves_out_limited_site(limit_s: float | None, left_out: list[str]) -> None:
    found = rank(JobRequest(unlimited=True), {"short": reply(0.0)}, {"short": SiteSettings(max_walltime=limit_s)})
    assert [one.site for one in found.left_out] == left_out


@pytest.mark.parametrize(
    ("named", "estimated", "unverified"),
    [
        ({"queue": "bacth"}, "batch", "the site has no grid estimates for queue 'bacth'; this one is for 'batch'"),
        ({"partition": "x,y"}, "z", "the site has no grid estimates for partition 'x' or 'y'; this one is for 'z'"),
        ({"queue": "batch"}, "batch", None),
        ({"partition": "x,y"}, "y", None),
        ({"queue": "batch"}, None, None),  # the site has no queues
        ({}, "batch", None),
    ],
)
def test_grid_estimate_of_another_queue_is_unverified(
    named: dict[str, Any], estimated: str | None, unverified: str | None
) -> None:
    estimate = msgspec.structs.replace(stands(10.0), queue=estimated)
    found = rank(JobRequest(walltime=7200.0, **named), {"stood": estimate, "live": reply(20.0)}, {})
    assert ranked(found)["stood"].unverified == unverified
    assert ranked(found)["stood"].low_confidence == unverified  # the reason that the page and the command show
    assert found.ranking[-1].site == ("live" if unverified is None else "stood")
