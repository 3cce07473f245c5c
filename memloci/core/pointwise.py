"""exp, log, cos and sqrt at points, enclosed: by Arb for one number, by sums of our own for arrays of them.

    exp_at(x) -> (lo, hi)      lo <= exp(x) <= hi, float64

Nothing rests on the accuracy of libm: Arb proves its balls, the Taylor sums have a proved slack, and a logarithm
is checked by the exponential.
"""

import math
from typing import Any

Values = Any  # a float, or a float64 array
Ends = tuple[Values, Values]

INF = math.inf
# Proved below for our Taylor sums: relative for exp, absolute for cos.
EXP_SLACK = 2.0**-47
COS_SLACK = 2.0**-46
LN2 = tuple(map(float.fromhex, ("0x1.62e42fefa3800p-1", "0x1.ef35793c76730p-45")))  # 42 bits, then the rest
HALF_PI = tuple(  # 33 bits, 33 bits, then the rest
    map(float.fromhex, ("0x1.921fb54400000p+0", "0x1.0b4611a600000p-34", "0x1.3198a2e037073p-69"))
)
LARGEST_ANGLE = 2.0**19  # of an array, or of an interval


def one(x: Values) -> bool:
    """Whether this is one number, not an array."""
    return isinstance(x, float | int)


def by_arb(function: str, x: float, *more: float) -> Ends:
    """A function at one point, one step outwards from its ball; Arb's own limits at infinity do not count."""
    from flint import arb

    value = getattr(arb(x), function)(*(arb(m) for m in more))
    if not value.is_finite():
        return -INF, INF
    return math.nextafter(float(value.lower()), -INF), math.nextafter(float(value.upper()), INF)


def exp_at(x: Values) -> Ends:
    """k LN2[0] is exact for |k| < 2^11, so r errs by less than 2^-51; Taylor to r^14 leaves less than 2^-60 and rounds
    by less than 2^-48 in all: within EXP_SLACK, relative."""
    if one(x):
        if math.isinf(x):
            return (INF, INF) if x > 0 else (0.0, 0.0)
        lo, hi = by_arb("exp", x)
        return max(lo, 0.0), hi
    import numpy as np

    inside = np.clip(x, -740.0, 709.5)
    k = np.rint(inside / math.log(2))
    r = (inside - k * LN2[0]) - k * LN2[1]
    total = np.ones_like(r)
    for n in range(14, 0, -1):
        total = 1.0 + total * r / n
    value = np.ldexp(total, k.astype(int))
    lo, hi = value * (1 - EXP_SLACK) - 1e-320, value * (1 + EXP_SLACK) + 1e-320
    return np.where(x < -740.0, 0.0, np.maximum(lo, 0.0)), np.where(x > 709.5, INF, hi)


def log_at(x: Values) -> Ends:
    """At x > 0; of an array, a proposal that exp confirms."""
    if one(x):
        return (INF, INF) if math.isinf(x) else by_arb("log", x)
    import numpy as np

    y = np.log(x)
    delta = 2.0**-44 * np.maximum(1.0, np.abs(y))
    lo, hi = np.nextafter(y - delta, -INF), np.nextafter(y + delta, INF)
    sure = (exp_at(lo)[1] <= x) & (x <= exp_at(hi)[0])
    return np.where(sure, lo, -INF), np.where(sure, hi, INF)


def sqrt_at(x: Values) -> Ends:
    """At x >= 0. IEEE square roots are rounded correctly, so one step outwards is enough."""
    if one(x):
        root = math.sqrt(x) if math.isfinite(x) else x
        return max(math.nextafter(root, -INF), 0.0), math.nextafter(root, INF)
    import numpy as np

    root = np.sqrt(np.maximum(x, 0.0))
    return np.maximum(np.nextafter(root, -INF), 0.0), np.nextafter(root, INF)


def tanh_at(x: Values) -> Ends:
    """1 - 2 / (e^2x + 1)."""
    if one(x):
        lo, hi = (math.copysign(1.0, x),) * 2 if math.isinf(x) else by_arb("tanh", x)
        return max(lo, -1.0), min(hi, 1.0)
    import numpy as np

    lo, hi = exp_at(2 * np.clip(x, -300.0, 300.0))
    below = np.nextafter(1 - np.nextafter(2 / np.nextafter(lo + 1, -INF), INF), -INF)
    above = np.nextafter(1 - np.nextafter(2 / np.nextafter(hi + 1, INF), -INF), INF)
    lo, hi = np.maximum(below, -1.0), np.minimum(above, 1.0)
    return np.where(x < -300.0, -1.0, lo), np.where(x > 300.0, 1.0, hi)


def cos_at(x: Values) -> Ends:
    """Of an array with |x| <= LARGEST_ANGLE: k HALF_PI[0] and k HALF_PI[1] are exact, so r errs by less than 2^-50;
    Taylor to r^18 leaves less than 2^-60: within COS_SLACK, absolute."""
    if one(x):
        lo, hi = by_arb("cos", x) if math.isfinite(x) else (-1.0, 1.0)
        return max(lo, -1.0), min(hi, 1.0)
    import numpy as np

    k = np.rint(x / (math.pi / 2))
    r = ((x - k * HALF_PI[0]) - k * HALF_PI[1]) - k * HALF_PI[2]
    r2 = r * r
    even, odd = np.ones_like(r), np.ones_like(r)
    for n in range(9, 0, -1):
        even = 1.0 - even * r2 / ((2 * n - 1) * (2 * n))
        odd = 1.0 - odd * r2 / ((2 * n) * (2 * n + 1))
    odd = odd * r
    turn = np.mod(k, 4)  # cos(r + k pi / 2) = cos r, -sin r, -cos r, sin r
    value = np.select([turn == 0, turn == 1, turn == 2], [even, -odd, -even], odd)
    return np.maximum(value - COS_SLACK, -1.0), np.minimum(value + COS_SLACK, 1.0)


def sin_at(x: float) -> Ends:
    """Of one number; arrays take cos(x - pi/2)."""
    lo, hi = by_arb("sin", x) if math.isfinite(x) else (-1.0, 1.0)
    return max(lo, -1.0), min(hi, 1.0)
