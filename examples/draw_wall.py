"""Draw the precision wall, and what goes round it: docs/images/wall.png, in a few seconds.

    python examples/draw_wall.py --out docs/images/wall.png

One layer of lin heads needs about 4 bits per lag, however many heads it has (proved). The certified bits of
rotary heads (1 layer) and of lag-1 shifts (one layer per lag), compiled here, stay flat: 13 to 20 for the
lags 2 to 32.
"""

import argparse
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.progress import track

from memloci import pipeline
from memloci.observe.probes import wall
from memloci.tasks.short import Fixed
from memloci.views.figures.drawing import BLUE, FLOAT_BITS, GREEN, INK, RED, SKY, SOFT, style

TOLERANCE = 1e-3
LAGS = (2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32)
ROUTES = {
    "rotary": ("rotary heads, 1 layer: certified", GREEN, "o", (0, -19)),
    "depth-1": ("lag-1 shifts, one layer per lag: certified", RED, "s", (0, 22)),
}


def certified_bits(route: str) -> dict[int, int]:
    """The significand bits with which a compiled model is certified to meet the tolerance, for each lag."""
    found = {}
    for lag in track(LAGS, f"compiling {route}", transient=True):
        built = pipeline.compile(Fixed(lags=[lag], readout="x1"), route=route, tolerance=TOLERANCE)
        assert built.certificate.bits is not None
        found[lag] = built.certificate.bits
    return found


def draw(axes: Axes, bits: dict[str, dict[int, int]]) -> None:
    points = wall(max(LAGS))
    curves = {e: [(p.lag, p.log2_mass) for p in points if p.error == e] for e in (0.1, 0.001)}
    z, b = zip(*curves[0.1], strict=True)
    axes.fill_between(z, b, 0, color=BLUE, alpha=0.07, linewidth=0)
    for error, color, line, (dx, dy), place in (
        (0.001, BLUE, "-", (-8, 6), "right"),
        (0.1, SKY, "--", (10, -14), "left"),
    ):
        z, b = zip(*curves[error], strict=True)
        axes.plot(z, b, line, color=color, linewidth=2.6)
        axes.annotate(
            f"one ALiBi layer, error ≤ {error:g}: at least",
            curves[error][19 if place == "right" else 16],
            (dx, dy),
            textcoords="offset points",
            ha=place,
            color=color,
            fontsize=11.5,
            fontweight="bold",
        )
    for name, significand in FLOAT_BITS.items():
        axes.axhline(significand, color=SOFT, linewidth=1.2, linestyle=(0, (2, 3)))
        axes.annotate(
            f"{name} has {significand} bits",
            (32.4, significand),
            (0, 4),
            textcoords="offset points",
            ha="right",
            color=SOFT,
            fontsize=10.5,
        )
    for route, (label, color, marker, shift) in ROUTES.items():
        z, b = zip(*bits[route].items(), strict=True)
        axes.plot(z, b, marker + "-", color=color, linewidth=2, markersize=6.5)
        axes.annotate(
            label, (13, b[5]), shift, textcoords="offset points", color=color, fontsize=11, fontweight="bold"
        )
    axes.set_xlim(1, 32.6)
    axes.set_ylim(0, 145)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.set_xlabel("lag: how many tokens ago", fontsize=11.5)
    axes.set_ylabel("bits of precision needed", fontsize=11.5)
    axes.tick_params(labelsize=10.5)
    axes.set_title(
        "To recall one token, a single ALiBi layer pays 4 bits per lag; depth or rotation, almost none",
        loc="left",
        fontsize=14,
        fontweight="bold",
        color=INK,
        pad=30,
    )
    axes.annotate(
        "Curves: proved for any number of heads. Points: compiled without training, error ≤ 0.001 proved.",
        (0, 1),
        (0, 10),
        "axes fraction",
        "offset points",
        color=SOFT,
        fontsize=11.5,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the precision wall.")
    parser.add_argument("--out", type=Path, default=Path("docs/images/wall.png"))
    out = parser.parse_args().out
    bits = {route: certified_bits(route) for route in ROUTES}
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(12, 6), dpi=100, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12)  # type: ignore[union-attr]
        FigureCanvasAgg(figure)
        draw(figure.subplots(), bits)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=100, metadata={"Software": None})
    for route, found in bits.items():
        print(f"{route}: " + ", ".join(f"lag {lag}: {b} bits" for lag, b in found.items()))
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
