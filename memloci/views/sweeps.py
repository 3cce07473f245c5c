"""The report of a sweep: errors over the settings that vary, and how the runs ended.

A group is all runs that differ in their seed only. Figures show the median over the runs that have a value, with
their range; a table has every group. Failures are named like those of single trainings, once for each group, and the
searches that take seconds stop when a page has taken long enough: reasons that need them are then left open.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from memloci.core.numbers import literal
from memloci.train.diagnose import diagnose
from memloci.train.diagnosis import Diagnosis
from memloci.train.spec import DATA_KINDS, Run
from memloci.views import curves, page
from memloci.views.drawing import MOST_SERIES

SEED = "training.seed"
MOST_FIELDS = 6  # with a figure of their own
MOST_ROWS = 200  # of a table
MOST_LISTED = 50  # runs without a result
SEARCH_SECONDS = 30.0  # tuned: for reasons that must be searched for
DASH = "–"


@dataclass(frozen=True)
class Entry:
    """One run of the sweep, with its settings laid flat."""

    config: dict[str, Any]
    settings: dict[str, Any]
    record: dict[str, Any] | None  # None: it failed, or has not run
    history: Mapping[str, Sequence[Any]] | None
    trouble: str

    @property
    def diverged(self) -> bool:
        return self.record is not None and self.record.get("status") == "diverged"

    @property
    def learned(self) -> bool:
        error = self.value("err_sup")
        return error is not None and error <= self.settings["training.tolerance"]

    def value(self, name: str) -> float | None:
        """A number of the record; `root` is the root of the mean square."""
        if self.record is None or self.diverged:
            return None
        if name == "root":
            square = self.record.get("err_mean_square")
            return None if square is None else math.sqrt(square)
        return self.record.get(name)


@dataclass(frozen=True)
class Measure:
    """What is compared: the name in a record, and in words."""

    name: str
    text: str


def sweep_html(name: str, runs: list[dict[str, Any]]) -> str:
    """The page about a sweep; each run is {"config": ..., "record": ..., "history": ...}."""
    entries = [_entry(run) for run in runs]
    fields = varying(entries)
    measures = _measures(entries)
    reasons = _reasons(entries)
    sections = [_overview(entries, fields, reasons)]
    sections += [_over(entries, fields, k, measures) for k in range(min(len(fields), MOST_FIELDS))]
    sections += [_courses(entries, fields), _groups(entries, fields, measures, reasons)]
    sections += [_sentences(reasons), _without_result(entries, fields)]
    head = f"""<header>
<p class="kicker">memloci sweep report</p>
<h1>{escape(name)}</h1>
{_said(entries, fields)}
{_tiles(entries, measures)}
</header>"""
    cards = "\n".join(section for section in sections if section)
    return page.whole(name, f'{head}\n<main class="cards">\n{cards}\n</main>')


# -- settings ---------------------------------------------------------------------------------------------


def _entry(run: Mapping[str, Any]) -> Entry:
    config = dict(run["config"])
    record, history = run.get("record"), run.get("history")
    trouble = str(run.get("error") or ("" if record else "no result yet"))
    return Entry(config, _flat(config), record or None, history or None, trouble)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """`architecture.heads` and the like; lists and the like become text."""
    found: dict[str, Any] = {}
    for table in ("task", "architecture", "training"):
        for key, value in (config.get(table) or {}).items():
            plain = isinstance(value, str | int | float | bool) or value is None
            found[f"{table}.{key}"] = value if plain else json.dumps(value, ensure_ascii=False)
    return found


def varying(entries: Sequence[Entry]) -> list[str]:
    """The settings that differ between runs, seeds aside; a task that differs in many ways is one setting."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.settings))
    differs = lambda name: len({repr(entry.settings.get(name)) for entry in entries}) > 1
    found = [name for name in names if name != SEED and differs(name)]
    of_task = [name for name in found if name.startswith("task.")]
    if len(of_task) > 1:
        for entry in entries:
            entry.settings["task"] = _task_name(entry)
        found = ["task", *(name for name in found if name not in of_task)]
        of_task = ["task"]
    if of_task and "training.length" in found:  # the default length follows from the task
        pairs = {(entry.settings[of_task[0]], entry.settings["training.length"]) for entry in entries}
        if len(pairs) == len({task for task, _ in pairs}):
            found.remove("training.length")
    return sorted(found, key=lambda name: (not _is_number(entries, name), found.index(name)))


def short(name: str) -> str:
    """`architecture.heads` is known as heads; a setting of a task keeps its first word."""
    return name if name.startswith("task") else name.rpartition(".")[2]


def _task_name(entry: Entry) -> str:
    task = entry.config.get("task") or {}
    rest = {key: value for key, value in task.items() if key not in ("description", "channels")}
    return str(task.get("description") or json.dumps(rest, ensure_ascii=False))


def _is_number(entries: Sequence[Entry], name: str) -> bool:
    values = [entry.settings.get(name) for entry in entries]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _measures(entries: Sequence[Entry]) -> list[Measure]:
    if any(entry.record and "bits_per_byte" in entry.record for entry in entries):
        return [Measure("bits_per_byte", "held-out bits per byte")]
    if any(entry.record and "err_sup" in entry.record for entry in entries):
        return [Measure("err_sup", "largest error seen"), Measure("root", "root mean square error")]
    return [Measure("held_out", "held-out loss")]


def _reasons(entries: Sequence[Entry]) -> list[Diagnosis | None]:
    """One search per group: what is wrong with a configuration is wrong with every seed."""
    began, known = time.monotonic(), dict[str, Diagnosis]()
    found: list[Diagnosis | None] = []
    for entry in entries:
        if entry.record is None:
            found.append(None)
            continue
        group = json.dumps({k: v for k, v in entry.settings.items() if k != SEED}, sort_keys=True)
        if entry.learned or entry.diverged or group not in known:
            thorough = time.monotonic() - began < SEARCH_SECONDS
            one = diagnose(Run(**entry.config), entry.record, thorough=thorough)
            if not entry.learned and not entry.diverged:
                known[group] = one
            found.append(one)
        else:
            found.append(known[group])
    return found


# -- the top ----------------------------------------------------------------------------------------------


def _said(entries: Sequence[Entry], fields: Sequence[str]) -> str:
    if not fields:
        return f"<p>{len(entries):,} runs of one setting, with different seeds.</p>"
    told = ", ".join(f"<code>{escape(name)}</code>" for name in fields)
    return f"<p>What varies: {told}. Errors are observed.</p>"


def _tiles(entries: Sequence[Entry], measures: Sequence[Measure]) -> str:
    done = [entry for entry in entries if entry.record is not None]
    values = [value for entry in done if (value := entry.value(measures[0].name)) is not None]
    groups = {_group_key(entry) for entry in entries}
    seconds = sum((entry.record or {}).get("seconds") or 0.0 for entry in done)
    content = {
        "runs": f"{len(entries):,}",
        "groups": f"{len(groups):,}",
        "learned": f"{sum(entry.learned for entry in entries):,}" if not _is_data(entries) else DASH,
        "diverged": f"{sum(entry.diverged for entry in entries):,}",
        "without a result": f"{len(entries) - len(done):,}",
        f"least {measures[0].text}": page.optional(min(values, default=None)),
        f"median {measures[0].text}": page.optional(float(np.median(values)) if values else None),
        "seconds of training": page.data(round(seconds, 1)),
    }
    return page.tiles(content)


def _is_data(entries: Sequence[Entry]) -> bool:
    return all((entry.config.get("task") or {}).get("kind") in DATA_KINDS for entry in entries)


def _group_key(entry: Entry) -> str:
    return json.dumps({k: v for k, v in entry.settings.items() if k != SEED}, sort_keys=True)


def _overview(entries: Sequence[Entry], fields: Sequence[str], reasons: Sequence[Diagnosis | None]) -> str:
    """How many runs ended how."""
    counts = Counter("no result" if one is None else one.name for one in reasons)
    ordered = dict(sorted(counts.items(), key=lambda pair: (pair[0] != "learned", -pair[1], pair[0])))
    svg = curves.counts_figure(ordered) if ordered else ""
    caption = (
        "The reason of each run that did not learn is that of its group; below they are told in sentences."
    )
    body = page.figure(svg, "Runs by diagnosis", caption) if svg else "<p>There are no runs.</p>"
    return page.section("How the runs ended", body, wide=True)


# -- figures ----------------------------------------------------------------------------------------------


def _over(entries: Sequence[Entry], fields: Sequence[str], k: int, measures: Sequence[Measure]) -> str:
    """Each measure over one setting, a line per value of the next one."""
    field = fields[k]
    other = _next_field(entries, fields, k)
    tolerances = {entry.settings.get("training.tolerance") for entry in entries}
    figures = []
    for measure in measures:
        lines = _lines(entries, field, other, measure.name)
        tolerance = tolerances.copy().pop() if measure.name == "err_sup" and len(tolerances) == 1 else None
        svg = curves.setting_figure(
            f"over-{k}-{measure.name}", short(field), lines, measure.text, tolerance, short(other or "")
        )
        figures.append(page.figure(svg, f"{measure.text} over {field}", ""))
    missing = sum(entry.value(measures[0].name) is None for entry in entries)
    rest = [name for name in fields if name not in (field, other)]
    parts = ["Points are medians; bars reach from the least to the largest run."]
    if rest:
        parts.append(f"{', '.join(map(short, rest))} as they come.")
    if missing:
        parts.append(f"{missing:,} runs have no number here: they diverged, or have no result.")
    caption = f'<p class="note">{escape(" ".join(parts))}</p>'
    body = f'<div class="pair even">{"".join(figures)}</div>' if len(figures) > 1 else figures[0]
    return page.section(f"Error over <code>{escape(field)}</code>", body + caption, wide=len(figures) > 1)


def _next_field(entries: Sequence[Entry], fields: Sequence[str], k: int) -> str | None:
    """The next setting with few enough values for a line each."""
    for name in [*fields[k + 1 :], *fields[:k]]:
        if 1 < len({repr(entry.settings.get(name)) for entry in entries}) <= MOST_SERIES:
            return name
    return None


def _lines(entries: Sequence[Entry], field: str, other: str | None, measure: str) -> list[curves.Line]:
    found: dict[Any, dict[Any, list[float]]] = {}
    for entry in entries:
        value = entry.value(measure)
        if value is not None:
            line = entry.settings.get(other) if other else ""
            at = _axis_value(entry.settings.get(field))
            found.setdefault(line, {}).setdefault(at, []).append(value)
    ordered = sorted(found, key=lambda value: (str(type(value)), value if value is not None else 0))
    return [curves.Line(_label(value), found[value]) for value in ordered]


def _axis_value(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else _label(value)


def _label(value: Any) -> str:
    text = "none" if value is None else f"{literal(value)}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _courses(entries: Sequence[Entry], fields: Sequence[str]) -> str:
    """The held-out loss over steps, for the values of the first setting that has few."""
    with_history = [entry for entry in entries if entry.history and entry.history.get("step")]
    if not with_history:
        return ""
    field = fields[0] if fields else None
    groups: dict[Any, list[Any]] = {}
    for entry in with_history:
        value = _axis_value(entry.settings.get(field)) if field else "all runs"
        groups.setdefault(value, []).append(entry.history)
    ordered = sorted(groups, key=lambda value: (str(type(value)), value))
    if len(ordered) > MOST_SERIES:  # some of them, evenly
        ordered = [ordered[k] for k in np.linspace(0, len(ordered) - 1, MOST_SERIES).astype(int)]
    shown = [
        (f"{short(field)} = {_label(value)}" if field else _label(value), groups[value]) for value in ordered
    ]
    losses = {str(entry.settings.get("training.loss")) for entry in entries}
    svg = curves.courses_figure(shown, ", ".join(sorted(losses)))
    caption = "Medians over all runs with that value; bands reach from the least to the largest of them."
    body = page.figure(svg, "Held-out loss over steps", caption, kind=' class="broad"')
    return page.section("Loss", body, wide=True)


# -- tables -----------------------------------------------------------------------------------------------


def _groups(
    entries: Sequence[Entry],
    fields: Sequence[str],
    measures: Sequence[Measure],
    reasons: Sequence[Diagnosis | None],
) -> str:
    """A row per group, the best first."""
    grouped: dict[str, list[int]] = {}
    for k, entry in enumerate(entries):
        grouped.setdefault(_group_key(entry), []).append(k)
    rows = [
        _group_row([entries[k] for k in own], [reasons[k] for k in own], fields, measures)
        for own in grouped.values()
    ]
    rows.sort(key=lambda row: row[0])
    heads = [*(escape(short(name)) for name in fields), "runs", "learned"]
    for measure in measures:
        heads.append(f"{measure.text}: median (range)")
    heads.append("diagnosis")
    shown = [cells for _, cells in rows[:MOST_ROWS]]
    first = len(fields)
    numeric = tuple(range(first, len(heads) - 1))
    table = page.table(
        heads, shown, numeric=numeric, wordy=(len(heads) - 1,), marked=0 if len(rows) > 1 else None
    )
    more = f" The best {MOST_ROWS:,} of {len(rows):,} groups are shown." if len(rows) > MOST_ROWS else ""
    note = (
        f'<p class="note">A group is all runs that differ in their seed only; the best is on top.{more}</p>'
    )
    return page.section("Groups", table + note, wide=True)


def _group_row(
    own: Sequence[Entry],
    reasons: Iterable[Diagnosis | None],
    fields: Sequence[str],
    measures: Sequence[Measure],
) -> tuple[float, list[str]]:
    """(what groups are sorted by, the cells)"""
    cells = [escape(_label(own[0].settings.get(name))) for name in fields]
    cells += [f"{len(own)}", f"{sum(entry.learned for entry in own)}"]
    rank = math.inf
    for measure in measures:
        values = [value for entry in own if (value := entry.value(measure.name)) is not None]
        if not values:
            cells.append(DASH)
            continue
        median = float(np.median(values))
        rank = min(rank, median) if measure is measures[0] else rank
        cells.append(f"{page.data(median)} ({page.data(min(values))} to {page.data(max(values))})")
    names = Counter("no result" if one is None else one.name for one in reasons)
    cells.append(
        escape(
            ", ".join(f"{name} ({count})" if len(names) > 1 else name for name, count in names.most_common())
        )
    )
    return rank, cells


def _sentences(reasons: Sequence[Diagnosis | None]) -> str:
    """One sentence for each name, as an example; numbers differ between groups."""
    examples: dict[str, Diagnosis] = {}
    for one in reasons:
        if one is not None:
            examples.setdefault(one.name, one)
    if not examples:
        return ""
    counts = Counter(one.name for one in reasons if one is not None)
    parts = [
        f'<h3>{escape(name[:1].upper() + name[1:])} <span class="note">{counts[name]:,} runs, for example</span></h3>'
        f"<p>{escape(one.sentence)}</p>"
        for name, one in examples.items()
    ]
    return page.section("Why", "".join(parts), wide=True)


def _without_result(entries: Sequence[Entry], fields: Sequence[str]) -> str:
    """Runs that diverged, failed, or have not run."""
    lost = [entry for entry in entries if entry.diverged or entry.record is None]
    if not lost:
        return ""
    heads = [*(escape(short(name)) for name in fields), "seed", "what happened"]
    rows = []
    for entry in lost[:MOST_LISTED]:
        what = entry.trouble
        if entry.record is not None:
            what = str(entry.record.get("stopped") or "the loss was no number")
        cells = [escape(_label(entry.settings.get(name))) for name in fields]
        rows.append([*cells, escape(_label(entry.settings.get(SEED))), escape(what)])
    more = (
        f'<p class="note">{len(lost) - MOST_LISTED:,} more are not listed.</p>'
        if len(lost) > MOST_LISTED
        else ""
    )
    table = page.table(heads, rows, wordy=(len(heads) - 1,))
    return page.section("Diverged, failed, or not run", table + more, wide=True)
