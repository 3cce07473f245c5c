"""Heads that are fixed kernels: the fewest that bring what is wanted, and the layer that they make.

All memories share the heads: M coefficient rows, one set of exponents.
"""

from collections.abc import Sequence
from functools import cache

from memloci.approx.kernels.kernel_sums import KernelSum, fit
from memloci.approx.kernels.targets import AbstractTarget
from memloci.circuits.circuit import DecayKernel, Head, purpose
from memloci.core.numbers import number
from memloci.core.proved import Proved
from memloci.routes.request import ROUNDING, KernelVariable, Request
from memloci.routes.walls import refuse_kernel

HEAD_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def fewest_heads(rpe: str, targets: Sequence[AbstractTarget], request: Request, enough: float) -> KernelSum:
    """The smallest of HEADS whose error, with what rounding will cost, is `enough`; else the best found."""
    for target in targets:
        refuse_kernel(rpe, target, request)

    @cache
    def fitted(heads: int) -> KernelSum:
        request.report(f"{rpe}, {heads} heads")
        return fit(rpe, targets, heads, precision=request.precision, rounding=ROUNDING)  # type: ignore[arg-type]

    paid = lambda heads: cost(fitted(heads), request.u)
    few = [heads for heads in HEAD_COUNTS if heads <= 4]
    for heads in few:  # exact matches need few, and cost little to try
        if paid(heads) <= enough:
            return fitted(heads)
    low, high = len(few), len(few)
    while paid(HEAD_COUNTS[high]) > enough:  # more heads, while they help
        if high + 1 == len(HEAD_COUNTS) or (
            high > low and paid(HEAD_COUNTS[high]) > 0.8 * paid(HEAD_COUNTS[high - 1])
        ):
            return min(
                (fitted(heads) for heads in (*few, *HEAD_COUNTS[low : high + 1])),
                key=lambda k: cost(k, request.u),
            )
        high += 1
    return fitted(HEAD_COUNTS[high])


def cost(kernel_sum: KernelSum, u: float) -> float:
    """Error, and what rounding costs when heads cancel; a single head does not cancel."""
    return kernel_sum.error + (ROUNDING * u * kernel_sum.mass if kernel_sum.heads > 1 else 0.0)


def sum_heads(best: KernelSum, variables: Sequence[KernelVariable]) -> tuple[Head, ...]:
    """The heads of a kernel sum, writing each wanted variable to the slot of its name."""
    reads = tuple(dict.fromkeys(channel for _, channel, _ in variables))
    labels = ", ".join(dict.fromkeys(target.label for _, _, target in variables))
    rows = {name: best.coefficients[best.targets.index(target)] for name, _, target in variables}
    return tuple(
        Head(
            purpose("bring", labels, best.heads),
            reads,
            {name: {channel: float(rows[name][h])} for name, channel, _ in variables},
            DecayKernel(p),
        )
        for h, p in enumerate(best.exponents)
    )


def sum_text(best: KernelSum) -> str:
    return (
        f"{best.heads} shared heads, mass {number(Proved(best.mass))}: l1 error {number(Proved(best.error))} in exact "
        "arithmetic"
    )
