"""A function that a user gives: text in our language, or a Python callable.

Both name the variables they read, a callable by its parameters: `lambda x1, x2: x1 * x2`. Text can be
enclosed on intervals and written to a file; a callable can only be evaluated.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from memloci.core.errors import BadInput
from memloci.core.specs import shorten
from memloci.language.evaluate import evaluate
from memloci.language.expression import Expression, variables
from memloci.language.parse import parse


@dataclass(frozen=True)
class Formula:
    source: str | Callable[..., Any]
    expression: Expression | None  # None for a callable
    variables: tuple[str, ...]

    def __call__(self, values: Mapping[str, Any], xp: Any) -> Any:
        if self.expression is not None:
            return evaluate(self.expression, values, xp)
        return self.source(**{name: values[name] for name in self.variables})  # type: ignore[operator]

    @property
    def text(self) -> str:
        """What the user wrote; the name of a callable."""
        return self.source if isinstance(self.source, str) else getattr(self.source, "__name__", "a callable")

    def __str__(self) -> str:
        if isinstance(self.source, str):
            return shorten(self.source)
        return getattr(self.source, "__name__", "callable")


def make_formula(source: object, names: Collection[str]) -> Formula:
    """The formula over the variables in `names`, or a refusal that says what is wrong."""
    if isinstance(source, str):
        expression = parse(source, names)
        return Formula(source, expression, tuple(sorted(variables(expression))))
    if not callable(source):
        raise BadInput(f"an expression in quotes or a callable is needed, found {shorten(source)}")
    try:
        parameters = inspect.signature(source).parameters.values()
    except (TypeError, ValueError):
        raise BadInput(f"the parameters of {shorten(source)} cannot be read; wrap it in a lambda") from None
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadInput(f"parameter {shorten(parameter.name)} of a callable must be a variable's name")
        if parameter.name not in names:
            known = ", ".join(sorted(names)[:8])
            raise BadInput(f"unknown name {shorten(parameter.name)} in a callable; the variables are {known}")
    return Formula(source, None, tuple(parameter.name for parameter in parameters))
