"""Fuzzing certificates: random tasks, compiled, mutated and raw models, every path and stream, attacked.

    python -m tests.audit.fuzz --n 200 --seed 3

A case is one model on one path with its certificate, and an attack on it (attacks.py). A violation is an input on which the
model errs by more than the bound, proved in balls by an evaluation of the target that shares no code with memloci
(oracle.py). Whatever is raised, other than a refusal, is a traceback. `--scale 0.8` shrinks every bound, and must find
violations where bounds are sharp: that tests the test.
"""

import argparse
import json
import os
import re
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import memloci as ml
from memloci.certify.certificate import Certificate
from memloci.core.errors import BadInput
from memloci.core.precision import EVALUATED, PRECISIONS
from memloci.model.transformer import Transformer
from memloci.routes.registry import ROUTES
from memloci.tasks.load import task_from_dict
from memloci.tasks.task import Task
from tests.audit.attacks import Attack
from tests.audit.mutations import EQUAL, MUTATIONS, mutated
from tests.audit.oracle import Oracle, Undecided, exceeds
from tests.audit.random_tasks import SERVES, random_task
from tests.audit.raw_models import RAW, raw_model

PER_TASK = 10  # cases of one compiled model; compiling takes longer than attacking
PATHS = ("certified", "plain", "blocks", "recurrence", "sharp", "auto", "convolution")
LENGTHS = ((48, 24), (32, 40), (16, 150))  # sequences at once, and their length
SHORT_LENGTHS = (24, 12, 6, 3)  # where a certificate holds for no longer ones
VERBOSE = bool(os.environ.get("FUZZ_VERBOSE"))
TRIES = 12  # tasks drawn until a route serves one


@dataclass(frozen=True)
class Violation:
    seed: int
    number: int
    route: str
    what: str
    path: str
    task: str
    bound: float
    error: float


@dataclass
class Record:
    """What was tried, and what was found."""

    tasks: int = 0
    models: int = 0
    cases: int = 0
    sequences: int = 0
    streams: int = 0
    violations: list[Violation] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    undecided: int = 0
    attacks: Counter[str] = field(default_factory=Counter)  # per route
    paths: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)
    best: Counter[str] = field(default_factory=Counter)  # which search found the largest error
    refused: Counter[str] = field(default_factory=Counter)
    tightness: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    grown: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # per mutation

    def text(self) -> str:
        """The figures, for people."""
        lines = [
            f"tasks {self.tasks:,}, models {self.models:,}, cases {self.cases:,}, sequences {self.sequences:,}, "
            f"streams {self.streams:,}, violations {len(self.violations)}, tracebacks {len(self.tracebacks)}",
            f"paths: {_counts(self.paths)}",
            f"mutations: {_counts(self.mutations)}",
            f"largest error found by: {_counts(self.best)}",
            f"not certified: {_counts(self.refused)}; undecided: {self.undecided}",
            "",
            "| route | attacks | compiled | median bound / error | largest |",
            "|---|---|---|---|---|",
        ]
        for route in (*ROUTES, RAW):
            found = self.tightness.get(route, [])
            ratios = f"{np.median(found):.2f} | {max(found):.3g}" if found else "- | -"
            lines.append(f"| {route} | {self.attacks[route]} | {len(found)} | {ratios} |")
        lines += [
            "",
            "| mutation that keeps outputs | models | median bound / bound before | largest |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {len(r)} | {np.median(r):.2f} | {max(r):.3g} |" for name, r in self.grown.items()
        ]
        for one in self.violations:
            lines.append(f"VIOLATION {one}")
        lines += [f"TRACEBACK {one}" for one in self.tracebacks]
        return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


@dataclass(frozen=True)
class Subject:
    """One task with one compiled or raw model."""

    route: str
    text: str
    task: Task
    oracle: Oracle
    model: Transformer


def fuzz(
    n: int, seed: int, scale: float = 1.0, routes: Sequence[str] = tuple(SERVES), progress: bool = False
) -> Record:
    """n cases, the same ones for the same seed and routes."""
    record, began = Record(), time.monotonic()
    subjects = _subjects(seed, routes, record)
    while record.cases < n:
        subject, rng = next(subjects)
        _attack_all(subject, rng, min(PER_TASK, n - record.cases), seed, scale, record)
        if record.tasks % 4 == 0:
            jax.clear_caches()  # every model is another program
        if progress:
            done = f"{record.cases}/{n} cases, {time.monotonic() - began:.0f} s, {subject.route}"
            print(f"\r{done:<60}", end="", file=sys.stderr, flush=True)
    if progress:
        print(file=sys.stderr)
    return record


def _subjects(
    seed: int, order: Sequence[str], record: Record
) -> Iterator[tuple[Subject, np.random.Generator]]:
    """Routes in turn, each with a task that it serves; every fourth time a raw model."""
    k = 0
    while True:
        rng = np.random.default_rng([seed, k])
        shift = np.random.default_rng([seed, 10**6 + k // len(order)]).permutation(len(order))
        route = order[int(shift[k % len(order)])]
        k += 1
        kinds = [RAW, route] if k % 4 == 0 else [route]
        for kind in kinds:
            subject = _subject(kind, rng, record)
            if subject is not None:
                record.tasks += 1
                yield subject, rng


def _subject(route: str, rng: np.random.Generator, record: Record) -> Subject | None:
    for _ in range(TRIES):
        asked = random_task(rng, route if route != RAW else str(rng.choice([*SERVES])))
        text = asked.text
        try:
            task, oracle = task_from_dict(tomllib.loads(text)), Oracle.read(text)
            if route == RAW:
                return Subject(route, text, task, oracle, raw_model(rng, task.d, task.outputs))
            model = ml.compile(task, route=route, tolerance=asked.tolerance, precision=asked.precision).model
            return Subject(route, text, task, oracle, model)
        except BadInput:
            record.refused[f"task for {route}"] += 1
        except Exception:
            record.tracebacks.append(f"{route}: {text!r}\n{traceback.format_exc(limit=-4)}")
    return None


def _attack_all(
    subject: Subject, rng: np.random.Generator, count: int, seed: int, scale: float, record: Record
) -> None:
    N, length = LENGTHS[int(rng.choice(len(LENGTHS), p=[0.5, 0.4, 0.1]))]
    slow = rng.random() < 0.25  # gradients are another program to compile
    first: float | None = None
    path = PATHS[0]
    for case in range(count):
        model, names = subject.model, []
        if case:
            names = [str(name) for name in rng.choice([*MUTATIONS], 1 + (rng.random() < 0.2), replace=False)]
            for name in names:
                model = mutated(model, name, rng)
            if rng.random() < 0.2:
                path = str(rng.choice(PATHS))
        what = " + ".join(names) or "as made"
        promised = np.inf  # what is claimed of the same weights in another precision
        try:
            used = model.using(path)
            if case and rng.random() < 0.15:
                other = str(rng.choice([p for p in EVALUATED if p != used.architecture.precision]))
                promised = float(ml.certify(used, subject.task).bound_by_precision[other])
                used = used.astype(other)
            certificate = ml.certify(used, subject.task)
        except BadInput as reason:
            record.refused[f"{subject.route} ({what}): {reason}" if VERBOSE else "path " + path] += 1
            path = PATHS[0]
            record.cases += case > 0  # a refusal is an answer, but the unchanged model must have a bound
            if not case:
                return
            continue
        except Exception:
            record.tracebacks.append(
                f"{subject.route}, {what}, {path}: {subject.text!r}\n{traceback.format_exc(limit=-4)}"
            )
            record.cases += 1
            continue
        record.models += 1
        record.cases += 1
        record.mutations.update(names)
        record.paths[path] += 1
        bound = min(float(certificate.bound), promised)
        if not np.isfinite(bound):
            record.refused["infinite bounds"] += 1
            continue
        n = max((k for k in (length, *SHORT_LENGTHS) if k <= _longest(certificate)), default=0)
        if not n:
            record.refused["lengths"] += 1
            continue
        record.attacks[subject.route] += 1
        attack = Attack(subject.oracle, partial(_outputs, used), np.dtype(used.W_E.dtype), N, n, rng)
        attack.run(partial(_slopes, used) if slow else None)
        record.sequences += attack.sequences
        record.best[attack.by] += 1
        about = partial(Violation, seed, record.cases, subject.route, what, path, subject.text)
        _judge(subject, attack, bound, scale, about, record)
        streams = any(text == "streams: covered" for text in certificate.assumptions)
        if streams and (not case or rng.random() < 0.05):
            _stream(subject, used, attack, bound, scale, about, record)
        ulps = 4 * PRECISIONS[used.architecture.precision].u * attack.range
        if not case:
            first = bound
            if ulps or attack.error:
                record.tightness[subject.route].append(bound / max(attack.error, ulps))
        elif first and names and set(names) <= EQUAL.keys() and subject.route != RAW:
            same = used.architecture.precision == subject.model.architecture.precision
            if same:
                record.grown[what if len(names) == 1 else "two of them"].append(bound / max(first, ulps))


def _longest(certificate: Certificate) -> int:
    """The longest sequence that a certificate speaks of."""
    found = re.search(r"every length up to ([\d,]+)", " ".join(certificate.assumptions))
    return int(found[1].replace(",", "")) if found else 2**31


def _judge(subject: Subject, attack: Attack, bound: float, scale: float, about: Any, record: Record) -> None:
    """Is the largest error above the bound? Long doubles point at it, balls prove it."""
    if attack.error <= bound * scale * (1 - 1e-6):
        return
    assert attack.x is not None
    try:
        H = subject.oracle.enclosure(attack.x, attack.t, attack.o)
    except Undecided:
        record.undecided += 1
        return
    if exceeds(attack.y, H, bound * scale):
        record.violations.append(about(bound, attack.error))


def _stream(
    subject: Subject,
    model: Transformer,
    attack: Attack,
    bound: float,
    scale: float,
    about: Any,
    record: Record,
) -> None:
    """The worst input again, token by token."""
    assert attack.x is not None
    record.streams += 1
    y = np.asarray(model.stream().feed(attack.x.astype(attack.dtype)), dtype=float)
    again = Attack(subject.oracle, lambda x: y[None], attack.dtype, 1, attack.n, attack.rng)
    again.judge(attack.x[None], "stream")
    _judge(subject, again, bound, scale, about, record)


@eqx.filter_jit
def _program(model: Transformer, x: jax.Array) -> jax.Array:
    return jax.vmap(model)(x)


@eqx.filter_jit
def _gradient(model: Transformer, x: jax.Array, t: jax.Array, o: jax.Array) -> jax.Array:
    return jax.grad(lambda x: model(x)[t, o])(x)


def _outputs(model: Transformer, x: np.ndarray) -> np.ndarray:
    return np.asarray(_program(model, jnp.asarray(x)), dtype=float)


def _slopes(model: Transformer, x: np.ndarray, t: int, o: int) -> np.ndarray:
    found = np.asarray(_gradient(model, jnp.asarray(x), jnp.asarray(t), jnp.asarray(o)), dtype=float)
    return np.where(np.isfinite(found), found, 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=200, help="cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks every bound")
    parser.add_argument(
        "--route", choices=[*SERVES, RAW], action="append", help="this route only; may be given again"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    began = time.process_time()
    record = fuzz(asked.n, asked.seed, asked.scale, asked.route or [*SERVES], sys.stderr.isatty())
    if asked.json:
        kept = {name: getattr(record, name) for name in ("tasks", "models", "cases", "sequences", "attacks")}
        print(
            json.dumps({**kept, "violations": len(record.violations), "tracebacks": len(record.tracebacks)})
        )
    else:
        print(record.text())
        print(f"\n{time.process_time() - began:.0f} CPU seconds")
    return 1 if record.violations or record.tracebacks else 0


if __name__ == "__main__":
    raise SystemExit(main())
