"""What this installation has: versions, devices, paths, and the optional extras with how to get them.

Extras are read from the package's own metadata, so this list is never behind pyproject.toml.
"""

import importlib.metadata as metadata
import platform
import re
from typing import Any

from rich import box
from rich.table import Table


def examine() -> dict[str, Any]:
    import jax

    from memloci.model.paths.choice import PATHS, overview

    required, extras = _requirements()
    return {
        "memloci": metadata.version("memloci"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in required},
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "paths": {name: path.growth for name, path in PATHS.items()},
        "chosen": [{"kinds": kinds, "from_length": chosen} for kinds, chosen in overview()],
        "extras": {
            extra: {
                "packages": {name: _version(name) for name in names},
                "present": all(_version(name) for name in names),
                "install": f'pip install "memloci[{extra}]"',
            }
            for extra, names in extras.items()
        },
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> tuple[list[str], dict[str, list[str]]]:
    required: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in metadata.requires("memloci") or []:
        name = re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0]
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)""", line)
        (extras.setdefault(extra.group(1), []) if extra else required).append(name)
    return required, extras


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
        taken = [f"{path} from length {n:,}" for n, path in chosen["from_length"].items()]
        table.add_row("auto", f"{chosen['kinds']}: {', '.join(taken)}")
    for extra, found in findings["extras"].items():
        missing = [name for name, version in found["packages"].items() if version is None]
        what = "present" if found["present"] else f"lacks {', '.join(missing)}: {found['install']}"
        table.add_row(f"extra {extra}", what.replace("[", r"\["))
    return table
