"""Prometheus metrics equal the counts of the engines."""

import asyncio
import os
import shutil
import subprocess
import time
from collections import defaultdict
from itertools import pairwise
from unittest.mock import AsyncMock

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.method import SiteContext, WaitMethod
from models.method_registry import METHODS
from models.records import Capacity, Hold, OrderFit, Partition, Pool, Start, Submit
from models.simulation import generate, run
from models.site.history import FEATURES
from models.site.job import Estimate, Job
from models.waiting_accuracy import Landmark, WaitingAccuracy
from streams.settings import EstimateSettings
from streams.worker.answers.answer_scores import AnswerScores
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.freshness import Freshness
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.metrics.process_metrics import SITES_PER_TURN, Metrics
from streams.worker.metrics.site_metrics import MAX_SHOWN_PARTITIONS, SiteFamilies
from streams.worker.supervisor import merged

ENGINE = EngineSettings(method="median", shadows=("zero",), bounds="", history=50)

Samples = dict[str, dict[tuple[str, ...], float]]


def engine(site: str, jobs: int = 150, settings: EngineSettings = ENGINE) -> Engine:
    found = Engine(site, settings)
    for event in run(generate(3, jobs, cpus=32, load=0.9), 32, site):
        found.apply(event)
    return found


def metrics(*engines: Engine, most_sites: int = 10) -> Metrics:
    return showing([SiteHandle(one, 0) for one in engines], most_sites)


def showing(handles: list[SiteHandle], most_sites: int = 10) -> Metrics:
    found, standing = Metrics(most_sites), EstimateGrids({}, EstimateSettings(), AsyncMock())
    found.show(handles, standing, Freshness(), AnswerScores())
    return found


def samples(shown: Metrics) -> Samples:
    """Return the samples by name, then by label values in the order of label names."""
    found: Samples = defaultdict(dict)
    for family in text_string_to_metric_families(asyncio.run(shown.page()).decode()):
        for sample in family.samples:
            found[sample.name][tuple(sample.labels[name] for name in sorted(sample.labels))] = sample.value
    return found


@pytest.fixture(scope="module")
def alder() -> Engine:
    return engine("alder")


def test_wait_error_metrics_equal_engine_scores(alder: Engine) -> None:
    shown = samples(metrics(alder))
    for jobs, measured in (("started", alder.scores.accuracy), ("cancelled", alder.scores.cancelled)):
        for method, accuracy in measured.items():
            labels = (jobs, method, "alder")
            assert accuracy.jobs > 0
            assert shown["queuecast_wait_error_seconds_count"][labels] == accuracy.jobs
            assert shown["queuecast_wait_error_seconds_sum"][labels] == accuracy.error.total
            assert shown["queuecast_wait_error_response_ratio_count"][labels] == accuracy.responses
            assert shown["queuecast_wait_error_response_ratio_sum"][labels] == accuracy.ppe.total
            assert shown["queuecast_within_factor_2_jobs_total"][labels] == accuracy.within_x2
            assert shown["queuecast_jobs_without_estimate_total"][labels] == accuracy.missing
    assert alder.scores.accuracy["median"].error.total != alder.scores.accuracy["zero"].error.total


def test_reestimate_metric_has_first_and_last_errors(alder: Engine) -> None:
    assert not [name for name in samples(metrics(alder)) if "reestimated" in name]  # this method does not re-estimate
    other = engine("birch")
    other.scores.later.add_wait(300.0, 360.0)
    other.scores.later_first.add_wait(60.0, 360.0)
    sums = samples(metrics(other))["queuecast_reestimated_wait_error_seconds_sum"]
    assert sums == {("first", other.settings.method, "birch"): 300.0, ("last", other.settings.method, "birch"): 60.0}


def test_wait_error_buckets_are_cumulative(alder: Engine) -> None:
    buckets = samples(metrics(alder))["queuecast_wait_error_seconds_bucket"]
    edges = sorted({edge for _, edge, *_ in buckets}, key=float)
    counts = [buckets["started", edge, "median", "alder"] for edge in edges]
    assert counts == sorted(counts)
    assert counts[-1] == alder.scores.accuracy["median"].jobs
    assert counts[0] < counts[-1]


def test_site_metrics_equal_engine_state() -> None:
    one = Engine("x", ENGINE)
    for event in (
        Submit(site="x", time=1.0, job="1", cpus=4),
        Submit(site="x", time=1.0, job="2", cpus=8),
        Submit(site="x", time=1.0, job="3", cpus=16),
        Hold(site="x", time=2.0, job="2"),
        Start(site="x", time=3.0, job="1"),
        Start(site="x", time=3.0, job="1"),
    ):
        one.apply(event)
    shown = samples(metrics(one))
    assert shown["queuecast_events_total"] == {("x",): 6}
    assert shown["queuecast_anomalies_total"] == {("duplicate_start", "x"): 1}
    assert shown["queuecast_live_jobs"] == {
        ("queued", "x"): 1,
        ("held", "x"): 1,
        ("running", "x"): 1,
        ("suspended", "x"): 0,
    }
    assert shown["queuecast_live_cpus"] == {
        ("queued", "x"): 16,
        ("held", "x"): 8,
        ("running", "x"): 4,
        ("suspended", "x"): 0,
    }
    assert shown["queuecast_history_jobs"] == {("x",): 1}
    assert shown["queuecast_predictions_total"] == {("median", "x"): 3, ("zero", "x"): 3}
    assert shown["queuecast_degraded_predictions_total"] == {("median", "x"): 0, ("zero", "x"): 0}
    assert shown["queuecast_sites"] == {(): 1}


def test_waits_are_counted_by_queue_account_and_ineligible_time() -> None:
    one = Engine("x", msgspec.structs.replace(ENGINE, max_label_values=2))
    for number, (queue, account) in enumerate([("a", "p"), ("b", "p"), ("c", None), ("d", "q"), ("a", "q")]):
        one.apply(Submit(site="x", time=0.0, job=f"{number}", queue=queue, account=account, eligible=40.0 * number))
        one.apply(Start(site="x", time=400.0, job=f"{number}"))
    again = Engine.load(one.checkpoint()[0], None, None, one.settings)
    for engine_now in (one, again):
        shown = samples(metrics(engine_now))
        counts = shown["queuecast_wait_seconds_count"]
        assert counts == {("a", "x"): 2.0, ("b", "x"): 1.0, ("other", "x"): 2.0}
        assert shown["queuecast_wait_seconds_sum"]["other", "x"] == 320.0 + 280.0
        assert shown["queuecast_account_wait_seconds_count"] == {("p", "x"): 2.0, ("q", "x"): 2.0}
        assert shown["queuecast_ineligible_seconds_sum"] == {("x",): 40.0 + 80.0 + 120.0 + 160.0}


def test_jobs_that_wait_unusually_long_are_counted() -> None:
    one = Engine("x", msgspec.structs.replace(ENGINE, method="easy"))
    for number in range(3):
        one.apply(Submit(site="x", time=100.0 * number, job=f"{number}"))
    bounds = {"0.5": 10.0, "0.9": 150.0}
    for job in one.context.state.jobs.values():
        job.estimates["easy"] = Estimate(10.0, "", bounds)
    assert samples(metrics(one))["queuecast_unusually_long_waits"] == {("x",): 1.0}


def test_partition_metrics_are_limited_to_few_partitions() -> None:
    pools = [Pool(name="thin", nodes=4, cpus=8), Pool(name="card", nodes=1, cpus=8, gpus={"a100": 4})]
    partitions = [Partition(name="batch", pools=["thin"]), Partition(name="gpu", pools=["card"])]
    few, many = Engine("few", ENGINE), Engine("many", ENGINE)
    few.apply(Capacity(site="few", time=1.0, cpus=40, pools=pools, partitions=partitions))
    few.apply(Submit(site="few", time=2.0, job="1", queue="gpu", gpus=3))
    few.apply(Submit(site="few", time=2.0, job="2", queue="gpu", gpus=3))
    few.apply(Start(site="few", time=3.0, job="1", partition="gpu"))
    lots = [Partition(name=str(number), pools=["thin"]) for number in range(MAX_SHOWN_PARTITIONS + 1)]
    many.apply(Capacity(site="many", time=1.0, cpus=40, pools=pools, partitions=lots))
    shown = samples(metrics(few, many))
    assert shown["queuecast_partition_free_cpus"] == {("batch", "few"): 32.0, ("gpu", "few"): 7.0}
    assert shown["queuecast_partition_free_gpus"] == {("gpu", "few"): 1.0}
    assert shown["queuecast_partition_queued_jobs"] == {("batch", "few"): 0.0, ("gpu", "few"): 1.0}


def test_feature_weight_metric_equals_weights_by_feature(alder: Engine) -> None:
    weights = samples(metrics(alder))["queuecast_feature_weight"]
    window = alder.context.history.window.weights
    assert weights == {(name, "alder"): weight for name, weight in zip(FEATURES, window, strict=True)}
    assert any(weights.values())


def test_order_fit_metric_is_the_share_of_pairs(monkeypatch: pytest.MonkeyPatch, alder: Engine) -> None:
    name = "queuecast_order_fit_share"
    fit = OrderFit(order="learned", share=0.9, pairs=100)
    monkeypatch.setattr(type(alder.methods.counting), "order_fit", fit)
    assert samples(metrics(alder))[name] == {("learned", "alder"): 0.9}
    monkeypatch.setattr(type(alder.methods.counting), "order_fit", None)
    assert not samples(metrics(alder)).get(name)


class Bounded(WaitMethod):
    name = "bounded"

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        return Estimate(600.0, "always", {"0.5": 600.0, "0.95": 36_000.0})


def test_bounds_are_counted_by_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "bounded", Bounded)
    one = engine("alder", settings=EngineSettings(method="bounded", shadows=(), history=50))
    shown, started = samples(metrics(one)), one.scores.accuracy["bounded"]
    for q in ("0.5", "0.95"):
        assert shown["queuecast_bound_scored_jobs_total"][q, "started", "bounded", "alder"] == started.jobs
        assert shown["queuecast_bound_covered_jobs_total"][q, "started", "bounded", "alder"] == started.bounds[q].held
    assert started.bounds["0.5"].held < started.bounds["0.95"].held


def test_site_labels_are_limited_and_all_sites_counted() -> None:
    shown = samples(metrics(*(engine(name, 5) for name in ("a", "b", "c")), most_sites=2))
    assert set(shown["queuecast_events_total"]) == {("a",), ("b",)}
    assert {labels[-1] for labels in shown["queuecast_wait_error_seconds_count"]} == {"a", "b"}
    assert shown["queuecast_sites"] == {(): 3}


def test_removed_site_has_no_metrics() -> None:
    handles = [SiteHandle(engine("a", 5), 0)]
    shown = showing(handles)
    assert samples(shown)["queuecast_events_total"]
    handles.clear()
    assert not samples(shown)["queuecast_events_total"]


def test_process_metrics_count_messages_and_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, now = metrics(), 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    shown.read(1000.5)
    shown.read(1001.5)
    shown.rejected("empty")
    shown.rejected("implausible_time", held_apart=True)
    shown.predicted(now - 0.25)
    shown.predicted(now + 60.0)  # a broker whose clock is ahead
    found = samples(shown)
    assert found["queuecast_messages_read_total"] == {(): 2}
    assert found["queuecast_events_rejected_total"] == {("empty",): 1, ("implausible_time",): 1}
    assert found["queuecast_events_implausible_total"] == {("implausible_time",): 1}
    assert found["queuecast_last_message_timestamp_seconds"] == {(): 1001.5}
    assert found["queuecast_prediction_latency_seconds_count"] == {(): 2}
    assert found["queuecast_prediction_latency_seconds_sum"] == {(): 0.25}
    assert found["queuecast_prediction_latency_seconds_bucket"]["0.001",] == 1


def test_late_predictions_topics_and_servers_are_exported() -> None:
    shown = metrics()
    shown.late.inc(2)
    shown.renewed.labels("3").inc()
    shown.broker.set(True)
    shown.store.set(False)
    found = samples(shown)
    assert found["queuecast_late_predictions_total"] == {(): 2}
    assert found["queuecast_topic_recreations_total"] == {("3",): 1}
    assert (found["queuecast_broker_up"], found["queuecast_redis_up"]) == ({(): 1}, {(): 0})


def test_lag_metric_counts_unread_messages() -> None:
    ends = {("events", 0): 100, ("events", 1): 50, ("events", 2): None, ("events", 4): 7}
    shown, freshness = metrics(), Freshness(end=ends.__getitem__)
    for partition, offset in ((0, 59), (1, 49), (2, 10), (3, 5)):
        freshness.read(("events", partition), offset, 0.0)
    shown.lag(freshness, ends)
    assert samples(shown)["queuecast_consumer_lag_messages"] == {("0",): 40, ("1",): 0}


def test_lag_metric_after_out_of_order_message_is_zero() -> None:
    shown, freshness = metrics(), Freshness(end=lambda _: 10)
    for offset in (*range(3), *range(4, 10), 3):
        freshness.read(("events", 0), offset, 0.0)
    shown.lag(freshness, [("events", 0)])
    assert samples(shown)["queuecast_consumer_lag_messages"] == {("0",): 0}


def test_metrics_page_passes_promtool_check(alder: Engine) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is not installed")
        pytest.skip("promtool is not installed")
    shown = metrics(alder)
    shown.rejected("empty")
    checked = subprocess.run([promtool, "check", "metrics"], input=asyncio.run(shown.page()), capture_output=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_metrics_of_new_engine_are_zero() -> None:
    one = Engine("new", ENGINE)
    shown = samples(metrics(one))
    assert shown["queuecast_wait_error_seconds_count"]["started", "median", "new"] == Accuracy().jobs == 0


def test_metrics_page_of_many_sites_yields_to_other_tasks(alder: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    read, turns = list[str](), list[int]()
    add = SiteFamilies.add_engine

    def counted(self: SiteFamilies, engine: Engine) -> None:
        read.append(engine.site)
        add(self, engine)

    monkeypatch.setattr(SiteFamilies, "add_engine", counted)
    shown = metrics(*[alder] * 23, most_sites=100)

    async def other() -> None:
        while True:
            turns.append(len(read))
            await asyncio.sleep(0)

    async def scenario() -> None:
        task = asyncio.ensure_future(other())
        await shown.page()
        task.cancel()

    asyncio.run(scenario())
    assert len(read) == 23 and max(b - a for a, b in pairwise(turns)) <= SITES_PER_TURN


@pytest.mark.parametrize("name", ["training_cpu_seconds", "training_restarts"])
def test_training_time_is_summed_over_processes(name: str) -> None:
    """A total that restarts at 0 with the process is a counter, as `rate` and `sum` expect."""
    pages = {}
    for number, cpu_times_s in ((1, [2, 5]), (2, [1])):
        shown = Metrics(10)
        for total in cpu_times_s:
            shown.trained(total, total)
        pages[number] = asyncio.run(shown.page()).decode()
    families = {family.name: family for family in text_string_to_metric_families(merged(pages))}
    family = families[f"queuecast_{name}"]
    assert family.type == "counter"
    totals = {one.labels["process"]: one.value for one in family.samples if one.name.endswith("_total")}
    assert totals == {"1": 5, "2": 1}


def test_errors_while_jobs_wait_are_shown_by_age() -> None:
    other = engine("birch")
    other.scores.waiting = WaitingAccuracy()
    other.scores.waiting.add([Landmark(1, 900.0, 7200.0, 600.0, {"0.9": 9000.0})], 8000.0)
    shown = samples(metrics(other))
    assert shown["queuecast_waiting_jobs_total"] == {("1h", "birch"): 1}
    errors_s = shown["queuecast_waiting_error_seconds_total"]
    assert {labels[1]: error_s for labels, error_s in errors_s.items()} == {
        "in_force": 800.0,
        "first": 4400.0,
        "now": 4400.0,
        "recent": 3800.0,
    }
    assert shown["queuecast_waiting_bound_covered_jobs_total"] == {("1h", "0.9", "birch"): 1}
    assert shown["queuecast_waiting_bound_expired_jobs_total"] == {("1h", "birch"): 0}
