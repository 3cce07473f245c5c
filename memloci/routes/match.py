"""Matches: softmax heads whose dot product compares content, and a slope that prefers the latest.

    logit = c <u(q), v(k_s)> - p z,     <u, v> = the number of conditions that hold, up to a constant of the query

Conditions are counted in whole numbers (codes.py: one bit of a compared key, or one class of a table, is one condition).
So the past falls into levels that lie c apart, and the head finds the latest token of the highest level that is there:
earlier ones of that level weigh at most 1 / (e^p - 1) of it, lower levels e^{p n - c}. With c = p 2^m that is nothing for
every length up to n = 2^m - 3.

*No match.* Then the head finds a near miss. It brings the candidate's code along, neurons compare it with the query bit by
bit, and what was recalled passes only where every bit agrees. So there is no sink that a match at position 0 could be
confused with, and none that costs half of the length.
*Offset.* A first layer puts the key of o tokens ago beside each token, and whether there is one.
*Hops.* Tokens carry the codes of all channels that some match reads. A head brings them with the token, so the query of
the next hop is there one layer later, and is gated by the first hop's comparison.
*Earliest* is a slope of the other sign; *mean* a second head without a slope.

*Length.* p is a power of 2, positions and codes are whole numbers, so every logit is a multiple of p; nothing is rounded
while it stays below 2^bits p. With R conditions at most: 2^m (R + 1) < 2^bits. float32 has 24 bits: a million tokens.
A mean of n tokens rounds n times, which is what limits its length: n u <= tolerance.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from memloci.approx.readouts.lookup import LookupLayer as NeuronLayer
from memloci.approx.readouts.ridge_exact import affine
from memloci.circuits.circuit import ONE, Circuit, DecayKernel, Head, Layer, PeakKernel, shifted, writes_each
from memloci.core.numbers import literal
from memloci.language.domain import Domain
from memloci.model.architecture import MAX_LAG
from memloci.routes.codes import base_of, bits_of_digits, codes, high_digit, in_digits, read_letters
from memloci.routes.front import kernel_front
from memloci.routes.request import Obstacle, Request
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.memories.predicate import Predicate
from memloci.tasks.names import channel_of, memory_of, variable

MOST_CLASSES = 256  # tuned: classes of a table that is no equality; one dimension each
LENGTH_BITS = 31  # log2 of the longest length: positions are 32-bit integers
DECIDED = 2.0**-6  # what a comparison may be off: below it, what was missed is exactly 0
FIRMLY = 64.0  # a hop that was missed outweighs whatever the next one compares
SHORTEST = 3  # log2: below 8 tokens a model is of no use


@dataclass(frozen=True)
class Condition:
    """What a match asks of a candidate: a vector at the candidate against one at the query, as slots."""

    key: tuple[str, ...]  # 0 or 1 each
    query: tuple[str, ...]
    bits: bool  # equal bits, or (a table) the candidate's class is one of those that the query allows
    source: int  # the match that brings the query; 0 where it is the token's own


@dataclass
class MatchDesign:
    """The circuit of the matches of a task, under construction."""

    request: Request
    matches: dict[int, Occurrence]
    lags: dict[int, int]  # memory -> fixed lag
    first: NeuronLayer = field(default_factory=NeuronLayer)
    second: NeuronLayer = field(default_factory=NeuronLayer)
    shifted_slots: dict[int, set[str]] = field(
        default_factory=dict
    )  # lag -> what the first layer shifts by it
    coded_slots: dict[tuple, tuple[str, ...]] = field(default_factory=dict)

    def level(self, i: int) -> int:
        """How many hops come before memory i."""
        before = [self.level(j) + 1 for j in self.matches[i].parents if j in self.matches]
        return max(before, default=0)

    def token(self, channel: str, lag: int) -> str:
        """The slot of a channel some steps ago."""
        if lag:
            self.shifted_slots.setdefault(lag, set()).update((channel, ONE))
        return shifted(channel, lag)

    def bits(self, slot: str, letters: Domain, at: Domain, rows: np.ndarray, name: str) -> tuple[str, ...]:
        """The slots of rows[letter], one number each; the code of `letters` where the rows are just that."""
        key = (slot, name)
        if key not in self.coded_slots:
            plain = at == letters and in_digits(letters)
            outputs = tuple(f"{slot} {name} {j}" for j in range(rows.shape[1]))
            layer = self.first
            layer.purpose = f"{name} of {slot}"
            if plain and np.array_equal(rows, codes(len(letters))):
                high, base = f"{slot} high digit", base_of(letters)
                self.second.purpose = layer.purpose
                high_digit(layer, slot, letters, base, high)
                bits_of_digits(self.second, slot, high, letters, base, outputs)
            else:
                read_letters(layer, slot, at, rows.astype(float), outputs)
            self.coded_slots[key] = outputs
        return self.coded_slots[key]

    def source(self, name: str) -> tuple[str, int]:
        """(slot where tokens carry this variable's channel, the match that must bring what is made of it; 0 if none)."""
        channel, j = channel_of(name), memory_of(name)
        if j in self.matches:
            return channel, j
        return self.token(channel, self.lags[j]) if j else channel, 0


def match(request: Request) -> Circuit:
    plan = _plan(request)
    conditions = {i: _conditions(plan, i) for i in plan.matches}
    p, m, R = _sharpness(request, plan, conditions)
    c = p * 2.0**m
    levels = max(plan.level(i) for i in plan.matches) + 1
    gates = [NeuronLayer() for _ in range(levels + 1)]
    brought: dict[int, dict[str, str]] = {
        i: {} for i in plan.matches
    }  # slot at the token -> slot where it arrives
    for i, compared in conditions.items():
        needed = [slot for one in compared for slot in one.key]
        asking = [one for other in conditions.values() for one in other if one.source == i]
        needed += [slot for one in asking for slot in one.query if slot not in ("", ONE)]
        needed += request.channels_of(i)
        present = shifted(ONE, plan.matches[i].offset)
        plan.token(ONE, plan.matches[i].offset)
        brought[i] = {slot: f"{slot} found {i}" for slot in dict.fromkeys([*needed, present])}
    heads: list[list[Head]] = [[] for _ in range(levels)]
    for i, compared in conditions.items():
        heads[plan.level(i)] += _heads(plan, i, compared, brought, c, p)
        _compare(plan, i, compared, brought, gates[plan.level(i)])
        _pass(plan, i, brought, gates[plan.level(i) + 1])
    front = kernel_front(request)
    layers = [*front.layers, *_first_layers(plan)]
    for layer_heads, neurons in zip([*heads, []], gates, strict=True):
        made = neurons.neurons() if neurons.outputs_of else None
        layers.append(
            Layer("dp", "lin", "softmax", tuple(layer_heads), made, key_dim=_dims(layer_heads))
            if layer_heads
            else _idle(made)
        )
    formulas = [formula.expression for formula in request.task.readouts]
    if not all(f is not None and affine(f) is not None for f in formulas):
        layers.append(_idle(None))  # the readout's neurons read what has passed
    slots = {variable(name, i): _passed(name, i) for i in plan.matches for name in request.channels_of(i)}
    slots |= {
        variable(name, i): shifted(name, lag)
        for i, lag in plan.lags.items()
        for name in request.channels_of(i)
    }
    longest = 2**m - 3
    bits = request.format.bits
    limit = (
        f"a mean of n tokens rounds n times in {request.precision}"
        if _means(plan) and m < _exact_bits(bits, R)
        else f"logits are multiples of {literal(p)}, exact in {request.precision} up to 2^{bits} of them, {R + 1} per token"
    )
    why = (
        f"{len(layers)} layers, {max(map(len, heads))} softmax heads that compare {R} conditions; every length up to "
        f"{longest:,}, because {limit}{front.text}"
    )
    return request.circuit("match", why, layers, slots | front.slots)


def _plan(request: Request) -> MatchDesign:
    matches, lags = {}, {}
    for i in request.read:
        recall = request.task.recalls[i - 1]
        if isinstance(recall, Occurrence):
            matches[i] = recall
        elif isinstance(recall, LagTable) and recall.kernel:
            lags[i] = recall.bound
        elif not recall.kernel:
            raise Obstacle(
                f"memory {i} is at {recall.text}, a lag that depends on the input; beside matches this route brings fixed "
                "lags and kernels only"
            )
    if not matches:
        raise Obstacle("no memory is found by content; routes for lags and kernels serve, with fewer parts")
    plan = MatchDesign(request, matches, lags)
    for i, lag in lags.items():
        for name in request.channels_of(i):
            plan.token(name, lag)
    far = max([*lags.values(), *(one.offset for one in matches.values())], default=0)
    if far >= MAX_LAG:
        raise Obstacle(f"lag {far:,} does not fit a window of {MAX_LAG:,}")
    return plan


def _conditions(plan: MatchDesign, i: int) -> list[Condition]:
    P, o = plan.matches[i].predicate, plan.matches[i].offset
    conditions = []
    for e in P.equalities:
        code = codes(len(e.candidate_letters))
        key = plan.bits(
            plan.token(channel_of(e.candidate), o), e.candidate_letters, e.candidate_letters, code, "bit"
        )
        slot, source = plan.source(e.query)
        if e.candidate_letters == e.query_letters:
            query = plan.bits(slot, e.candidate_letters, e.candidate_letters, code, "bit")
        else:  # the code of the equal letter; no candidate has the code of a letter that it does not have
            same = np.array(e.same)
            rows = np.where((same >= 0)[:, None], code[np.maximum(same, 0)], 0)
            names = f"as {channel_of(e.candidate)}"
            known = plan.bits(slot, e.candidate_letters, e.query_letters, np.c_[rows, same < 0], names)
            query = known[:-1]
            if (same < 0).any():
                conditions.append(Condition((), (known[-1],), False, source))
        conditions.append(Condition(key, query, True, source))
    return conditions + _table_condition(plan, i, P, o)


def _table_condition(plan: MatchDesign, i: int, P: Predicate, o: int) -> list[Condition]:
    """All other conditions: the class of the candidate, against the classes that the query allows."""
    if P.table.all():
        return []
    mine = [v for v in P.condition.reads if v in P.candidate_variables]
    theirs = [v for v in P.condition.reads if v not in P.candidate_variables]
    for names, who in ((mine, "the candidate"), (theirs, "the query")):
        if len(names) > 1:
            raise Obstacle(
                f"memory {i}: {plan.matches[i].formula} reads {', '.join(names)} of {who} in one condition; conditions other "
                "than equalities are built from one variable of each side, joined by `and`"
            )
    allowed, classes = np.unique(P.table, axis=1, return_inverse=True)  # (rows, classes)
    classes = np.asarray(classes).reshape(-1)
    if allowed.shape[1] > MOST_CLASSES:
        raise Obstacle(
            f"memory {i}: {plan.matches[i].formula} tells {allowed.shape[1]:,} classes of tokens apart, a dimension each; "
            f"at most {MOST_CLASSES} are built, and equalities need none"
        )
    domains, name = dict(zip(P.condition.reads, P.condition.domains, strict=True)), f"class for {i}"
    if mine:
        one_hot = np.eye(allowed.shape[1])[classes]
        key = plan.bits(plan.token(channel_of(mine[0]), o), domains[mine[0]], domains[mine[0]], one_hot, name)
    else:
        key = (shifted(ONE, o),)
    source = 0
    if theirs:
        slot, source = plan.source(theirs[0])
        query = plan.bits(
            slot, domains[theirs[0]], domains[theirs[0]], allowed.astype(float), f"allows for {i}"
        )
    else:
        query = tuple(ONE if allow else "" for allow in allowed[0])
    return [Condition(key, query, False, source)]


def _query_slots(one: Condition, recalled_slots: dict[int, dict[str, str]]) -> tuple[str, ...]:
    """The query's slots where it is asked: the token's own, or where another match brought them."""
    return tuple(recalled_slots[one.source].get(slot, slot) if one.source else slot for slot in one.query)


def _sharpness(
    request: Request, plan: MatchDesign, conditions: dict[int, list[Condition]]
) -> tuple[float, int, int]:
    """(p, m, R): the slope, log2 of the length, and the conditions that a logit adds up."""
    bits = request.format.bits
    p = 2.0 ** math.ceil(
        math.log2(3 * bits * math.log(2))
    )  # e^-p is below u^2: what a hop brings is exact for the next
    R = max(
        sum(len(one.key) if one.bits else 1 for one in of_memory) + 1 for of_memory in conditions.values()
    )
    m = min(_exact_bits(bits, R), LENGTH_BITS)
    if _means(plan):  # rounding: one part in 8 of what the readout can bear
        m = min(m, math.floor(math.log2(max(request.E_attn / (8 * request.u), 1.0))))
    if m < SHORTEST:
        raise Obstacle(
            f"{request.precision} has {bits} bits, and logits of {R} conditions are exact for {max(2**m - 3, 0)} tokens only"
        )
    return p, m, R


def _exact_bits(bits: int, R: int) -> int:
    """m: R conditions and the lag, each up to 2^m p, add up to less than 2^bits p."""
    return bits - math.ceil(math.log2(1.02 * (R + 1)))


def _means(plan: MatchDesign) -> bool:
    return any(not one.token for one in plan.matches.values())


def _heads(
    plan: MatchDesign,
    i: int,
    conditions: list[Condition],
    recalled_slots: dict[int, dict[str, str]],
    c: float,
    p: float,
) -> list[Head]:
    recall, request = plan.matches[i], plan.request
    query, key, at = {}, {}, 0
    width = sum(len(one.key) for one in conditions) + 1

    def add(rows: dict[str, np.ndarray], slot: str, weight: float) -> None:
        rows.setdefault(slot, np.zeros(width))[at] += weight

    for one in conditions:
        for k, q in zip(one.key, _query_slots(one, recalled_slots), strict=False):
            add(key, k, 1.0)
            if one.bits:
                add(query, q, 2 * c)
                add(query, ONE, -c)
            elif q:
                add(query, q, c)
            at += 1
    add(key, shifted(ONE, recall.offset), 1.0)
    add(query, ONE, c)
    slots = recalled_slots[i]
    payload = list(request.channels_of(i)) if recall.which == "mean" else []
    reads = [slot for slot in slots if slot not in payload]
    slope = -p if recall.which == "earliest" else p
    verb = {"latest": "finds the latest", "earliest": "finds the earliest", "mean": "finds the latest"}[
        recall.which
    ]
    heads = [
        Head(
            f"{verb} match of memory {i}",
            tuple(reads),
            writes_each(reads, [slots[s] for s in reads]),
            DecayKernel(slope),
            query,
            key,
        )
    ]
    if payload:
        writes = writes_each(payload, [slots[s] for s in payload])
        heads.append(
            Head(f"averages all matches of memory {i}", tuple(payload), writes, DecayKernel(0.0), query, key)
        )
    return heads


def _dims(heads: list[Head]) -> int:
    return max(len(next(iter(head.key.values()))) for head in heads)


def _missed(i: int) -> str:
    return f"missed {i}"


def _passed(channel: str, i: int) -> str:
    return variable(channel, i)


def _compare(
    plan: MatchDesign,
    i: int,
    conditions: list[Condition],
    recalled_slots: dict[int, dict[str, str]],
    layer: NeuronLayer,
) -> None:
    """Neurons that add more than 1 to `missed i` wherever the found candidate fails a condition, and 0 where it fails none."""
    out, arrived = {_missed(i): 1.0}, recalled_slots[i]
    layer.purpose = f"whether memory {i} was found"
    for one in conditions:
        queries = _query_slots(one, recalled_slots)
        if not one.key:  # a letter that no candidate has
            layer.add({queries[0]: 2.0}, -DECIDED, out)
        for k, q in zip(one.key, queries, strict=False):
            signs = (1.0, -1.0) if one.bits else (1.0,)  # a class is missed where the query does not allow it
            for sign in signs:
                B = {arrived[k]: 2.0 * sign}
                if q == ONE:
                    continue
                if q:
                    B[q] = B.get(q, 0.0) - 2.0 * sign
                layer.add(B, -DECIDED, out)
    layer.add({arrived[shifted(ONE, plan.matches[i].offset)]: -2.0}, 2.0 - DECIDED, out)
    for j in plan.matches[i].parents:
        if j in plan.matches:
            layer.add({_missed(j): FIRMLY}, 0.0, out)
        elif plan.lags[j]:
            layer.add({shifted(ONE, plan.lags[j]): -2.0}, 2.0 - DECIDED, out)


def _pass(plan: MatchDesign, i: int, recalled_slots: dict[int, dict[str, str]], layer: NeuronLayer) -> None:
    """What was found, where nothing was missed: relu(x + S - 2 S missed) - relu(S - 2 S missed), with no neuron near 0."""
    layer.purpose = f"memory {i}, where it was found"
    for name in plan.request.channels_of(i):
        S = 2.0 ** math.ceil(math.log2(1.25 * max(plan.request.sizes[name], 2.0**-20)))
        gate, out = {_missed(i): -2 * S}, _passed(name, i)
        domain = plan.request.task.channel(variable(name, 0)).domain
        sign = 1.0 if domain[0].lo >= 0 else -1.0 if domain[-1].hi <= 0 else 0.0
        if sign:  # one neuron, which rounds nothing
            layer.add({recalled_slots[i][name]: sign, **gate}, 0.0, {out: sign})
            continue
        layer.add({recalled_slots[i][name]: 1.0, **gate}, S, {out: 1.0})
        layer.add(gate, S, {out: -1.0})


def _first_layers(plan: MatchDesign) -> list[Layer]:
    """What is moved by fixed lags, and the codes of letters."""
    first = plan.first.neurons() if plan.first.outputs_of else None
    second = plan.second.neurons() if plan.second.outputs_of else None
    heads, c = [], 4 * plan.request.format.sharp
    lags = sorted(lag for lag in plan.shifted_slots if lag)
    frequencies = max(4, max(lags, default=0).bit_length())
    for lag in lags:
        reads = [slot for slot in (*plan.request.channels, ONE) if slot in plan.shifted_slots[lag]]
        writes = writes_each(reads, [shifted(slot, lag) for slot in reads])
        heads.append(
            Head(f"recalls lag {literal(lag)}", tuple(reads), writes, PeakKernel(lag, c, frequencies))
        )
    layers = []
    if heads or first is not None:
        layer = Layer("dpf", "rope", "infinite", tuple(heads), first, 1 << frequencies, 2 * frequencies)
        layers.append(layer if heads else _idle(first))
    if second is not None:
        layers.append(_idle(second))
    return layers


def _idle(neurons) -> Layer:
    """Neurons alone; a layer has a head, which reads and writes nothing."""
    return Layer("dpf", "rope", "infinite", (), neurons, window=16, key_dim=2)


ROUTES = {"match": match}
