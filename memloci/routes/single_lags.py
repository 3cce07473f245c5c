"""One head per lag: what rotary and t5 heads have in common."""

from collections.abc import Callable

from memloci.approx.kernels.targets import SingleLag
from memloci.circuits.circuit import Circuit, Head, Layer, Position, shifted
from memloci.routes.request import Request


def one_head_per_lag(
    request: Request,
    route: str,
    why: str,
    position: Callable[[int], Position],
    encoding: str,
    window: int,
    key_dim: int = 1,
) -> Circuit:
    reads = tuple(dict.fromkeys(w.channel for w in request.kernel_variables))
    slots, heads = {}, []
    for lag in request.lags():
        variables = [
            w for w in request.kernel_variables if isinstance(w.target, SingleLag) and w.target.lag == lag
        ]
        writes = {shifted(w.channel, lag): {w.channel: 1.0} for w in variables}
        heads.append(Head(f"recalls lag {lag:,}", reads, writes, position(lag)))
        slots |= {w.name: shifted(w.channel, lag) for w in variables}
    layer = Layer("dpf", encoding, "infinite", tuple(heads), window=window, key_dim=key_dim)
    return request.circuit(route, why, [layer], slots)
