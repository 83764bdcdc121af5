"""The worker's metrics for Prometheus.

`process_metrics` has the metrics of this process: latency, lag, messages read. The counts of a site's engine are part
of its state and are read at each scrape (`site_metrics`). So they are correct after a crash and no event counts twice.
"""
