"""Software bill of materials: complete, deterministic, and valid CycloneDX."""

import json
import re
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.local.stack.jars import pinned
from deploy.sbom import ROOT, sbom


def test_sbom_has_all_packages_and_jars_with_hashes() -> None:
    parts = {part["purl"]: part for part in sbom()["components"]}
    for jar in pinned():
        group, name, version = jar.coordinate.split(":")
        assert parts[f"pkg:maven/{group}/{name}@{version}"]["hashes"] == [{"alg": "SHA-256", "content": jar.sha256}]
    lock = Path(ROOT / "requirements" / "serve.txt").read_text(encoding="utf-8")
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock, re.MULTILINE):
        assert parts[f"pkg:pypi/{name.lower()}@{version}"]["hashes"]
    script = Path(ROOT / "streams/serve/page/vendor/uPlot.iife.min.js").read_text(encoding="utf-8")
    (version,) = re.findall(r"uPlot \(v([\d.]+)\)", script)
    assert parts[f"pkg:npm/uplot@{version}"]["hashes"]


def test_sbom_is_deterministic() -> None:
    assert json.dumps(sbom()) == json.dumps(sbom())


def test_sbom_is_valid_cyclonedx() -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(sbom())) is None
