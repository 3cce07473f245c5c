"""`memloci study`: claims with verdicts."""

from pathlib import Path
from typing import Annotated

import typer

from memloci.commands.shared import (
    Address,
    Engine,
    Json,
    Workers,
    print_json,
    print_view,
    progress_of_store,
    write_text,
)

EXAMPLE = "memloci study 4a 4b --quick --out out/study"


def study(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Claims, such as 4a, or all.", show_default=False, metavar="NAME"),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick/--full",
            help="quick takes a quarter of an hour for all claims, full takes hours; both continue where they stopped.",
        ),
    ] = True,
    listed: Annotated[bool, typer.Option("--list", help="List the claims.")] = False,
    out: Annotated[Path, typer.Option("--out", help="The directory to write.")] = Path("out/study"),
    store: Annotated[
        Path | None,
        typer.Option("--store", help="The file that stores the runs.", show_default="runs.sqlite in --out"),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text",
            help="The text file that claims about language use.",
            show_default="Python's standard library",
        ),
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    readme: Annotated[
        Path | None,
        typer.Option(
            "--readme", help="Also write the table of verdicts into this file, between its markers."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Shifts all seeds, for an independent study.", min=0)
    ] = 0,
    as_json: Json = False,
) -> None:
    """Test claims of the paper, or of ours, and report verdicts that can be checked."""
    from memloci.study.claims import CLAIMS, load_claim
    from memloci.views.terminal import study as views

    if listed:
        claims = [load_claim(name) for name in CLAIMS]
        if as_json:
            names_of_fields = ("id", "title", "statement", "source", "design")
            print_json([{name: getattr(claim, name) for name in names_of_fields} for claim in claims])
        else:
            print_view(views.claims_table(claims))
        return
    from memloci import pipeline
    from memloci.core.files import require_writable
    from memloci.study.run import STORE
    from memloci.study.run import study as run_study

    require_writable(out)
    with progress_of_store(store or out / STORE) as progress:
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
        print_json([finding.to_dict() for finding in findings])
    else:
        print_view(views.findings_table(findings))
        write_text(
            f"wrote {out}: index.html and a page for each of {len(written)} claims, with figures and data\n"
        )
