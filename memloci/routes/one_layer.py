"""One layer of lin or log heads: the paper's construction, improved. All memories share the heads, mass is paid for.

What limits it is the precision wall: the mass grows by 4 bits per lag. A task that recalls nothing needs no head.
"""

from memloci.approx.kernels.kernel_sums import KernelSum
from memloci.approx.kernels.targets import SingleLag
from memloci.circuits.circuit import Circuit, Layer
from memloci.routes.kernel_heads import fewest_heads, sum_heads, sum_text
from memloci.routes.request import Request
from memloci.routes.walls import refuse_far_lag


def one_layer(request: Request, rpe: str) -> Circuit:
    if request.only_present and rpe == "lin":
        layer = Layer("dpf", rpe, "infinite", ())
        return request.circuit("one-layer-lin", "nothing is recalled, so no head reads anything", [layer], {})
    request.fixed_kernels()
    lags = [target for target in request.targets if isinstance(target, SingleLag)]
    if lags:
        far = max(lags, key=lambda target: target.lag)
        what = f"lag {far.lag} with one {rpe} layer"
        refuse_far_lag(rpe, far.lag, request, request.loosest_for(far), what)
    return kernel_circuit(request, fewest_heads(rpe, request.targets, request, request.E_attn))


def kernel_circuit(request: Request, best: KernelSum) -> Circuit:
    """The circuit whose heads are those of a kernel sum for what is wanted, however good it is."""
    layer = Layer("dpf", best.rpe, "infinite", sum_heads(best, request.kernel_variables))
    slots = {name: name for name, _, _ in request.kernel_variables}
    return request.circuit(f"one-layer-{best.rpe}", sum_text(best), [layer], slots)


ROUTES = {
    "one-layer-lin": lambda request: one_layer(request, "lin"),
    "one-layer-log": lambda request: one_layer(request, "log"),
}
