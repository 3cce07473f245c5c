"""Which path a model takes: by kind, length and device, unless `Architecture.path` names one.

| path | time | memory | serves |
|---|---|---|---|
| plain | n^2 | n^2 | everything; the definition |
| blocks | n min(n, w) | n | every score and normalisation of this package |
| recurrence | n | n | dpf, tmx with lin, log or a short t5 table, no window |
| convolution | n log n | n | dpf, tmx; only if asked for: convolution.py says why |
| sharp | n, or n U for U distinct keys | n | heads that read a few positions each; only if asked for: sharp.py |

`auto` takes the fastest that agrees with the definition to rounding. `certified` takes the fastest of those whose
rounding the certificates cover: the recurrence of lin heads with `infinite` normalisation, and blocks for all others. It
leaves the plain definition early, because one sum of n terms in any order rounds most. `possible_paths` says which paths a model
may take at all, and `covered` which of them the certificates cover: certify refuses a model that may take another.
To add a path, write its class in a file of its own and list it in PATHS.
"""

from collections.abc import Iterator

import jax

from memloci.model.architecture import Architecture
from memloci.model.paths.base import AbstractPath
from memloci.model.paths.blocks import Blocks
from memloci.model.paths.convolution import Convolution
from memloci.model.paths.plain import Plain, longest_plain
from memloci.model.paths.recurrence import Recurrence
from memloci.model.paths.sharp import Sharp

PATHS: dict[str, type[AbstractPath]] = {
    path.name: path for path in (Plain, Blocks, Recurrence, Convolution, Sharp)
}
AUTOMATIC = ("auto", "certified")

# Tuned on a CPU: the length from which each is faster than the plain definition, compiling included. On other
# devices the plain definition is one large product, and steps that follow one another are slow.
RECURRENT_FROM = {"cpu": 256}
BLOCKS_FROM = {"cpu": 512}
ELSEWHERE = 2048
# Where `certified` leaves the plain definition, on every device: one sum in any order loses a rounding per term, and the
# heavy tails of log heads make use of all of them. Other heads are sharp, or have a window.
CERTIFIED_FROM = {"lin": 128, "log": 16}
LONGEST = 2**31  # positions are 32-bit integers


def choose(architecture: Architecture, n: int, device: str | None = None) -> str:
    """The name of the path for sequences of length n; `device` is JAX's default one."""
    if architecture.path not in AUTOMATIC:
        return architecture.path
    recurrent = Recurrence.refusal(architecture) is None
    blocks = Blocks.refusal(architecture) is None
    start = CERTIFIED_FROM.get(architecture.encoding)
    if architecture.path == "certified":
        recurrent = recurrent and covered("recurrence", architecture)
        if blocks and start is not None and architecture.normalisation != "softmax":
            return "plain" if n < start else "recurrence" if recurrent else "blocks"
    device = device or jax.default_backend()
    if recurrent and n >= RECURRENT_FROM.get(device, ELSEWHERE):
        return "recurrence"
    reach = n if architecture.window is None else min(n, architecture.window)
    start = BLOCKS_FROM.get(device, ELSEWHERE)
    return "blocks" if blocks and (n * reach >= start**2 or n >= 8 * start) else "plain"


def covered(path: str, architecture: Architecture) -> bool:
    """Whether the rounding model of the certificates holds for this path."""
    if path == "recurrence":
        kind = architecture.attention, architecture.encoding, architecture.normalisation
        return kind == ("dpf", "lin", "infinite")
    return path in ("plain", "blocks", "sharp")


def possible_paths(architecture: Architecture) -> dict[str, int]:
    """Every path that a model may take, on some device, and the longest sequence that takes it."""
    plain = longest_plain(architecture.heads)
    if architecture.path not in AUTOMATIC:
        return {architecture.path: plain if architecture.path == "plain" else LONGEST}
    devices = [*RECURRENT_FROM, *BLOCKS_FROM, "any other"]
    paths = {
        path: LONGEST for device in devices if (path := choose(architecture, LONGEST, device)) != "plain"
    }
    if not paths:
        return {"plain": plain}
    changes = [_first(architecture, device) for device in devices]
    return {"plain": min(max(changes) - 1, plain), **paths}


def _first(architecture: Architecture, device: str) -> int:
    """The length from which a model leaves the plain definition on this device."""
    low, high = 0, LONGEST
    while high - low > 1:
        n = (low + high) // 2
        low, high = (n, high) if choose(architecture, n, device) == "plain" else (low, n)
    return high


def overview(device: str | None = None) -> Iterator[tuple[str, dict[int, str]]]:
    """What `auto` takes from which length on; kinds with the same answers are told together."""
    from memloci.core.errors import BadInput
    from memloci.model.encodings import ENCODINGS
    from memloci.model.scores import SCORES

    by_changes: dict[tuple[tuple[int, str], ...], dict[str, list[str]]] = {}
    for attention in SCORES:
        for encoding in ENCODINGS:
            try:
                a = Architecture(
                    layers=1, heads=1, width=0, attention=attention, encoding=encoding, normalisation="none"
                )
            except BadInput:
                continue
            kinds = by_changes.setdefault(tuple(_changes(a, device)), {})
            kinds.setdefault(attention, []).append(encoding)
    for changes, kinds in by_changes.items():
        yield "; ".join(f"{kind} {' '.join(names)}" for kind, names in kinds.items()), dict(changes)


def _changes(architecture: Architecture, device: str | None) -> Iterator[tuple[int, str]]:
    """(length, path) wherever another path is taken, up to a million tokens."""
    before = None
    for n in sorted({0, *(2**k for k in range(21))}):
        if (path := choose(architecture, n, device)) != before:
            yield n, path
        before = path
