"""Autoscaling of workers in Kubernetes: KEDA's ScaledObject, its autoscaler, and its queries."""

import re
from pathlib import Path
from typing import Any, Literal

import kubernetes_validate
import msgspec
import pytest
import yaml

from streams.worker.metrics.process_metrics import Metrics
from tests.deploy.alert_data import Data, Series
from tests.deploy.test_kubernetes import PRODUCTION, VERSIONS, Manifest, of, ours, render
from tests.deploy.test_kubernetes_components import with_component
from tests.deploy.test_rules import found


class Prometheus(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Parameters of a query, all strings, as listed in KEDA's documentation of this trigger."""

    server_address: str
    query: str
    threshold: str
    ignore_null_values: Literal["true", "false"]


class Trigger(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A value divided by the number of workers."""

    type: Literal["prometheus"]
    name: str
    metric_type: Literal["AverageValue"]
    metadata: Prometheus


class Target(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The StatefulSet."""

    api_version: Literal["apps/v1"]
    kind: Literal["StatefulSet"]
    name: str


class AutoscalerConfig(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Settings that KEDA passes to the autoscaler."""

    behavior: dict[str, Any]


class Advanced(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The optional settings."""

    horizontal_pod_autoscaler_config: AutoscalerConfig


class Spec(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The fields of a ScaledObject that the manifest uses."""

    scale_target_ref: Target
    min_replica_count: int
    max_replica_count: int
    polling_interval: int
    advanced: Advanced
    triggers: list[Trigger]


def spec_of(manifests: list[Manifest]) -> Spec:
    (scaled,) = of(manifests, "ScaledObject").values()
    assert (scaled["apiVersion"], scaled["metadata"]["namespace"]) == ("keda.sh/v1alpha1", "queuecast")
    return msgspec.convert(scaled["spec"], Spec)


@pytest.fixture
def spec() -> Spec:
    return spec_of(with_component("autoscaling"))


def query_of(spec: Spec, name: str) -> str:
    (found,) = (trigger.metadata.query for trigger in spec.triggers if trigger.name == name)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_autoscaler_made_by_keda_fits_the_schema(spec: Spec, version: str) -> None:
    target = msgspec.to_builtins(spec.scale_target_ref)
    metrics = [
        {
            "type": "External",
            "external": {
                "metric": {"name": f"s{number}-prometheus"},
                "target": {"type": trigger.metric_type, "averageValue": trigger.metadata.threshold},
            },
        }
        for number, trigger in enumerate(spec.triggers)
    ]
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"keda-hpa-{spec.scale_target_ref.name}"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": spec.min_replica_count,
            "maxReplicas": spec.max_replica_count,
            "metrics": metrics,
            "behavior": spec.advanced.horizontal_pod_autoscaler_config.behavior,
        },
    }
    kubernetes_validate.validate(autoscaler, version, strict=True)


def test_autoscaling_target_leaves_replicas_to_keda(spec: Spec) -> None:
    workers = of(with_component("autoscaling"), "StatefulSet")[spec.scale_target_ref.name]
    assert "replicas" not in workers["spec"]


def test_autoscaling_maximum_is_within_the_partitions(spec: Spec) -> None:
    for _, _, settings in [*ours(with_component("autoscaling")), *ours(render(PRODUCTION))]:
        assert 2 <= spec.min_replica_count <= spec.max_replica_count <= settings.topics.partitions


def test_autoscaling_queries_use_exported_metrics(spec: Spec) -> None:
    families = {family.name for family in Metrics(1).registry.collect()}
    for trigger in spec.triggers:
        (name,) = re.findall(r"queuecast_\w+", trigger.metadata.query)
        assert name.removesuffix("_total") in families


def lags(*partitions: int) -> Series:
    """Return the lag of each partition; two workers export the first partition's lag in one scrape."""
    series = {
        f'queuecast_consumer_lag_messages{{namespace="queuecast",partition="{number}",pod="a"}}': f"{lag}x20"
        for number, lag in enumerate(partitions)
    }
    again = '{namespace="queuecast",partition="0",pod="b"}'
    return series | {f"queuecast_consumer_lag_messages{again}": f"{partitions[0]}x20"}


@pytest.mark.parametrize(
    ("partitions", "sum_of_lags"),
    [((0, 0, 0), 0), ((4000, 3000, 500), 7500), ((90_000, 0, 0), 5000), ((9000,) * 4, 20_000)],
)
def test_lag_query_counts_a_partition_as_one_worker(
    tmp_path: Path, spec: Spec, partitions: tuple[int, ...], sum_of_lags: int
) -> None:
    other = {'queuecast_consumer_lag_messages{namespace="other",partition="7",pod="c"}': "800x20"}
    found(tmp_path, Data("10m", lags(*partitions) | other), (query_of(spec, "lag"), sum_of_lags))
    assert {trigger.metadata.threshold for trigger in spec.triggers if trigger.name == "lag"} == {"5000"}


def test_rate_query_adds_the_messages_of_all_pods(tmp_path: Path, spec: Spec) -> None:
    read = {
        f'queuecast_messages_read_total{{namespace="queuecast",pod="{pod}"}}': f"0+{each * 60}x30"
        for pod, each in {"a": 300, "b": 500}.items()
    }
    found(tmp_path, Data("20m", read), (query_of(spec, "rate"), 800))


def test_autoscaling_queries_without_metrics_are_empty(tmp_path: Path, spec: Spec) -> None:
    found(tmp_path, Data("10m", {"up": "1x20"}), *((trigger.metadata.query, None) for trigger in spec.triggers))
    assert {trigger.metadata.ignore_null_values for trigger in spec.triggers} == {"false"}


def test_production_overlay_names_the_component() -> None:
    text = (PRODUCTION / "kustomization.yaml").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if "components/autoscaling" in line)
    (place,) = yaml.safe_load(line.lstrip("# "))
    assert (PRODUCTION / place).is_dir()
