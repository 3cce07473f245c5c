"""One formatter: only memloci/core/numbers.py turns floats into digits.

A format like `:.2g` rounds to nearest, so a proved bound that is printed with it may be no bound. Whatever is printed
goes through `number`, which knows from the type on which side a proved number is rounded.
"""

import ast
import re
import sys
from pathlib import Path

# check.py shares no code with the rest, so it has a formatter of its own.
FORMATTERS = ("memloci/core/numbers.py", "memloci/core/proved.py", "memloci/check.py")
FLOATING = re.compile(r"[eEfFgG%]$|\.\d+$")


def formatted_floats(root: Path) -> list[str]:
    found = []
    for path in sorted((root / "memloci").rglob("*.py")):
        name = str(path.relative_to(root))
        if name in FORMATTERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            spec = _format_of(node)
            if spec is not None and FLOATING.search(spec):
                found.append(f"{name}:{node.lineno}: format {spec!r}; use memloci.core.numbers")
    return found


def _format_of(node: ast.AST) -> str | None:
    """The literal part of an f-string's format, or the argument of `format`."""
    if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
        return "".join(str(part.value) for part in node.format_spec.values if isinstance(part, ast.Constant))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "format"
        and len(node.args) == 2
    ):
        spec = node.args[1]
        return str(spec.value) if isinstance(spec, ast.Constant) else None
    return None


def main() -> int:
    problems = formatted_floats(Path(__file__).resolve().parent.parent)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
