"""`memloci doctor`: versions, devices, paths of evaluation, extras."""

from memloci.commands.shared import Json, print_json, print_view

EXAMPLE = "memloci doctor --json"


def doctor(as_json: Json = False) -> None:
    """Versions, devices and optional extras: what is here, and how to get what is not."""
    from memloci.views.doctor import examine, findings_table

    findings = examine()
    if as_json:
        print_json(findings)
    else:
        print_view(findings_table(findings))
