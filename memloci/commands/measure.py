"""`memloci measure`: sampled and adversarial error beside the certified one."""

from typing import Annotated

import typer

from memloci.commands.shared import (
    EvaluationPath,
    Json,
    Model,
    Seed,
    print_json,
    print_view,
    progress_bar,
    write_text,
)
from memloci.core.errors import BadInput
from memloci.core.numbers import number

EXAMPLE = "memloci measure out/echo --sequences 1000"


def measure(
    directory: Model,
    sequences: Annotated[int, typer.Option("--sequences", help="Sequences to draw.", min=1)] = 64,
    length: Annotated[
        int | None, typer.Option("--length", help="The length of the sequences.", min=1)
    ] = None,
    path: EvaluationPath = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure the sampled and the adversarial error, beside the certified one."""
    import jax.random as jr

    from memloci import pipeline
    from memloci.model.store import load
    from memloci.views.terminal import plans as views

    with progress_bar() as progress:
        progress("loading", 0.0)
        model, task = load(directory)
        if task is None:
            raise BadInput(
                f"{directory}: the model was saved without a task; there is nothing to measure against"
            )
        model = model.using(path) if path else model
        progress("measuring", 0.1)
        measurement = pipeline.measure(model, task, key=jr.key(seed), sequences=sequences, length=length)
        progress("certifying", 0.8)
        try:
            proved, refused = pipeline.verify(directory, path), None
        except BadInput as reason:  # what was seen stands, proved or not
            proved, refused = None, str(reason)
    if as_json:
        certificates = {"certificate": proved.to_dict() if proved else None}
        print_json(
            {"measured": measurement.to_dict(), **certificates, **({"refused": refused} if refused else {})}
        )
        return
    if proved:
        print_view(views.certificate_table(proved, measurement))
    else:
        write_text(f"not certified: {refused}\n")
        write_text(
            f"largest error, sampled {number(measurement.err_sampled)}, adversarial {number(measurement.err_adversarial)}\n"
        )
    if measurement.counterexample:
        write_text(f"counterexample: {measurement.counterexample}\n")
