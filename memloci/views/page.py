"""The skeleton that all reports share: one HTML page that needs nothing beside it.

No script, no font, no image from elsewhere; its content security policy says so to the browser. What these functions
are given is HTML already, save for titles, labels and captions, which they escape.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from memloci import __version__
from memloci.core.numbers import lower_number, number

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
CSS = Path(__file__).with_name("page.css")


def whole(title: str, body: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · memloci</title>
<style>
{CSS.read_text()}</style>
</head>
<body>
{body}
<footer>memloci {escape(__version__)}</footer>
</body>
</html>
"""


def section(title: str, body: str, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}>\n<h2>{title}</h2>\n{body}\n</section>"


def figure(svg: str, label: str, caption: str, kind: str = "") -> str:
    labelled = svg.replace('role="img"', f'role="img" aria-label="{escape(label)}"', 1)
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{kind}>\n{labelled}{words}</figure>"


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numeric: Sequence[int] = (),
    wordy: Sequence[int] = (),
    marked: int | None = None,
) -> str:
    """A table of cells that are HTML already."""
    kind = lambda j: ' class="n"' if j in numeric else ' class="why"' if j in wordy else ' class="mark"'
    top = "".join(f"<th{kind(j)}>{head}</th>" for j, head in enumerate(heads))
    body = []
    for k, row in enumerate(rows):
        chosen = ' class="chosen"' if k == marked else ""
        body.append(
            f"<tr{chosen}>" + "".join(f"<td{kind(j)}>{cell}</td>" for j, cell in enumerate(row)) + "</tr>"
        )
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>\n<tbody>'
        + "\n".join(body)
        + "</tbody></table></div>"
    )


def tiles(content: Mapping[str, str]) -> str:
    """Names and short values, in a row."""
    boxes = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in content.items())
    return f'<dl class="tiles">{boxes}</dl>'


def optional(x: float | None) -> str:
    """A number, or a dash where there is none."""
    return "–" if x is None else data(x)


def data(x: Any) -> str:
    """A number, short; the whole of it for machines."""
    return f'<data value="{float(x)!r}">{number(x)}</data>'


def below(x: float) -> str:
    """A proved lower bound: rounded down when it is shortened."""
    return f'<data value="{float(x)!r}">{lower_number(x)}</data>'
