"""The command line: parse, call, print. One command per stage; the work is done elsewhere.

Exit status: 0 done, 2 bad input, 3 the tolerance was missed (the result is still written), 1 anything
else. A user's mistake gets one line, never a traceback. Heavy imports happen inside commands, so that
help and listings answer at once.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from memloci import __version__
from memloci.core.errors import BadInput
from memloci.core.numbers import number
from memloci.core.precision import DEFAULT, EVALUATED

DONE, FAILED, BAD_INPUT, MISSED = 0, 1, 2, 3
MANY_RUNS = 1000  # more are asked about

app = typer.Typer(
    name="memloci",
    help="What a Transformer can remember, at what cost, and whether training finds it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Start with:  memloci tasks",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0, max=2**32 - 1)]


def _complete_task(incomplete: str) -> list[str]:
    from memloci.tasks.gallery import GALLERY

    return [name for name in GALLERY if name.startswith(incomplete)]


TaskName = Annotated[
    str | None,
    typer.Argument(help="A gallery name or a TOML file.", autocompletion=_complete_task, show_default=False),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"memloci {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example:  memloci tasks nested-1 --sample 10")
def tasks(
    task: TaskName = None,
    sample: Annotated[
        int,
        typer.Option("--sample", help="Draw a sequence of this length with its target.", min=0, max=10_000),
    ] = 0,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print the task as a TOML file to start from.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """List the gallery, or show one task: its memories, ranges and an example."""
    from memloci.tasks.gallery import GALLERY
    from memloci.tasks.load import load_task
    from memloci.views import tables

    if task is None:
        if as_json:
            _print_json(tables.gallery_rows(GALLERY))
        else:
            _print(tables.gallery_table(GALLERY))
        return
    record = load_task(task)
    if toml:
        _write(tables.task_toml(record) + "\n")
        return
    drawn = None
    if sample:
        from memloci.tasks.inputs import example

        drawn = example(record, sample, seed)
    if as_json:
        _print_json({**tables.task_details(record), **({"sample": drawn} if drawn else {})})
    else:
        _print(tables.details_table(task, record))
        if drawn:
            _print(tables.example_table(drawn))


Task = Annotated[
    str,
    typer.Argument(help="A gallery name or a TOML file.", autocompletion=_complete_task, show_default=False),
]
Tolerance = Annotated[float, typer.Option("--tolerance", help="Worst-case error to stay below.")]
Precision = Annotated[str, typer.Option("--precision", help=f"{', '.join(EVALUATED)}.")]
Model = Annotated[Path, typer.Argument(help="A directory that memloci wrote.", show_default=False)]
EvaluationPath = Annotated[
    str | None, typer.Option("--path", help="How the model is evaluated; `memloci doctor` lists the paths.")
]


@app.command(epilog="Example:  memloci plan echo --tolerance 1e-4 --precision float64")
def plan(
    task: Task,
    tolerance: Tolerance = 1e-3,
    precision: Precision = DEFAULT,
    route: Annotated[
        list[str] | None, typer.Option("--route", help="Look at this route only; may be repeated.")
    ] = None,
    depth_table: Annotated[
        bool,
        typer.Option("--depth-table", help="Instead: layers against heads, bits and error for its lags."),
    ] = False,
    with_rates: Annotated[
        bool,
        typer.Option(
            "--rates", help="Also error against heads, mass and width, with slopes; a minute or two."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Architectures that meet the tolerance, cheapest first, and for those that cannot, why."""
    from memloci.synthesize import plan as make_plans
    from memloci.tasks.load import load_task
    from memloci.tradeoffs import rates
    from memloci.tradeoffs.depth_table import depth_table as make_depth_table
    from memloci.views import plan_tables

    record = load_task(task)
    if depth_table:
        with _progress() as progress:
            rows = make_depth_table(record, precision, progress=progress)
        if as_json:
            _print_json([row.to_dict() for row in rows])
        else:
            _print(plan_tables.depth_rows_table(task, precision, rows))
        return
    with _progress() as progress:
        plans = make_plans(record, tolerance, precision, routes=route, progress=progress)
        found = rates.stated(record)
        if with_rates:
            found = rates.measured(record, (*plans.met, *plans.missed), rates.THOROUGH, progress)
    if as_json:
        _print_json(plan_tables.plans_dict(plans, found))
    else:
        _print(plan_tables.plans_table(task, plans))
        _print(plan_tables.rates_table(found))
    if not plans.met:
        raise typer.Exit(MISSED)


@app.command(epilog="Example:  memloci compile echo --out out/echo --tolerance 1e-4")
def compile(
    task: Task,
    out: Annotated[Path, typer.Option("--out", help="The directory to write.", show_default=False)],
    tolerance: Tolerance = 1e-3,
    precision: Precision = DEFAULT,
    route: Annotated[
        str | None, typer.Option("--route", help="Take this route instead of the cheapest.")
    ] = None,
    path: EvaluationPath = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Weights by construction, with a certificate and a report."""
    import jax.random as jr

    from memloci import pipeline
    from memloci.tasks.load import load_task
    from memloci.views import plan_tables

    record = load_task(task)
    record.to_dict()  # a task that cannot be written is refused before the work, not after
    with _progress() as progress:
        planning = lambda text, done: progress(text, 0.8 * done)
        plans = pipeline.plan(
            record, tolerance, precision, routes=[route] if route else None, progress=planning
        )
        built = pipeline.compile(record, plans.best, path=path)
        progress("measuring", 0.85)
        seen = pipeline.measure(built.model, record, key=jr.key(seed))
        progress("writing the report", 0.95)
        pipeline.write(built, out, plans, seen)
    if as_json:
        _print_json(
            {"directory": str(out), "route": built.plan.route, "certificate": built.certificate.to_dict()}
        )
    else:
        _print(plan_tables.certificate_table(built.certificate, seen))
        _write(f"wrote {out}: model.safetensors, model.json, circuit.json, certificate.json, report.html\n")
    if not built.certificate.met:
        raise typer.Exit(MISSED)


@app.command(epilog="Example:  memloci verify out/echo")
def verify(directory: Model, as_json: Json = False) -> None:
    """Recompute the certificate from the weights and the task; a changed weight is caught."""
    from memloci import pipeline
    from memloci.views import plan_tables

    with _progress() as progress:
        progress("verifying", 0.1)
        found = pipeline.verify(directory)
        problem = pipeline.disagreement(directory, found)
    if as_json:
        _print_json({"certificate": found.to_dict(), "agrees": problem is None, "problem": problem})
    else:
        _print(plan_tables.certificate_table(found))
        _write(f"{problem}\n" if problem else "the certificate on file is confirmed\n")
    if problem or not found.met:
        raise typer.Exit(MISSED)


@app.command(epilog="Example:  memloci measure out/echo --sequences 1000")
def measure(
    directory: Model,
    sequences: Annotated[int, typer.Option("--sequences", help="Sequences to draw.", min=1)] = 64,
    length: Annotated[int | None, typer.Option("--length", help="Their length.", min=1)] = None,
    path: EvaluationPath = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Sampled and adversarial error, beside the certified one."""
    import jax.random as jr

    from memloci import pipeline
    from memloci.model.store import load
    from memloci.views import plan_tables

    with _progress() as progress:
        progress("loading", 0.0)
        model, task = load(directory)
        if task is None:
            raise BadInput(
                f"{directory}: the model was saved without a task; there is nothing to measure against"
            )
        model = model.using(path) if path else model
        progress("measuring", 0.1)
        seen = pipeline.measure(model, task, key=jr.key(seed), sequences=sequences, length=length)
        progress("certifying", 0.8)
        try:
            proved, refused = pipeline.verify(directory, path), None
        except BadInput as reason:  # what was seen stands, proved or not
            proved, refused = None, str(reason)
    if as_json:
        told = {"certificate": proved.to_dict() if proved else None}
        _print_json({"measured": seen.to_dict(), **told, **({"refused": refused} if refused else {})})
        return
    if proved:
        _print(plan_tables.certificate_table(proved, seen))
    else:
        _write(f"not certified: {refused}\n")
        _write(
            f"largest error, sampled {number(seen.err_sampled)}, adversarial {number(seen.err_adversarial)}\n"
        )
    if seen.counterexample:
        _write(f"counterexample: {seen.counterexample}\n")


RunStore = Annotated[Path, typer.Option("--store", help="The file that keeps runs.")]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes.", min=1, max=1024, show_default="one per core")
]
Engine = Annotated[str, typer.Option("--engine", help="Where runs are trained: local or ray.")]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a Ray cluster: HOST:PORT or auto.", show_default="a new one, here"),
]


@app.command(epilog="Example:  memloci train product --heads 4 --steps 2000 --seeds 3 --out out/product")
def train(
    task: Annotated[
        str | None,
        typer.Argument(
            help="A gallery name, a TOML file, or data: an .npz file with x and y, a .txt file.",
            autocompletion=_complete_task,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The directory to write.", show_default=False)
    ] = None,
    layers: Annotated[int, typer.Option("--layers")] = 1,
    heads: Annotated[int, typer.Option("--heads")] = 4,
    width: Annotated[int, typer.Option("--width", help="Of the FFN.")] = 128,
    attention: Annotated[str, typer.Option("--attention", help="dp, dpf, tmx, tmx-mul.")] = "dp",
    encoding: Annotated[
        str, typer.Option("--encoding", help="lin, log, t5, rope, sin, learned, none.")
    ] = "lin",
    steps: Annotated[int, typer.Option("--steps")] = 2000,
    batch: Annotated[int, typer.Option("--batch", help="Sequences per step.")] = 128,
    rate: Annotated[float, typer.Option("--rate", help="The learning rate.")] = 3e-3,
    start: Annotated[
        str, typer.Option("--start", help="random, compiled (weights and architecture), exponents.")
    ] = "random",
    others: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, as training.clip=0.5 or architecture.norm=pre."),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Exit with status 3 if a larger error is seen.")
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int,
        typer.Option("--seeds", help="So many models, from --seed on; the best is kept.", min=1, max=1000),
    ] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the training in --out.")] = False,
    track: Annotated[
        str | None, typer.Option("--track", help="tensorboard: curves in DIR/tensorboard.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Weights by gradient, with curves, a report, and the reason where it fails."""
    from memloci import pipeline
    from memloci.train import options
    from memloci.train.train import Interrupted, best, runs_in
    from memloci.views.fit_tables import fits_table

    if resume and out is not None and task is None:
        runs = runs_in(out)
    elif task is None:
        raise BadInput("which task? A gallery name or a file; or --resume --out DIR")
    else:
        architecture: dict[str, Any] = {"layers": layers, "heads": heads, "width": width}
        architecture |= {"attention": attention, "encoding": encoding}
        training: dict[str, Any] = {"steps": steps, "batch": batch, "rate": rate, "start": start}
        training |= {} if tolerance is None else {"tolerance": tolerance}
        runs = options.runs(task, architecture, training, others or [], range(seed, seed + seeds))
    write_curves = options.tracker(track, out)
    try:
        with _progress() as progress:
            fits = pipeline.train_together(runs, out=out, resume=resume, progress=progress)
    except Interrupted as stopped:
        print(f"memloci: {stopped}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    write_curves({f"seed-{fit.run.training.seed}": fit.history for fit in fits})
    if as_json:
        _print_json({"directory": out and str(out), "fits": [fit.to_dict() for fit in fits]})
    else:
        _print(fits_table(fits))
        if out is not None:
            _write(f"wrote {out}: {', '.join(sorted(path.name for path in out.iterdir()))}\n")
    if tolerance is not None and not best(fits).learned:
        raise typer.Exit(MISSED)


@app.command(epilog="Example:  memloci sweep heads.toml --dry-run")
def sweep(
    file: Annotated[Path, typer.Argument(help="A TOML file: docs/sweeps.md.", show_default=False)],
    store: RunStore = Path("runs.sqlite"),
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run and how long it may take; start nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="However many runs there are.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="The page to write.", show_default="NAME.html beside the store"),
    ] = None,
    as_json: Json = False,
) -> None:
    """A grid of trainings; started again it goes on, and nothing is trained twice."""
    from memloci.sweeps import start
    from memloci.sweeps.grid import read_sweep
    from memloci.views import run_tables

    asked = read_sweep(file, ask=lambda count: None if yes or dry_run else _ask_about(count))
    if dry_run:
        found = start.forecast(asked, store, workers)
        if as_json:
            _print_json(found.to_dict())
        else:
            _print(run_tables.forecast_text(found))
        return
    with _kept_in(store) as progress:
        options: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
        runs = start.sweep(asked, store=store, progress=progress, **options)
    from memloci import pipeline

    page = report or store.with_name(f"{asked.name}.html")
    pipeline.write_sweep(asked.name, runs, page)
    if as_json:
        impossible = [each.to_dict() for each in asked.impossible]
        told = {"sweep": asked.name, "store": str(store), "report": str(page)}
        told |= {"runs": len(runs), **runs.counts()}
        _print_json({**told, "failures": run_tables.failures(runs), "impossible": impossible})
    else:
        _print(run_tables.sweep_text(asked.name, runs, asked.impossible))
        _write(
            f"memloci runs --store {shlex.quote(str(store))} --sweep {shlex.quote(asked.name)} shows them\n"
        )
        _write(f"wrote {page}\n")
    if runs.counts()["failed"]:
        raise typer.Exit(FAILED)


def _ask_about(count: int) -> None:
    if count <= MANY_RUNS:
        return
    if not sys.stdin.isatty():
        raise BadInput(f"{count:,} combinations are many; --yes runs them, --dry-run says what they take")
    typer.confirm(f"{count:,} combinations. Go on?", abort=True, err=True)


@app.command(epilog="Example:  memloci runs --where architecture.heads=4 --by training.rate")
def runs(
    store: RunStore = Path("runs.sqlite"),
    sweep: Annotated[str | None, typer.Option("--sweep", help="Those of this sweep only.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="done, diverged, failed, running or waiting.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="A condition such as 'training.rate<=1e-3'; may be repeated."),
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", help="Compare the values of this field; may be repeated.")
    ] = None,
    measure: Annotated[
        str, typer.Option("--measure", help="What is compared: err_sup, err_mean_square, ...")
    ] = "err_sup",
    export: Annotated[
        Path | None, typer.Option("--export", help="Write them to a .csv, .jsonl or .parquet file.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a page about them.", show_default=False)
    ] = None,
    track: Annotated[
        str | None, typer.Option("--track", help="tensorboard: their curves, beside the store.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most lines to show.", min=1)] = 50,
    as_json: Json = False,
) -> None:
    """List, filter, compare, export and report the runs of a store."""
    from memloci.sweeps.runs import Runs
    from memloci.views import run_tables

    found = Runs(store, sweep=sweep)
    known = found.counts()
    if status is not None and status not in known:
        raise BadInput(f"--status: unknown {status!r}; use {', '.join(known)}")
    found = found.where(*(where or ()), *([f"status={status}"] if status else ()))
    if export is not None:
        found.export(export)
    if report is not None:
        from memloci import pipeline

        pipeline.write_sweep(sweep or store.name, found, report)
    if track is not None:
        from memloci.train.options import tracker

        histories = {row["key"][:12]: row["history"] for row in found.whole() if row["history"]}
        tracker(track, store.parent)(histories)
    lines = found.compare(*by, measure=measure) if by else None
    if as_json:
        _print_json(list(found) if lines is None else lines)
    elif lines is not None:
        _print(run_tables.comparison_table(lines, by or [], measure))
    elif export is not None:
        _write(f"wrote {export}: {len(found):,} runs\n")
    else:
        _print(run_tables.runs_table(found, limit))


@app.command(epilog="Example:  memloci rates power-law --vary heads --out out/rates")
def rates(
    task: Task,
    vary: Annotated[
        str, typer.Option("--vary", help="heads, width, layers, samples, length or bits.", show_default=False)
    ],
    values: Annotated[
        str | None, typer.Option("--values", help="As 1,2,4,8.", show_default="some that suit the task")
    ] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="lin or log.")] = "lin",
    no_train: Annotated[bool, typer.Option("--no-train", help="Only what needs no training.")] = False,
    seeds: Annotated[
        int, typer.Option("--seeds", help="Trained models at every value.", min=1, max=1000)
    ] = 5,
    steps: Annotated[int, typer.Option("--steps", help="Of a training.", min=1)] = 600,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A directory for the page, its figures and data.", show_default=False),
    ] = None,
    store: RunStore = Path("runs.sqlite"),
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Error against one size: the paper's slope, what is proved, what is compiled, what is trained."""
    from memloci.core.files import replace_together
    from memloci.study.rates import rates as find_rates

    try:
        chosen = None if values is None else [int(value) for value in values.split(",")]
    except ValueError:
        raise BadInput(f"--values: needs whole numbers with commas between, found {values!r}") from None
    with _kept_in(store) as progress:
        finding = find_rates(
            task,
            vary,
            values=chosen,
            encoding=encoding,
            seeds=seeds,
            steps=steps,
            seed=seed,
            store=store,
            workers=workers,
            engine=engine,
            address=address,
            trained=not no_train,
            progress=progress,
        )
    if out is not None:
        from memloci.views.rates import rates_files

        replace_together(out, rates_files(finding))
    if as_json:
        _print_json(finding.to_dict())
        return
    from memloci.views.rates_tables import rates_text

    _print(rates_text(finding))
    if out is not None:
        _write(f"wrote {out}: rates.html, and figures and data of both errors\n")


@app.command(epilog="Example:  memloci study 4a 4b --quick --out out/study")
def study(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Claims, as 4a; all for every one.", show_default=False, metavar="NAME"),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick/--full", help="All in a quarter of an hour, or in hours; both go on where they stopped."
        ),
    ] = True,
    listed: Annotated[bool, typer.Option("--list", help="Which claims there are.")] = False,
    out: Annotated[Path, typer.Option("--out", help="The directory to write.")] = Path("out/study"),
    store: Annotated[
        Path | None,
        typer.Option("--store", help="The file that keeps runs.", show_default="runs.sqlite in --out"),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", help="For the claims about language.", show_default="Python's standard library"
        ),
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    readme: Annotated[
        Path | None,
        typer.Option("--readme", help="Also put the table of verdicts into this file, between its marks."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Moves all seeds: a study of its own.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Is it true? A claim of the paper, or of ours, with a verdict that can be checked."""
    from memloci.study.claims import CLAIMS, load_claim
    from memloci.views import study_tables

    if listed:
        claims = [load_claim(name) for name in CLAIMS]
        if as_json:
            told = ("id", "title", "statement", "source", "design")
            _print_json([{name: getattr(claim, name) for name in told} for claim in claims])
        else:
            _print(study_tables.claims_table(claims))
        return
    from memloci import pipeline
    from memloci.study.run import STORE
    from memloci.study.run import study as run_study

    with _kept_in(store or out / STORE) as progress:
        findings = run_study(
            names or [],
            profile="quick" if quick else "full",
            out=out,
            store=store,
            workers=workers,
            engine=engine,
            address=address,
            text=text,
            seed=seed,
            progress=progress,
        )
        progress("writing the pages", 1.0)
        written = pipeline.write_study(findings, out)
    if readme is not None:
        pipeline.write_verdicts(findings, readme)
    if as_json:
        _print_json([finding.to_dict() for finding in findings])
    else:
        _print(study_tables.findings_table(findings))
        _write(
            f"wrote {out}: index.html and a page for each of {len(written)} claims, with figures and data\n"
        )


@app.command(epilog="Example:  memloci doctor --json")
def doctor(as_json: Json = False) -> None:
    """Versions, devices and optional extras: what is here, and how to get what is not."""
    from memloci.views.doctor import examine, findings_table

    findings = examine()
    if as_json:
        _print_json(findings)
    else:
        _print(findings_table(findings))


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error: what is being done, how far it is, and the time left; silent when piped."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("starting", total=1.0)
        yield lambda text, done: bar.update(line, description=text, completed=done)


@contextmanager
def _kept_in(store: Path) -> Iterator[Callable[[str, float], None]]:
    """A bar over work that a store keeps: Ctrl-C loses nothing, and says so."""
    try:
        with _progress() as progress:
            yield progress
    except KeyboardInterrupt:
        print(f"memloci: stopped; {store} has all that was done, the same command goes on", file=sys.stderr)
        raise typer.Exit(FAILED) from None


def _print_json(value: Any) -> None:
    _write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _print(renderable: Any) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    _write(captured.get())


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: memloci tasks | head -3
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """The entry point: run a command and turn its outcome into an exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(arguments)
    except BadInput as error:
        if "--json" in arguments:
            _print_json({"error": str(error)})
        print(f"memloci: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("memloci: interrupted", file=sys.stderr)
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get("MEMLOCI_DEBUG"):
            raise
        name = type(error).__name__
        print(f"memloci: this is a bug: {name}: {error} (MEMLOCI_DEBUG=1 shows where)", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
