"""What was computed before, kept under a hash of all that it depends on: its settings, memloci's own source, and the libraries below."""

import hashlib
import json
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memloci.core.files import parse_json, replace_together

PACKAGE = Path(__file__).parents[1]


def fingerprint(settings: Any) -> str:
    text = json.dumps([settings, _source()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def _source() -> str:
    """memloci's own, and the versions of what it computes with."""
    code = hashlib.sha256(
        repr([version(name) for name in ("jax", "numpy", "scipy", "python-flint")]).encode()
    )
    for file in sorted(PACKAGE.rglob("*.py")):
        code.update(file.read_bytes())
    return code.hexdigest()


def read(path: Path, name: str | None = None) -> Any:
    """What was kept under this fingerprint, or at least by this source; None if it is not there, or not ours: then it is made
    anew."""
    try:
        content = parse_json(path.read_bytes())
        same = content["source"] == _source() and name in (None, content["fingerprint"])
        return content["content"] if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(path: Path, name: str, content: Any) -> None:
    text = json.dumps({"fingerprint": name, "source": _source(), "content": content}, indent=1) + "\n"
    replace_together(path.parent, {path.name: text.encode()})
