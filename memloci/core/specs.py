"""The base of everything a user may type: checked once, frozen, JSON in and out.

Tasks (`tasks/`) and architectures (`model/architecture.py`) are specs. A mistake in one raises
`BadInput` with one line that names the key, not pydantic's page.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from memloci.core.errors import BadInput

MAX_PROBLEMS = 3  # problems told at once; the rest are counted


class Spec(BaseModel):
    """A frozen record that refuses unknown keys, wrong types, NaN and infinities."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    def __init__(self, /, **data: Any):
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise BadInput(one_line(error, type(self))) from None


def one_line(error: ValidationError, spec: type[BaseModel]) -> str:
    """pydantic's list of problems as one line."""
    return joined([_sentence(problem, spec) for problem in error.errors(include_url=False)])


def joined(problems: list[str]) -> str:
    """Several problems as one line; the first few, and how many more there are."""
    problems = list(dict.fromkeys(problems))
    more = len(problems) - MAX_PROBLEMS
    return "; ".join(problems[:MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def missing(key: str) -> str:
    return f"{key} is missing"


def unknown(key: object, keys: Iterable[str]) -> str:
    return f"unknown key {shorten(key)}; the keys are {', '.join(keys)}"


def _sentence(problem: Any, spec: type[BaseModel]) -> str:
    place = _location(problem["loc"])
    prefix = f"{place}: " if place else ""
    typed = shorten(problem["input"])
    match problem["type"]:
        case "extra_forbidden":
            return unknown(problem["loc"][-1], (name for name in spec.model_fields if name != "kind"))
        case "missing":
            return missing(place)
        case "value_error":
            return prefix + str(problem["ctx"]["error"])
        case _:
            return f"{prefix}{_lower_first(problem['msg'])}, found {typed}"


def _location(loc: tuple[int | str, ...]) -> str:
    """('channels', 0, 'range') -> 'channels[0].range'."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():  # pydantic adds the names of union members; they mean nothing to a user
            text += f".{part}" if text else part
    return text


def shorten(value: object, limit: int = 60) -> str:
    """A user's value as it can be shown inside one line."""
    try:
        text = " ".join(repr(value).split())
    except (RecursionError, ValueError):  # nested too deep, or an integer of thousands of digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
