"""Results, and the theory of a task, for the terminal and for JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memloci.core.numbers import upper_number
from memloci.study.published import Published
from memloci.theory.of_task import TaskTheory
from memloci.theory.results import Result
from memloci.views.terminal.tasks import plain_table
from memloci.views.text.theory import statement_lines

WHOSE = {"paper": "the paper", "memloci": "memloci"}


def results_view(results: Sequence[Result]) -> Any:
    """Every result: a heading, and what it states, assumes, where it is proved and what shows it."""
    parts: list[Any] = []
    for result in results:
        parts.append(_heading(result.name, WHOSE[result.by]))
        rows = {
            "states": result.states,
            "assumes": result.assumes,
            "proved": result.proved,
            "shown by": result.command,
        }
        parts += [_sentences(rows.items()), Text()]
    return Group(*parts, Text("memloci theory TASK says what they mean for a task."))


def _heading(name: str, whose: str) -> Text:
    return Text.assemble((name, "bold"), f"  ({whose})")


def _sentences(rows: Iterable[tuple[str, str]]) -> Any:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, sentence in rows:
        table.add_row(name, Text(sentence))
    return Padding(table, (0, 0, 0, 2))


def theory_view(theory: TaskTheory, verdicts: Mapping[str, Published]) -> Any:
    parts: list[Any] = [
        Text(f"{theory.task}: {theory.kind}, M = {theory.M}, K = {theory.K}", style="bold"),
        Text(),
    ]
    parts.append(Text("Theorems of the paper", style="bold"))
    parts += [Text(line) for line in statement_lines(theory.paper)]
    if not theory.paper.statements:
        parts.append(Text(theory.paper.heads))
    parts += [Text(), *_constants(theory)]
    if theory.results:
        parts.append(Text("What results say of it", style="bold"))
        parts += [_sentences((statement.result, statement.text) for statement in theory.results), Text()]
    parts.append(Text("The paper's advice, and what was found", style="bold"))
    parts.append(_advice(theory, verdicts))
    return Group(*parts, *(Text(note) for note in theory.notes))


def _constants(theory: TaskTheory) -> list[Any]:
    """Barron norms and width conditions."""
    parts: list[Any] = []
    several = len(set(theory.readouts)) > 1
    norms = [
        (f"readout {o}" if several else "readout", upper_number(entry.norm), upper_number(entry.E))
        for o, entry in enumerate(theory.readouts, start=1)
        if several or o == 1
    ]
    norms += [(f"g_{entry.memory} = {entry.lag}", upper_number(entry.g), "0") for entry in theory.lags]
    norms += [(f"log g_{entry.memory}", upper_number(entry.log_g), "0") for entry in theory.lags]
    if norms:
        table = plain_table("Barron norms, from above: of the networks that memloci compiles")
        for heading in ("of", "norm at most", "network within"):
            table.add_column(heading, justify="left" if heading == "of" else "right")
        for row in norms:
            table.add_row(*map(Text, row))
        parts.append(table)
    if theory.widths:
        table = plain_table("Width conditions: m of the order of this, up to logarithms")
        for heading in ("theorem", "heads", "what", "at most"):
            table.add_column(heading, justify="right" if heading == "at most" else "left")
        for entry in theory.widths:
            table.add_row(entry.result, entry.encoding, Text(entry.condition), upper_number(entry.value))
        parts.append(table)
    return parts


def _advice(theory: TaskTheory, verdicts: Mapping[str, Published]) -> Any:
    parts: list[Any] = []
    for advice in theory.advice:
        answer = "applies" if advice.applies else "does not apply"
        parts.append(
            Text.assemble(
                (f"{advice.claim}  ", "bold"),
                advice.implication,
                ("  " + answer, "bold" if advice.applies else "dim"),
            )
        )
        rows = [
            ("here", advice.why),
            *([("ours", advice.beside)] if advice.beside else []),
            ("found", _found(advice.claim, verdicts)),
        ]
        parts.append(_sentences(rows))
    return Group(*parts)


def _found(claim: str, verdicts: Mapping[str, Published]) -> str:
    command = f"memloci study {claim}"
    if claim not in verdicts:
        return f"not known here; {command} finds out"
    verdict = verdicts[claim]
    return f"{verdict.verdict}, {verdict.seeds} seeds ({command} --{verdict.profile}): {verdict.summary}"


def theory_dict(theory: TaskTheory, verdicts: Mapping[str, Published]) -> dict[str, Any]:
    data = theory.to_dict()
    for advice in data["advice"]:
        advice["command"] = f"memloci study {advice['claim']}"
        advice["found"] = asdict(verdicts[advice["claim"]]) if advice["claim"] in verdicts else None
    return data
