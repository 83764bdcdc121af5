import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"


def test_imports_follow_the_layers_of_packages() -> None:
    """The contracts are in pyproject.toml, under `tool.importlinter`; add a new package there, to its layer."""
    ran = subprocess.run([sys.executable, "-c", LINT], cwd=ROOT, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
