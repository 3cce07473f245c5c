"""What an installation has."""

from typing import Any

from rich import box
from rich.table import Table


def findings_table(findings: dict[str, Any]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=f"memloci {findings['memloci']}", title_justify="left"
    )
    table.add_column("what", style="bold", no_wrap=True)
    table.add_column("found")
    table.add_row("python", f"{findings['python']} on {findings['platform']}")
    for device in findings["devices"]:
        table.add_row("device", device)
    for name, version in findings["packages"].items():
        table.add_row(name, version or "[red]missing[/red]")
    for name, growth in findings["paths"].items():
        table.add_row(f"path {name}", f"grows as {growth}")
    for chosen in findings["chosen"]:
        changes = [f"{path} from length {n:,}" for n, path in chosen["from_length"].items()]
        table.add_row("auto", f"{chosen['kinds']}: {', '.join(changes)}")
    for extra, packages in findings["extras"].items():
        missing = [name for name, version in packages["packages"].items() if version is None]
        what = "present" if packages["present"] else f"lacks {', '.join(missing)}: {packages['install']}"
        table.add_row(f"extra {extra}", what.replace("[", r"\["))
    return table
