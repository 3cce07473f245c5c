"""Views draw finished records: they import no function that computes, and let no text become markup.

From core a view may import anything. From other floors it imports names that are classes or constants in the module that
defines them, never functions and never whole modules, save those listed below with the reason. In templates nothing is
marked as safe, and in Python only views/html/render.py makes markup of a text, which is a figure's SVG.
"""

import ast
import re
import sys
from pathlib import Path

ALLOWED = {  # functions, and why a view may call them
    "memloci.routes.symbols.presence_slot": "the name of a slot",
    "memloci.tasks.names.memory_of": "the number in a name",
}
FREE = ("memloci.core.", "memloci.views.")
MARKUP = "memloci/views/html/render.py"
UNSAFE = re.compile(r"\|\s*safe\b|\bautoescape\b")


def impure_imports(root: Path) -> list[str]:
    """Every import of a view that is neither a class nor a constant, as `file:line: what`."""
    found = []
    for path in sorted((root / "memloci" / "views").rglob("*.py")):
        where = path.relative_to(root)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{source}{alias.name}" for alias in node.names):
                if name.startswith("markupsafe") and str(where) != MARKUP:
                    found.append(f"{where}:{node.lineno}: only {MARKUP} makes markup of a text")
                if not name.startswith("memloci") or name.startswith(FREE) or name in ALLOWED:
                    continue
                if (kind := kind_of(root, name)) not in ("a class", "a constant"):
                    found.append(f"{where}:{node.lineno}: {name} is {kind}; a view is given finished records")
    return found


def kind_of(root: Path, name: str) -> str:
    """What a dotted name is, where it is defined."""
    module, _, own = name.rpartition(".")
    path = _file(root, module)
    if path is None or _file(root, name) is not None:
        return "a module"
    body = list(ast.parse(path.read_text()).body)
    for node in body:
        match node:
            case ast.If():
                body += node.body  # such as `if TYPE_CHECKING`
            case ast.ClassDef() if node.name == own:
                return "a class"
            case ast.FunctionDef() if node.name == own:
                return "a function"
            case ast.ImportFrom() if named := [a.name for a in node.names if own == (a.asname or a.name)]:
                return kind_of(root, f"{node.module}.{named[0]}")
            case ast.Assign() | ast.AnnAssign() if own in _assigned(node):
                constant = own == "__version__" or own[:1].isupper()
                return "a constant" if constant and not isinstance(node.value, ast.Lambda) else "a variable"
    return "unknown"


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _file(root: Path, module: str) -> Path | None:
    base = root.joinpath(*module.split("."))
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def unescaped(root: Path) -> list[str]:
    """Templates that take a text for markup."""
    return [
        f"{path.relative_to(root)}:{k}: texts are escaped, always"
        for path in sorted((root / "memloci" / "views").rglob("*.html"))
        for k, line in enumerate(path.read_text().splitlines(), start=1)
        if UNSAFE.search(line)
    ]


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    problems = impure_imports(root) + unescaped(root)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
