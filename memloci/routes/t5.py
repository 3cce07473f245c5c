"""t5 heads: a bias that singles out the bucket of a lag, one head per lag. Limited by one bucket per lag."""

from memloci.circuits.circuit import Circuit, TableKernel
from memloci.routes.request import Obstacle, Request
from memloci.routes.single_lags import one_head_per_lag

MOST_T5_LAGS = 2_048  # lags with a bucket of their own: half of the most buckets that are built


def t5(request: Request) -> Circuit:
    lags = request.lags()
    buckets = max(32, 2 * lags[-1])
    if lags[-1] > MOST_T5_LAGS:
        raise Obstacle(
            f"lag {lags[-1]:,} needs a bucket of its own, so {buckets:,} buckets; at most {2 * MOST_T5_LAGS:,} are built"
        )
    c = 2 * request.format.sharp
    peak = lambda lag: TableKernel((*(-c,) * (lag - 1), 0.0), beyond=-c)
    return one_head_per_lag(request, "t5", f"{buckets} buckets, one per lag", peak, "t5", max(128, buckets))


ROUTES = {"t5": t5}
