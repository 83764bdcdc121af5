"""How it flows: events in, predictions out, and the processes and servers in between."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import Query, counts, laid_out, lines, now, stacked, values_of, whether
from deploy.grafana.promql import PROCESSES, RATE, SITES, counted, gauge, quantile, rate

QUANTILES = {0.5: "median", 0.9: "90 %", 0.99: "99 %"}
INSTANCE = "{{instance}}"
LATENCY, ANSWERS = "queuecast_prediction_latency_seconds", "queuecast_answer_latency_seconds"
READ, LATE = "queuecast_messages_read_total", "queuecast_late_predictions_total"
LOST = "queuecast_events_lost_total"
REQUESTS, REQUEST = "queuecast_http_requests_total", "queuecast_http_request_duration_seconds"
REFUSED = "queuecast_http_refused_requests_total"
OURS = '{__name__=~"queuecast_sites|queuecast_http_requests_total|queuecast_notify_jobs"}'
"""What a worker shows, what the HTTP service, and what tells notices."""

RESTARTED = f"sum by (instance) (changes(process_start_time_seconds{{{PROCESSES}}}[{RATE}]))"


def flow() -> Dashboard:
    """The dashboard."""
    return laid_out(
        "flow",
        "Events in, predictions out, and the workers and servers in between.",
        [
            values_of("instance", "Process", OURS, "instance"),
            values_of("site", "Site", "queuecast_events_total", "site"),
        ],
        {
            "Servers": [
                [
                    whether("Broker", "Whether the worker can reach a Kafka broker.", _server("broker")),
                    whether("Store", "Whether Redis answers the worker within a second.", _server("store")),
                    now("Sites", "Sites that each worker serves.", "short", _of_worker("queuecast_sites")),
                    counts("Restarts", "Restarts of a process.", Query(RESTARTED, INSTANCE)),
                ]
            ],
            "Events": [
                [
                    stacked("Messages read", "From the events topic, each second.", "ops", _rate(READ)),
                    lines(
                        "Lag",
                        "Messages of each partition of the events topic that are still to be read.",
                        "short",
                        Query(gauge("queuecast_event_lag", "partition", PROCESSES), "partition {{partition}}"),
                    ),
                ],
                [
                    counts(
                        "Dead letters",
                        "Messages that could not be taken for an event that fits, by reason.",
                        Query(counted("queuecast_rejects_total", "reason", PROCESSES), "{{reason}}"),
                    ),
                    counts(
                        "Held apart",
                        "Of these, the events that are well formed and not believed, by reason.",
                        Query(counted("queuecast_quarantined_total", "reason", PROCESSES), "{{reason}}"),
                    ),
                    stacked(
                        "Anomalies",
                        "Events of the sites that did not fit what was known, each second, by reason.",
                        "ops",
                        Query(rate("queuecast_anomalies_total", "reason", SITES), "{{reason}}"),
                    ),
                ],
            ],
            "Predictions": [
                [
                    lines(
                        "Latency",
                        "From a submit event's arrival at the broker to its predictions leaving the worker. What takes "
                        "longer than a minute is shown as a minute.",
                        "s",
                        *_quantiles(LATENCY),
                    ),
                    counts(
                        "Late",
                        "Predictions that left more than worker.late_seconds after their event's arrival.",
                        Query(counted(LATE, "instance", PROCESSES), INSTANCE),
                    ),
                ]
            ],
            "Durability": [
                [
                    lines(
                        "Checkpoint age",
                        "For how long the oldest event that is not durable yet has been waiting for that.",
                        "s",
                        _of_worker("queuecast_checkpoint_age_seconds"),
                    ),
                    counts(
                        "Events lost",
                        "Events that were deleted from their topic before they were read.",
                        Query(counted(LOST, "partition", PROCESSES), "partition {{partition}}"),
                    ),
                ]
            ],
            "Estimates and questions": [
                [
                    stacked(
                        "Estimate records",
                        "Standing estimates of job shapes sent, each second.",
                        "ops",
                        _rate("queuecast_estimate_records_total"),
                    ),
                    counts(
                        "Questions",
                        "What-if questions answered, by status.",
                        Query(counted("queuecast_questions_total", "status", PROCESSES), "{{status}}"),
                    ),
                    lines(
                        "Time to answer",
                        "From a question's arrival at the broker to its answer.",
                        "s",
                        *_quantiles(ANSWERS),
                    ),
                ]
            ],
            "HTTP service": [
                [
                    stacked(
                        "Requests",
                        "Answered each second, by route and status.",
                        "reqps",
                        Query(rate(REQUESTS, "path, status_code", PROCESSES), "{{path}} {{status_code}}"),
                    ),
                    lines("Time of a request", "From a request to the end of its answer.", "s", *_quantiles(REQUEST)),
                ],
                [
                    counts(
                        "Dropped connections",
                        "Connections that were slow, not read, or too many of one client.",
                        Query(counted("queuecast_http_dropped_connections_total", "why", PROCESSES), "{{why}}"),
                    ),
                    counts(
                        "Refused requests",
                        "By status: without a right token (401), without the right to it (403), under another host's "
                        "name (421), too many in a minute (429).",
                        Query(counted(REFUSED, "status_code", PROCESSES), "{{status_code}}"),
                    ),
                ],
            ],
            "Notices": [
                [
                    counts(
                        "Notices sent",
                        "Notices of queued jobs that were delivered, by kind.",
                        Query(counted("queuecast_notify_sent_total", "kind", PROCESSES), "{{kind}}"),
                    ),
                    counts(
                        "Notices not told",
                        "Given up, since the webhook did not take them; dropped before, since the job had started, or "
                        "was to start at another time by then.",
                        Query(counted("queuecast_notify_failed_total", "instance", PROCESSES), "given up"),
                        Query(counted("queuecast_notify_dropped_total", "reason", PROCESSES), "dropped: {{reason}}"),
                    ),
                ],
                [
                    lines(
                        "Notices that wait",
                        "Notices that are due and not told yet.",
                        "short",
                        _of_worker("queuecast_notify_waiting"),
                    ),
                    lines(
                        "Webhook failing",
                        "For how long the webhook has taken nothing that was sent to it.",
                        "s",
                        _of_worker("queuecast_notify_webhook_failing_seconds"),
                    ),
                    lines(
                        "Lag of notices",
                        "Messages that notices follow from and that are still to be read, by topic.",
                        "short",
                        Query(gauge("queuecast_notify_lag", "topic", PROCESSES), "{{topic}}"),
                    ),
                ],
            ],
            "Processes": [
                [
                    lines("Memory", "Resident memory.", "bytes", _of_worker("process_resident_memory_bytes")),
                    lines("Processor", "Processors kept busy.", "percentunit", _rate("process_cpu_seconds_total")),
                ]
            ],
        },
    )


def _server(name: str) -> Query:
    return Query(f"min by (instance) (queuecast_{name}_up{{{PROCESSES}}})", INSTANCE)


def _of_worker(metric: str) -> Query:
    return Query(gauge(metric, "instance", PROCESSES), INSTANCE)


def _rate(counter: str) -> Query:
    return Query(rate(counter, "instance", PROCESSES), INSTANCE)


def _quantiles(histogram: str) -> list[Query]:
    return [Query(quantile(q, histogram, PROCESSES), name) for q, name in QUANTILES.items()]
