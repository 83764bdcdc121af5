"""Generate the sample outputs of commands in the documentation: `python -m tests.samples` updates them.

A comment `<!-- sample: NAME -->` precedes each sample. The sites are the first hours of the two traces of the
tutorial. Engines in this process answer like workers.
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
"""Hours of each trace, as for `queuecast ingest --until 150`."""

MARKED = re.compile(r"(<!-- sample: ([\w-]+) -->\n\n)((?: {4}[^\n]*\n|\n(?= {4}))+)")


class Workers(FakeClient):
    """Answer like workers that have processed all events of their sites."""

    async def _send(self, question: AnyQuestion) -> None:
        engine = self._engines[question.site]
        self._pending.resolve(msgspec.json.encode(answer_of_worker(question, engine)))


def grid(site: str, found: list[Prediction | Outcome]) -> Engine:
    """Return the engine of a site after these hours; append the records about its jobs to `found`."""
    trace = read_swf(trace_path(SITES[site]))
    engine = Engine(site, EngineSettings())
    for event in takewhile(lambda event: event.time <= trace.begin + HOURS * 3600, events_of(trace, site)):
        records = [one for one in engine.apply(event) if isinstance(one, Prediction | Outcome)]
        found += [record for record in records if record.method == engine.settings.method]
    return engine


def samples() -> dict[str, str]:
    """Return the text of each sample, printed within 80 columns."""
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
    """Return a document with updated samples."""

    def sample(found: "re.Match[str]") -> str:
        return found[1] + "".join(f"    {row}".rstrip() + "\n" for row in made[found[2]].splitlines())

    return MARKED.sub(sample, text)


def each(make: Callable[[], dict[str, str]] = samples) -> Iterator[tuple[Path, str, str]]:
    """Yield each document with its present and its updated text."""
    made = make()
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        yield document, text, filled(text, made)


if __name__ == "__main__":
    for document, _, wanted in each():
        document.write_text(wanted, encoding="utf-8")
