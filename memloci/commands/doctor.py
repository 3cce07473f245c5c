"""`memloci doctor`: versions, devices, paths of evaluation, extras.

Extras are read from the package's own metadata, so this list is never behind pyproject.toml.
"""

import importlib.metadata as metadata
import platform
import re
from typing import Any

from memloci.commands.shared import Json, print_json, print_view

EXAMPLE = "memloci doctor --json"


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, paths of evaluation and optional extras, and how to install those that are missing."""
    from memloci.views.terminal.doctor import findings_table

    findings = examine()
    if as_json:
        print_json(findings)
    else:
        print_view(findings_table(findings))


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
