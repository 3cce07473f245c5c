"""What a match asks of a past token: a predicate of its symbols and of the present, in the form that is ever computed.

    P(q, c) = (c_1 = q_1 and ... and c_e = q_e) and R(q, c)

The equalities pair a channel of the candidate with a variable of the query; they are compared letter by letter, so that
alphabets of thousands of keys cost no table. All other conditions are one table R over the symbols that they read. Both
are exact in any precision: symbols are looked up, and nothing is evaluated at run time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memloci.core.errors import BadInput
from memloci.language.domain import Domain
from memloci.language.expression import Apply, Constant, Expression, Variable, variables
from memloci.language.formula import Formula
from memloci.tasks.memories.lag_table import LagTable, make_lag_table, piece_index

NONE = -1  # in place of a letter: the other alphabet does not have it


@dataclass(frozen=True)
class Equality:
    """A channel of the candidate has the value of a variable of the query."""

    candidate: str
    query: str
    candidate_letters: Domain  # of the candidate
    query_letters: Domain  # of the query

    @cached_property
    def same(self) -> tuple[int, ...]:
        """For each letter of the query, the equal letter of the candidate, or NONE."""
        at = {piece.lo: k for k, piece in enumerate(self.candidate_letters)}
        return tuple(at.get(piece.lo, NONE) for piece in self.query_letters)


@dataclass(frozen=True, eq=False)  # it holds a table
class Predicate:
    equalities: tuple[Equality, ...]
    condition: LagTable  # R as 0 and 1, over the variables that it reads
    candidate_variables: frozenset[str]  # the variables of the candidate

    @property
    def reads(self) -> tuple[str, ...]:
        """The variables of the query."""
        names = [e.query for e in self.equalities] + [
            v for v in self.condition.reads if v not in self.candidate_variables
        ]
        return tuple(dict.fromkeys(names))

    @property
    def keys(self) -> tuple[str, ...]:
        """The variables of the candidate that are read."""
        names = [e.candidate for e in self.equalities] + [
            v for v in self.condition.reads if v in self.candidate_variables
        ]
        return tuple(dict.fromkeys(names))

    @property
    def domains(self) -> dict[str, Domain]:
        """Of all variables that are read."""
        domains = dict(zip(self.condition.reads, self.condition.domains, strict=True))
        for e in self.equalities:
            domains |= {e.candidate: e.candidate_letters, e.query: e.query_letters}
        return domains

    @cached_property
    def table(self) -> Any:
        """R as booleans: one row for all symbols of the query together, one column for all of the candidate."""
        import numpy as np

        order = [
            k
            for mine in (False, True)
            for k, v in enumerate(self.condition.reads)
            if (v in self.candidate_variables) == mine
        ]
        rows = [
            len(self.condition.domains[k])
            for k in order
            if self.condition.reads[k] not in self.candidate_variables
        ]
        R = np.transpose(self.condition.lags, order) if order else self.condition.lags
        return R.reshape(int(np.prod(rows, dtype=np.int64)), -1) != 0

    def column(self, pieces: Mapping[str, Any], mine: bool) -> Any:
        """Where the symbols stand in `table`: its column for the candidate (`mine`), its row for the query."""
        index: Any = 0
        for v, domain in zip(self.condition.reads, self.condition.domains, strict=True):
            if (v in self.candidate_variables) == mine:
                index = index * len(domain) + pieces[v]
        return index

    def letter(self, pieces: Mapping[str, Any], mine: bool, xp: Any) -> Any:
        """All compared letters as one number; NONE where the candidate has no such letter."""
        index: Any = 0
        for e in self.equalities:
            if mine:
                k = pieces[e.candidate]
            else:
                k = xp.asarray(e.same, dtype="int32")[pieces[e.query]]
            index = xp.where((k < 0) | (xp.asarray(index) < 0), NONE, index * len(e.candidate_letters) + k)
        return index

    def holds(self, pieces: Mapping[str, Any], xp: Any) -> Any:
        """P, for the pieces of the domains in which the symbols lie."""
        mine, theirs = (self.letter(pieces, of_candidate, xp) for of_candidate in (True, False))
        R = xp.asarray(self.table)[self.column(pieces, False), self.column(pieces, True)]
        return R & (mine == theirs)


def pieces_of(values: Mapping[str, Any], domains: Mapping[str, Domain], xp: Any) -> dict[str, Any]:
    """Which piece of its domain each value is nearest to."""
    return {name: piece_index(values[name], domain, xp).astype("int32") for name, domain in domains.items()}


def make_predicate(
    formula: Formula, domains: Mapping[str, Domain], candidate_variables: frozenset[str], room: int
) -> Predicate:
    """The predicate of a formula over `domains`, of which `candidate_variables` are the candidate's; refused if it is not a table."""
    for name in formula.variables:
        domain = domains[name]
        if len(domain) == 1 and not domain[0].is_point:
            raise BadInput(
                f"{formula} compares {name}, which takes every value in an interval: an equality of real numbers has no "
                "margin; give the channel finite values, and keep real numbers for what is recalled"
            )
    if not candidate_variables & set(formula.variables):
        names = ", ".join(sorted(candidate_variables)[:4])
        raise BadInput(f"{formula} says nothing of the past token; compare one of its channels: {names}")
    parts = _conjuncts(formula.expression) if formula.expression is not None else []
    each_equality = [_equality(part, domains, candidate_variables) for part in parts]
    equalities = tuple(dict.fromkeys(e for e in each_equality if e is not None))
    others = [part for part, e in zip(parts, each_equality, strict=True) if e is None]
    rest = formula if formula.expression is None else _joined(formula, others)
    return Predicate(equalities, make_lag_table(_as_truth(rest), domains, room), candidate_variables)


def _conjuncts(f: Expression) -> list[Expression]:
    if isinstance(f, Apply) and f.operation == "and":
        return [part for operand in f.operands for part in _conjuncts(operand)]
    return [f]


def _equality(
    f: Expression, domains: Mapping[str, Domain], candidate_variables: frozenset[str]
) -> Equality | None:
    """Both sides are variables with finite values, one of the candidate and one of the query."""
    if not (isinstance(f, Apply) and f.operation == "==" and len(f.operands) == 2):
        return None
    names = [side.name for side in f.operands if isinstance(side, Variable)]
    mine, theirs = (
        [n for n in names if n in candidate_variables],
        [n for n in names if n not in candidate_variables],
    )
    if len(mine) != 1 or len(theirs) != 1:
        return None
    if not all(piece.is_point for name in names for piece in domains[name]):
        return None
    return Equality(mine[0], theirs[0], domains[mine[0]], domains[theirs[0]])


def _joined(formula: Formula, parts: list[Expression]) -> Formula:
    conjunction: Expression = Constant(1.0)
    for k, part in enumerate(parts):
        conjunction = part if k == 0 else Apply("and", (conjunction, part), formula.text)
    return Formula(formula.text, conjunction, tuple(sorted(variables(conjunction))))


def _as_truth(formula: Formula) -> Formula:
    """1 where it holds, 0 elsewhere."""
    if formula.expression is not None:
        truth = Apply("!=", (formula.expression, Constant(0.0)), formula.text)
        return Formula(formula.source, truth, formula.variables)
    source: Any = formula.source

    def holds(**values: Any) -> float:
        return float(bool(source(**values)))

    return Formula(holds, None, formula.variables)
