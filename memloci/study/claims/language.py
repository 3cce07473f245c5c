"""What 1a and 3b share: text, and when a model has learned enough of it to be judged.

A table of how often a byte follows two others knows the present and one past token. A model that predicts no better than
that need not have related any memories, so it says nothing about claims on how memories relate. The table is scored on all
that is held out; models on windows of it, at whose beginning they know less: that is against the models.
"""

import math
import platform
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from memloci.core.numbers import decimals
from memloci.study.arms import BITS, model, text
from memloci.study.claim import Evidence, Profile
from memloci.study.statistics import Estimate, mean

BYTES = 256
MARGIN = 0.02  # bits per byte: about 1 % of what such models need
ORDER = 2
LITTLE = 0.01  # added to every count: a byte that never followed is not impossible


@dataclass(frozen=True)
class Size:
    """How large models are, and how long they read; tuned to what a profile may take."""

    steps: int
    length: int
    dim: int  # heads have a quarter of it
    held_out: int  # sequences


QUICK = Size(400, length=48, dim=32, held_out=128)
FULL = Size(2000, length=64, dim=64, held_out=1024)


def training(profile: Profile) -> dict[str, Any]:
    size = profile.pick(QUICK, FULL)
    every = max(100, size.steps // 8)
    return {
        "steps": size.steps,
        "batch": 16,
        "length": size.length,
        "held_out": size.held_out,
        "evaluate_every": every,
    }


def reader(profile: Profile, layers: int, heads: int, **switches: Any) -> dict[str, Any]:
    """A model of text; its FFNs have half as many neurons again as the stream is wide."""
    dim = profile.pick(QUICK, FULL).dim
    sizes = {"layers": layers, "dim": dim, "key_dim": dim // 4, "value_dim": dim // 4}
    return model(heads, dim + dim // 2, **{**sizes, **switches})


def budget(profile: Profile) -> Profile:
    """A run on text takes as long as ten others: fewer rates at first, which may still lead to those beyond."""
    return profile.pick(profile, replace(profile, pilots=1, rates=(1e-3, 3e-3, 1e-2)))


@lru_cache(maxsize=4)
def table_bits(path: str) -> float:
    """Bits per byte of the held-out part of a text, by a table of the bytes that follow two others."""
    from memloci.train.data import HELD_OUT_PART

    content = Path(path).read_bytes()
    training_bytes = len(content) - len(content) // HELD_OUT_PART
    counts: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for k in range(ORDER, training_bytes):
        counts[content[k - ORDER : k]][content[k]] += 1
    totals = {context: sum(successors.values()) for context, successors in counts.items()}
    bits = 0.0
    for k in range(training_bytes, len(content)):
        context = content[k - ORDER : k]
        count = counts[context][content[k]] if context in counts else 0
        bits -= math.log2((count + LITTLE) / (totals.get(context, 0) + LITTLE * BYTES))
    return bits / (len(content) - training_bytes)


def if_learned(
    evidence: Evidence, names: Sequence[str], effects: Sequence[Estimate]
) -> tuple[list[Estimate], tuple[str, ...]]:
    """The effects, without intervals where no arm is better than the table; and notes that say so, and of which text."""
    path = evidence.profile.text or ""
    table, described = table_bits(path), text(path)
    which = (
        f"The text has {Path(path).stat().st_size:,} bytes, sha256 {described['sha256']}; without --text it is the start of the standard "
        f"library of the Python that runs, here {platform.python_version()}."
    )
    best = min((mean(evidence[name].values(BITS)).value or math.inf for name in names), default=math.inf)
    if best < table:
        best_text = f"The best arm needs {decimals(best, 2)} bits per byte, a table of {ORDER} bytes {decimals(table, 2)}."
        return list(effects), (best_text, which)
    best_text = (
        f"No arm with a number for every seed needs fewer bits per byte than a table of {ORDER} bytes ({decimals(table, 2)}): too "
        "little is learned to judge."
    )
    return [Estimate(effect.value, None, None) for effect in effects], (best_text, which)
