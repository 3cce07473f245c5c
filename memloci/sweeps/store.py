"""The store of runs: one SQLite file, with the queue inside.

    waiting -> running -> done | failed          running -> waiting when its owner gives it back, or dies

A worker owns what it has claimed for as long as it lives and says so. Results are recorded only while it does, so
no run is recorded twice; a run and its result change in one transaction that is on the disk when it returns, so
no kill -9 and no power cut loses a finished run. A run whose owner died goes on from its last checkpoint.
A NaN is a result like any other: such a run is done, and its record says that it diverged.
"""

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from memloci.core.errors import BadInput
from memloci.core.numbers import decimals
from memloci.sweeps.process import Process
from memloci.train.spec import Run

APPLICATION = 0x6D656D6C  # "meml": what tells a store from other SQLite files
VERSION = 1
BUSY = 60.0  # seconds to wait for others' transactions, which take milliseconds
LEASE = 180.0  # seconds without a sign of life; more than BUSY, or a crowd would look dead
MOST_DEATHS = 5  # in a row, with no checkpoint in between
ALONE = 2  # deaths after which a run is tried without others, which may be innocent

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
    weights BLOB
);
CREATE INDEX queue ON runs (status, program, key, deaths, owner);
CREATE TABLE owners (
    name TEXT PRIMARY KEY, host TEXT, pid INTEGER, birth TEXT, seen REAL NOT NULL, part REAL NOT NULL
);
CREATE TABLE sweeps (id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE sweep_runs (sweep TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (sweep, key)) WITHOUT ROWID;
CREATE INDEX sweeps_by_run ON sweep_runs (key);
CREATE TABLE checkpoints (key TEXT PRIMARY KEY, step INTEGER NOT NULL, state BLOB NOT NULL)
"""

# The index alone answers what drivers ask ten times a second; rows are a hundred times longer.
OF_SWEEP = "FROM runs r INDEXED BY queue JOIN sweep_runs s ON s.key = r.key WHERE s.sweep = ?"
COLUMNS = "key program config status attempts deaths created started finished cost error record".split()


class StoreTrouble(BadInput):
    """The file cannot be read or written, or is no store; nothing that was recorded is lost."""


class Outcome(Protocol):
    """What a training leaves behind."""

    @property
    def key(self) -> str: ...
    @property
    def record(self) -> dict[str, Any]: ...
    @property
    def history(self) -> dict[str, list[Any]]: ...
    @property
    def weights(self) -> bytes: ...


@dataclass(frozen=True)
class Claim:
    """Runs that share a program, and the checkpoints that there are of them."""

    program: str
    configs: dict[str, dict[str, Any]]
    states: dict[str, bytes]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.configs)

    def runs(self) -> list[Run]:
        runs = [Run(**config) for config in self.configs.values()]
        if tuple(run.key for run in runs) != self.keys:
            raise BadInput(
                "this run was put into the store by another version of memloci; start the sweep again"
            )
        return runs


@dataclass(frozen=True)
class Counts:
    """Of one sweep; `part` is how much of the running ones is done, in runs."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    part: float = 0.0

    @property
    def total(self) -> int:
        return self.waiting + self.running + self.done + self.failed

    @property
    def open(self) -> int:
        return self.waiting + self.running


class Store:
    """A connection to the store; one for each thread."""

    def __init__(self, path: str | Path, *, create: bool = True):
        self.path = Path(path)
        if not create and not self.path.exists():
            raise StoreTrouble(f"{path}: no such store; `memloci sweep` makes one")
        with self._told():
            self.db = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)
        try:
            self._check()
        except BaseException:
            self.db.close()
            raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.db.close()

    # The file.

    def _check(self) -> None:
        with self._told():
            if self._is_empty():
                self.db.execute("PRAGMA journal_mode = WAL")
                with self._writing():
                    if self._is_empty():  # nobody was quicker
                        self._make()
            self.db.execute("PRAGMA synchronous = FULL")
            if self._number("application_id") != APPLICATION:
                raise StoreTrouble(f"{self.path}: an SQLite file, but no store of runs")
            if (version := self._number("user_version")) > VERSION:
                raise StoreTrouble(
                    f"{self.path}: written by a newer memloci (store version {version}, this one knows {VERSION}); "
                    "update memloci, or choose another --store"
                )

    def _is_empty(self) -> bool:
        return not self._number("application_id") and not self._one("SELECT count(*) FROM sqlite_master")

    def _make(self) -> None:
        for statement in SCHEMA.split(";"):
            self.db.execute(statement)
        self.db.execute(f"PRAGMA application_id = {APPLICATION}")
        self.db.execute(f"PRAGMA user_version = {VERSION}")

    def _number(self, pragma: str) -> int:
        return self._one(f"PRAGMA {pragma}")

    def _one(self, query: str, *values: Any) -> Any:
        return self.db.execute(query, values).fetchone()[0]

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite cannot do is said in one line; nothing half-written stays."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreTrouble(f"{self.path}: {_reason(error)}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._told():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")

    # The queue.

    def enqueue(self, name: str, runs: Sequence[Run]) -> str:
        """Add what is not there yet, put what failed back into the queue, and name the sweep's runs."""
        sweep = _digest([name, sorted(run.key for run in runs)])
        now = time.time()
        rows = [(run.key, run.program, _json(run.to_dict()), now) for run in runs]
        with self._writing():
            self.db.execute("INSERT OR IGNORE INTO sweeps VALUES (?, ?, ?)", (sweep, name, now))
            # A data file may have moved since: the configuration is written anew.
            self.db.executemany(
                "INSERT INTO runs (key, program, config, status, created) VALUES (?, ?, ?, 'waiting', ?) "
                "ON CONFLICT (key) DO UPDATE SET config = excluded.config, status = 'waiting', error = NULL, "
                "deaths = iif(status = 'failed', 0, deaths) WHERE status IN ('waiting', 'failed')",
                rows,
            )
            self.db.executemany(
                "INSERT OR IGNORE INTO sweep_runs VALUES (?, ?)", ((sweep, run.key) for run in runs)
            )
        return sweep

    def claim(
        self, sweep: str, owner: str, *, most: int = 1, workers: int = 1, compiled: str | None = None
    ) -> Claim | None:
        """Up to `most` waiting runs that share a program, a fair share for each of the workers; None at the end.

        The program that this owner has compiled comes first, then one that nobody works on.
        """
        with self._writing():
            waiting = (
                "FROM sweep_runs s JOIN runs r ON r.key = s.key WHERE s.sweep = ? AND r.status = 'waiting'"
            )
            left = self._one(f"SELECT count(*) {waiting}", sweep)
            if not left:
                return None
            (program,) = self.db.execute(
                f"SELECT program {waiting} GROUP BY program ORDER BY program IS ? DESC, "
                "EXISTS (SELECT 1 FROM runs b WHERE b.status = 'running' AND b.program = r.program), "
                "count(*) DESC, program LIMIT 1",
                (sweep, compiled),
            ).fetchone()
            found = self.db.execute(
                f"SELECT r.key, deaths {waiting} AND program = ? ORDER BY deaths >= {ALONE}, r.rowid LIMIT ?",
                (sweep, program, min(most, math.ceil(left / workers))),
            ).fetchall()
            keys = [key for key, deaths in found if deaths < ALONE] or [found[0][0]]
            configs = {key: self._take(key, owner) for key in keys}
            states = {key: state for key in keys if (state := self._state(key)) is not None}
            self._sign(owner)
        return Claim(program, configs, states)

    def _take(self, key: str, owner: str) -> dict[str, Any]:
        taken = self.db.execute(
            "UPDATE runs SET status = 'running', owner = ?, attempts = attempts + 1, started = ? "
            "WHERE key = ? AND status = 'waiting' RETURNING config",
            (owner, time.time(), key),
        ).fetchone()
        return json.loads(taken[0])

    def _state(self, key: str) -> bytes | None:
        found = self.db.execute("SELECT state FROM checkpoints WHERE key = ?", (key,)).fetchone()
        return found and found[0]

    def _sign(self, owner: str) -> None:
        this = Process.this()
        values = owner, this.host, this.pid, this.birth, time.time()
        self.db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?, 0.0)", values)

    def beat(self, owner: str, part: float = 0.0) -> None:
        """A sign of life, and how much of what is owned is done."""
        self.beat_for({owner: part})

    def beat_for(self, parts: Mapping[str, float]) -> None:
        """Signs of life of many at once: a thousand of them are one write to the disk."""
        now = time.time()
        with self._writing():
            self.db.executemany(
                "UPDATE owners SET seen = ?, part = ? WHERE name = ?",
                ((now, part, owner) for owner, part in parts.items()),
            )

    def keep(self, owner: str, step: int, states: Mapping[str, bytes]) -> bool:
        """Checkpoints of what is owned; False if it no longer is. What gets on is not at fault for a death."""
        with self._writing():
            owned = [key for key in states if self._owns(owner, key)]
            self.db.executemany(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)",
                ((key, step, states[key]) for key in owned),
            )
            self.db.executemany("UPDATE runs SET deaths = 0 WHERE key = ?", ((key,) for key in owned))
        return len(owned) == len(states)

    def _owns(self, owner: str, key: str) -> bool:
        query = "SELECT count(*) FROM runs WHERE key = ? AND owner = ? AND status = 'running'"
        return bool(self._one(query, key, owner))

    def finish(self, owner: str, outcomes: Iterable[Outcome], cost: float | None = None) -> int:
        """Record results, all or none, of those runs that are still owned; how many were."""
        recorded = 0
        with self._writing():
            for outcome in outcomes:
                values = _json(outcome.record), _json(outcome.history), outcome.weights or None, cost
                recorded += self._end(
                    owner, outcome.key, "done", "record = ?, history = ?, weights = ?, cost = ?", values
                )
        return recorded

    def fail(self, owner: str, keys: Iterable[str], error: str) -> None:
        with self._writing():
            for key in keys:
                self._end(owner, key, "failed", "error = ?", (error,))

    def _end(self, owner: str, key: str, status: str, columns: str, values: tuple[Any, ...]) -> int:
        ended = self.db.execute(
            f"UPDATE runs SET status = ?, owner = NULL, finished = ?, {columns} "
            "WHERE key = ? AND owner = ? AND status = 'running'",
            (status, time.time(), *values, key, owner),
        ).rowcount
        if ended:
            self.db.execute("DELETE FROM checkpoints WHERE key = ?", (key,))
        return ended

    def give_back(self, owner: str) -> None:
        """What is owned waits again, through no fault of its own."""
        with self._writing():
            self.db.execute(
                "UPDATE runs SET status = 'waiting', owner = NULL WHERE owner = ? AND status = 'running'",
                (owner,),
            )
            self.db.execute("DELETE FROM owners WHERE name = ?", (owner,))

    def take_back(self, owner: str, cause: str, most_deaths: int = MOST_DEATHS) -> int:
        """What a dead owner had waits again, what has outlived too many owners fails; how many runs it had."""
        with self._writing():
            taken = self.db.execute(
                "UPDATE runs SET owner = NULL, deaths = deaths + 1, "
                "status = iif(deaths + 1 < :most, 'waiting', 'failed'), "
                "error = iif(deaths + 1 < :most, NULL, 'its worker died ' || (deaths + 1) || ' times: ' || :cause), "
                "finished = iif(deaths + 1 < :most, NULL, :now) WHERE owner = :owner AND status = 'running'",
                {"most": most_deaths, "cause": cause, "now": time.time(), "owner": owner},
            )
            self.db.execute("DELETE FROM owners WHERE name = ?", (owner,))
        return taken.rowcount

    def take_back_lost(
        self, alive: Iterable[str] = (), lease: float = LEASE, most_deaths: int = MOST_DEATHS
    ) -> None:
        """Look for owners that have ended, or been silent too long; `alive` are known to live."""
        with self._told():
            owners = self.db.execute("SELECT name, host, pid, birth, seen FROM owners").fetchall()
        for name, host, pid, birth, seen in owners:
            if name in alive:
                continue
            if Process(host, pid, birth).dead():
                self.take_back(name, "the process ended", most_deaths)
            elif time.time() - seen > lease:
                self.take_back(name, f"no sign of life for {decimals(lease)} s", most_deaths)

    # What there is.

    def counts(self, sweep: str) -> Counts:
        with self._told():
            found = self.db.execute(f"SELECT status, count(*) {OF_SWEEP} GROUP BY status", (sweep,))
            part = self._one(
                "SELECT total(o.part) FROM owners o JOIN runs r ON r.owner = o.name AND r.status = 'running' "
                "JOIN sweep_runs s ON s.key = r.key WHERE s.sweep = ?",
                sweep,
            )
            return Counts(**dict(found.fetchall()), part=part)

    def rows(self, sweep: str | None = None) -> list[dict[str, Any]]:
        """Every run, or those of a sweep by name or id: configuration, state and result; no curves, no weights."""
        query = f"SELECT {', '.join(COLUMNS)} FROM runs r"
        values = ()
        if sweep is not None:
            query += " WHERE key IN (SELECT key FROM sweep_runs WHERE sweep IN "
            query += "(SELECT id FROM sweeps WHERE name = ? OR id = ?))"
            values = (sweep, sweep)
        with self._told():
            rows = self.db.execute(query + " ORDER BY rowid", values).fetchall()
        return [_row(dict(zip(COLUMNS, row, strict=True))) for row in rows]

    def sweeps(self) -> dict[str, set[str]]:
        """Every run's key, and the names of the sweeps that it belongs to."""
        members: dict[str, set[str]] = {}
        with self._told():
            query = "SELECT key, name FROM sweep_runs JOIN sweeps ON id = sweep"
            for key, name in self.db.execute(query):
                members.setdefault(key, set()).add(name)
        return members

    def history(self, key: str) -> dict[str, list[Any]]:
        text = self._of(key, "history")
        return json.loads(text) if text else {}

    def weights(self, key: str) -> bytes:
        """As safetensors; empty if the run has none."""
        return self._of(key, "weights") or b""

    def _of(self, key: str, column: str) -> Any:
        with self._told():
            found = self.db.execute(f"SELECT {column} FROM runs WHERE key = ?", (key,)).fetchone()
        if found is None:
            raise BadInput(f"{self.path}: no run {key}")
        return found[0]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    row["config"] = json.loads(row["config"])
    row["record"] = json.loads(row["record"]) if row["record"] else None
    return row


def _reason(error: sqlite3.Error) -> str:
    """One line for what can happen to any file; anything else is a bug and stays an exception."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:  # the rest are subtleties
        case sqlite3.SQLITE_FULL:
            return "the disk is full; what was finished is kept, make room and start again"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"another process has kept it locked for {decimals(BUSY)} s"
        case sqlite3.SQLITE_NOTADB:
            return "not a store of runs"
        case sqlite3.SQLITE_CORRUPT:
            return "the store is damaged; keep the file, and choose another --store"
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return f"cannot be read or written: {error}"
        case _:
            raise error


def _json(value: Any) -> str:
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


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value).encode()).hexdigest()[:32]
