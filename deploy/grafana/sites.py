"""What the sites do: their queues, their processors, and what a job would wait there."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import Column, Query, columns, laid_out, lines, stacked, values_of
from deploy.grafana.promql import SITES, gauge, rate

SITE, PHASE, PARTITION = "{{site}}", "{{site}} {{phase}}", "{{site}} {{partition}}"
AGE = f"time() - {gauge('queuecast_estimates_timestamp_seconds', 'site', SITES)}"
DRAIN_IS = "Work that the live jobs still have to do, over the processors: how long the site would be busy with them."


def sites() -> Dashboard:
    """The dashboard."""
    return laid_out(
        "sites",
        "Queues, processors and estimates of the sites.",
        [values_of("site", "Site", "queuecast_events_total", "site")],
        {
            "Overview": [
                [
                    columns(
                        "Sites",
                        "Every site as it stands now.",
                        _phase("queued"),
                        _phase("running"),
                        _phase("held"),
                        Column("free processors", _site("queuecast_free_cpus"), "short"),
                        Column("processors", _site("queuecast_site_cpus"), "short"),
                        Column("drain", _site("queuecast_drain_seconds"), "s"),
                        Column("history", _site("queuecast_history_jobs"), "short"),
                        Column("age of estimates", AGE, "s"),
                        Column("stale", _site("queuecast_site_stale"), "short"),
                    )
                ]
            ],
            "Jobs": [
                [
                    stacked("Jobs", "Live jobs, by phase.", "short", _by_phase("queuecast_live_jobs")),
                    stacked("Processors", "Processors of those jobs.", "short", _by_phase("queuecast_live_cpus")),
                ],
                [
                    lines(
                        "Free processors",
                        "Processors that no running job has, against all there are (nominal).",
                        "short",
                        Query(_site("queuecast_free_cpus"), "free {{site}}"),
                        Query(_site("queuecast_site_cpus"), "nominal {{site}}"),
                    ),
                    lines("Drain", DRAIN_IS, "s", Query(_site("queuecast_drain_seconds"), SITE)),
                ],
            ],
            "Partitions": [
                [
                    lines(
                        "Free processors by partition",
                        "Of sites that tell their partitions; nodes that are shared count in each.",
                        "short",
                        Query(_partition("queuecast_partition_free_cpus"), PARTITION),
                    ),
                    lines(
                        "Free GPUs by partition",
                        "Of partitions with GPUs.",
                        "short",
                        Query(_partition("queuecast_partition_free_gpus"), PARTITION),
                    ),
                    lines(
                        "Queued jobs by partition",
                        "A job that may start in several counts in each.",
                        "short",
                        Query(_partition("queuecast_partition_queued_jobs"), PARTITION),
                    ),
                ]
            ],
            "Estimates": [
                [
                    lines(
                        "Estimated wait",
                        "What a job of each of four shapes would wait, were it submitted now.",
                        "s",
                        Query(
                            gauge("queuecast_estimated_wait_seconds", "site, cpus, walltime", SITES),
                            "{{site}} {{cpus}} processors, {{walltime}} s",
                        ),
                    ),
                    lines("Age of the estimates", "Since they were last refreshed.", "s", Query(AGE, SITE)),
                    lines(
                        "Age of the last event",
                        "Since a site's last event came to the broker.",
                        "s",
                        Query(_site("queuecast_last_event_age_seconds"), SITE),
                    ),
                ]
            ],
            "What it rests on": [
                [
                    stacked(
                        "Events",
                        "Events of each site, each second.",
                        "ops",
                        Query(_rate("queuecast_events_total"), SITE),
                    ),
                    lines(
                        "History",
                        "Started jobs that a new one is compared with.",
                        "short",
                        Query(_site("queuecast_history_jobs"), SITE),
                    ),
                ]
            ],
        },
    )


def _site(metric: str) -> str:
    return gauge(metric, "site", SITES)


def _partition(metric: str) -> str:
    return gauge(metric, "site, partition", SITES)


def _rate(counter: str) -> str:
    return rate(counter, "site", SITES)


def _phase(name: str) -> Column:
    return Column(name, gauge("queuecast_live_jobs", "site", f'{SITES},phase="{name}"'), "short")


def _by_phase(metric: str) -> Query:
    return Query(gauge(metric, "site, phase", SITES), PHASE)
