"""Build hook of the wheel: move the folders of the repository into one package, `queuecast`.

Their own names are too common: Python would import a `models.py` in the working directory instead. So in the wheel
`models` is `queuecast.models`, in files, imports and the paths that registries contain. An editable install uses the
repository unchanged.
"""

import re
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("models", "streams", "deploy")
PACKAGE = "queuecast"

_OURS = rf"(?=(?:{'|'.join(FOLDERS)})\b)"
_IMPORTS = re.compile(rf"^(\s*(?:>>> )?from ){_OURS}(?=\S+ import )", re.MULTILINE)
_PLACES = re.compile(rf'"{_OURS}(?=\w+(?:\.\w+)+(?::\w+)?")')


def moved(source: str) -> str:
    """Return a module's source with its imports and module paths as in the wheel.

    >>> moved('from models.site.job import Job')
    'from queuecast.models.site.job import Job'
    >>> moved('"zero": "models.waits.zero:Zero"')
    '"zero": "queuecast.models.waits.zero:Zero"'
    """
    return _PLACES.sub(f'"{PACKAGE}.', _IMPORTS.sub(rf"\g<1>{PACKAGE}.", source))


class Wheel(BuildHookInterface[Any]):
    """Provide the files for hatch as they are in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files into a temporary build folder, and include them from there."""
        if version == "editable":
            return
        root, made = Path(self.root), Path(mkdtemp())
        if not (root / PACKAGE).is_dir():  # this is the light distribution, deploy/client
            root = root.parents[1]
        for folder in (*FOLDERS, PACKAGE):
            for file in sorted((root / folder).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts and file != Path(__file__):
                    place = file.relative_to(root / PACKAGE if folder == PACKAGE else root)
                    target = made / place
                    target.parent.mkdir(parents=True, exist_ok=True)
                    content = file.read_bytes()
                    target.write_bytes(moved(content.decode()).encode() if file.suffix == ".py" else content)
        build_data["force_include"][str(made)] = PACKAGE
