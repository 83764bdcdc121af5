"""Convert the READMEs into pages of the site, with their links changed to the site."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = "docs"

READMES = {
    "README.md": "index.md",
    "deploy/README.md": "howto/deploy.md",
    "deploy/prometheus/RUNBOOK.md": "howto/alerts.md",
    "deploy/slurm/README.md": "howto/sbatch.md",
    "deploy/ondemand/README.md": "howto/ondemand.md",
    "deploy/jupyterhub/README.md": "howto/jupyterhub.md",
    "deploy/kueue/README.md": "howto/kueue.md",
    "deploy/ci/README.md": "howto/ci.md",
    "deploy/snakemake/README.md": "howto/snakemake.md",
    "deploy/parsl/README.md": "howto/parsl.md",
    "deploy/iri/README.md": "howto/iri.md",
    "deploy/skypilot/README.md": "howto/skypilot.md",
    "models/README.md": "reference/methods.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages of the site by their file in the repository."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def included() -> dict[str, str]:
    """Return the text of the READMEs' pages by their place on the site."""
    return {place: with_site_links(_text(path), path, place) for path, place in READMES.items()}


def linked_files() -> list[str]:
    """Return the linked files of the repository that are not pages; the site contains copies of them."""
    sources = [*READMES, *(path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*.md"))]
    found = {target for path in sources for target in _targets(path)}
    return sorted(target for target in found if _is_other_file(target))


def with_site_links(text: str, path: str, place: str) -> str:
    """Change the relative links of a repository file into links of the site.

    Links to folders become plain text, because the site has no page for them.

    Args:
        text: content of the file.
        path: file, relative to the repository's root.
        place: page on the site.

    Returns:
        The content with the changed links.
    """

    def changed(match: re.Match[str]) -> str:
        image, label, link = match.groups()
        target, _, anchor = link.partition("#")
        if "://" in target or not target:
            return match[0]
        there = _place(_from(path, target))
        if there is None:
            return label
        ours = posixpath.relpath(there, posixpath.dirname(place) or ".")
        kept = f"#{anchor}" if anchor else ""
        return f"{image}[{label}]({ours}{kept})"

    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(changed, part) for part in parts)


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _from(path: str, link: str) -> str:
    """Return the target of a link, relative to the repository's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _place(target: str) -> str | None:
    """Return the place of a file of the repository on the site; None for a folder."""
    if target in READMES:
        return READMES[target]
    if target.startswith(f"{DOCS}/"):
        return target.removeprefix(f"{DOCS}/")
    return None if (ROOT / target).is_dir() else f"files/{target}"


def _targets(path: str) -> Iterator[str]:
    """Yield the link targets of a page in the repository."""
    for part in _FENCED.split(_text(path)):
        for _, _, link in _LINK.findall("" if part.startswith("```") else part):
            if "://" not in link and (target := link.partition("#")[0]):
                yield _from(path, target)


def _is_other_file(target: str) -> bool:
    return target not in READMES and not target.startswith(f"{DOCS}/") and (ROOT / target).is_file()
