"""The SQLite file below the store of runs: made, checked, brought up to date, or only read.

What SQLite cannot do is said in one line. Every value that a result is made of lies beside its checksum (column
`config` beside `config_sum`), so that a bit that flipped on a disk is noticed; rows of version 1 have none. A store on
media that cannot be written is read as it lies there: nobody else can write it either.
"""

import hashlib
import json
import math
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memloci.core.errors import BadInput
from memloci.core.files import parse_json
from memloci.core.numbers import decimals
from memloci.sweeps.process import Process

APPLICATION = 0x6D656D6C  # "meml": what tells a store from other SQLite files
VERSION = 2  # 1 had no checksums, and wrote times where beats are counted now
BUSY = 60.0  # seconds to wait for others' transactions, which take milliseconds
LEASE = 180.0  # seconds without a sign of life; more than BUSY, or a crowd would look dead

SCHEMA = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    program TEXT NOT NULL,
    config TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
    owner TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    started REAL,
    finished REAL,
    cost REAL,
    error TEXT,
    record TEXT,
    history TEXT,
    weights BLOB,
    note TEXT,
    config_sum TEXT,
    record_sum TEXT,
    history_sum TEXT,
    weights_sum TEXT
);
CREATE INDEX queue ON runs (status, program, key, deaths, owner);
CREATE TABLE owners (
    name TEXT PRIMARY KEY, host TEXT, pid INTEGER, birth TEXT, beats INTEGER NOT NULL, part REAL NOT NULL
);
CREATE TABLE sweeps (id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE sweep_runs (sweep TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (sweep, key)) WITHOUT ROWID;
CREATE INDEX sweeps_by_run ON sweep_runs (key);
CREATE TABLE checkpoints (key TEXT PRIMARY KEY, step INTEGER NOT NULL, state BLOB NOT NULL, state_sum TEXT)
"""
FROM_1_TO_2 = """
ALTER TABLE runs ADD COLUMN note TEXT;
ALTER TABLE runs ADD COLUMN config_sum TEXT;
ALTER TABLE runs ADD COLUMN record_sum TEXT;
ALTER TABLE runs ADD COLUMN history_sum TEXT;
ALTER TABLE runs ADD COLUMN weights_sum TEXT;
ALTER TABLE checkpoints ADD COLUMN state_sum TEXT;
UPDATE runs SET status = 'waiting', owner = NULL WHERE status = 'running';
DROP TABLE owners;
CREATE TABLE owners (
    name TEXT PRIMARY KEY, host TEXT, pid INTEGER, birth TEXT, beats INTEGER NOT NULL, part REAL NOT NULL
)
"""
NEW_IN_2 = ("note", "config_sum", "record_sum", "history_sum", "weights_sum")
# What those who read a store of version 1 need of it; who writes migrates it first.
SCHEMA_1 = re.sub(rf",\s+({'|'.join(NEW_IN_2)}|state_sum) TEXT\b", "", SCHEMA).replace(
    "beats INTEGER", "seen REAL"
)
SCHEMA_OF = {1: SCHEMA_1, 2: SCHEMA}
DAMAGED = "the store is damaged; keep the file, and choose another --store"
UNWRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


class StoreTrouble(BadInput):
    """The file cannot be read or written, or is no store; nothing that was recorded is lost."""


class Damaged(BadInput):
    """A stored value is not the one that was written."""


class Database:
    """A connection to the file; one for each thread. `create=False` is for those who only read."""

    def __init__(self, path: str | Path, *, create: bool = True):
        self.path = Path(path)
        if not create:
            try:
                self.path.stat()
            except FileNotFoundError:
                raise StoreTrouble(f"{path}: no such store; `memloci sweep` makes one") from None
            except (OSError, ValueError) as error:
                raise StoreTrouble(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
        with self._readable_errors():
            self.db = self._connect("rwc" if create else "rw")
        try:
            self._check(create)
        except BaseException:
            self.db.close()
            raise

    def close(self) -> None:
        self.db.close()

    def _connect(self, mode: str) -> sqlite3.Connection:
        name = f"file:{quote(str(self.path.absolute()))}?{mode if '=' in mode else f'mode={mode}'}"
        db = sqlite3.connect(name, uri=True, timeout=BUSY, isolation_level=None)
        db.text_factory = lambda data: data.decode(
            errors="replace"
        )  # the checksum tells that it was replaced
        return db

    def _check(self, create: bool) -> None:
        with self._readable_errors():
            if create:
                self._make_if_empty()
            else:
                self._read_as_it_lies_if_need_be()
            if self._number("application_id") != APPLICATION:
                raise StoreTrouble(f"{self.path}: an SQLite file, but no store of runs")
            self.version = self._number("user_version")
            if self.version < 1:
                raise StoreTrouble(f"{self.path}: {DAMAGED} (its version is {self.version})")
            if self.version > VERSION:
                raise StoreTrouble(
                    f"{self.path}: written by a newer memloci (store version {self.version}, this one knows {VERSION}); "
                    "update memloci, or choose another --store"
                )
            if create and self.version < VERSION:
                self._migrate()
            if missing := _names(SCHEMA_OF[self.version]) - _names(self.db):
                raise StoreTrouble(f"{self.path}: {DAMAGED} (it has no {min(missing)})")

    def _make_if_empty(self) -> None:
        if self._is_empty():
            self._write_ahead()
            with self._writing():
                if self._is_empty():  # nobody was quicker
                    self._run(SCHEMA)
                    self.db.execute(f"PRAGMA application_id = {APPLICATION}")
                    self.db.execute(f"PRAGMA user_version = {VERSION}")
        self.db.execute("PRAGMA synchronous = FULL")

    def _write_ahead(self) -> None:
        """Only this change of mode does not wait for other connections by itself: SQLite refuses it at once."""
        deadline = time.monotonic() + BUSY
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _is_empty(self) -> bool:
        return not self._number("application_id") and not self._one("SELECT count(*) FROM sqlite_master")

    def _read_as_it_lies_if_need_be(self) -> None:
        """SQLite itself needs two more files beside a store, which read-only media do not let it make."""
        try:
            self._one("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError as error:
            log = self.path.with_name(f"{self.path.name}-wal")
            if error.sqlite_errorcode & 0xFF not in UNWRITABLE or not self.path.is_file():
                raise
            if log.exists() and log.stat().st_size:
                raise StoreTrouble(
                    f"{self.path}: the last results are in {log.name}, which cannot be read on media that cannot be "
                    "written; copy both files to a disk"
                ) from None
            self.db.close()
            self.db = self._connect("immutable=1")

    def _migrate(self) -> None:
        """A store of version 1 as one of this version, unless somebody of that version works in it."""
        with self._writing():
            if self._number("user_version") < VERSION:  # nobody was quicker
                for name, host, pid, birth, last_beat in self.db.execute(
                    "SELECT name, host, pid, birth, seen FROM owners"
                ).fetchall():
                    if not Process(host, pid, birth).dead() and time.time() - last_beat < LEASE:
                        raise StoreTrouble(
                            f"{self.path}: worker {name} of an older memloci is at work there (process {pid} on {host}); "
                            "let it finish, or stop it"
                        )
                self._run(FROM_1_TO_2)
                self.db.execute(f"PRAGMA user_version = {VERSION}")
        self.version = VERSION

    def _run(self, statements: str) -> None:
        for statement in statements.split(";"):
            self.db.execute(statement)

    def _number(self, pragma: str) -> int:
        return self._one(f"PRAGMA {pragma}")

    def _one(self, query: str, *values: Any) -> Any:
        return self.db.execute(query, values).fetchone()[0]

    def _columns(self, names: list[str]) -> str:
        """For SELECT; what an older version lacks is null."""
        lacks = NEW_IN_2 if self.version < 2 else ()
        return ", ".join(f"NULL AS {name}" if name in lacks else name for name in names)

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """What SQLite cannot do is said in one line; nothing half-written stays."""
        try:
            yield
        except UnicodeDecodeError as error:  # of a name in the file, or of a message about it
            raise StoreTrouble(f"{self.path}: {DAMAGED}") from error
        except sqlite3.Error as error:
            raise StoreTrouble(f"{self.path}: {_reason(error)}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._readable_errors():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")


def _names(source: str | sqlite3.Connection) -> set[str]:
    """All tables, indices and columns, as `runs.key`."""
    if isinstance(source, str):
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript(source)
            return _names(db)
    things = source.execute("SELECT type, name FROM sqlite_master").fetchall()
    columns = [
        f"{name}.{row[1]}"
        for kind, name in things
        if kind == "table"
        for row in source.execute("SELECT * FROM pragma_table_info(?)", (name,))
    ]
    return {name for _, name in things} | set(columns)


def _reason(error: sqlite3.Error) -> str:
    """One line for what can happen to any file; anything else is a bug and stays an exception."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the rest are subtleties
        case sqlite3.SQLITE_FULL:
            return "the disk is full; finished runs are saved, free some space and start again"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another process has locked it for {decimals(BUSY)} s"
        case sqlite3.SQLITE_NOTADB:
            return "not a store of runs"
        case sqlite3.SQLITE_CORRUPT:
            return DAMAGED
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return f"cannot be read or written: {error}"
        case _:
            raise error


# -- values and their checksums ---------------------------------------------------------------------------


def checksum(value: str | bytes | None) -> str | None:
    if value is None:
        return None
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()[:32]


def require_intact(value: Any, claimed: str | None, what: str) -> Any:
    """A stored value; `claimed` is None in rows of version 1."""
    if claimed is not None and (not isinstance(value, str | bytes) or checksum(value) != claimed):
        raise Damaged(f"its {what} in the store was damaged or changed (the checksum differs)")
    return value


def read_object(text: Any, claimed: str | None, what: str) -> dict[str, Any]:
    """A JSON object that was stored."""
    require_intact(text, claimed, what)
    try:
        parsed = parse_json(text) if isinstance(text, str) else None
    except BadInput as error:
        raise Damaged(f"its {what} in the store is {error}") from None
    if not isinstance(parsed, dict):
        raise Damaged(f"its {what} in the store is no JSON object")
    return parsed


def to_json(value: Any) -> str:
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; a curve that diverges has gaps."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(v) for key, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
        case _:
            return value
