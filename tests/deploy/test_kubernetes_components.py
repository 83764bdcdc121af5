"""Components of the Kubernetes manifests: source, notify, and Kueue's dispatcher."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest

from tests.deploy.test_kubernetes import FOLDER, NAME, VERSIONS, Manifest, Network, main, of, ours, render
from tests.support.deployments import (
    ROOT,
    check_command,
)


@cache
def with_component(name: str) -> list[Manifest]:
    """Render the base with one component."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER / "overlays"))
    try:
        (folder / "kustomization.yaml").write_text(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: queuecast\n"
            f"resources: [../../base]\ncomponents: [../../components/{name}]\n"
        )
        return render(folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["source", "notify"])
def test_source_and_notify_components_are_hardened(name: str, version: str) -> None:
    """Each component is hardened as the others, with one pod that only Prometheus reaches."""
    manifests = with_component(name)
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)
    made = of(manifests, "StatefulSet", "Deployment")
    added, worker = (made[f"queuecast-{one}"]["spec"] for one in (name, "worker"))
    container = main(added["template"])
    assert check_command(container["args"]) == name
    assert added["replicas"] == 1
    assert container["securityContext"] == main(worker["template"])["securityContext"]
    assert added["template"]["spec"]["securityContext"] == worker["template"]["spec"]["securityContext"]
    assert container["image"] == "queuecast"  # an overlay sets the tag
    assert "serviceName" not in added or added["serviceName"] in of(manifests, "Service")
    (rule,) = Network(manifests).rules(added["template"]["metadata"]["labels"], "Ingress") or ()
    assert [port["port"] for port in rule["ports"]] == [container["ports"][0]["containerPort"]]
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": {NAME: "prometheus"}}}]


@pytest.mark.parametrize("version", VERSIONS)
def test_kueue_component_is_hardened_with_minimal_rights(version: str) -> None:
    """The component is hardened as the others, with only the needed rights."""
    manifests = with_component("kueue")
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)
    made = of(manifests, "StatefulSet", "Deployment")
    added, worker = (made[f"queuecast-{one}"]["spec"] for one in ("kueue", "worker"))
    container = main(added["template"])
    assert added["replicas"] == 1 and container["image"] == "queuecast"
    assert container["securityContext"] == main(worker["template"])["securityContext"]
    assert added["template"]["spec"]["securityContext"] == worker["template"]["spec"]["securityContext"]
    assert (ROOT / f"{container['command'][-1].removeprefix('queuecast.').replace('.', '/')}.py").exists()
    assert {one.partition("=")[0] for one in container["args"]} == {"--url", "--token-file", "--site"}
    (role,) = of(manifests, "ClusterRole").values()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "patch"}
    (binding,) = of(manifests, "ClusterRoleBinding").values()
    assert binding["subjects"][0]["name"] == added["template"]["spec"]["serviceAccountName"]
    network = Network(manifests)
    assert network.ports(added["template"]["metadata"]["labels"], "Egress") == {53, 443, 6443, 6067}
    assert network.ports(added["template"]["metadata"]["labels"], "Ingress") == set()


def test_notify_component_has_metrics_and_its_secret() -> None:
    manifests = with_component("notify")
    (found,) = (one for one in ours(manifests) if one[0] == "notify")
    _, template, settings = found
    container, own = main(template), settings.notify
    assert (own.web_host, own.web_port) == ("0.0.0.0", container["ports"][0]["containerPort"])
    assert container["envFrom"] == [{"secretRef": {"name": "queuecast-notify"}}]
    assert of(manifests, "Deployment")["queuecast-notify"]["spec"]["strategy"] == {"type": "Recreate"}


def test_source_component_has_persistent_volume_for_cursor() -> None:
    source = of(with_component("source"), "StatefulSet")["queuecast-source"]["spec"]
    container = main(source["template"])
    (claim,) = source["volumeClaimTemplates"]
    (mounted,) = (m for m in container["volumeMounts"] if m["name"] == claim["metadata"]["name"])
    assert f"--cursors={mounted['mountPath']}" in container["args"]
    assert f"--web-port={container['ports'][0]['containerPort']}" in container["args"]
