"""A dictionary as the text of a TOML file."""

import json
from typing import Any


def as_toml(data: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {_value(value)}\n" for key, value in data.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)
