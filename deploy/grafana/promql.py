"""The few shapes that the dashboards' queries have.

What a site's engine counts goes with the site when it moves to another worker. So counters are increased first and
summed then, and of a gauge the largest is taken: for one scrape both workers may show it.
"""

from models.registry import TRIVIAL

WINDOW = "$window"
"""The stretch of time that the measures of accuracy are over; the reader chooses."""

RATE = "$__rate_interval"
"""The shortest stretch that a rate can be told of; Grafana knows it from the interval between scrapes."""

SITES = 'site=~"$site"'
WAITS = f'{SITES},method=~"$method",jobs=~"$jobs"'
RUNS = f'{SITES},method=~"$run_method"'
TRIVIAL_WAITS = f'{SITES},method=~"{"|".join(TRIVIAL)}",jobs=~"$jobs"'
OTHER_WAITS = f'{WAITS},method!~"{"|".join(TRIVIAL)}"'
SOURCES = 'source=~"$source",site=~"$site"'
PROCESSES = 'instance=~"$instance"'


def increase(counter: str, by: str, where: str) -> str:
    """How much a counter grew within the window."""
    return f"sum by ({by}) (increase({counter}{{{where}}}[{WINDOW}]))"


def rate(counter: str, by: str, where: str) -> str:
    """How much a counter grows each second."""
    return f"sum by ({by}) (rate({counter}{{{where}}}[{RATE}]))"


def share(part: str, whole: str, by: str, where: str) -> str:
    """What one counter grew by over what another did; nothing where the other did not grow."""
    return f"{increase(part, by, where)} / ({increase(whole, by, where)} > 0)"


def portion(part: str, whole: str, by: str, where: str) -> str:
    """The share of one counter that is a part of the other: never above 1.

    Prometheus extrapolates each of them by its own values, so while a series is young the part may outgrow the whole.
    """
    return f"clamp_max({share(part, whole, by, where)}, 1)"


def mean(histogram: str, by: str, where: str) -> str:
    """The mean of what a histogram has seen within the window."""
    return share(f"{histogram}_sum", f"{histogram}_count", by, where)


def counted(counter: str, by: str, where: str) -> str:
    """How much a counter of a worker's own grew; one that has just come into being grew from nothing."""
    series = f"{counter}{{{where}}}"
    return f"sum by ({by}) (({series} unless {series} offset {RATE}) or increase({series}[{RATE}]))"


def quantile(q: float, histogram: str, where: str) -> str:
    """A quantile of what a histogram has lately seen."""
    return f"histogram_quantile({q:g}, {rate(f'{histogram}_bucket', 'le', where)})"


def gauge(metric: str, by: str, where: str) -> str:
    """A gauge as it stands."""
    return f"max by ({by}) ({metric}{{{where}}})"
