"""What the heads and neurons of a wiring do, in words: a row per head, or per group of heads that do the same.

A pointer has no kernel to draw, because where it looks depends on what it reads. Its wiring says it instead.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from memloci.planner.symbols import memory_slot, presence_slot
from memloci.planner.wiring import ONE, Reader, Stage, Wiring


@dataclass(frozen=True)
class Doing:
    """A line of the table: cells in plain text."""

    layers: str
    heads: str
    looks: str
    reads: str
    writes: str
    neurons: str


def doings(wiring: Wiring) -> list[Doing]:
    """Every layer in order; neighbours that do the same are one line."""
    found: list[tuple[int, int, Doing]] = []
    for l, stage in enumerate(wiring.stages):
        neurons = _neurons(wiring, stage, last=l == len(wiring.stages) - 1)
        groups = [list(group) for _, group in groupby(stage.heads, _asked)] or [[]]
        for k, group in enumerate(groups):
            now = _doing(wiring, group, neurons if k == len(groups) - 1 else "")
            if found and len(groups) == 1 and found[-1][2] == now:
                found[-1] = (found[-1][0], l, now)
            else:
                found.append((l, l, now))
    return [replace(doing, layers=f"{a + 1}" if a == b else f"{a + 1} to {b + 1}") for a, b, doing in found]


def _doing(wiring: Wiring, group: Sequence[Reader], neurons: str) -> Doing:
    if not group:
        return Doing("", "–", "", "", "", neurons)
    head = group[0]
    memory = _asked(head)
    later = any("@" in slot for slot in head.values)
    reads = "what the layer before brought" if later and not memory else _channels(head.values)
    to = f"memory {memory}" if memory else "slots for later layers"
    return Doing("", f"{len(group)}", _looks(wiring, group, memory), reads, to, neurons)


def _asked(head: Reader) -> int:
    """The memory whose lag a head asks for; 0 if it asks for none."""
    found = [re.search(r" of (\d+)$", slot) for slot in (*head.query, *head.w)]
    return next((int(match[1]) for match in found if match), 0)


def _looks(wiring: Wiring, group: Sequence[Reader], memory: int) -> str:
    if not memory:
        return "1 step back"
    g = f"g{memory}"
    if wiring.encoding == "rope":
        return f"{g} − 1 steps back; at position 0 if that is nowhere"
    slopes = [head.p or 0.0 for head in group]
    form = f"exp(−β (z − {g}))" if wiring.encoding == "lin" else f"(z / {g})^−β"
    span = f"β = {slopes[0]:.3g}" if len(slopes) == 1 else f"β from {min(slopes):.3g} to {max(slopes):.3g}"
    return f"with weights {form}, {span}, which sum to 1 at lag {g} and nearly 0 elsewhere"


def _channels(slots: Iterable[str]) -> str:
    """a@1, v@1 -> a, v of the token before."""
    names = [slot.partition("@") for slot in slots]
    told = ", ".join("presence" if name == ONE else name for name, *_ in names)
    return told + (" of the token before" if any(step for *_, step in names) else "")


def _neurons(wiring: Wiring, stage: Stage, last: bool) -> str:
    """What the FFN of a layer computes."""
    parts: list[str] = []
    if stage.neurons is not None and stage.neurons.width:
        outputs = stage.neurons.outputs
        lags = sorted({int(match[1]) for slot in outputs if (match := re.search(r" of (\d+)$", slot))})
        if lags:
            parts.append("the lag" + ("s" if len(lags) > 1 else "") + " " + ", ".join(f"g{i}" for i in lags))
        M = len(wiring.holds) // len(wiring.channels) - 1
        slots = lambda i: {presence_slot(i), *(memory_slot(channel, i) for channel in wiring.channels)}
        picked = [i for i in range(1, M + 1) if slots(i) & set(outputs)]
        if picked:
            near = wiring.encoding == "rope"
            what = "the token before, into memory " if near else "one of the tokens, into memory "
            parts.append(what + ", ".join(map(str, picked)) + (" where its lag is 1" if near else ""))
        if any(" from " in slot for slot in outputs):
            parts.append("how far symbols are from their letters")
        parts = [f"{stage.neurons.width:,}: " + "; ".join(parts)] if parts else [f"{stage.neurons.width:,}"]
    if last and wiring.readout.width:
        parts.append(f"{wiring.readout.width:,}: the readout")
    return "; ".join(parts)
