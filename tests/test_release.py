"""Workflows, forms and versions of a release are consistent with the repository."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.test_requirements import PROJECT, ROOT

FORGE = ROOT / ".github"


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted((FORGE / "workflows").iterdir()), ids=lambda path: path.stem)
def test_workflow_runs_existing_make_targets(path: Path) -> None:
    steps = [step for job in _read(path)["jobs"].values() for step in job["steps"]]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [target for step in steps for target in re.findall(r"(?:^|; )make ([a-z-]+)", step.get("run", ""))]
    assert set(named) <= targets and (named or ".ci/run" in str(steps))


def test_release_is_built_twice_and_attested_before_publication() -> None:
    workflow = _read(FORGE / "workflows" / "release.yml")
    steps = [step.get("run") or step["uses"] for step in workflow["jobs"]["release"]["steps"]]
    first, second, attested, published = steps[-4:]
    assert first.endswith('; mv dist "$RUNNER_TEMP"/first') and second.endswith('; diff -r "$RUNNER_TEMP"/first dist')
    assert attested.startswith("actions/attest-build-provenance@") and published.startswith("gh release create")
    assert workflow["permissions"].items() >= {"id-token": "write", "attestations": "write"}.items()


def test_check_workflow_runs_all_supported_pythons() -> None:
    tried = _read(FORGE / "workflows" / "check.yml")["jobs"]["check"]["strategy"]["matrix"]["python"]
    assert all(SpecifierSet(PROJECT["requires-python"]).contains(version) for version in tried)
    assert tried == [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]


@pytest.mark.parametrize("path", sorted((FORGE / "ISSUE_TEMPLATE").glob("*[!g].yml")), ids=lambda path: path.stem)
def test_issue_form_has_required_fields(path: Path) -> None:
    form = _read(path)
    ids = [field["id"] for field in form["body"]]
    assert form["name"] and form["description"] and len(set(ids)) == len(ids)
    assert any(field.get("validations", {}).get("required") for field in form["body"])
