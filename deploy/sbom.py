"""Write the software bill of materials (CycloneDX 1.6, JSON), with hashes.

It lists the packages of the lock files, Kafka's jars, and the third-party scripts of the web page. `make sbom` runs it.
The same lock files and jars give the same bytes. It describes what a release installs, on any machine.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.local.stack.jars import pinned

ROOT = Path(__file__).parents[1]
LOCKS = ("build", "serve", "local")
"""Lock files of a production installation: the image uses the first two, `queuecast up` the third."""

SCRIPTS = (("uplot", "1.6.32", "uPlot.iife.min.js"),)
"""Third-party scripts of the web page: package name, version, file."""


def sbom(root: Path = ROOT) -> dict[str, Any]:
    """The document."""
    found = {part["bom-ref"]: part for part in (*_packages(root), *_jars(), *_scripts(root))}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "queuecast", "bom-ref": "queuecast"}},
        "components": [found[ref] for ref in sorted(found)],
    }


def _packages(root: Path) -> Iterator[dict[str, Any]]:
    for lock in LOCKS:
        text = (root / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
        for entry in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]:
            name, version = re.match(r"([\w.-]+)==([^\s;\\]+)", entry).groups()  # type: ignore[union-attr]
            files = sorted(set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))
            yield _part("library", name, version, f"pkg:pypi/{name.lower()}@{version}", files)


def _jars() -> Iterator[dict[str, Any]]:
    for jar in pinned():
        group, name, version = jar.coordinate.split(":")
        yield {"group": group, **_part("library", name, version, f"pkg:maven/{group}/{name}@{version}", [jar.sha256])}


def _scripts(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the third-party scripts of the web page, as vendored in the repository."""
    for name, version, file in SCRIPTS:
        digest = hashlib.sha256((root / "streams/serve/page/vendor" / file).read_bytes()).hexdigest()
        yield _part("library", name, version, f"pkg:npm/{name}@{version}", [digest])


def _part(kind: str, name: str, version: str, purl: str, files: list[str]) -> dict[str, Any]:
    """Return a component. A package has a hash for each of its files, only one of which is installed."""
    hashes = [{"alg": "SHA-256", "content": content} for content in files]
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, "hashes": hashes}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(sbom(), indent=1) + "\n")
