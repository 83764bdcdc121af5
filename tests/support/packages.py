"""Packages of others, as an installer would have put them into a directory."""

from collections.abc import Mapping
from pathlib import Path


def install(
    directory: Path, name: str, version: str, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write a package: its modules' sources by name, and its entry points by group and name."""
    directory.mkdir(exist_ok=True)
    for module, source in modules.items():
        (directory / f"{module}.py").write_text(source)
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{point} = {place}" for point, place in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
