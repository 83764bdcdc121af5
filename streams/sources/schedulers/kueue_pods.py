"""Resource requests of a Workload's pods, and its admitted resources."""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from streams.sources.logs import fields

MAX_CONTAINERS = 1000

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", re.ASCII)
_FACTORS = {None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_FACTORS |= {f"{letter}i": float(1 << 10 * power) for power, letter in enumerate("KMGTPE", 1)}

ACCELERATORS = re.compile(
    r"[\w.-]+/(?:gpu(?:\.shared)?|mig-[\w.-]+|tpu|npu|gaudi|hpu|neuron(?:core|device)?|i915|xe|vgpu)"
)
"""Names of resources that are accelerators: GPUs, parts of them (MIG), and those of other makers."""


class PodResources(NamedTuple):
    """CPUs, memory in bytes, and accelerators."""

    cpus: float = 0.0
    memory: float = 0.0
    gpus: float = 0.0


def pod(spec: fields.Object) -> PodResources:
    """Return the resources of a pod as Kubernetes' scheduler counts them.

    Its containers run together; its init containers run one by one before them, and restarting ones (sidecars) beside
    all that follow. A request of the pod as a whole overrides this. The overhead of its runtime is added.
    """
    sidecars = most = PodResources()
    for container in _containers(spec, "initContainers"):
        own = _requested(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, own))
            most = _most(most, sidecars)
        else:
            most = _most(most, _sum((sidecars, own)))
    together = _sum((sidecars, *map(_requested, _containers(spec, "containers"))))
    every, whole = _most(most, together), _requested(spec)
    found = PodResources(*(own or other for own, other in zip(whole, every, strict=True)))
    return _sum((found, _of(fields.object_at(spec, "overhead"))))


def admitted(workload: fields.Object) -> dict[str, Any]:
    """Return a workload's admitted resources as fields of a `start`; partial admission is below the request."""
    assigned = fields.object_at(workload, "status", "admission").get("podSetAssignments")
    usages = [fields.object_at(one).get("resourceUsage") for one in assigned] if isinstance(assigned, list) else []
    if not usages or not all(isinstance(usage, dict) for usage in usages):
        return {}
    found = _sum(_of(usage) for usage in usages if isinstance(usage, dict))
    cpus, gpus = (math.ceil(min(value, fields.MAX_COUNT)) for value in (found.cpus, found.gpus))
    return fields.known(cpus=cpus or None, gpus=gpus or None)


def _containers(spec: fields.Object, name: str) -> list[fields.Object]:
    found = spec.get(name)
    return [fields.object_at(one) for one in (found if isinstance(found, list) else [])[:MAX_CONTAINERS]]


def _requested(container: fields.Object) -> PodResources:
    """Return the requests; a limit counts as a request if there is none."""
    resources = fields.object_at(container, "resources")
    return _of({**fields.object_at(resources, "limits"), **fields.object_at(resources, "requests")})


def _of(requests: fields.Object) -> PodResources:
    gpus = sum(quantity(value) for name, value in requests.items() if ACCELERATORS.fullmatch(name))
    return PodResources(quantity(requests.get("cpu")), quantity(requests.get("memory")), gpus)


def _sum(parts: Iterable[PodResources]) -> PodResources:
    return PodResources(*map(sum, zip(PodResources(), *parts, strict=True)))


def _most(one: PodResources, other: PodResources) -> PodResources:
    return PodResources(*map(max, zip(one, other, strict=True)))


def quantity(value: object) -> float:
    """Parse a Kubernetes quantity; 0 if it is invalid.

    >>> quantity("500m"), quantity("1Gi"), quantity(2), quantity("much")
    (0.5, 1073741824.0, 2.0, 0.0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return min(max(float(value), 0.0), 1e18)
    return _quantity(value) if isinstance(value, str) else 0.0


@lru_cache(4096)
def _quantity(text: str) -> float:
    found = _QUANTITY.fullmatch(text)
    return float(found[1]) * _FACTORS[found[2]] if found is not None else 0.0
