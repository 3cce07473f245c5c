"""A task from what a user has: a TOML file, a gallery name, a dictionary."""

import tomllib
from pathlib import Path
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.files import read_bytes
from memloci.core.specs import shorten
from memloci.tasks.gallery import GALLERY, OUTSIDE
from memloci.tasks.short import SHORT
from memloci.tasks.task import Task

MAX_FILE = 1 << 20  # bytes


def load_task(source: str | Path) -> Task:
    """The task in a TOML file, or the gallery task of that name."""
    if str(source) in GALLERY:
        return GALLERY[str(source)]()
    path = Path(source)
    if str(source) in OUTSIDE and not path.exists():
        raise BadInput(f"{source} is not a task of sparse memory: {OUTSIDE[str(source)]}")
    try:
        if path.is_dir():
            raise BadInput(f"{source} is a directory; a task file is TOML")
        if path.stat().st_size > MAX_FILE:
            raise BadInput(
                f"{source} has {path.stat().st_size:,} bytes; a task file has at most {MAX_FILE:,}"
            )
        text = _content(path).decode()
    except FileNotFoundError:
        raise BadInput(
            f"{shorten(str(source))} is neither a file nor a gallery task (see `memloci tasks`)"
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"{source} is not text in UTF-8; a task file is TOML") from None
    except (OSError, ValueError, RuntimeError) as error:  # a name with a zero byte, a link to itself
        if isinstance(error, BadInput):
            raise
        raise BadInput(
            f"{shorten(str(source))} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BadInput(f"{source}: not TOML: {error}") from None
    try:
        return task_from_dict(data)
    except BadInput as error:
        raise error.within(str(source)) from None


def _content(path: Path) -> bytes:
    """Of a file, also behind a link; a pipe or a device could go on for ever."""
    try:
        return read_bytes(path.resolve(), MAX_FILE)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; a task file is TOML") from None


def task_from_dict(data: Any) -> Task:
    """The task that `Task.to_dict` or a TOML file describes."""
    if not isinstance(data, dict):
        raise BadInput(f"a task is a table of keys, found {shorten(data)}")
    fields = {str(key): value for key, value in data.items()}
    kind = fields.pop("kind", None)
    known = ", ".join(f'"{name}"' for name in SHORT)
    if kind is None and "memories" in fields:
        return Task(**fields)
    if kind is None:
        raise BadInput(f"kind is missing; write kind = one of {known}, or list memories = [{{ lag = 3 }}]")
    if not isinstance(kind, str) or kind not in SHORT:
        raise BadInput(f"kind: {shorten(kind)} is unknown; the kinds are {known}")
    return SHORT[kind](**fields)
