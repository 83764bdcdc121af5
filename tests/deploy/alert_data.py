"""Data for each alert: those on which it fires, those just below its limit, and those of a healthy grid."""

from typing import NamedTuple

Series = dict[str, str]
"""Samples by series, in promtool's notation: `0+5x60` is 0, 5, 10 … 300."""


class Data(NamedTuple):
    """Series with samples every `step`, and the time of evaluation."""

    at: str
    series: Series
    step: str = "1m"


def events(values: str) -> Series:
    return {'queuecast_events_total{site="s",instance="a"}': values}


def errors(method: str, each: int, jobs: float, steps: int, left: str = "started") -> Series:
    labels = f'{{site="s",method="{method}",jobs="{left}",instance="a"}}'
    return {
        f"queuecast_wait_error_seconds_sum{labels}": f"0+{each * jobs:g}x{steps}",
        f"queuecast_wait_error_seconds_count{labels}": f"0+{jobs:g}x{steps}",
    }


def role(role: str, method: str = "qespera", values: str = "1x600", instance: str = "a") -> Series:
    return {f'queuecast_method_info{{site="s",method="{method}",role="{role}",instance="{instance}"}}': values}


def waited(share: float, jobs: float, steps: int) -> Series:
    """Return jobs of which `share` waited over a minute."""
    labels = 'site="s",method="zero",jobs="started"'
    return {
        f'queuecast_wait_error_seconds_bucket{{{labels},le="60.0"}}': f"0+{(1 - share) * jobs:g}x{steps}",
        f"queuecast_wait_error_seconds_count{{{labels}}}": f"0+{jobs:g}x{steps}",
    }


def trivial(jobs: float, steps: int) -> Series:
    return errors("zero", 1000, jobs, steps) | errors("median", 1500, jobs, steps)


def bounds(bound: str, held: float, jobs: float, steps: int, method: str = "qespera") -> Series:
    labels = f'{{site="s",method="{method}",jobs="started",bound="{bound}"}}'
    return {
        f"queuecast_bound_scored_jobs_total{labels}": f"0+{jobs:g}x{steps}",
        f"queuecast_bound_covered_jobs_total{labels}": f"0+{held * jobs:g}x{steps}",
    }


def unestimated(share: float, jobs: float, steps: int = 120, method: str = "qespera") -> Series:
    labels = f'{{site="s",method="{method}",jobs="started"}}'
    counted = {f"queuecast_jobs_without_estimate_total{labels}": f"0+{share * jobs:g}x{steps}"}
    return counted | errors(method, 60, jobs, steps)


def late(predictions: float, of: float, steps: int = 30) -> Series:
    return {
        'queuecast_late_predictions_total{instance="a"}': f"0+{predictions:g}x{steps}",
        'queuecast_prediction_latency_seconds_count{instance="a"}': f"0+{of:g}x{steps}",
    }


def unread(values: str, calls: bool = False) -> Series:
    """Return the time since a source's last record, and its calls if it polls the scheduler."""
    labels = 'site="s",source="slurm",instance="a"'
    called = {f'queuecast_source_calls_total{{{labels},call="squeue"}}': "0+1x500"} if calls else {}
    return called | {f"queuecast_source_last_record_age_seconds{{{labels}}}": values}


def rejects(values: str, reason: str = "not_json") -> Series:
    return {f'queuecast_events_rejected_total{{reason="{reason}",instance="a"}}': values}


def implausible(values: str) -> Series:
    return {'queuecast_events_implausible_total{reason="implausible_time",instance="a"}': values}


def lag(values: str) -> Series:
    return {'queuecast_consumer_lag_messages{partition="3",instance="a"}': values}


def started(values: str) -> Series:
    return {'process_start_time_seconds{job="queuecast",instance="a"}': values}


def estimates(values: str) -> Series:
    return {'queuecast_estimates_timestamp_seconds{site="s"}': values}


def running(values: str) -> Series:
    return {'queuecast_live_jobs{site="s",phase="running",instance="a"}': values}


def failing(values: str) -> Series:
    return {'queuecast_notify_webhook_failing_seconds{instance="c"}': values}


def dropped(values: str) -> Series:
    return {'queuecast_http_dropped_connections_total{why="slow",instance="b"}': values}


OUT = role("wait")
"""The method that publishes the predictions."""

TRIED = role("wait", "zero") | role("shadow")

MOVED = role("wait", values="1x145 stale") | role("wait", values="_x144 1x300", instance="b")
"""Two workers export it in the scrape of the move."""

STARTED_AGAIN = role("wait", values="1x100 _ 1x300")

FIRES = {
    "QueuecastDown": [Data("5m", {'up{job="queuecast",instance="a"}': "1 0x9"})],
    "QueuecastNoWorker": [Data("5m", {'up{job="queuecast-serve",instance="b"}': "1x10"})],
    "QueuecastRestarting": [Data("25m", started("100x5 400x5 700x5 1000x10"))],
    "QueuecastBrokerDown": [Data("5m", {'queuecast_broker_up{instance="a"}': "1 0x9"})],
    "QueuecastRedisDown": [Data("2m", {'queuecast_redis_up{instance="a"}': "1 0x9"})],
    "QueuecastCheckpointOld": [Data("4m", {'queuecast_checkpoint_age_seconds{instance="a"}': "0 70 130 190 250"})],
    "QueuecastEventsLost": [Data("5m", {'queuecast_events_lost_total{instance="a",partition="3"}': "_ _ 40x8"})],
    "QueuecastSiteSilent": [
        Data("25h10m", events("0+100x144 14400x20"), "10m"),
        Data("30h10m", events("0+10x144 1440x40"), "10m"),
        Data("48h40m", events("0+10x144 1440x180") | running("5x350"), "10m"),
    ],
    "QueuecastSiteStale": [Data("8m", {'queuecast_site_stale{site="s",instance="a"}': "0x3 1x10"})],
    "QueuecastSourceSilent": [Data("25m", unread("0+60x30", calls=True)), Data("7h", unread("0+60x500"))],
    "QueuecastUnknownFields": [Data("40m", {'queuecast_unknown_fields_total{field="wallclock"}': "_x30 1x20"})],
    "QueuecastLagGrowing": [Data("30m", lag("0+200x30"))],
    "QueuecastDeadLetters": [
        Data("35m", rejects("_x30 12x10")),
        Data("90m", rejects("100+1x100")),
        Data("35m", rejects("_x30 1x10", "poison")),
    ],
    "QueuecastEventsImplausible": [Data("10m", implausible("_x5 25x10")), Data("60m", implausible("100+2x60"))],
    "QueuecastTrainingHangs": [
        Data("20m", {"queuecast_training_seconds": "0+60x20"}),
        Data("50m", {"queuecast_training_restarts_total": "0x10 1x10 2x40"}),
    ],
    "QueuecastPredictionsLate": [Data("25m", late(5, of=10))],
    "QueuecastConnectionsDropped": [Data("30m", dropped("0+10x40"))],
    "QueuecastWebhookFailing": [Data("25m", failing("0+60x30"))],
    "QueuecastEstimatesStale": [Data("30m", estimates("0x40"))],
    "QueuecastWorseThanBaseline": [
        *(
            Data("28h", trivial(10, 180) | errors("qespera", 1200, 10, 180) | out, "10m")
            for out in (OUT, MOVED, STARTED_AGAIN)
        ),
        Data(
            "28h",
            OUT | trivial(10, 180) | errors("qespera", 500, 10, 180) | errors("qespera", 3500, 10, 180, "cancelled"),
            "10m",
        ),
        Data("28h", trivial(10, 180) | role("wait", "median"), "10m"),
    ],
    "QueuecastBoundsTooLow": [
        Data("12h", OUT | bounds("0.95", 0.88, 10, 80), "10m"),
        Data("12h", OUT | bounds("0.9", 0.8, 10, 80) | bounds("0.9", 0.8, 10, 80, "qbets"), "10m"),
        Data("31h", MOVED | bounds("0.9", 0.8, 10, 200), "10m"),
    ],
    "QueuecastBoundsTooWide": [
        Data("70h", OUT | bounds("0.9", 0.96, 10, 400), "30m"),
        Data("70h", OUT | role("wait", instance="b") | bounds("0.95", 0.98, 10, 400) | waited(0.2, 10, 400), "30m"),
    ],
    "QueuecastNoEstimates": [
        Data("90m", OUT | unestimated(0.5, 1)),
        Data("90m", OUT | role("wait", instance="b") | unestimated(0.5, 1)),
    ],
}
"""Data on which each alert fires."""

SHORT_OF_IT = {
    "QueuecastDown": [
        Data("4m", {'up{job="queuecast",instance="a"}': "1x3 0 1x6"}),
        Data("5m", {'up{job="another",instance="a"}': "0x10"}),
    ],
    "QueuecastNoWorker": [Data("5m", {'queuecast_sites{instance="a"}': "0x10"})],
    "QueuecastRestarting": [Data("25m", started("100x10 700x15"))],
    "QueuecastBrokerDown": [Data("4m", {'queuecast_broker_up{instance="a"}': "1x3 0 1x6"})],
    "QueuecastRedisDown": [Data("4m", {'queuecast_redis_up{instance="a"}': "1x3 0 1x6"})],
    "QueuecastCheckpointOld": [Data("4m", {'queuecast_checkpoint_age_seconds{instance="a"}': "0 2 61 2 0"})],
    "QueuecastEventsLost": [Data("90m", {'queuecast_events_lost_total{instance="a",partition="3"}': "40x95"})],
    "QueuecastSiteSilent": [
        Data("25h10m", events("0+10x144 1440x20"), "10m"),  # an hour without events of a small site
        Data("32h", events("0+0.5x144 72x60"), "10m"),  # a night without events of a very small site
        Data("48h40m", events("0+10x144 1440x180") | running("4x350"), "10m"),
        Data(
            "26h",
            events("0+100x144 stale") | {'queuecast_events_total{site="s",instance="b"}': "_x144 14400+100x20"},
            "10m",
        ),
    ],
    "QueuecastSiteStale": [Data("8m", {'queuecast_site_stale{site="s",instance="a"}': "0x3 1 0x10"})],
    "QueuecastSourceSilent": [Data("25m", unread("30x30", calls=True)), Data("5h", unread("0+60x500"))],
    "QueuecastUnknownFields": [Data("120m", {'queuecast_unknown_fields_total{field="wallclock"}': "1x150"})],
    "QueuecastLagGrowing": [Data("30m", lag("9000-100x30")), Data("30m", lag("0+10x30"))],
    "QueuecastDeadLetters": [Data("90m", rejects("100x100")), Data("35m", rejects("_x30 5x10"))],
    "QueuecastEventsImplausible": [Data("60m", implausible("100x60")), Data("10m", implausible("_x5 15x10"))],
    "QueuecastTrainingHangs": [
        Data("20m", {"queuecast_training_seconds": "0x5 200x5 0x10"}),
        Data("50m", {"queuecast_training_restarts_total": "5x10 6x40"}),
    ],
    "QueuecastPredictionsLate": [Data("25m", late(5, of=200)), Data("25m", late(1, of=1))],
    "QueuecastConnectionsDropped": [Data("30m", dropped("0+5x40")), Data("40m", dropped("0x19 90x30"))],
    "QueuecastWebhookFailing": [Data("17m", failing("0+60x30")), Data("30m", failing("0+60x14 0x20"))],
    "QueuecastEstimatesStale": [Data("34m", estimates("0x15 900x25"))],
    "QueuecastWorseThanBaseline": [
        Data("34h", OUT | trivial(10, 180) | errors("qespera", 1050, 10, 180), "30m"),
        Data("34h", OUT | trivial(0.5, 180) | errors("qespera", 3000, 0.5, 180), "30m"),
        Data("34h", OUT | trivial(10, 180) | errors("qbets", 3000, 10, 180) | role("bounds", "qbets"), "30m"),
        Data("34h", TRIED | trivial(10, 180) | errors("qespera", 3000, 10, 180), "30m"),
        Data("26h", OUT | trivial(10, 180) | errors("qespera", 3000, 10, 180), "30m"),
    ],
    "QueuecastBoundsTooLow": [
        Data("12h", OUT | bounds("0.95", 0.92, 10, 80), "10m"),
        Data("12h", OUT | bounds("0.95", 0.5, 0.10, 80), "10m"),
        Data("12h", OUT | bounds("0.5", 0.3, 10, 80), "10m"),
        Data("12h", TRIED | bounds("0.9", 0.5, 10, 80), "10m"),
        Data("12h", OUT | bounds("0.9", 0.9, 10, 80) | bounds("0.9", 0.5, 10, 80, "another"), "10m"),
    ],
    "QueuecastBoundsTooWide": [
        Data("70h", OUT | bounds("0.9", 0.94, 10, 400) | bounds("0.95", 0.97, 10, 400), "30m"),
        Data("70h", OUT | bounds("0.9", 1.0, 1, 400), "30m"),
        Data("70h", OUT | bounds("0.75", 1.0, 10, 400), "30m"),
        Data("70h", OUT | bounds("0.9", 1.0, 10, 400) | waited(0.05, 10, 400), "30m"),  # no bound can be narrower
        Data("70h", TRIED | bounds("0.9", 1.0, 10, 400), "30m"),
        Data("62h", OUT | bounds("0.9", 1.0, 10, 400), "30m"),
    ],
    "QueuecastNoEstimates": [
        Data("90m", OUT | unestimated(0.1, 1)),
        Data("90m", OUT | unestimated(1.0, 0.2)),
        Data("90m", OUT | unestimated(1.0, 1, method="median")),
        Data("90m", TRIED | unestimated(1.0, 1)),
    ],
}
"""Similar data on which each alert is quiet."""

HEALTHY = Data(
    "30h",
    {
        'up{job="queuecast",instance="a"}': "1x600",
        'queuecast_sites{instance="a"}': "3x600",
        **started("100x600"),
        'queuecast_broker_up{instance="a"}': "1x600",
        'queuecast_redis_up{instance="a"}': "1x600",
        **events("0+30x600"),
        **running("40x600"),
        **lag("5x600"),
        **rejects("0+0.1x600"),
        **late(0, of=10, steps=600),
        **estimates("0+180x600"),
        **failing("0 30 0 0 45 0x595"),
        **OUT,
        **trivial(3, 600),
        **waited(0.6, 3, 600),
        **unestimated(0.01, 3, 600),
        **bounds("0.95", 0.96, 3, 600),
        **bounds("0.9", 0.93, 3, 600),
        **bounds("0.5", 0.58, 3, 600),
    },
    "3m",
)
