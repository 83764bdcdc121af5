"""What the sources do: what they read and send, how far behind they are, and what their calls take."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.panels import Column, Query, columns, counts, laid_out, lines, stacked, values_of
from deploy.grafana.promql import SOURCES, counted, gauge, rate

EACH = "source, site"
SOURCE_SITE, REASON = "{{source}} {{site}}", "{{site}} {{reason}}"
RECORDS, EVENTS = "queuecast_source_records_total", "queuecast_source_events_total"
SKIPPED, LAG = "queuecast_source_skipped_total", "queuecast_source_lag"
RECORD_AGE, EVENT_AGE = "queuecast_source_last_record_age_seconds", "queuecast_source_last_event_age_seconds"
CALLS, FAILED = "queuecast_source_calls_total", "queuecast_source_failed_calls_total"
CALL_SECONDS = "queuecast_source_call_seconds_total"


def sources() -> Dashboard:
    """The dashboard."""
    return laid_out(
        "sources",
        "What the sources read of the schedulers, and how far behind they are.",
        [values_of("source", "Source", RECORDS, "source"), values_of("site", "Site", RECORDS, "site")],
        {
            "Overview": [
                [
                    columns(
                        "Sources",
                        "Every source as it stands now, since it was started.",
                        Column("records", _total(RECORDS), "short"),
                        Column("events", _total(EVENTS), "short"),
                        Column("skipped", f"{_total(SKIPPED)} or 0 * {_total(RECORDS)}", "short"),
                        Column("age of last record", gauge(RECORD_AGE, EACH, SOURCES), "s"),
                        Column("age of last event", gauge(EVENT_AGE, EACH, SOURCES), "s"),
                    )
                ]
            ],
            "What is read": [
                [
                    stacked(
                        "Records", "Records read, each second.", "ops", Query(rate(RECORDS, EACH, SOURCES), SOURCE_SITE)
                    ),
                    stacked(
                        "Events",
                        "Events sent, each second, by type.",
                        "ops",
                        Query(rate(EVENTS, "site, type", SOURCES), "{{site}} {{type}}"),
                    ),
                    counts(
                        "Skipped",
                        "Records that gave no event, by the field that was wrong, or by what was expected instead.",
                        Query(counted(SKIPPED, "site, reason", SOURCES), REASON),
                    ),
                ]
            ],
            "How far behind": [
                [
                    lines(
                        "Lag of sources",
                        "What is there and not read yet, by its unit; told by sources that read from Kafka.",
                        "short",
                        Query(gauge(LAG, "source, site, unit", SOURCES), "{{site}} {{unit}}"),
                    ),
                    lines(
                        "Age of the last record",
                        "Since the last record was read; it grows where the scheduler, or the way to it, is silent.",
                        "s",
                        Query(gauge(RECORD_AGE, EACH, SOURCES), SOURCE_SITE),
                    ),
                    lines(
                        "Age of the last event",
                        "Since the newest event happened, by the scheduler's own time.",
                        "s",
                        Query(gauge(EVENT_AGE, EACH, SOURCES), SOURCE_SITE),
                    ),
                ]
            ],
            "Calls": [
                [
                    lines(
                        "Time of a call",
                        "What a call to the scheduler takes on average; sources that read files make none.",
                        "s",
                        Query(
                            f"{rate(CALL_SECONDS, 'site, call', SOURCES)} / ({rate(CALLS, 'site, call', SOURCES)} > 0)",
                            "{{site}} {{call}}",
                        ),
                    ),
                    counts(
                        "Failed calls",
                        "Calls to the scheduler that gave nothing.",
                        Query(counted(FAILED, "site, call", SOURCES), "{{site}} {{call}}"),
                    ),
                ]
            ],
        },
    )


def _total(counter: str) -> str:
    return f"sum by ({EACH}) ({counter}{{{SOURCES}}})"
