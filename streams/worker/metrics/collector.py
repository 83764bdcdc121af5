"""What the collectors of this room have in common."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class SiteCollector(Collector):
    """Reads at each scrape what is known of each site, for the first `most_sites`."""

    def __init__(self, most_sites: int) -> None:
        self._most_sites = most_sites

    def describe(self) -> Iterator[Metric]:
        """Nothing is known before there is a site."""
        return iter(())
