"""What `queuecast up` says once everything runs: what is where, and commands to go on with."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from streams.settings import PREFIX

SCRIPT = "queuecast"


def command_as_called(called: str | None = None) -> str:
    """How queuecast was called, so that it works in another terminal: by its name only where that finds the same one.

    A virtual environment that is active here may not be so there, so its path is given too.

    Parameters:
        called: the program's own name, `sys.argv[0]`.
    """
    script = Path(sys.argv[0] if called is None else called)
    if script.name != SCRIPT or not script.exists():
        return shlex.join([sys.executable, "-m", "queuecast"])
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if active := os.environ.get("VIRTUAL_ENV"):
        folders = [folder for folder in folders if not Path(folder).is_relative_to(active)]
    found = shutil.which(SCRIPT, path=os.pathsep.join(folders))
    return SCRIPT if found and script.samefile(found) else shlex.quote(str(script.absolute()))


def overview(
    data_dir: Path, places: Mapping[str, str], notes: Sequence[str], config: Path, open_to_all: bool, found: bool
) -> str:
    """What is where, who may use it, and what to do next.

    Parameters:
        places: an address or a word by what is there.
        notes: what else is to be said of the places.
        found: whether this user's other commands find the settings by themselves.
    """
    command = command_as_called()
    doors = (
        "Every user of this machine may use Kafka and the page; Redis asks for a password."
        if open_to_all
        else f"Kafka, Redis and the page ask for passwords. `{command} access` says how programs of yours enter;\n"
        f"`{command} access --link` prints a link that opens the page."
    )
    export = f"export {PREFIX}_CONFIG={shlex.quote(str(config))}"
    further = ["", "These find it by themselves. To name it, say where settings are named too:", "", f"  {export}"]
    lines = [
        f"queuecast is up, over {data_dir}",
        "",
        *(f"  {name:<12}{place}" for name, place in places.items()),
        *(["", *notes] if notes else []),
        "",
        doors,
        "",
        "Next, in another terminal:",
        "",
        *([] if found else [f"  {export}"]),
        f"  {command} watch --outcomes",
        f"  {command} feed TRACE",
        f"  {command} ask --cpus 64 --walltime 4h",
        *(further if found else []),
        "",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines)
