"""The lock files in requirements/ pin all requirements of pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {"serve": ("serve",), "local": ("serve", "local"), "dev": ("serve", "local", "dev")}


@pytest.mark.parametrize("extra", EXTRAS)
def test_requirements_are_pinned_within_their_range(extra: str) -> None:
    text = (ROOT / "requirements" / f"{extra}.txt").read_text(encoding="utf-8")
    pinned: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE):
        pinned.setdefault(name, set()).add(version)
    extras = PROJECT["optional-dependencies"]
    requirements = [*PROJECT["dependencies"], *(text for one in EXTRAS[extra] for text in extras[one])]
    for requirement in map(Requirement, requirements):
        if requirement.name != PROJECT["name"]:
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            assert pinned.get(name), f"{requirement}: run `make lock`"
            fits = [requirement.specifier.contains(version) for version in pinned[name]]
            assert all(fits), f"{requirement}: run `make lock`"


def test_kernel_requirements_are_those_of_the_local_stack() -> None:
    local, kernels = (
        set(re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements" / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name in ("local.txt", "kernels.txt")
    )
    assert kernels and kernels < local, "run `make lock`"


@pytest.mark.parametrize("name", ["build", "kernels", *EXTRAS])
def test_pinned_requirements_have_hashes_and_no_url(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert all("--hash=sha256:" in entry for entry in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:])
