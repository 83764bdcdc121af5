"""A replay's state in a file, so that one that was interrupted goes on as if it had not been.

SQLite keeps it: each time what is new is written in one transaction, so whatever happens the file has the last whole
state. It grows to what a site's histories take, some 100 MB.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from models.engine.checkpoint import decode_array, encode_array
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.site.history import Started
from models.site.rows import Row
from models.site.runs import Run
from streams.errors import UserError

_TABLES = """
    CREATE TABLE IF NOT EXISTS kept (part TEXT PRIMARY KEY, identity BLOB, value BLOB);
    CREATE TABLE IF NOT EXISTS rows (part TEXT, site TEXT, kind TEXT, number INT, value BLOB,
                                     PRIMARY KEY (part, site, kind, number)) WITHOUT ROWID;
"""
_PUT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)"
_DROP = "DELETE FROM rows WHERE part = ? AND site = ? AND kind = ? AND number < ?"

STARTED, RUNS, OWN = "started", "runs", "own "

_encode = msgspec.msgpack.Encoder(enc_hook=encode_array).encode
_decode_started = msgspec.msgpack.Decoder(Started, dec_hook=decode_array).decode
_decode_run = msgspec.msgpack.Decoder(Run).decode

PATIENCE_S = 600.0
"""For how long other processes that keep theirs in the same file are waited for."""


class Kept(msgspec.Struct):
    """What is kept but for the rows: how many events have passed, each site's engine, and what was counted."""

    passed: int
    engines: dict[str, bytes]
    counted: bytes


class KeptFile:
    """One part of such a file.

    Parameters:
        identity: of what is replayed and how; another one is another replay.
        part: which, where several processes share the file.

    Raises:
        UserError: the file cannot be used, or is of another replay.
    """

    def __init__(self, path: Path, identity: bytes, part: str = "") -> None:
        self._path, self._identity, self._part = path, identity, part
        with self._open() as base:
            found = base.execute("SELECT identity, value FROM kept WHERE part = ?", (part,)).fetchone()
        if found is not None and found[0] != identity:
            raise UserError(
                f"{path}: is of another replay: of another log, other settings, options or jobs, or of another "
                "queuecast; name another file, or delete it"
            )
        self.kept = None if found is None else msgspec.msgpack.decode(found[1], type=Kept)

    def _open(self) -> "closing[sqlite3.Connection]":
        try:
            base = sqlite3.connect(self._path, timeout=PATIENCE_S)
            base.executescript(_TABLES)
        except sqlite3.Error as error:
            raise UserError(f"{self._path}: cannot be used to go on from: {error}") from None
        return closing(base)

    def engines(self, settings: EngineSettings) -> dict[str, Engine]:
        """The engines as they were kept.

        Raises:
            UserError: they were kept by another version, or rows are missing.
        """
        found: dict[str, Engine] = {}
        for site, state in (self.kept.engines if self.kept else {}).items():
            rows: dict[str, list[tuple[int, bytes]]] = {STARTED: [], RUNS: []}
            with self._open() as base:
                query = "SELECT kind, number, value FROM rows WHERE part = ? AND site = ? ORDER BY kind, number"
                for kind, number, value in base.execute(query, (self._part, site)):
                    rows.setdefault(kind, []).append((number, value))
            started = [_decode_started(value) for _, value in rows.pop(STARTED)]
            runs = [_decode_run(value) for _, value in rows.pop(RUNS)]
            own = {kind.removeprefix(OWN): [Row(*one) for one in some] for kind, some in rows.items()}
            try:
                found[site] = Engine.load(state, started, runs, settings, own)
            except ValueError as error:
                raise UserError(f"{self._path}: {error}") from None
        return found

    def keep(self, passed: int, engines: Mapping[str, Engine], counted: bytes) -> None:
        """Keep the engines after so many events, and what was counted until then.

        Raises:
            UserError: it cannot be written.
        """
        states: dict[str, bytes] = {}
        try:
            with self._open() as base, base:
                for site, engine in engines.items():
                    states[site] = self._keep_engine(base, site, engine)
                value = msgspec.msgpack.encode(Kept(passed, states, counted))
                base.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (self._part, self._identity, value))
        except sqlite3.Error as error:
            raise UserError(f"{self._path}: cannot be written: {error}") from None

    def _keep_engine(self, base: sqlite3.Connection, site: str, engine: Engine) -> bytes:
        state, changes = engine.checkpoint()

        def put(kind: str, rows: Iterable[tuple[int, bytes]]) -> None:
            base.executemany(_PUT, ((self._part, site, kind, number, value) for number, value in rows))

        put(STARTED, ((row.number, _encode(row)) for row in changes.started))
        put(RUNS, ((row.number, _encode(row)) for row in changes.runs))
        base.execute(_DROP, (self._part, site, STARTED, engine.context.history.oldest))
        drop = "DELETE FROM rows WHERE part = ? AND site = ? AND kind = ? AND number = ?"
        base.executemany(drop, ((self._part, site, RUNS, row.number) for row in changes.forgotten_runs))
        for name, rows in changes.rows.items():
            put(OWN + name, ((row.number, row.value) for row in rows))
            base.execute(_DROP, (self._part, site, OWN + name, changes.oldest[name]))
        return state
