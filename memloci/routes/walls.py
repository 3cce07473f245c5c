"""What no heads can do: floors on error plus rounding, at a price of the mass that no certificate beats.

A floor refuses a route before heads are fitted. Where the residuals of several memories could cancel, or neurons could
undo them, the floor of one memory does not prove that the task is out of reach: then the text begins with "not tried".
"""

import math

from memloci.approx.kernels.lower_bounds import LEAST_CHARGE, chebyshev_mass, lower_bound
from memloci.approx.kernels.rpe import as_rpe
from memloci.approx.kernels.targets import AbstractTarget, SingleLag
from memloci.core.numbers import lower_number, number, power_of_two
from memloci.routes.request import Obstacle, Request

FARTHEST_WALL_LAG = 1_024  # tuned: lags that lin and log heads are fitted to; the bound takes seconds there, and memory as its square
QUICK = {"bits": 128, "alone": 24, "last": 100, "ratio": 1.3, "rounds": 3}  # tuned: weaker, not less true


def refuse_far_lag(
    rpe: str, lag: int, request: Request, enough: float, what: str, certain: bool = True
) -> None:
    """Lag 1 needs no cancelling. Beyond it, error plus rounding has a floor that no heads get under."""
    if lag == 1 or enough >= 1:
        return
    if lag > FARTHEST_WALL_LAG:
        raise Obstacle(f"{what}: not tried, for heads are fitted to lags up to {FARTHEST_WALL_LAG:,}")
    request.report(f"{rpe}, lag {lag}: the least that any heads leave")
    floor = lower_bound(rpe, SingleLag(lag), price=LEAST_CHARGE * request.u)  # type: ignore[arg-type]
    if floor.error <= enough:
        return
    mass = chebyshev_mass(lag, enough).log2 if rpe == "lin" else math.log2(max(floor.mass_for(enough), 1.0))
    raise Obstacle(
        f"{'' if request.alone and certain else 'not tried: '}{what} to within {number(enough)} needs at least "
        f"{power_of_two(mass)} of mass, whatever the heads (proved), and {request.precision} has {request.format.bits} "
        "bits: at one rounding of the mass, less than any certificate charges, no heads leave less than "
        f"{lower_number(floor.error)}"
    )


def refuse_kernel(rpe: str, target: AbstractTarget, request: Request) -> None:
    """A kernel has a floor too: e^(-b z) in log heads, or one that rings. A second, where fits take minutes."""
    enough = request.loosest_for(target)
    if isinstance(target, SingleLag) or enough >= float(target.norm().lower()):
        return
    if enough >= float(target.tail_bound(1).lower()):
        return  # one head that looks at lag 1 alone may do, and its certificate may charge it nothing
    if target.start > FARTHEST_WALL_LAG:
        raise Obstacle(
            f"{target.label} is not in its tail before lag {target.start:,}: not tried, for heads are fitted to kernels "
            f"that are by lag {FARTHEST_WALL_LAG:,}"
        )
    spectrum = target.spectrum(as_rpe(rpe))  # type: ignore[arg-type]
    if spectrum is not None and not spectrum.powers:  # it is a sum of heads already
        return
    request.report(f"{rpe}, {target.label}: the least that any heads leave")
    floor = lower_bound(rpe, target, price=LEAST_CHARGE * request.u, **QUICK)  # type: ignore[arg-type]
    if floor.error <= enough:
        return
    raise Obstacle(
        f"{'' if request.alone else 'not tried: '}{target.label} in one {rpe} layer to within {number(enough)}: at one "
        f"rounding of the mass in {request.precision}, less than any certificate charges, no heads leave less than "
        f"{lower_number(floor.error)}, however many (proved)"
    )
