"""`certify`: the worst-case error of a model on a task, from the weights alone.

    weights -> kernels over lags -> what each coordinate carries -> readout against f -> rounding

For dot-product-free models without norms whose FFN acts in the last layer only, of any origin: compiled,
trained or loaded. What cannot be followed is refused, with the reason.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
from flint import ctx

from memloci.certifier.certificate import Certificate, Proved, Term
from memloci.certifier.kernels import HeadKernels, SumKernels, layer_kernels
from memloci.certifier.neglected import FORMULA, NAME, left_out, neglects
from memloci.certifier.readout import Readout, Variables, bound_output
from memloci.certifier.rounding import FORMATS, SLACK, UNIT, Format, dot, lost, product_error
from memloci.certifier.signals import (
    Atom,
    Memory,
    Signal,
    attend,
    attention_rounding,
    embedded,
    link_norms,
)
from memloci.errors import BadInput
from memloci.expressions.interval import Interval
from memloci.fast.choice import PATHS, covered, may_take
from memloci.model.transformer import Transformer
from memloci.tasks.adaptive import Adaptive
from memloci.tasks.base import Task
from memloci.tasks.essential import Essential
from memloci.tasks.fixed import Fixed

BITS = 256  # of the balls; coefficients cancel by up to a hundred digits only in extended precision
MOST_BITS = 400  # precisions tried for `bits`


@dataclass(frozen=True)
class _Path:
    """What was followed through the layers."""

    kernels: list[HeadKernels]
    sizes: list[np.ndarray]  # sup |X| before each layer, and after the last attention
    signals: list[Signal]  # after the last attention
    functionals: list[Signal]  # the rows of B, then of W_U, after the last attention


def certify(
    model: Transformer, task: Task, *, tolerance: float = 1e-3, precision: str | None = None
) -> Certificate:
    """The certificate of `model` for `task`, in the model's own precision unless another is asked for."""
    precision = precision or model.architecture.precision
    if precision not in UNIT:
        raise BadInput(f"precision {precision!r} is unknown; use {', '.join(UNIT)}")
    if not 0 < tolerance < math.inf:
        raise BadInput(f"tolerance must be positive, found {tolerance}")
    _check_form(model, task)
    model.check()
    if isinstance(task, Adaptive):
        from memloci.certifier.adaptive import certify_adaptive

        return certify_adaptive(model, task, tolerance, precision)
    with ctx.workprec(BITS):
        memory = _memory(task)
        readout = readout_of(model)
        path = _follow(model, memory, readout)
        variables = _variables(task, memory)
        terms: list[Term] = []
        worst = 0.0
        for o, formula in enumerate(task.readouts):
            own = bound_output(o, formula, readout, path.signals, path.functionals, variables, memory)
            terms += own
            total = math.fsum(term.E for term in own) * SLACK
            worst = math.inf if math.isnan(total) else max(worst, total)  # max(0, NaN) would be 0
        rounding = _Rounding(model, task, path, readout)
        neglected = rounding.neglected() if neglects(model) else 0.0
        by_precision = {name: rounding.worst(known) for name, known in FORMATS.items()}
        meets = lambda u: (worst + rounding.worst(Format(u))) * SLACK <= tolerance
        bits = fewest_bits(meets) if worst + neglected <= tolerance else None
    bounds = {name: Proved((worst + r) * SLACK) for name, r in by_precision.items()}
    rounded = by_precision[precision] * SLACK
    if neglects(model):  # followed together with the roundings, told apart here
        terms.append(Term(NAME, FORMULA, Proved(neglected)))
        rounded = max(rounded - neglected, 0.0)
    terms.append(Term("rounding", f"rounding model in {precision}", Proved(rounded)))
    return Certificate(
        status="met" if bounds[precision] <= tolerance else "missed",
        tolerance=tolerance,
        precision=precision,
        bound=bounds[precision],
        exact_bound=Proved(worst + neglected),
        bound_by_precision=bounds,
        terms=tuple(terms),
        mass=mass_of(model),
        mass_lower_bound=_mass_lower_bound(model, path, task, worst),
        bits=bits,
        assumptions=assumptions(model, task),
        arithmetic=f"Arb balls of {BITS} bits or more; intervals with outward rounding for the readout",
    )


def _check_form(model: Transformer, task: Task) -> None:
    a = model.architecture
    if a.path in PATHS and not covered(a.path, a):
        raise BadInput(
            f"no certificate covers the rounding of path {a.path!r}; certify model.using('certified')"
        )
    if a.norm != "none":
        raise BadInput(
            f"norm {a.norm!r}: a normalised stream is not a sum of kernels; certificates need norm 'none'"
        )
    if model.positions is not None:
        raise BadInput(
            f"encoding {a.encoding!r} adds position vectors to the stream; no certificate follows them"
        )
    if (model.channels, model.outputs) != (task.d, task.outputs):
        raise BadInput(
            f"the model maps {model.channels} channels to {model.outputs} outputs, "
            f"the task {task.d} to {task.outputs}"
        )
    for l, layer in enumerate(model.layers[:-1] if not isinstance(task, Adaptive) else ()):
        if layer.ffn is not None and np.asarray(layer.ffn.A).any():
            raise BadInput(
                f"layer {l}: an FFN before the last layer is not followed; certificates need A = 0 there"
            )


def _memory(task: Task) -> Memory:
    sizes = tuple(channel.magnitude for channel in task.channels)
    if isinstance(task, Essential):
        from memloci.approx.kernel_targets import kernel_target, norm_above

        kernels = tuple(kernel_target(task, i) for i in range(task.M))
        return Memory(sizes, kernels, tuple(map(norm_above, kernels)))
    return Memory(sizes)


def _variables(task: Task, memory: Memory) -> Variables:
    atoms, domains = [], dict(task.domains)
    for i in range(task.M + 1):
        for c in range(task.d):
            if isinstance(task, Essential) and i:
                atoms.append(Atom(c, 0, i - 1))
                reach = memory.size(atoms[-1])  # the task's own range is a float64 sum
                domains[task.variables[len(atoms) - 1]] = (Interval(-reach, reach),)
            else:
                atoms.append(Atom(c, 0 if i == 0 else int(task.lag_bounds[i - 1])))
    return Variables(task.variables, tuple(atoms), domains, task.occur_together)


def readout_of(model: Transformer) -> Readout:
    D = model.architecture.dim
    ffn = model.layers[-1].ffn
    exact = lambda array: np.asarray(array, dtype=float)
    if ffn is None:
        B, c, A = np.zeros((0, D)), np.zeros(0), np.zeros((D, 0))
    else:
        B, c, A = exact(ffn.B), exact(ffn.c), exact(ffn.A)
    return Readout(B, c, A, exact(model.W_U), exact(model.b_U))


def _follow(model: Transformer, memory: Memory, readout: Readout) -> _Path:
    identity = np.eye(model.architecture.dim)
    signals = embedded(np.asarray(model.W_E, dtype=float), np.asarray(model.b_E, dtype=float))
    kernels, sizes, functionals = [], [_sizes(signals, memory)], []
    for l, layer in enumerate(model.layers):
        try:
            kernels.append(layer_kernels(layer.attention, may_take("recurrence", model.architecture)))
        except BadInput as error:
            raise error.within(f"layer {l}") from None
        if layer is model.layers[-1]:
            live = np.any([readout.live(o) for o in range(model.outputs)], axis=0)
            rows = np.concatenate([np.where(np.atleast_1d(live)[:, None], readout.B, 0.0), readout.W_U])
            functionals = attend(rows, signals, layer.attention, kernels[-1], memory)
        signals = attend(identity, signals, layer.attention, kernels[-1], memory)
        sizes.append(_sizes(signals, memory))
    return _Path(kernels, sizes, signals, functionals)


def _sizes(signals: Sequence[Signal], memory: Memory) -> np.ndarray:
    return np.array([memory.bound(signal) for signal in signals])


class _Rounding:
    """|computed - exact| for any unit roundoff u: the same formulas serve every precision."""

    def __init__(self, model: Transformer, task: Task, path: _Path, readout: Readout):
        self.model, self.channels, self.path, self.readout = model, task.channels, path, readout
        self.W_E = np.asarray(model.W_E, dtype=float)
        self.b_E = np.asarray(model.b_E, dtype=float)
        self.norms: dict[int, np.ndarray] = {}
        weights = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
        self.largest = max(float(np.abs(np.asarray(leaf)).max(initial=0.0)) for leaf in weights)

    def worst(self, precision: Format) -> float:
        """The rounding error of any output; weights are rounded too where the precision is below theirs."""
        own = FORMATS[self.model.architecture.precision]
        stored = precision.u > own.u
        error = self._embedding(precision, stored)
        fits = precision.holds(self.path.sizes[0] + error) and (not stored or precision.holds(self.largest))
        for l, layer in enumerate(self.model.layers):
            # What is infinite or NaN spoils every coordinate that reads it, even with a weight of 0.
            if not (fits and np.isfinite(error).all()):
                return math.inf
            norms = self._norms(l) if error.any() else np.zeros((len(error), len(error)))
            kernels, size = self.path.kernels[l], self.path.sizes[l]
            missing = self._left_out(l, size + error, precision, stored)
            error = attention_rounding(layer.attention, kernels, norms, size, error, precision, stored)
            error = error + missing
            fits = self._silent_ffn_fits(l, error, precision)
        if not (fits and np.isfinite(error).all()):
            return math.inf
        found = float(after(self.readout, self.path.sizes[-1], error, precision, stored).max(initial=0.0))
        return math.inf if math.isnan(found) else found

    def neglected(self) -> float:
        """What the path leaves out of any output, in exact arithmetic."""
        error, exact = np.zeros(len(self.path.sizes[0])), Format(0.0)
        for l in range(len(self.model.layers)):
            missing = self._left_out(l, self.path.sizes[l] + error, exact, stored=False)
            error = error + (dot(self._norms(l), error) if error.any() else 0.0) + missing
        return float(after(self.readout, self.path.sizes[-1], error, exact, False).max(initial=0.0)) * SLACK

    def _left_out(self, l: int, size: np.ndarray, precision: Format, stored: bool) -> np.ndarray:
        """What layer l loses by its path, for |X| <= size."""
        if not neglects(self.model):
            return np.zeros_like(size)
        return left_out(self.model.layers[l].attention, self.path.kernels[l], size, precision, stored)

    def _embedding(self, precision: Format, stored: bool) -> np.ndarray:
        """Of W_E x + b_E; x itself is rounded in channels that have values between the precision's numbers."""
        size = np.array([channel.magnitude for channel in self.channels])
        between = [not all(map(precision.has_number_in, channel.domain)) for channel in self.channels]
        error = np.where(between, precision.u * size, 0.0)
        rounded = product_error(self.W_E, size, error, precision.u, self.b_E, stored)
        return rounded + lost(self.W_E, size + error, precision)

    def _silent_ffn_fits(self, l: int, error: np.ndarray, precision: Format) -> bool:
        """An FFN with A = 0 adds nothing, unless its neurons overflow."""
        ffn = self.model.layers[l].ffn
        if ffn is None or l == len(self.model.layers) - 1:
            return True
        B, c = np.abs(np.asarray(ffn.B, dtype=float)), np.abs(np.asarray(ffn.c, dtype=float))
        return precision.holds(dot(B, self.path.sizes[l + 1] + error) + c)

    def _norms(self, l: int) -> np.ndarray:
        if l not in self.norms:
            self.norms[l] = link_norms(self.model.layers[l].attention, self.path.kernels[l])
        return self.norms[l]


def after(
    readout: Readout, size: np.ndarray, error: np.ndarray, precision: Format, stored: bool
) -> np.ndarray:
    """The rounding of the last FFN and the readout, per output, for |X| <= size known up to `error`."""
    r, u, given = readout, precision.u, size + error
    fits = True
    if len(r.c):
        argument = dot(np.abs(r.B), size) + np.abs(r.c)
        wrong = product_error(r.B, size, error, u, r.c, stored) + lost(r.B, given, precision)
        reach = dot(np.abs(r.A), argument + wrong)
        added = product_error(r.A, argument, wrong, u, stored=stored)
        added += lost(r.A, argument + wrong, precision)
        both = (given > 0) & (reach > 0)
        error = error + added + np.where(both, 1.05 * u * (given + reach + added), 0.0) + precision.least
        size = size + dot(np.abs(r.A), argument)
        given = size + error
        fits = precision.holds(argument + wrong, given)
    total = dot(np.abs(r.W_U), given) + np.abs(r.b_U)
    found = product_error(r.W_U, size, error, u, r.b_U, stored) + lost(r.W_U, given, precision)
    return found if fits and precision.holds(total + found) else np.full_like(found, math.inf)


def fewest_bits(meets_with: Callable[[float], bool]) -> int | None:
    """The fewest significand bits with which the tolerance is met; `meets_with` takes the unit roundoff."""
    meets = lambda bits: meets_with(2.0**-bits)
    low, high = 1, 2
    while not meets(high):
        low, high = high, 2 * high
        if high > MOST_BITS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def mass_of(model: Transformer) -> float:
    """The largest sum_h |(W_O W_V)_ji| over layers and pairs of coordinates."""
    masses = []
    for layer in model.layers:
        heads = layer.attention.heads
        W_V, W_O = np.asarray(heads.W_V, dtype=float), np.asarray(heads.W_O, dtype=float)
        masses.append(float(np.abs(W_O @ W_V).sum(axis=0).max(initial=0.0)))
    return max(masses)


def _mass_lower_bound(model: Transformer, path: _Path, task: Task, exact: float) -> float | None:
    """What any lin heads in one layer need, to recall the farthest lag with this error (THEORY.md, 2)."""
    kernels = path.kernels[0]
    if len(model.layers) > 1 or not isinstance(kernels, SumKernels) or kernels.rpe.name != "lin":
        return None
    if not isinstance(task, Fixed):
        return None
    from memloci.approx.lower_bounds import chebyshev_mass

    if not 0 < exact < 1:
        return None
    return 2.0 ** chebyshev_mass(max(task.lags), exact).log2


def assumptions(model: Transformer, task: Task) -> tuple[str, ...]:
    a = model.architecture
    ranges = ", ".join(
        f"{c.name} in {[p.lo for p in c.domain] if c.finite else [list(p) for p in c.domain]}"
        for c in task.channels
    )
    reach = "every length" if a.window is None else f"every length; lags up to the window of {a.window:,}"
    taken = [path for path in ("plain", "blocks", "recurrence") if may_take(path, a)]
    evaluation = f"path {' or '.join(taken)}, as the path certified chooses"
    if a.path in PATHS:
        evaluation = f"path {a.path}" + ("; what it leaves out is a term" if neglects(model) else "")
    return (
        f"evaluation: {evaluation}",
        f"inputs: {ranges}, numbers of the precision",
        f"normalisation: {a.normalisation}",
        f"sequence lengths: {reach}, every position, also those earlier than a lag",
        "rounding: to nearest, sums in any order, over a long past as running sums, library functions within 8 units (certifier/rounding.py)",
    )
