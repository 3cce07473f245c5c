"""A task in words: its title, and the file that says it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memloci.core.errors import BadInput
from memloci.tasks.task import Task


def task_title(task: Task) -> str:
    labels = [recall.label for recall in task.recalls]
    more = f" and {len(labels) - 4} more" if len(labels) > 5 else ""
    text = f"{task.kind} memory: {', '.join(labels[:4] if more else labels)}{more}" if labels else "no memory"
    return task.description or text


def task_toml(task: Task) -> str:
    """The task as a TOML file."""
    return data_toml(task.to_dict())


def data_toml(data: Mapping[str, Any]) -> str:
    """What a task file says, line by line."""
    return "\n".join(f"{key} = {_toml(value)}" for key, value in data.items())


def toml_or_none(task: Task) -> str | None:
    """None where the task has a Python callable, which a task file cannot hold."""
    try:
        return task_toml(task)
    except BadInput:
        return None


def _toml(value: Any) -> str:
    match value:
        case dict():
            return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case _:
            return json.dumps(value, ensure_ascii=False)


def memories_text(memories: Sequence[int]) -> str:
    return ("memories " if len(memories) > 1 else "memory ") + ", ".join(map(str, memories))
