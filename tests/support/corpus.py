"""The corpus: small inputs of each scheduler with the events that they mean, and the page that lists them.

A case is a folder `tests/corpus/SCHEDULER/NAME` with `case.toml`, the input that it names, and `expected.json`.

`python -m tests.support.corpus` writes `expected.json` where it is missing, and the page. Read what it wrote: the
corpus states what is right, not what the readers do.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.records import AnyEvent
from streams.bulk.reading import read_log
from streams.errors import UserError

CORPUS = Path(__file__).parents[1] / "corpus"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "inputs.md"


class CaseFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of `case.toml`.

    Attributes:
        scheduler: the scheduler's name, or "Tables" for tables of any scheduler.
        input: what writes the input, such as `sacct --parsable2`.
        versions: the versions of the scheduler that write it so.
        shows: what is special in it, as one sentence.
        file: the input's name in the folder.
        format: the source, where its format is not to be recognised.
        options: options of the source, as NAME=VALUE; FOLDER stands for the case's folder.
    """

    scheduler: str
    input: str
    versions: str
    shows: str
    file: str
    format: str | None = None
    options: list[str] = []


class Case(NamedTuple):
    """A case with its folder."""

    folder: Path
    spec: CaseFile

    @property
    def name(self) -> str:
        """The scheduler's folder and the case's."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def expected(self) -> Path:
        """The file with what the input means."""
        return self.folder / "expected.json"


def cases() -> list[Case]:
    """All cases, by their names."""
    found = sorted(CORPUS.glob("*/*/case.toml"))
    return [Case(path.parent, msgspec.toml.decode(path.read_bytes(), type=CaseFile)) for path in found]


def read_case(case: Case) -> dict[str, Any]:
    """Read the input of a case as `queuecast replay` does.

    Returns:
        The events in order, what was skipped and left out by its reason; or why it was refused.
    """
    spec = case.spec
    options = [option.replace("FOLDER", str(case.folder)) for option in spec.options]
    try:
        with read_log([case.folder / spec.file], "s", spec.format, options=options) as (log, report):
            events = [_plain(event) for event in log.events(len(log.capacity))]
            skipped = {reason: parts.count for reason, parts in report.skipped.items()}
            return {"events": events, "skipped": skipped, "left_out": dict(report.left_out)}
    except UserError as error:
        return {"refused": str(error).replace(f"{case.folder}/", "")}


def _plain(event: AnyEvent) -> dict[str, Any]:
    return {key: value for key, value in msgspec.to_builtins(event).items() if key not in ("v", "site")}


def page() -> str:
    """The page that lists what is read, made from the cases."""
    lines = [
        "# Input formats",
        "",
        "This page lists the supported inputs by scheduler and version. Each row is a test case in `tests/corpus` with",
        "its expected events. Other inputs can work too; `queuecast replay FILE` reports skipped records.",
        "`tests/support/corpus.py` generates this page.",
    ]
    by_scheduler: dict[str, list[Case]] = {}
    for case in cases():
        by_scheduler.setdefault(case.spec.scheduler, []).append(case)
    for scheduler in sorted(by_scheduler, key=str.lower):
        lines += ["", f"## {scheduler}", "", "| input | versions | case |", "|---|---|---|"]
        rows = sorted((case.spec.input, case.spec.versions, case.spec.shows) for case in by_scheduler[scheduler])
        lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def written(found: dict[str, Any]) -> str:
    """What an input means, one event a line."""
    parts = []
    for key, value in found.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in value)
            parts.append(f'"{key}": [\n{rows}\n]')
        else:
            parts.append(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write what is missing."""
    for case in cases():
        if not case.expected.exists():
            case.expected.write_text(written(read_case(case)))
            print(f"{case.name}\n{case.expected.read_text()}")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
