"""The worker's metrics for Prometheus.

`process` counts what concerns this process: latency, lag, messages read. What a site's engine counts is part of its
state and is read from there at each scrape (`sites`), so that it is right after a crash and no event counts twice.
"""
