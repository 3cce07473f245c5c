"""Softmax heads that compare content and prefer recent tokens: which token each query finds.

    logit(s) = <q, k_s> - p (t - s)

Candidates (candidates.py) have finitely many keys, so <q, k> takes finitely many values: levels. Let neighbouring levels lie
at least G apart. Of the tokens of the past, take those of the highest level that occurs, and of them the latest (p > 0; the
earliest for p < 0), at lag z. Every other one of that level weighs e^{-|p| j}, j = 1, 2, ...; all of lower levels together

    sum_{z'} e^{-G - p z' + p z}  <=  e^{-G + |p| (n - 1)} / (1 - e^{-|p|}),        n the length,

so for every length up to n = G / |p| - 3 the head finds that token, and `beside` is what all others weigh. For p = 0 it is
the mean over the level. Which token that is, the case says: if the tokens of the highest level are those that satisfy the
predicate of match i, then it is memory i where that has found something. Where it has not, it is some other token: rows are
split by the first value that tells it from a token that satisfies the predicate, so that neurons can be seen to notice.

Rounding. Where all products are multiples of a power of 2, up to small errors, and so is p, every logit is computed exactly
(affine_forms.near_grid); else errors of logits count, and a query for which they reach |p| / 4 finds nothing that is known.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from memloci.certify.affine_forms import AffineForms, add, add_all, folded, grid_of, linear
from memloci.certify.candidates import Candidates
from memloci.certify.cases import BLANK, FOREVER, FOUND, query_pieces, satisfied
from memloci.certify.cases import candidates as all_combinations
from memloci.certify.position_forms import PositionForms
from memloci.certify.rotary_heads import matched, softmax_share
from memloci.certify.rounding import LENGTH, LIBRARY, Format, gamma, times
from memloci.certify.slacks import ROUNDED, own_product
from memloci.core.errors import BadInput
from memloci.model.attention import Head
from memloci.model.encodings import Lin
from memloci.model.scores import DotProduct
from memloci.tasks.memories.lag_table import piece_index
from memloci.tasks.memories.match import Occurrence
from memloci.tasks.memories.predicate import Predicate
from memloci.tasks.task import Task

KEPT = 3  # of the gap, in units of |p|: lower levels then weigh e^-3|p| of the match, or less
SURE = 0.25  # of |p|: what logits may be off
ALONE = (
    2.0**20
)  # the length that is proved where there is one level only, and no gap says how far a head can look
LIBM = 1e-9  # exp of float64 errs by less than 2^-50


@dataclass(frozen=True)
class Levels:
    """Per query, the levels of all candidates."""

    top: np.ndarray  # (n, m) which candidates are on the highest level
    gap: np.ndarray  # (n,) the least distance of neighbouring levels; infinite if there is one
    spread: np.ndarray  # (n,) how far candidates of one level may be apart


@dataclass
class MatchHeads:
    W_V: np.ndarray  # (H, d_v, D)
    W_O: np.ndarray  # (H, D, d_v)
    W_Q: np.ndarray  # (H, d_k, D)
    W_K: np.ndarray
    p: np.ndarray  # (H,)
    # The longest sequence of which anything is proved; it shrinks while cases are followed.
    longest: list[float] = field(default_factory=lambda: [float(FOREVER)])
    _levels: dict[bytes, Levels] = field(default_factory=dict)

    @classmethod
    def of(cls, heads: Head) -> "MatchHeads":
        if heads.past.window is not None or heads.past.stride != 1:
            raise BadInput("certificates of matches need an unlimited past and stride 1")
        assert isinstance(heads.encoding, Lin) and isinstance(heads.score, DotProduct)
        exact = lambda array: np.asarray(array, dtype=float)
        return cls(
            exact(heads.W_V),
            exact(heads.W_O),
            exact(heads.score.W_Q),
            exact(heads.score.W_K),
            exact(heads.encoding.p),
        )

    @property
    def writing(self) -> list[int]:
        return [h for h in range(len(self.W_O)) if self.W_O[h].any()]

    def streams(self, precision: Format) -> bool:
        """A stream keeps all keys and values, and adds them up in any order, as every path does."""
        return True

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        return past.worse(self._reach(past, precision, stored))

    def at_unknown_position(
        self, X: AffineForms, past: PositionForms, precision: Format, stored: bool
    ) -> AffineForms:
        """X + Attn(X) at a position of which nothing is known but its own token."""
        added = self._reach(past, precision, stored)
        E = X.E + np.where(X.cases.t_max[:, None] == 0, 0.0, added[None, :])
        return replace(X, E=np.where(added > 0, E + ROUNDED * precision.u * (X.size + added), E))

    def _reach(self, past: PositionForms, precision: Format, stored: bool) -> np.ndarray:
        """The largest that all heads together can write."""
        total = np.zeros(self.W_O.shape[1])
        for h in self.writing:
            value = past.linear(self.W_V[h], precision, stored)
            most = np.maximum(value.size, value.size_first)
            precision.expect(LENGTH * most)
            total += np.abs(self.W_O[h]) @ most
        count = (self.W_O != 0).sum(axis=(0, 2)) + 4
        return total * (1 + gamma(count, precision.u)) * (1 + LIBM)

    def attend(
        self, X: AffineForms, past: PositionForms, shape, precision: Format, stored: bool
    ) -> AffineForms:
        raise BadInput("heads that compare content are certified for matches; this task has none")

    def with_candidates(self, task: Task, candidates: list[Candidates]) -> "MatchHeadsWithCandidates":
        return MatchHeadsWithCandidates(self, task, candidates)

    # What a head finds.

    def levels(self, q: np.ndarray, k: np.ndarray, spread: float) -> Levels:
        """Of queries (n, d_k) against keys (m, d_k); contents that are nearer than `spread` are one level."""
        key = b"".join((q.tobytes(), k.tobytes(), np.float64(spread).tobytes()))
        if key not in self._levels:
            content = q @ k.T
            order = np.sort(content, axis=1)
            steps = np.diff(order, axis=1)
            apart = steps > spread
            gap = np.where(apart, steps, np.inf).min(axis=1, initial=np.inf)
            inside = np.where(apart, 0.0, steps).sum(axis=1)  # of all levels together, at least of each
            top = content >= order[:, -1:] - np.maximum(inside, 0.0)[:, None] - 1e-300
            self._levels[key] = Levels(top, gap, inside)
        return self._levels[key]


@dataclass
class MatchHeadsWithCandidates:
    """The same heads, with the candidates that they look among."""

    heads: MatchHeads
    task: Task
    candidates: list[Candidates]

    @property
    def W_V(self) -> np.ndarray:
        return self.heads.W_V

    @property
    def W_O(self) -> np.ndarray:
        return self.heads.W_O

    @property
    def W_Q(self) -> np.ndarray:
        return self.heads.W_Q

    @property
    def W_K(self) -> np.ndarray:
        return self.heads.W_K

    def streams(self, precision: Format) -> bool:
        return self.heads.streams(precision)

    def at_any_position(self, past: PositionForms, precision: Format, stored: bool) -> PositionForms:
        return self.heads.at_any_position(past, precision, stored)

    def attend(
        self, X: AffineForms, past: PositionForms, shape: tuple[int, int], precision: Format, stored: bool
    ) -> AffineForms:
        self.heads._reach(past, precision, stored)  # no sum of values may overflow
        queries, parts, terms = X, [], []
        for h in self.heads.writing:
            rows, recalled = self._recalled(h, queries, past, precision, stored)
            queries, parts = queries.take(rows), [part.take(rows) for part in parts]
            parts.append(linear(self.W_O[h], recalled, precision, stored=stored))
            terms.append((self.W_O[h] != 0).sum(axis=1))
        return add(queries, add_all(parts, terms, precision), precision) if parts else queries

    def _recalled(
        self, h: int, X: AffineForms, past: PositionForms, precision: Format, stored: bool
    ) -> tuple[np.ndarray, AffineForms]:
        """(rows, values): what head h brings, in cases that are `rows` of those of X, split where need be."""
        q = linear(self.W_Q[h], X, precision, stored=stored)
        value = past.linear(self.W_V[h], precision, stored)
        n, most = len(X.cases), np.maximum(value.size, value.size_first)
        rows = [np.zeros(0, dtype=np.int64)]
        values = _Values.empty(most, X)
        left = X.cases.t_max > 0  # position 0 sees nothing
        # Two matches may ask for the same token by chance; the head is for the one that it finds most often.
        serves = lambda candidates, bring: self._serve(
            h, candidates, q, X, left, rows, values, precision, stored, bring
        )
        order = self.candidates
        if len(order) > 1:
            order = sorted(order, key=lambda candidates: -int(serves(candidates, False).sum()))
        asking = left
        for candidates in order:
            left = left & ~serves(candidates, True)
        finds = asking & (X.cases.lag == FOUND).any(axis=1)
        # Too few bits, so that nothing which follows is of use. Of several matches, some may ask after a blank one.
        if precision.u and len(order) == 1 and finds.any() and left[finds].all():
            precision.mark_broken()
        at_start = np.flatnonzero(X.cases.t_max == 0)
        rows.append(at_start)
        values.add(np.zeros((len(at_start), len(most))), None, np.zeros((len(at_start), len(most))))
        self._add_any_value(h, np.flatnonzero(left), rows, values, precision, stored)
        every = np.concatenate(rows)
        assert len(np.unique(every)) == n
        cases = X.cases.take(every)
        return every, folded(cases, *values.arrays(cases))

    def _add_any_value(self, h, unknown, rows, recalled, precision, stored) -> None:
        """Nothing is known of where the weights lie, but they add up to 1, and every position is a candidate."""
        if not len(unknown):
            return
        values = linear(self.W_V[h], self.candidates[0].X, precision, stored=stored)
        middle, radius = recalled.box(values, np.arange(len(values.cases)))
        E = radius + times(self._mean_rounding(precision), np.abs(middle) + radius)
        E = E + 4 * FOREVER * precision.least
        rows.append(unknown)
        recalled.add(np.tile(middle, (len(unknown), 1)), None, np.tile(E, (len(unknown), 1)))

    def _serve(
        self,
        h: int,
        memory_candidates: Candidates,
        q: AffineForms,
        X: AffineForms,
        unserved: np.ndarray,
        rows: list[np.ndarray],
        recalled: "_Values",
        precision: Format,
        stored: bool,
        add_values: bool,
    ) -> np.ndarray:
        """The cases in which head h is seen to find memory i, or, where that is blank, to miss it; if `add_values`, what it brings
        there is added to `rows` and `recalled`."""
        recall = self.task.recalls[memory_candidates.memory - 1]
        assert isinstance(recall, Occurrence)
        n, i = len(X.cases), memory_candidates.memory
        served = np.zeros(n, dtype=bool)
        asking = np.flatnonzero(unserved)
        p = float(self.heads.p[h])
        sloped = {"latest": p > 0, "earliest": p < 0, "mean": True}[recall.which]
        if not len(asking) or not sloped:
            return served
        k = linear(self.W_K[h], memory_candidates.X, precision, stored=stored)
        # Cases that ask alike are looked at together.
        ask = np.concatenate([q.middle[asking], q.radius[asking]], axis=1)
        _, first, which = np.unique(ask, axis=0, return_index=True, return_inverse=True)
        which = np.asarray(which).reshape(-1)
        alike = q.take(asking[first])
        scale = abs(p) if p else 1.0
        levels = self.heads.levels(alike.middle, k.middle, SURE * scale)
        reach = np.where(np.isfinite(levels.gap), levels.gap / scale, ALONE + KEPT)
        off = 2 * _logit_errors(alike, k, p, precision, stored, reach) + levels.spread
        sure = (off <= SURE * scale) & (levels.gap >= (KEPT + 2) * scale)
        n_row = np.floor(reach + 0.5) - KEPT if p else np.full(len(off), float(FOREVER))
        cases = X.cases.take(asking)
        P = recall.predicate
        blank = np.zeros(len(asking), dtype=bool)
        for j in recall.parents:
            blank |= cases.lag[:, j] == BLANK
        holds = satisfied(P, query_pieces(self.task, P, cases.centre))
        if len(holds) != len(asking):
            holds = np.broadcast_to(holds, (len(asking), holds.shape[1]))
        good = np.where(
            memory_candidates.key >= 0, holds[:, np.maximum(memory_candidates.key, 0)], False
        )  # (asking, candidates)
        top, ok = levels.top[which], sure[which] & ~blank
        right = ok & ((top == good).all(axis=1) | ~good.any(axis=1))
        if not right.any() or not add_values:
            served[asking[right]] = True
            return served
        self.heads.longest[0] = min(self.heads.longest[0], float(n_row[which[right]].min()))
        beside = self._beside(off, levels.gap, p, n_row, precision.u)[which]
        uneven = times(np.expm1(off[which]) * (1 + LIBM), 1.0)
        values = linear(self.W_V[h], memory_candidates.X, precision, stored=stored)
        present = right & (cases.lag[:, i] == FOUND)
        absent = right & (cases.lag[:, i] == BLANK)
        if p == 0 and recall.which != "mean":
            present &= False
        if p != 0 and recall.which == "mean":  # it finds the latest, which is one of those that are averaged
            self._add_some_match(
                np.flatnonzero(present), asking, good, values, beside, rows, recalled, precision
            )
        else:
            self._add_token(
                np.flatnonzero(present),
                i,
                asking,
                cases,
                good,
                memory_candidates,
                values,
                beside,
                uneven,
                rows,
                recalled,
                precision,
                p,
            )
        if p == 0:  # a mean of other tokens: nothing is known of it but its size
            self._add_hull(np.flatnonzero(absent), asking, good, values, beside, rows, recalled, precision)
        else:
            classes = _classes(memory_candidates, P)
            self._add_mismatch(
                np.flatnonzero(absent), asking, good, classes, values, beside, rows, recalled, precision
            )
        served[asking[present | absent]] = True
        return served

    def _beside(self, off: np.ndarray, gap: np.ndarray, p: float, n: np.ndarray, u: float) -> np.ndarray:
        """All the weight that lies elsewhere, of that of the match.

        The largest logit is subtracted, which rounds once: distances are at least (1 - u) of themselves.
        """
        below = lambda x: np.exp(np.clip(x, -700.0, 700.0)) * (1 + LIBM)
        least = 1 - 2 * u
        if not p:
            return below(math.log(FOREVER) - gap * least + off)
        level = below(off) / math.expm1(abs(p) * least) * (1 + LIBM)
        apart = (gap - abs(p) * (n - 1)) * least  # positive, as n < gap / |p|
        lower = below(off - apart) / -math.expm1(-abs(p) * least) * (1 + LIBM)
        return np.minimum(level + np.where(np.isfinite(gap), lower, 0.0), 1.0)

    def _errors(
        self, forms: AffineForms, beside: np.ndarray, most: np.ndarray, precision: Format
    ) -> np.ndarray:
        """What the found token loses, and what all others add."""
        unmatched = matched(beside, precision.u)[:, None] * forms.size
        return unmatched + softmax_share(beside, precision)[:, None] * most[None, :]

    def _mean_rounding(self, precision: Format) -> np.ndarray:
        """What a mean of up to n tokens rounds, per unit of their size: a quotient of two sums of n terms in any order, of
        exponentials that the library rounds, and of products."""
        g = gamma(self.heads.longest[0] + LIBRARY + 4, precision.u)
        return np.where(g < 1, 2 * g / np.where(g < 1, 1 - g, 1.0), np.inf)

    def _add_token(
        self,
        chosen,
        i,
        asking,
        cases,
        good,
        memory_candidates,
        values,
        beside,
        uneven,
        rows,
        recalled,
        precision,
        p,
    ) -> None:
        """The token of memory i: its values, in the variables of the task.

        A mean over N tokens whose logits are `off` apart at most has weights w_s with N w_s within e^{+-off}, so that
        sum |w_s - 1 / N| <= e^off - 1 (`uneven`).
        """
        if not len(chosen):
            return
        d = memory_candidates.channels
        if p:
            known = {
                c: piece_index(cases.centre[chosen, i * d + c], self.task.channels[c].domain, np)
                for c in memory_candidates.token
            }
            others = [
                memory_candidates.rows[label]
                for label in memory_candidates.labelled(cases.key[chosen, i], known).tolist()
            ]
        else:
            others = [np.flatnonzero(good[r]) for r in chosen]
        token = np.array([group[0] for group in others], dtype=np.int64)
        const, coef, E = values.const[token], values.coef[token][:, :, :d], values.E[token]
        hidden = values.spread_of(slice(d, None))  # what depends on other tokens, and errors
        # Position 0 is a case of its own, and a mean is over several: how far they are apart.
        apart = np.zeros_like(E)
        for r, (t, group) in enumerate(zip(token, others, strict=True)):
            apart[r] = hidden[group].max(axis=0)
            if len(group) > 1:
                c = np.abs(values.const[group] - values.const[t]).max(axis=0)
                w = np.abs(values.coef[group][:, :, :d] - values.coef[t][:, :d]).max(axis=0)
                reach = np.abs(values.cases.centre[group, :d]) + values.cases.radius[group, :d]
                apart[r] += (c + w @ reach.max(axis=0) + values.E[group].max(axis=0)) * (1 + LIBM)
        forms = values.take(token)
        E = E + apart + self._errors(forms, beside[chosen], recalled.most, precision)
        if not p:
            E = E + times(uneven[chosen][:, None] + self._mean_rounding(precision), forms.size)
        rows.append(asking[chosen])
        placed = np.zeros((len(chosen), const.shape[1], recalled.variables))
        placed[:, :, i * d : (i + 1) * d] = coef
        recalled.add(const, placed, E)

    def _add_some_match(self, chosen, asking, good, values, beside, rows, recalled, precision) -> None:
        """One of the tokens that satisfy the predicate; rows are split by which."""
        for r in chosen.tolist():
            self._add_groups(
                r, np.flatnonzero(good[r])[:, None], asking, values, beside, rows, recalled, precision
            )

    def _add_mismatch(self, chosen, asking, good, classes, values, beside, rows, recalled, precision) -> None:
        """A token that does not satisfy the predicate; rows are split by what tells it from those that do."""
        cache: dict[bytes, list[np.ndarray]] = {}
        for r in chosen.tolist():
            key = good[r].tobytes()
            if key not in cache:
                cache[key] = _groups(values, good[r], classes)
            self._add_groups(r, cache[key], asking, values, beside, rows, recalled, precision)

    def _add_hull(self, chosen, asking, good, values, beside, rows, recalled, precision) -> None:
        for r in chosen.tolist():
            group = np.flatnonzero(~good[r])
            self._add_groups(
                r, [group] if len(group) else [], asking, values, beside, rows, recalled, precision, mean=True
            )

    def _add_groups(self, r, groups, asking, values, beside, rows, recalled, precision, mean=False) -> None:
        """One row for each group of candidates: the smallest box around what they bring."""
        boxes = [recalled.box(values, group) for group in groups]
        if not boxes:  # every token satisfies the predicate, so that there is none: no such case
            boxes = [(np.zeros_like(recalled.most), np.zeros_like(recalled.most))]
        middle, radius = (np.array(part) for part in zip(*boxes, strict=True))
        weight = beside[[r] * len(boxes)]
        size = np.abs(middle) + radius
        E = radius + matched(weight, precision.u)[:, None] * size
        E = E + softmax_share(weight, precision)[:, None] * recalled.most[None, :]
        if mean:
            E = E + times(self._mean_rounding(precision), size)
        rows.append(np.full(len(boxes), asking[r]))
        recalled.add(middle, None, E)


@dataclass
class _Values:
    """What a head brings, row by row."""

    most: np.ndarray  # (d_v,) the largest that any position has
    variables: int
    parts: list[tuple[np.ndarray, np.ndarray | None, np.ndarray]] = field(default_factory=list)
    _boxes: dict[bytes, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @classmethod
    def empty(cls, most: np.ndarray, X: AffineForms) -> "_Values":
        return cls(most, X.coef.shape[2])

    def add(self, const: np.ndarray, coef: np.ndarray | None, E: np.ndarray) -> None:
        self.parts.append((const, coef, E))

    def box(self, values: AffineForms, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = group.tobytes() + str(id(values)).encode()
        if key not in self._boxes:
            lo = (values.middle[group] - values.radius[group]).min(axis=0)
            hi = (values.middle[group] + values.radius[group]).max(axis=0)
            middle = lo + (hi - lo) / 2
            rounding = own_product(2) * (np.abs(lo) + np.abs(hi))
            self._boxes[key] = middle, np.where(lo == hi, 0.0, (hi - lo) / 2 + rounding)
        return self._boxes[key]

    def arrays(self, cases) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        const = np.concatenate([part for part, _, _ in self.parts])
        E = np.concatenate([part for _, _, part in self.parts])
        coef = np.zeros((len(cases), const.shape[1], self.variables))
        at = 0
        for centre, more, _ in self.parts:
            if more is not None:
                coef[at : at + len(centre)] = more
            at += len(centre)
        return const, coef, np.where(np.isnan(E), np.inf, E)


def _classes(candidates: Candidates, predicate: Predicate) -> np.ndarray:
    """(rows,) candidates that the conditions of the predicate, equalities aside, tell apart; -1 where no token is compared."""
    pieces = all_combinations(predicate)
    classes = np.unique(predicate.table, axis=1, return_inverse=True)[1].reshape(-1)
    columns = np.broadcast_to(np.asarray(predicate.column(pieces, True)), len(next(iter(pieces.values()))))
    return np.where(candidates.key >= 0, classes[columns[np.maximum(candidates.key, 0)]], -1)


def _groups(values: AffineForms, good: np.ndarray, classes: np.ndarray) -> list[np.ndarray]:
    """The candidates that do not satisfy a predicate: those of a class of which none does, class by class, the others by the
    first value that no candidate has that does."""
    others = np.flatnonzero(~good)
    alien = ~np.isin(classes[others], classes[good])
    groups = [others[alien & (classes[others] == one)] for one in np.unique(classes[others[alien]])]
    others = others[~alien]
    if not len(others):
        return groups
    middle, radius = values.middle, values.radius
    lo, hi = (middle - radius)[good].min(axis=0), (middle + radius)[good].max(axis=0)
    outside = ((middle - radius)[others] > hi) | ((middle + radius)[others] < lo)
    above = middle[others] > hi
    # A box must not lie on both sides.
    first = np.where(outside.any(axis=1), 2 * outside.argmax(axis=1), -1)
    side = np.take_along_axis(above, outside.argmax(axis=1)[:, None], axis=1)[:, 0]
    label = np.where(first >= 0, first + side, -1)
    return [*groups, *(others[label == value] for value in np.unique(label))]


def _logit_errors(
    q: AffineForms, k: AffineForms, p: float, precision: Format, stored: bool, reach: np.ndarray
) -> np.ndarray:
    """(n,): how far any logit may be off, of every query: its own error, the keys', and roundings; lags up to `reach`.

    Theorem. Let queries and keys be k + e with all products of their k multiples of g, p too, all sizes of a logit's terms
    below g / (1.01 u), lags below 1 / u, and let e add D < 0.45 u g to the content. Then every logit is off by 1.1 D at most.
    Proof. Multiples of g up to g / u are numbers of the precision, so products and sums of the k are exact, and p z too. A
    factor k != 0 arrives exactly, as D is at least its error times the least other factor (affine_forms.near_grid). The e
    meet at most d + 4 roundings, 1.01 of them in all, and never move a sum that is not 0 (symbol_rounding.py).
    """
    u, d = precision.u, q.const.shape[1]
    content = (q.size @ k.size.T).max(axis=1, initial=0.0)
    (queries, q_off), (keys, k_off) = (_on_grid(forms.middle) for forms in (q, k))
    off = ((q.radius + q_off) @ k.size.T + q.size @ (k.radius + k_off).T).max(axis=1, initial=0.0)
    products_grid = grid_of(queries).min(axis=1, initial=np.inf) * float(grid_of(keys).min(initial=np.inf))
    float64 = np.where(products_grid * 2.0**52 >= content, 0.0, own_product(d + 2) * content)
    off = off * (1 + LIBM) + float64
    if not u:
        return off
    position = abs(p) * reach
    precision.expect(content + position)
    g = np.minimum(products_grid, grid_of(np.array(p)))
    near = (
        (off < 0.45 * u * g) & (1.01 * u * (content + position) < g) & (1.01 * u * reach < 1) & (not stored)
    )
    near &= gamma(d + 4, u) < 0.01
    rounded = times(gamma(d + 4 + 2 * stored, u), content + off) + 4 * u * position
    return np.where(near, 1.1 * off, off + rounded)


def _on_grid(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the nearest multiples of a power of 2 that is 2^-24 of the largest, how far they are)."""
    step = 2.0 ** (math.ceil(math.log2(max(float(np.abs(x).max(initial=0.0)), 1e-300))) - 24)
    nearest = np.rint(x / step) * step
    return nearest, np.abs(x - nearest) * (1 + LIBM)
