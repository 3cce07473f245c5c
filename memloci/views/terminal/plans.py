"""Plans and certificates as rows, for the terminal and for JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memloci.certify.certificate import Certificate
from memloci.core.numbers import literal, lower_number, number, upper_number
from memloci.observe.sup_error import Measurement
from memloci.synthesize import Plan, Plans
from memloci.tradeoffs.depth_table import DepthRow
from memloci.tradeoffs.rates import HeadRates, Rates, Theorem
from memloci.views.terminal.tasks import plain_table
from memloci.views.text.sizes import sizes_text
from memloci.views.text.theory import statement_lines

ROUTES_WIDE = 24  # of a column, in letters


def plan_dict(plan: Plan) -> dict[str, Any]:
    a = plan.model.architecture
    return {
        "route": plan.route,
        "why": plan.why,
        "layers": a.layers,
        "heads": max(a.block(l).heads for l in range(a.layers)),
        "width": max(a.block(l).width for l in range(a.layers)),
        "dim": a.dim,
        "parameters": plan.model.parameter_count,
        "bits": plan.certificate.bits,
        "certificate": plan.certificate.to_dict(),
    }


def plans_dict(plans: Plans, rates: Rates) -> dict[str, Any]:
    return {
        "tolerance": plans.tolerance,
        "precision": plans.precision,
        "met": [plan_dict(p) for p in plans.met],
        "missed": [plan_dict(p) for p in plans.missed],
        "obstacles": plans.obstacles,
        "rates": rates.to_dict(),
    }


def plans_table(name: str, plans: Plans) -> Any:
    table = plain_table(f"{name}: worst case {literal(plans.tolerance)} in {plans.precision}")
    for heading in ("route", "layers", "heads", "width", "parameters", "bits", "bound", "tolerance"):
        left = heading in ("route", "tolerance")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for p in (*plans.met, *plans.missed):
        a, style = p.model.architecture, "" if p.certificate.met else "dim"
        table.add_row(
            p.route,
            str(a.layers),
            sizes_text(a, "heads"),
            sizes_text(a, "width"),
            f"{p.model.parameter_count:,}",
            str(p.certificate.bits or "-"),
            number(p.certificate.bound),
            "met" if p.certificate.met else "missed",
            style=style,
        )
    parts: list[Any] = [table]
    # Sentences get lines of their own: a column of them is narrow beside eight columns of numbers.
    if plans.met:
        parts += [Text("Why", style="bold"), _sentences({p.route: p.why for p in plans.met})]
    if plans.missed:
        parts += [
            Text("Misses the tolerance", style="bold"),
            _sentences({p.route: _missed(p) for p in plans.missed}),
        ]
    if plans.obstacles:
        parts += [Text("Cannot serve", style="bold"), _sentences(_merged(plans.obstacles))]
    if not plans.met:
        parts.append(Text("no route meets the tolerance"))
    return Group(*parts)


def _sentences(sentences: Mapping[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(max_width=ROUTES_WIDE)  # many routes may have one reason
    table.add_column()
    for route, sentence in sentences.items():
        table.add_row(route, Text(sentence))
    return table


def _merged(sentences: Mapping[str, str]) -> dict[str, str]:
    """Routes with the same reason on one line."""
    routes: dict[str, list[str]] = {}
    for route, reason in sentences.items():
        routes.setdefault(reason, []).append(route)
    return {", ".join(names): reason for reason, names in routes.items()}


def _missed(plan: Plan) -> str:
    outside = [
        f"recall of memory {', '.join(map(str, level.memories))}" for level in plan.certificate.outside
    ]
    return plan.why + (f"; outside its margin: {', '.join(outside)}" if outside else "")


def rates_table(rates: Rates) -> Any:
    """The paper's slopes beside ours, and what ours were fitted to."""
    table = plain_table("The paper's rates: slopes only, its constants C(n) are not explicit")
    for heading in ("what falls", "the paper", "measured here"):
        table.add_column(heading)
    table.add_row("attention error, heads H", rates.paper.heads, rates.measured["heads"])
    table.add_row("readout error, width m", rates.paper.width, rates.measured["width"])
    parts: list[Any] = [table, *(Text(line) for line in statement_lines(rates.paper))]
    for heads in rates.heads:
        title = f"{heads.route}: the Pareto front of heads, mass and error, all proved"
        parts += [Text(title, style="bold"), _heads_table(heads), Text(theorem_text(heads.theorem) + "\n")]
        if heads.lemma:
            parts += [Text(LEMMA, style="bold"), _lemma_table(heads), Text(lemma_text(heads) + "\n")]
    if rates.width is not None:
        parts.append(Text(f"{rates.width.readout}: readout error against width", style="bold"))
        width = plain_table()
        width.add_column("neurons", justify="right")
        width.add_column("E_ffn", justify="right")
        for m, E in rates.width.rows:
            width.add_row(f"{m:,}", number(E))
        parts.append(width)
    return Group(*parts)


def _heads_table(rates: HeadRates) -> Any:
    table = plain_table()
    for heading in ("heads", "mass", "error", "least at this mass"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in rates.front:
        floor = rates.floor(point.mass)
        mine = " *" if point == rates.built else "  "
        least = f"{lower_number(floor)}" if floor > 0 else "-"
        table.add_row(f"{point.heads}{mine}", number(point.mass), upper_number(point.E), least)
    return table


LEMMA = "The heads of Lemma F.1's proof, exponents 0.01 (k + 1): the least error found, proved"


def _lemma_table(rates: HeadRates) -> Any:
    table = plain_table()
    for heading in ("heads", *rates.lemma):
        table.add_column(heading, justify="right", no_wrap=True)
    columns = [{p.heads: p for p in points} for points in rates.lemma.values()]
    for H in sorted({heads for column in columns for heads in column}):
        table.add_row(f"{H:,}", *(upper_number(column[H].E) if H in column else "-" for column in columns))
    return table


def lemma_text(rates: HeadRates) -> str:
    """What the lemma promises, with its constant, beside what was built."""
    if rates.lemma_needs is None:
        return "The lemma, with its constant, promises this error to no number of heads that is looked at."
    return (
        f"The lemma, with its constant, promises * the error of {upper_number(rates.built.E)} to {rates.lemma_needs:,} such heads in "
        f"exact arithmetic; * has {rates.built.heads:,}."
    )


def theorem_text(theorem: Theorem) -> str:
    """The theorem about any heads of this kind, and how far the planned ones (*) are from it."""
    who = f"no one-layer {theorem.rpe} architecture, whatever its heads and exponents,"
    if theorem.E_least > 0:
        return (
            f"Theorem: {who} with mass at most {lower_number(theorem.mass)} has an l1 error below "
            f"{lower_number(theorem.E_least)} for {theorem.memory}; * has {number(theorem.ratio)} times that."
        )
    if theorem.mass_least > 0:
        return (
            f"Theorem: {who} with mass below {lower_number(theorem.mass_least)} has an l1 error of {lower_number(theorem.E)} or "
            f"less for {theorem.memory}; * has {number(theorem.mass / theorem.mass_least)} times that mass."
        )
    return (
        f"Nothing is proved of the least error that mass {number(theorem.mass)} leaves for {theorem.memory}."
    )


def depth_rows_table(name: str, precision: str, rows: Sequence[DepthRow]) -> Any:
    table = plain_table(f"{name}: what depth trades in {precision}")
    for heading in ("route", "layers", "heads", "width", "bits", "bound", "exact", "weights"):
        table.add_column(heading, justify="left" if heading == "route" else "right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.route,
            str(row.layers),
            str(row.heads),
            str(row.width),
            str(row.bits or "-"),
            number(row.bound),
            number(row.exact_bound),
            f"{row.parameters:,}",
        )
    return table


def certificate_table(certificate: Certificate, measurement: Measurement | None = None) -> Any:
    colour = "green" if certificate.met else "red"
    title = Text.assemble(
        (certificate.status, f"bold {colour}"),
        f"  worst case {number(certificate.bound)} in {certificate.precision}, tolerance {literal(certificate.tolerance)}",
    )
    table = plain_table()
    table.add_column("proved")
    table.add_column("value", justify="right")
    table.add_column("by")
    for term in certificate.terms:
        table.add_row(term.name, number(term.E), term.formula)
    for level in certificate.levels:
        where = "within" if level.within else "outside"
        names = ", ".join(map(str, level.memories))
        table.add_row(
            f"recall of {names}", number(level.E), f"{where} its margin of {lower_number(level.margin)}"
        )
    table.add_row("in exact arithmetic", number(certificate.exact_bound), "the sum without rounding")
    for precision, bound in certificate.bound_by_precision.items():
        table.add_row(f"in {precision}", number(bound), "with rounding")
    bound = certificate.mass_lower_bound
    table.add_row(
        "mass", number(certificate.mass), "" if bound is None else f"at least {number(bound)} for any heads"
    )
    table.add_row(
        "bits", str(certificate.bits or "none suffices"), "of a significand that meets the tolerance"
    )
    parts: list[Any] = [title, table]
    if measurement is not None:
        observed = plain_table()
        observed.add_column("observed")
        observed.add_column("value", justify="right")
        observed.add_column("on")
        what = f"{measurement.sequences} sequences of length {measurement.length}"
        observed.add_row("mean square", number(measurement.err_mean_square), what)
        observed.add_row("largest, sampled", number(measurement.err_sampled), what)
        observed.add_row(
            "largest, adversarial",
            number(measurement.err_adversarial),
            f"{measurement.steps} steps of ascent",
        )
        parts.append(observed)
    return Group(*parts)
