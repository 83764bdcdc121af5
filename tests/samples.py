"""What the documentation shows of commands, made by running them: `python -m tests.samples` writes it anew.

A comment `<!-- sample: NAME -->` stands before each. The sites are the two traces of the tutorial, up to a moment, on
engines in this process, which say what workers do.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from itertools import islice, takewhile
from pathlib import Path
from unittest.mock import patch

import msgspec

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyQuestion, Outcome, Prediction
from streams.cli.app import main
from streams.client import listing
from streams.client.blocking import Client
from streams.client.watch import line
from streams.sources.swf import events_of, read_swf
from tests.support.fake_client import FakeClient, answer_of_worker
from tests.support.traces import trace_path

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
SITES = {"birch": "KTH", "cedar": "CTC"}
HOURS = 150
"""How much of each trace has happened, as `queuecast ingest --until 150` has it."""

MARKED = re.compile(r"(<!-- sample: ([\w-]+) -->\n\n)((?: {4}[^\n]*\n|\n(?= {4}))+)")


class Workers(FakeClient):
    """Answers as workers do that have read all events of their sites."""

    async def _send(self, question: AnyQuestion) -> None:
        engine = self._engines[question.site]
        self._pending.resolve(msgspec.json.encode(answer_of_worker(question, engine)))


def grid(site: str, found: list[Prediction | Outcome]) -> Engine:
    """A site at that moment; what was said of its jobs is added to `found`."""
    trace = read_swf(trace_path(SITES[site]))
    engine = Engine(site, EngineSettings())
    for event in takewhile(lambda event: event.time <= trace.begin + HOURS * 3600, events_of(trace, site)):
        records = [one for one in engine.apply(event) if isinstance(one, Prediction | Outcome)]
        found += [record for record in records if record.method == engine.settings.method]
    return engine


def samples() -> dict[str, str]:
    """The text of each sample, as it is printed within 80 columns."""
    found: list[Prediction | Outcome] = []
    engines = [grid(site, found) for site in SITES]
    lines = [line(one) for one in found if one.site == "birch"]

    def run(*arguments: str) -> str:
        with (
            patch.object(listing, "Client", lambda *_, **__: Client(questions=Workers(engines))),
            patch.dict("os.environ", {"COLUMNS": "80"}),
            redirect_stdout(StringIO()) as out,
        ):
            assert main(arguments) == 0
        return out.getvalue()

    ask = ("ask", "--cpus", "64", "--walltime", "4h")
    return {
        "ask": f"$ queuecast {' '.join(ask)}\n{run(*ask)}",
        "watch": "".join(f"{one}\n" for one in islice(lines, 3)),
        "jobs": f"$ queuecast jobs --site birch --limit 3\n{run('jobs', '--site', 'birch', '--limit', '3')}",
    }


def filled(text: str, made: dict[str, str]) -> str:
    """A document with its samples as they are."""

    def sample(found: "re.Match[str]") -> str:
        return found[1] + "".join(f"    {row}".rstrip() + "\n" for row in made[found[2]].splitlines())

    return MARKED.sub(sample, text)


def each(make: Callable[[], dict[str, str]] = samples) -> Iterator[tuple[Path, str, str]]:
    """Each document, its text, and its text as it should be."""
    made = make()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        yield document, text, filled(text, made)


if __name__ == "__main__":
    for document, _, wanted in each():
        document.write_text(wanted, encoding="utf-8")
