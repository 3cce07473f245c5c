"""The store of runs: one SQLite file, with the queue inside.

    waiting -> running -> done | failed          running -> waiting when its owner gives it back, or dies

A worker owns what it has claimed for as long as it lives and says so. Results are recorded only while it does, so
no run is recorded twice; a run and its result change in one transaction that is on the disk when it returns, so
no kill -9 and no power cut loses a finished run. A run whose owner died goes on from its last checkpoint.
A NaN is a result like any other: such a run is done, and its record says that it diverged.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from memloci.core.errors import BadInput
from memloci.core.numbers import decimals
from memloci.sweeps.database import (
    LEASE,
    VERSION,
    Damaged,
    Database,
    StoreTrouble,
    checksum,
    read_object,
    require_intact,
    to_json,
)
from memloci.sweeps.process import Process
from memloci.train.spec import Run

MOST_DEATHS = 5  # in a row, with no checkpoint in between
ALONE = 2  # deaths after which a run is tried without others, which may be innocent

# The index alone answers what drivers ask ten times a second; rows are a hundred times longer.
OF_SWEEP = "FROM runs r INDEXED BY queue JOIN sweep_runs s ON s.key = r.key WHERE s.sweep = ?"
COLUMNS = "key program config status attempts deaths created started finished cost error record note".split()
STATUSES = ("waiting", "running", "done", "failed")
AGAIN = "`memloci sweep` trains it anew"


class Outcome(Protocol):
    """What a training leaves behind."""

    @property
    def key(self) -> str: ...
    @property
    def record(self) -> Mapping[str, Any]: ...
    @property
    def history(self) -> dict[str, list[Any]]: ...
    @property
    def weights(self) -> bytes: ...


@dataclass(frozen=True)
class ClaimedRuns:
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


class Store(Database):
    """The queue and its results, in one connection; one for each thread."""

    def __init__(self, path: str | Path, *, create: bool = True):
        super().__init__(path, create=create)
        self._heard: dict[tuple[str, int], float] = {}  # when each owner's count of beats was first seen

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The queue.

    def enqueue(self, name: str, runs: Sequence[Run]) -> str:
        """Add what is not there yet, put what failed or was damaged back into the queue, and name the sweep's runs."""
        sweep = hashlib.sha256(to_json([name, sorted(run.key for run in runs)]).encode()).hexdigest()[:32]
        now = time.time()
        configs = [(run.key, run.program, to_json(run.to_dict())) for run in runs]
        rows = [(key, program, config, checksum(config), now) for key, program, config in configs]
        damaged = [(problem, run.key) for run in runs if (problem := self._problem(run.key)) is not None]
        with self._writing():
            self.db.execute("INSERT OR IGNORE INTO sweeps VALUES (?, ?, ?)", (sweep, name, now))
            self.db.executemany(
                "UPDATE runs SET status = 'failed', record = NULL, history = NULL, weights = NULL, record_sum = NULL, "
                "history_sum = NULL, weights_sum = NULL, note = 'trained anew: ' || ? WHERE key = ? AND owner IS NULL",
                damaged,
            )
            # A data file may have moved since: the configuration is written anew.
            self.db.executemany(
                "INSERT INTO runs (key, program, config, config_sum, status, created) "
                "VALUES (?, ?, ?, ?, 'waiting', ?) ON CONFLICT (key) DO UPDATE SET program = excluded.program, "
                "config = excluded.config, config_sum = excluded.config_sum, status = 'waiting', error = NULL, "
                "deaths = iif(status = 'failed', 0, deaths) WHERE status IN ('waiting', 'failed')",
                rows,
            )
            self.db.executemany(
                "INSERT OR IGNORE INTO sweep_runs VALUES (?, ?)", ((sweep, run.key) for run in runs)
            )
        return sweep

    def _problem(self, key: str) -> str | None:
        """What is wrong with a stored result."""
        with self._readable_errors():
            names = ["status", "config", "record", "history", "weights"]
            row = self.db.execute(
                f"SELECT {', '.join(names)}, {self._columns([f'{name}_sum' for name in names[1:]])} "
                "FROM runs WHERE key = ?",
                (key,),
            ).fetchone()
        if row is None or row[0] in ("waiting", "running", "failed"):
            return None
        status, config, record, history, weights, *sums = row
        try:
            if status not in STATUSES:
                raise Damaged("its status in the store was damaged")
            for text, claimed, what in zip(
                (config, record, history), sums, ("settings", "record", "curves"), strict=False
            ):
                read_object(text, claimed, what)
            require_intact(weights, sums[3], "weights")
        except Damaged as error:
            return str(error)
        return None

    def claim(
        self,
        sweep: str,
        owner: str,
        *,
        most: int = 1,
        workers: int = 1,
        compiled: str | None = None,
        other_programs: bool = True,
    ) -> ClaimedRuns | None:
        """Up to `most` waiting runs that share a program, a fair share for each of the workers; None at the end.

        The program that this owner has compiled comes first, then, if it takes `other_programs`, one that nobody works on.
        """
        program, configs, states = "", {}, {}
        while not configs:
            with self._writing():
                waiting = (
                    "FROM sweep_runs s JOIN runs r ON r.key = s.key WHERE s.sweep = ? AND r.status = 'waiting' "
                    f"AND {'1' if other_programs else 'r.program IS ?'}"
                )
                chosen = (sweep,) if other_programs else (sweep, compiled)
                left = self._one(f"SELECT count(*) {waiting}", *chosen)
                if not left:
                    return None
                (program,) = self.db.execute(
                    f"SELECT program {waiting} GROUP BY program ORDER BY program IS ? DESC, "
                    "EXISTS (SELECT 1 FROM runs b WHERE b.status = 'running' AND b.program = r.program), "
                    "count(*) DESC, program LIMIT 1",
                    (*chosen, compiled),
                ).fetchone()
                rows = self.db.execute(
                    f"SELECT r.key, deaths {waiting} AND program = ? ORDER BY deaths >= {ALONE}, r.rowid LIMIT ?",
                    (*chosen, program, min(most, math.ceil(left / workers))),
                ).fetchall()
                keys = [key for key, deaths in rows if deaths < ALONE] or [rows[0][0]]
                for key in keys:
                    if (config := self._settings_of_claimed(key, owner)) is not None:
                        configs[key] = config
                states = {key: state for key in configs if (state := self._state(key)) is not None}
                self._sign(owner)
        return ClaimedRuns(program, configs, states)

    def _settings_of_claimed(self, key: str, owner: str) -> dict[str, Any] | None:
        """The settings of a run that is now owned; if they are damaged the run fails, and this is None."""
        row = self.db.execute(
            "UPDATE runs SET status = 'running', owner = ?, attempts = attempts + 1, started = ? "
            "WHERE key = ? AND status = 'waiting' RETURNING config, config_sum",
            (owner, time.time(), key),
        ).fetchone()
        try:
            return read_object(row[0], row[1], "settings")
        except Damaged as error:
            self._end(owner, key, "failed", "error = ?", (f"{error}; {AGAIN}",))
            return None

    def _state(self, key: str) -> bytes | None:
        """The checkpoint of a run; one that is damaged is deleted, and the run told to start anew."""
        query = "SELECT state, state_sum FROM checkpoints WHERE key = ?"
        if (row := self.db.execute(query, (key,)).fetchone()) is None:
            return None
        try:
            return require_intact(row[0], row[1], "checkpoint")
        except Damaged as error:
            self.db.execute("DELETE FROM checkpoints WHERE key = ?", (key,))
            self.db.execute(
                "UPDATE runs SET note = ? WHERE key = ?", (f"trained from the start: {error}", key)
            )
            return None

    def _sign(self, owner: str) -> None:
        this = Process.this()
        self.db.execute(
            "INSERT INTO owners VALUES (?, ?, ?, ?, 0, 0.0) ON CONFLICT (name) DO UPDATE SET "
            "host = excluded.host, pid = excluded.pid, birth = excluded.birth, beats = beats + 1, part = 0.0",
            (owner, this.host, this.pid, this.birth),
        )

    def beat(self, owner: str, part: float = 0.0) -> None:
        """A sign of life, and how much of what is owned is done."""
        self.beat_for({owner: part})

    def beat_for(self, parts: Mapping[str, float]) -> None:
        """Signs of life of many at once: a thousand of them are one write to the disk."""
        with self._writing():
            self.db.executemany(
                "UPDATE owners SET beats = beats + 1, part = ? WHERE name = ?",
                ((part, owner) for owner, part in parts.items()),
            )

    def save_checkpoints(self, owner: str, step: int, states: Mapping[str, bytes]) -> bool:
        """Checkpoints of what is owned; False if it no longer is. What gets on is not at fault for a death."""
        with self._writing():
            owned = [key for key in states if self._owns(owner, key)]
            self.db.executemany(
                "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
                ((key, step, states[key], checksum(states[key])) for key in owned),
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
                values = to_json(dict(outcome.record)), to_json(outcome.history), outcome.weights or None
                recorded += self._end(
                    owner,
                    outcome.key,
                    "done",
                    "record = ?, history = ?, weights = ?, record_sum = ?, history_sum = ?, weights_sum = ?, cost = ?",
                    (*values, *map(checksum, values), cost),
                )
        return recorded

    def fail(self, owner: str, keys: Iterable[str], error: str) -> None:
        with self._writing():
            for key in keys:
                self._end(owner, key, "failed", "error = ?", (error,))

    def note(self, owner: str, keys: Iterable[str], text: str) -> None:
        """What a user should know of runs that are owned, though they did not fail."""
        with self._writing():
            self.db.executemany(
                "UPDATE runs SET note = ? WHERE key = ? AND owner = ?", ((text, key, owner) for key in keys)
            )

    def _end(self, owner: str, key: str, status: str, columns: str, values: tuple[Any, ...]) -> int:
        ended = self.db.execute(
            f"UPDATE runs SET status = ?, owner = NULL, finished = ?, {columns} "
            "WHERE key = ? AND owner = ? AND status = 'running'",
            (status, time.time(), *values, key, owner),
        ).rowcount
        if ended:
            self.db.execute("DELETE FROM checkpoints WHERE key = ?", (key,))
        return ended

    def release(self, owner: str) -> None:
        """What is owned waits again, through no fault of its own."""
        with self._writing():
            self.db.execute(
                "UPDATE runs SET status = 'waiting', owner = NULL WHERE owner = ? AND status = 'running'",
                (owner,),
            )
            self.db.execute("DELETE FROM owners WHERE name = ?", (owner,))

    def reclaim(
        self, owner: str, cause: str, most_deaths: int = MOST_DEATHS, beats: int | None = None
    ) -> int:
        """What a dead owner had waits again, what has outlived too many owners fails; how many runs it had.

        With `beats`, only if the owner has given no further sign of life.
        """
        with self._writing():
            if beats is not None and not self._one(
                "SELECT count(*) FROM owners WHERE name = ? AND beats = ?", owner, beats
            ):
                return 0
            updated = self.db.execute(
                "UPDATE runs SET owner = NULL, deaths = deaths + 1, "
                "status = iif(deaths + 1 < :most, 'waiting', 'failed'), "
                "error = iif(deaths + 1 < :most, NULL, 'its worker died ' || (deaths + 1) || ' times: ' || :cause), "
                "finished = iif(deaths + 1 < :most, NULL, :now) WHERE owner = :owner AND status = 'running'",
                {"most": most_deaths, "cause": cause, "now": time.time(), "owner": owner},
            )
            self.db.execute("DELETE FROM owners WHERE name = ?", (owner,))
        return updated.rowcount

    def reclaim_dead(
        self, alive: Iterable[str] = (), lease: float = LEASE, most_deaths: int = MOST_DEATHS
    ) -> None:
        """Look for owners that have ended, or been silent too long; `alive` are known to live.

        Clocks of different machines differ, so none is compared: an owner is silent if its count of beats has not changed
        for the time of the lease by the clock of who looks, who must have looked for as long.
        """
        with self._readable_errors():
            owners = self.db.execute("SELECT name, host, pid, birth, beats FROM owners").fetchall()
        now = time.monotonic()
        self._heard = {(name, beats): self._heard.get((name, beats), now) for name, _, _, _, beats in owners}
        for name, host, pid, birth, beats in owners:
            if name in alive:
                continue
            if Process(host, pid, birth).dead():
                self.reclaim(name, "the process ended", most_deaths)
            elif now - self._heard[name, beats] > lease:
                self.reclaim(name, f"no sign of life for {decimals(lease)} s", most_deaths, beats)

    # What there is.

    def counts(self, sweep: str) -> Counts:
        with self._readable_errors():
            rows = self.db.execute(f"SELECT status, count(*) {OF_SWEEP} GROUP BY status", (sweep,))
            part = self._one(
                "SELECT total(o.part) FROM owners o JOIN runs r ON r.owner = o.name AND r.status = 'running' "
                "JOIN sweep_runs s ON s.key = r.key WHERE s.sweep = ?",
                sweep,
            )
            counted = dict(rows.fetchall())
            strange = sum(count for status, count in counted.items() if status not in STATUSES)
            known = {status: counted.get(status, 0) for status in STATUSES}
            return Counts(**{**known, "failed": known["failed"] + strange}, part=part)

    def rows(self, sweep: str | None = None) -> list[dict[str, Any]]:
        """Every run, or those of a sweep by name or id: configuration, state and result; no curves, no weights."""
        query = f"SELECT {self._columns([*COLUMNS, 'config_sum', 'record_sum'])} FROM runs r"
        values = ()
        if sweep is not None:
            query += " WHERE key IN (SELECT key FROM sweep_runs WHERE sweep IN "
            query += "(SELECT id FROM sweeps WHERE name = ? OR id = ?))"
            values = (sweep, sweep)
        with self._readable_errors():
            rows = self.db.execute(query + " ORDER BY rowid", values).fetchall()
        return [_row(dict(zip((*COLUMNS, "config_sum", "record_sum"), row, strict=True))) for row in rows]

    def sweeps(self) -> dict[str, set[str]]:
        """Every run's key, and the names of the sweeps that it belongs to."""
        members: dict[str, set[str]] = {}
        with self._readable_errors():
            query = "SELECT key, name FROM sweep_runs JOIN sweeps ON id = sweep"
            for key, name in self.db.execute(query):
                members.setdefault(key, set()).add(name)
        return members

    def history(self, key: str) -> dict[str, list[Any]]:
        text, claimed = self._of(key, "history")
        return self._sound(key, lambda: read_object(text, claimed, "curves")) if text else {}

    def weights(self, key: str) -> bytes:
        """As safetensors; empty if the run has none."""
        data, claimed = self._of(key, "weights")
        return self._sound(key, lambda: require_intact(data, claimed, "weights")) or b""

    def _of(self, key: str, column: str) -> tuple[Any, str | None]:
        with self._readable_errors():
            row = self.db.execute(
                f"SELECT {column}, {self._columns([f'{column}_sum'])} FROM runs WHERE key = ?", (key,)
            ).fetchone()
        if row is None:
            raise BadInput(f"{self.path}: no run {key}")
        return row

    def _sound(self, key: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Damaged as error:
            raise Damaged(f"{self.path}: run {key[:8]}: {error}; {AGAIN}") from None


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """A run as it is shown; one that is damaged has failed, and says so."""
    sums = row.pop("config_sum"), row.pop("record_sum")
    try:
        row["config"] = _settings(row["config"], sums[0])
        row["record"] = read_object(row["record"], sums[1], "record") if row["record"] is not None else None
        if row["status"] not in STATUSES or (row["status"] == "done" and row["record"] is None):
            raise Damaged("its status in the store was damaged")
    except Damaged as error:
        if not isinstance(row["config"], dict):
            row["config"] = {"task": {}, "architecture": None, "training": {}}
        row |= {"status": "failed", "record": None, "error": f"{error}; {AGAIN}"}
    return row


def _settings(text: Any, claimed: str | None) -> dict[str, Any]:
    config = read_object(text, claimed, "settings")
    if not isinstance(config.get("task"), dict) or not isinstance(config.get("training"), dict):
        raise Damaged("its settings in the store are no run's")
    if not isinstance(config.get("architecture"), dict | None):
        raise Damaged("its architecture in the store is no architecture")
    return config


__all__ = [
    "LEASE",
    "MOST_DEATHS",
    "VERSION",
    "ClaimedRuns",
    "Counts",
    "Damaged",
    "Outcome",
    "Store",
    "StoreTrouble",
]
