"""What the paper's theorems say of a task, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memloci.core.numbers import decimals

if TYPE_CHECKING:
    from memloci.theory.paper_rates import HeadsRate, PaperRates, Statement


def statement_lines(paper: PaperRates) -> list[str]:
    """What each theorem says in full: model, rates, and the condition on the width."""
    lines = []
    for statement in paper.statements:
        rates = "; ".join(f"{rate.encoding}: {rate_text(rate)}" for rate in statement.rates)
        lines.append(f"{statement.result} ({model_text(statement)}): {rates}. Width: {statement.width}.")
    return lines


def model_text(statement: Statement) -> str:
    layers = "1 layer" if statement.layers == 1 else f"{statement.layers} layers"
    return f"{layers}, {statement.attention}"


def rate_text(rate: HeadsRate) -> str:
    """The rate, and how large S(1) is: beside the constant C(1), which nobody knows."""
    if not rate.exists:
        return f"no rate: {rate.condition}"
    log10_S = rate.log10_S(1)
    return f"{rate.text}; S(1) = {'0' if math.isinf(log10_S) else f'10^{decimals(log10_S, 1)}'}"
