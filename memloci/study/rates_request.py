"""What is asked of `memloci rates`, checked, and what is trained for it at every size."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memloci.approx.readouts.ridge_exact import affine
from memloci.core.errors import BadInput
from memloci.core.precision import EVALUATED, PRECISIONS
from memloci.core.specs import shorten
from memloci.study.claim import PILOT, Arm, Result
from memloci.study.compiled_curves import DEFAULT_HEADS, PRECISION_OF_BITS, RatesRequest
from memloci.study.tuned_runs import RATES
from memloci.tasks.task import Task
from memloci.train.spec import MAX_TOKENS, default_length

VARIES = ("heads", "width", "layers", "samples", "length", "bits")
ENCODINGS = ("lin", "log")
BATCH = 64
WIDTH = 64  # of FFNs, where it does not vary
TRAINED_LENGTH = 64  # tuned: tokens that kernels are trained on, where the length does not vary
VALUES: dict[str, tuple[int, ...]] = {
    "heads": (1, 2, 4, 8, 16),
    "width": (4, 8, 16, 32, 64),
    "samples": (16, 64, 256, 1024),
    "bits": tuple(PRECISION_OF_BITS),
}
MOST = {"heads": 256, "width": 65_536, "layers": 64, "samples": 2**20, "length": 4_096, "bits": 53}


def read(
    task: Task, vary: str, values: Sequence[int] | None, encoding: str, seeds: int, steps: int, seed: int
) -> RatesRequest:
    if vary not in VARIES:
        raise BadInput(f"vary: unknown {shorten(vary)}; use {', '.join(VARIES)}")
    if encoding not in ENCODINGS:
        raise BadInput(f"encoding: unknown {shorten(encoding)}; use {', '.join(ENCODINGS)}")
    if not (1 <= seeds <= 1000 and 1 <= steps <= 10**8 and 0 <= seed < PILOT - 1000):
        raise BadInput(f"cannot train {seeds} seeds from {seed} on with {steps} steps")
    task.to_dict()  # a task that no run can hold is refused before the work
    length = _length(task)
    chosen = tuple(sorted(set(values if values is not None else _defaults(task, vary))))
    least = {"width": 0, "length": 2}.get(vary, 1)
    for value in chosen:
        if type(value) is not int or not least <= value <= MOST[vary]:
            raise BadInput(
                f"values: {vary} must be whole numbers from {least} to {MOST[vary]:,}, found {shorten(value)}"
            )
        if vary == "bits" and value not in PRECISION_OF_BITS:
            known = ", ".join(f"{bits} ({name})" for bits, name in PRECISION_OF_BITS.items())
            raise BadInput(f"values: no format has {value} bits; there are {known}")
    far = _farthest_lag(task)
    if vary == "length" and far and chosen[-1:] <= (far,):
        raise BadInput(
            f"values: no length up to {MOST['length']:,} has room for lag {far:,}"
            if values is None
            else f"values: some length must have room for lag {far:,}"
        )
    if len(chosen) < 2:
        raise BadInput(f"values: give two or more numbers of {vary} to compare")
    if vary == "samples" and chosen[-1] * length > MAX_TOKENS:
        raise BadInput(f"values: {chosen[-1]:,} samples of {length:,} tokens are too many")
    return RatesRequest(
        task, vary, chosen, encoding, length, seed, 2 * DEFAULT_HEADS if vary == "bits" else DEFAULT_HEADS
    )


def _farthest_lag(task: Task) -> int:
    """Of memories that end."""
    return max((int(bound) for bound in task.lag_bounds if bound < math.inf), default=0)


def _length(task: Task) -> int:
    """Room for every lag; kernels without an end are cut."""
    far = _farthest_lag(task)
    room = default_length(task.to_dict()) if far < TRAINED_LENGTH else 0
    return max(TRAINED_LENGTH if task.farthest == math.inf else room, far + 16)


def _defaults(task: Task, vary: str) -> tuple[int, ...]:
    if vary == "layers":
        return (1, 2, 4, 8) if task.stationary and task.fixed_lags else (1, 2, 3, 4)
    if vary == "length":
        first = max(16, 2 ** math.ceil(math.log2(_farthest_lag(task) + 2)))
        return tuple(first * 2**k for k in range(4) if first * 2**k <= MOST["length"])
    return VALUES[vary]


# -- training --------------------------------------------------------------------------------------------


def arms_of(request: RatesRequest, steps: int, notes: list[str]) -> dict[int, Arm]:
    """What is trained at every value; notes say what is not."""
    arms: dict[int, Arm] = {}
    for value in request.values:
        architecture, training = _sizes(request), _training(request, steps)
        if request.vary in ("heads", "width", "layers"):
            architecture[request.vary] = value
        elif request.vary in ("samples", "length"):
            training[request.vary] = value
        elif (reason := _format(PRECISION_OF_BITS[value])) is not None:
            notes.append(reason)
            continue
        else:
            architecture["precision"] = PRECISION_OF_BITS[value]
        arm = Arm(f"{request.vary} {value:,}", request.task.to_dict(), architecture, training)
        try:
            arm.run(RATES[0], request.seed)
        except BadInput as reason:
            notes.append(f"trained: none with {request.vary} {value:,}: {reason}")
            continue
        arms[value] = arm
    if not arms:
        notes.append(f"trained: nothing, for no {request.vary} can be")
    return arms


def _sizes(request: RatesRequest) -> dict[str, Any]:
    task = request.task
    sizes: dict[str, Any] = {"layers": 1, "heads": request.heads, "encoding": request.encoding, "dim": 32}
    if not task.stationary:
        sizes |= {"layers": task.paper_layers, "width": WIDTH}
        if request.vary == "heads":  # the form that is compiled, and that the capacity bound is about
            real = sum(not channel.finite for channel in task.channels)
            sizes |= {"attention": "tmx", "normalisation": "none", "value_dim": max(1, real)}
            return sizes | {"norm": "rms"}  # without it most runs on `pointer` diverged
        return sizes | {"attention": "dp", "normalisation": "softmax", "key_dim": 16, "value_dim": task.d}
    forms = [formula.expression and affine(formula.expression) for formula in task.readouts]
    width = WIDTH if any(form is None for form in forms) else 0
    return sizes | {
        "width": width,
        "attention": "dpf",
        "normalisation": "infinite",
        "value_dim": task.d,
        "key_dim": 1,
    }


def _training(request: RatesRequest, steps: int) -> dict[str, Any]:
    every = max(1, math.ceil(steps / 4))
    return {"steps": steps, "batch": BATCH, "length": request.length, "evaluate_every": every}


def _format(name: str) -> str | None:
    """Why nothing is trained in a format."""
    if not PRECISIONS[name].evaluates:
        return f"trained: none in {name}; models are {' or '.join(EVALUATED)}"
    from memloci.model.transformer import require_precision

    try:
        require_precision(name)
    except BadInput as reason:
        return f"trained: none in {name}: {reason}"
    return None


def runs_without_result(results: Mapping[int, Result]) -> list[str]:
    """Runs that have no number."""
    texts = []
    for result in results.values():
        kinds = [record.status for record in result.records]
        for status in ("diverged", "failed"):
            if count := kinds.count(status):
                errors = {record.error for record in result.records if record.error}
                why = f" ({shorten(min(errors))})" if errors else ""
                texts.append(
                    f"trained, {result.arm.name}: {count} of {len(kinds)} runs {status}{why}, so it has no mean"
                )
    return texts
