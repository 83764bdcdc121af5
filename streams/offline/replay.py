"""Replay a trace through the engine in this process; the records are those of the stream."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Self

import msgspec

from models.engine.engine import Engine
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.method_registry import METHODS, RUN_METHODS, TRIVIAL
from models.records import AnyEvent, Outcome, Prediction
from streams.errors import InvalidInput, UserError, file_error
from streams.training.processes import processes

EVENTS_PER_DISCARD = 64


def replay(events: Iterable[AnyEvent], settings: EngineSettings) -> Iterator[Record]:
    """Apply the events of one or more sites; yield the resulting records."""
    processes()  # a training takes another core, if there is one
    engines: dict[str, Engine] = {}
    for event in events:
        engine = engines.get(event.site)
        if engine is None:
            engine = engines[event.site] = Engine(event.site, settings)
        yield from engine.apply(event)
        discard_changes(engine)


def discard_changes(engine: Engine) -> None:
    """Periodically discard the changes that a worker would store."""
    if engine.events % EVENTS_PER_DISCARD == 0:
        engine.take_changes()


class RecordFile:
    """A file of records as JSON lines; without a path, records are discarded.

    Args:
        path: the file.
        size: number of valid bytes in an existing file; the rest is truncated. None starts a new file.

    Raises:
        UserError: it cannot be written, or is shorter.

    >>> with RecordFile(None) as lines:
    ...     lines.write(Prediction(site="s", job="1", attempt=0, made_at=0.0, predicted_wait_s=None,
    ...         predicted_run_s=None, predicted_start=None, method="zero", reason=""))
    """

    def __init__(self, path: Path | None, size: int | None = None) -> None:
        self._file: IO[bytes] | None = None
        self._encoder = msgspec.json.Encoder()
        if path is None:
            return
        try:
            self._file = path.open("wb" if size is None else "r+b")
            found = self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise file_error(path, error, "written") from None
        if size is not None:
            if found < size:
                raise UserError(f"{path}: has {found} bytes, and had {size} when the replay was interrupted")
            self._file.truncate(size)
            self._file.seek(size)

    def durable(self) -> int:
        """Flush the file to disk and return its size in bytes."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def write(self, record: Prediction | Outcome) -> None:
        """Write a record as a line."""
        if self._file is not None:
            self._file.write(self._encoder.encode(record) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def settings_for(settings: EngineSettings, methods: Sequence[str], runtimes: Sequence[str] = ()) -> EngineSettings:
    """Return settings for a replay: these methods of each kind, the first as the default one, and the baselines.

    Args:
        settings: all other settings, and the methods of a kind if none are named.
        methods: names of methods for waits, or for run times alone.
        runtimes: names of methods for run times.

    Raises:
        UserError: there is no such method, or it cannot be loaded.
    """
    known = list(dict.fromkeys((*METHODS, *RUN_METHODS)))
    for names, there, what in ((methods, known, ""), (runtimes, [*RUN_METHODS], " for run times")):
        if unknown := [name for name in names if name not in there]:
            raise InvalidInput(f"no method {unknown[0]!r}{what}; there are: {', '.join(there)}")
    waits = [name for name in methods if name in METHODS]
    runs = list(dict.fromkeys((*runtimes, *(name for name in methods if name not in METHODS))))
    try:  # those of other packages
        for registry, names in ((METHODS, waits), (RUN_METHODS, runs)):
            for name in names:
                registry.check(name)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    method, *shadows = waits or settings.methods
    run_method, *run_shadows = runs or settings.run_methods
    beside = tuple(dict.fromkeys(name for name in (*shadows, *TRIVIAL) if name != method))
    return msgspec.structs.replace(
        settings,
        method=method,
        shadows=beside,
        runtimes=run_method,
        run_shadows=tuple(run_shadows),
        what_if_method="",
        policy_by_site={},
        publish_shadows=True,
    )
