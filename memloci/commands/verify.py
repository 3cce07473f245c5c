"""`memloci verify`: the certificate again, from the weights and the task."""

import typer

from memloci.commands.shared import MISSED, Json, Model, print_json, print_view, progress_bar, write_text

EXAMPLE = "memloci verify out/echo"


def verify(directory: Model, as_json: Json = False) -> None:
    """Recompute the certificate from the weights and the task, and refuse changed weights."""
    from memloci import pipeline
    from memloci.views.terminal import plans as views

    with progress_bar() as progress:
        progress("verifying", 0.1)
        certificate = pipeline.verify(directory)
        problem = pipeline.disagreement(directory, certificate)
    if as_json:
        print_json({"certificate": certificate.to_dict(), "agrees": problem is None, "problem": problem})
    else:
        print_view(views.certificate_table(certificate))
        write_text(f"{problem}\n" if problem else "the certificate on file is confirmed\n")
    if problem or not certificate.met:
        raise typer.Exit(MISSED)
