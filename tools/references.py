"""No dangling references: a file that a comment, a docstring or a page names exists.

A reference is a path with a slash, or a bare `name.md`, that ends in .py, .md, .toml, .html or .json. Paths are looked
for from the root, from memloci/, from the file's own folder and the folders above it. What a program writes for its
users (`out/...`, `DIR/...`) is no reference.
"""

import re
import subprocess
import sys
from pathlib import Path

REFERENCE = re.compile(r"(?<![\w./<>{}*-])((?:[\w-]+/)+[\w-]+\.(?:py|md|toml)|[A-Za-z_-]+\.md)\b")
WRITTEN = ("out/", "DIR/", "DIR2/")


def dangling(root: Path) -> list[str]:
    found = []
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        path = root / name
        if (
            path.suffix not in (".py", ".md", ".toml", ".html")
            or not path.is_file()
            or name == "tools/references.py"
        ):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for reference in REFERENCE.findall(line):
                if not reference.startswith(WRITTEN) and not _exists(root, path, reference):
                    found.append(f"{name}:{number}: {reference} does not exist")
    return found


def _exists(root: Path, path: Path, reference: str) -> bool:
    above = [folder for folder in path.parents if folder == root or root in folder.parents]
    return any((folder / reference).exists() for folder in (*above, root / "memloci", root / "docs"))


def main() -> int:
    problems = dangling(Path(__file__).resolve().parent.parent)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
