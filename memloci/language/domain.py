"""What holds for an expression on everything its variables can be: is it defined, how large, how steep.

A variable's domain is a tuple of intervals: points for a finite alphabet, one interval for a range.
Interval arithmetic overestimates on a large box, so the box is split, the worst part first, until the
answer is sharp enough or the budget is spent. Every answer is an enclosure whenever we stop.
"""

import heapq
import math
from collections.abc import Callable, Mapping

from memloci.core.errors import BadInput
from memloci.core.intervals import FALSE, Interval, Undefined, hull
from memloci.core.numbers import number
from memloci.core.specs import shorten
from memloci.language.evaluate import can_overflow, enclose, slopes
from memloci.language.expression import Expression, variables

Domain = tuple[Interval, ...]
Domains = Mapping[str, Domain]

BUDGET = 400  # boxes looked at per question; tuned: a few milliseconds
SMALLEST = 1e-6  # relative width at which an undefined value is believed to be real


def _box(domains: Domains) -> dict[str, Interval]:
    return {name: Interval(domain[0].lo, domain[-1].hi) for name, domain in domains.items()}


def _split(domains: Domains) -> list[dict[str, Domain]]:
    """Two halves across the widest variable, or nothing when every variable is a point."""
    name = max(domains, key=lambda n: domains[n][-1].hi - domains[n][0].lo, default=None)
    if name is None or domains[name][-1].hi == domains[name][0].lo:
        return []
    domain = domains[name]
    middle = len(domain) // 2
    halves: list[Domain] = [domain[:middle], domain[middle:]]
    if not middle:
        halves = [(half,) for half in domain[0].halves()]
    return [{**domains, name: half} for half in halves]


def check_defined(expression: Expression, domains: Domains) -> None:
    """Refuse an expression that is undefined or not finite somewhere on its domains."""
    start = {name: domains[name] for name in sorted(variables(expression))}
    boxes, examined = [start], 0
    scale = max((hull(*d).magnitude for d in start.values()), default=1.0)
    while boxes:
        domains = boxes.pop()
        examined += 1
        box = _box(domains)
        try:
            if not can_overflow(expression, box):
                continue
            problem = f"the value can exceed float64 in {shorten(_text(expression))}"
        except Undefined as error:
            problem = str(error)
        halves = _split(domains)
        small = max((part.width for part in box.values()), default=0.0) <= SMALLEST * scale
        if not halves or small or examined > BUDGET:
            raise BadInput(f"{problem}{_near(box)}")
        boxes += halves


def _text(expression: Expression) -> str:
    return getattr(expression, "text", "") or "the expression"


def _near(box: Mapping[str, Interval]) -> str:
    if not box:
        return ""
    middle = {name: 0.0 if part.contains(0.0) else part.lo + part.width / 2 for name, part in box.items()}
    places = [f"{name} = {number(value, 4)}" for name, value in middle.items()]
    return " (near " + ", ".join(places[:4]) + ")"


def _supremum(measure: Callable[[dict[str, Interval]], float], start: dict[str, Domain]) -> float:
    """An upper bound on the largest `measure` over the domains; `measure` bounds it on one box."""
    heap = [(-measure(_box(start)), 0, start)]
    for tick in range(1, BUDGET):
        worst, _, domains = heap[0]
        halves = _split(domains)
        if not halves:
            break
        heapq.heappop(heap)
        for side, half in enumerate(halves):
            heapq.heappush(heap, (-measure(_box(half)), 2 * tick + side, half))
        if heap[0][0] == worst and tick > 40:
            break  # splitting no longer helps
    return -heap[0][0]


def bounds(expression: Expression, domains: Domains) -> Interval:
    """An interval that contains every value on the domains."""
    start = {name: domains[name] for name in sorted(variables(expression))}

    def largest(end: Callable[[Interval], float]) -> float:
        def measure(box: dict[str, Interval]) -> float:
            try:
                return end(enclose(expression, box))
            except Undefined:  # on a smaller box it is defined: `check_defined` has seen to it
                return math.inf

        return _supremum(measure, start)

    return Interval(-largest(lambda value: -value.lo), largest(lambda value: value.hi))


def lipschitz(expression: Expression, domains: Domains) -> dict[str, float]:
    """For each variable, a bound on |df/dx| over the hull of the domains; inf where f may jump.

    The hull, because the values that attention delivers lie between the symbols of an alphabet.
    """
    start: dict[str, Domain] = {name: (hull(*domains[name]),) for name in sorted(variables(expression))}

    def steepness(name: str) -> Callable[[dict[str, Interval]], float]:
        def measure(box: dict[str, Interval]) -> float:
            try:
                return slopes(expression, box).get(name, FALSE).magnitude
            except Undefined:
                return math.inf

        return measure

    return {name: _supremum(steepness(name), start) for name in start}
