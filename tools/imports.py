"""Imports point one way: a file uses what stands above it in the house, never what stands below.

The order of the house is the list below; `docs/architecture.md` draws it. Within one floor any file may use
any other. Imports inside functions count as well: a lazy import still is a dependency.
"""

import ast
import sys
from pathlib import Path

FLOORS = (
    "core",
    "language",
    "tasks",
    "approx",
    "model",
    "circuits",
    "routes",
    "certify",
    "observe",
    "synthesize",
    "theory",
    "tradeoffs",
    "train",
    "sweeps",
    "study",
    "exchange",
    "detect",
    "inspect",
    "views",
    "app",
    "pipeline",
    "commands",
    "cli",
)


def floor_of(module: str) -> int | None:
    """The floor of `memloci.<floor>...`; None for the package itself, whose public names are imported when used."""
    parts = module.split(".")
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS else None


def upward_imports(root: Path) -> list[str]:
    """Every import of a lower floor, as `file:line: what`."""
    found = []
    for path in sorted((root / "memloci").rglob("*.py")):
        own = floor_of(".".join(path.relative_to(root).with_suffix("").parts))
        if own is None:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            floors = [(floor_of(m), m) for m in modules if m.startswith("memloci")]
            below = [m for floor, m in floors if floor is not None and floor > own]
            if below:
                found.append(
                    f"{path.relative_to(root)}:{node.lineno}: {FLOORS[own]} uses {below[0]}, which stands below it"
                )
    return found


def unknown_floors(root: Path) -> list[str]:
    names = {
        p.stem for p in (root / "memloci").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    return [
        f"memloci/{name}: no floor in tools/imports.py"
        for name in sorted(names - {*FLOORS, "__init__", "__main__", "check"})
    ]


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    problems = unknown_floors(root) + upward_imports(root)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
