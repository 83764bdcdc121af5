"""What a process shows Prometheus, read by hand."""

import urllib.request
from collections import defaultdict
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

from streams.errors import NotUnderstood


def url_of(address: str) -> str:
    """The page of metrics at `HOST:PORT`, or at a whole URL.

    Raises:
        NotUnderstood: it is neither.
    """
    if "://" in address:
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise NotUnderstood(f"{address!r}: expected HOST:PORT")
    return f"http://{address}/metrics"


def shown_at(url: str, prefix: str) -> dict[str, float]:
    """The sums of the metrics whose names begin so, without this beginning; 0 for what is not shown.

    Raises:
        OSError, ValueError: the page cannot be read.
    """
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            page = answer.read().decode()
    except HTTPException as error:
        raise ConnectionError(f"the answer broke off: {error}") from None
    found: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.startswith(prefix):
                found[sample.name.removeprefix(prefix)] += sample.value
    return found
