"""The one place where a context becomes HTML: a Jinja2 environment that escapes every text.

`drawn` is the only filter that marks something as markup, and it is given what views/figures drew and nothing else.
Numbers become digits in core/numbers.py; `machine` has all of their digits, for the `value` of a <data> element.
"""

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from memloci import __version__
from memloci.core.numbers import decimals, lower_number, number, power_of_two, upper_number
from memloci.views.html.parts import Code, Span, Sup
from memloci.views.text.tasks import memories_text


def drawn(svg: str, label: str) -> Markup:
    """A figure of ours, with what a screen reader says of it."""
    return Markup(svg.replace('role="img"', f'role="img" aria-label="{escape(label)}"', 1))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
ENVIRONMENT.globals["version"] = __version__
ENVIRONMENT.filters |= {
    "number": number,
    "lower_number": lower_number,
    "upper_number": upper_number,
    "decimals": decimals,
    "power_of_two": lambda x: power_of_two(math.log2(x)),
    "memories": memories_text,
    "machine": lambda x: repr(float(x)),
    "whole": lambda x: f"{x:,}",
    "drawn": drawn,
}
ENVIRONMENT.tests |= {
    "code": lambda cell: isinstance(cell, Code),
    "span": lambda cell: isinstance(cell, Span),
    "sup": lambda cell: isinstance(cell, Sup),
    "finite": math.isfinite,
    "several": lambda cell: isinstance(cell, tuple),
}


def render(template: str, page: Any) -> str:
    """A page from its context, which the template knows as `page`."""
    return ENVIRONMENT.get_template(template).render(page=page)
