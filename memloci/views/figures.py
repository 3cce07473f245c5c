"""One function per figure of a report: records in, SVG out; the same records give the same bytes."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from memloci.certify.certificate import Certificate
from memloci.core.numbers import decimals, literal, number
from memloci.observe.probes import (
    AttentionMap,
    Example,
    SlotKernel,
    WallPoint,
    shown_lags,
)
from memloci.observe.sup_error import Measurement
from memloci.tasks.memories.kernel import Convolution
from memloci.tasks.memories.lag_table import LagTable
from memloci.tasks.task import Task
from memloci.tradeoffs.rates import HeadRates, WidthRates
from memloci.views.drawing import (
    BLUE,
    FLOAT_BITS,
    GREEN,
    INK,
    MOST_SERIES,
    OBSERVED,
    ORANGE,
    PROVED,
    PURPLE,
    RED,
    SERIES,
    SKY,
    SOFT,
    WIDTH,
    decade_ticks,
    lag_ticks,
    note_on,
    plain_text,
    svg_of,
)

MOST_POINTS = 600  # of a curve; more would only make the page heavy
MOST_POSITIONS = 120  # of an example
SHOWN_MAPS = 8
DEPTH = 1e-12  # of the largest value: what lies deeper is not drawn on a logarithmic axis
MOST_ROWS = 12  # memories whose lags are drawn


# -- the memory -------------------------------------------------------------------------------------------


def memory_figure(task: Task) -> str:
    """Which lags are remembered, and with which kernels; nothing where there is neither."""
    kernels = {i: r for i, r in enumerate(task.recalls, start=1) if isinstance(r, Convolution)}
    tables = {i: r for i, r in enumerate(task.recalls, start=1) if isinstance(r, LagTable)}
    panels: list[tuple[float, Callable[[Axes], None]]] = []
    if tables and all(table.kernel for table in tables.values()):
        lags = {i: int(table.bound) for i, table in tables.items()}
        panels.append((1.9, lambda axes: _stems(axes, lags)))
    elif tables:
        panels.append((0.75 + 0.3 * min(len(tables), MOST_ROWS), lambda axes: _rows(axes, task, tables)))
    if kernels:
        panels.append((2.5, lambda axes: _weights(axes, task, kernels)))
    if not panels:
        return ""
    heights = [height for height, _ in panels]

    def draw(figure: Figure) -> None:
        drawn = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (_, panel) in zip(drawn, panels, strict=True):
            panel(axes)

    return svg_of("memory", sum(heights), draw)


def _weights(axes: Axes, task: Task, kernels: Mapping[int, Convolution]) -> None:
    """A line per kernel."""
    n = shown_lags(task)
    z, shown = np.arange(1, n + 1), list(kernels.items())[:MOST_SERIES]
    values = [kernel.at_lags(n) for _, kernel in shown]
    for (i, kernel), rho, color in zip(shown, values, SERIES, strict=False):
        axes.plot(z, rho, color=color, marker="o", markersize=3, label=f"memory {i}: {_cut(kernel.text, 48)}")
    if all((rho > 0).all() for rho in values):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(1e-12, min(rho.min() for rho in values) / 2))
        decade_ticks(axes.yaxis)
        lag_ticks(axes)
    else:
        axes.axhline(0, color=SOFT, linewidth=0.8)
    axes.set_ylabel("weight ρ(z)")
    axes.set_xlabel("lag z, tokens into the past")
    axes.legend(loc="best")


def _stems(axes: Axes, lags: Mapping[int, int]) -> None:
    """A stem per memory at a fixed lag."""
    far = max(lags.values())
    for (i, lag), color in zip(lags.items(), _cycle(len(lags)), strict=True):
        axes.vlines(lag, 0, 1, color=color, linewidth=2)
        axes.plot([lag], [1], "o", color=color, markersize=7)
        if len(lags) <= 12:
            axes.annotate(
                f"m{i}", (lag, 1), (0, 7), textcoords="offset points", ha="center", fontsize=8, color=INK
            )
    axes.plot([0], [0], "s", color=INK, markersize=6, clip_on=False, zorder=5)
    axes.annotate("now", (0, 0), (0, 8), textcoords="offset points", ha="center", fontsize=8)
    # Time runs to the right, as one reads.
    near = max(1, min(lags.values()))
    if far > 64 and far > 20 * near:
        axes.set_xscale("symlog", linthresh=near)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
        axes.set_xlim(far * 2, -0.3 * near)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        axes.set_xlim(far * 1.06 + 1, -0.04 * far - 0.3)
    axes.set_ylim(0, 1.35)
    axes.set_yticks([0, 1])
    axes.set_xlabel("lag z, tokens into the past")
    axes.set_ylabel("weight")


def _rows(axes: Axes, task: Task, tables: Mapping[int, LagTable]) -> None:
    """A row per memory, a dot per lag it may have: the larger, the more of its table has that lag."""
    far = max(table.bound for table in tables.values())
    shown = list(tables.items())[:MOST_ROWS]
    for row, (i, table) in enumerate(shown):
        lags, counts = np.unique(table.lags, return_counts=True)
        color = SERIES[task.levels[i - 1] % MOST_SERIES]
        axes.scatter(lags, np.full(len(lags), row), s=24 + 56 * counts / counts.max(), color=color, zorder=3)
    names = [f"m{i}: {_cut(table.text.removeprefix('lag '), 28)}" for i, table in shown]
    axes.set_yticks(range(len(shown)), names)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(False, axis="y")
    # Time runs to the right, as one reads.
    if far > 64:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(far * 1.6, 0)
        ticks = [2**k for k in range(far.bit_length() + 1) if 2**k <= far]
        axes.set_xticks([0, *ticks[:: 1 + len(ticks) // 12]])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{decimals(x)}"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(min(12, far + 1), integer=True))
        axes.set_xlim(far + 0.06 * far + 0.5, -0.02 * far - 0.01)
    axes.set_xlabel("lag, tokens into the past; 0 is now")


def _cut(text: str, most: int) -> str:
    return plain_text(text if len(text) <= most else text[: most - 1] + "…")


# -- kernels against targets ------------------------------------------------------------------------------


def kernels_figure(kernels: Sequence[SlotKernel]) -> str:
    """What each slot remembers against what it should, and the difference below."""
    return svg_of("kernels", 3.9, lambda f: _kernels(f, kernels[:MOST_SERIES]))


def _kernels(figure: Figure, kernels: Sequence[SlotKernel]) -> None:
    top, low = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    spread = any(np.count_nonzero(kernel.target) > 1 for kernel in kernels)
    least, largest, exact = math.inf, 0.0, []
    for kernel, color in zip(kernels, SERIES, strict=False):
        z, K = _thin(kernel.z, kernel.compiled)
        label = plain_text(f"{kernel.variable}: {kernel.label}"[:48])
        if spread:
            top.plot(z, K, color=color, label=label)
        else:  # single lags: stems, where there is something to see
            seen = np.abs(K) > 2e-3
            top.vlines(z[seen], 0, K[seen], color=color, linewidth=2, label=label)
        some = _sparse(np.flatnonzero(kernel.target))
        top.plot(kernel.z[some], kernel.target[some], "o", color=color, markerfacecolor="none", markersize=6)
        z, r = _thin(kernel.z, kernel.residual)
        seen = r > 0
        if seen.any():
            low.plot(z[seen], r[seen], color=color, marker=".", markersize=4, linewidth=0.8 * spread)
            least, largest = min(least, r[seen].min()), max(largest, r.max())
        else:
            exact.append(kernel.variable)
    if spread and all((kernel.target > 0).all() for kernel in kernels):
        top.set_xscale("log")
        top.set_yscale("log")
        decade_ticks(top.yaxis)
    elif kernels and kernels[0].z[-1] > 2_000:
        top.set_xscale("log")
    else:
        top.set_xlim(0, kernels[0].z[-1] + 1)
        top.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    if top.get_xscale() == "log":
        lag_ticks(top)
    if not spread:
        top.axhline(0, color=SOFT, linewidth=0.8)
    top.set_ylabel("weight")
    top.plot([], [], "o", color=SOFT, markerfacecolor="none", markersize=6, label="target")
    top.legend(loc="best", ncols=2 if len(kernels) > 3 else 1)
    low.set_ylabel("|kernel − target|")
    low.set_xlabel("lag z, tokens into the past")
    if largest:
        low.set_yscale("log")
        low.set_ylim(max(least / 4, largest * DEPTH), largest * 8)
        decade_ticks(low.yaxis)
    if exact:
        note_on(low, f"{', '.join(exact)}: no difference in float64")


# -- attention maps ---------------------------------------------------------------------------------------


def attention_figure(maps: Sequence[AttentionMap]) -> str:
    """The weights a(t, s) of each head on one sequence."""
    maps = maps[:SHOWN_MAPS]
    columns = {1: 1, 2: 2, 3: 2, 4: 2, 5: 3, 6: 3}.get(len(maps), 4)
    rows = math.ceil(len(maps) / columns)
    height = 0.6 + rows * min(2.9, (WIDTH - 0.9) / columns)
    return svg_of("attention", height, lambda f: _maps(f, maps, rows, columns))


def _maps(figure: Figure, maps: Sequence[AttentionMap], rows: int, columns: int) -> None:
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    # Nothing is transparent, everything is solid: the map reads on a light and on a dark page.
    ramp = LinearSegmentedColormap.from_list(
        "weight", [(0.0, (*to_rgb(SKY), 0.0)), (0.35, (*to_rgb(SKY), 0.75)), (1.0, (*to_rgb(RED), 1.0))]
    )
    top = max((float(found.weights.max()) for found in maps), default=1.0) or 1.0
    image = None
    for axes, found in zip(grid.flat, maps, strict=False):
        image = axes.imshow(
            found.weights,
            cmap=ramp,
            norm=PowerNorm(0.5, 0, top),
            interpolation="nearest",
            aspect="equal",
        )
        axes.set_title(f"layer {found.layer + 1}, head {found.head + 1}", pad=3, fontsize=8)
        axes.grid(False)
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        for side in ("top", "right"):
            axes.spines[side].set_visible(True)
    for axes in list(grid.flat)[len(maps) :]:
        axes.set_visible(False)
    figure.supxlabel("position s read from", fontsize=9)
    figure.supylabel("position t", fontsize=9)
    if image is not None:
        bar = figure.colorbar(image, ax=list(grid.flat), shrink=0.8, pad=0.02, fraction=0.05)
        bar.set_label("weight a(t, s)")
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.locator = MaxNLocator(4)
        bar.update_ticks()


# -- error terms ------------------------------------------------------------------------------------------


def terms_figure(certificate: Certificate) -> str:
    """The summands of the bound, and the tolerance."""
    return svg_of("terms", 0.9 + 0.27 * (len(certificate.terms) + 1), lambda f: _terms(f, certificate))


def _terms(figure: Figure, certificate: Certificate) -> None:
    axes = figure.subplots()
    names = [*(term.name for term in certificate.terms), "bound"]
    values = [*(term.E for term in certificate.terms), certificate.bound]
    shown = [v for v in [*values, certificate.tolerance] if 0 < v < math.inf]
    low, high = min(shown) / 10, max(shown) * 10
    y = np.arange(len(names))[::-1]
    for k, name, value in zip(y, names, values, strict=True):
        color = BLUE if name == "bound" else SKY
        width = high if math.isinf(value) else value
        if value > 0:
            axes.barh(k, width - low, left=low, color=color, height=0.62)
        _at_right(axes, float(k), number(value))
    axes.axvline(certificate.tolerance, color=RED, linestyle="--", linewidth=1.4)
    axes.annotate(
        f"tolerance {number(certificate.tolerance)}",
        (certificate.tolerance, float(len(names)) - 0.45),
        ha="center",
        va="bottom",
        fontsize=8,
        color=RED,
        annotation_clip=False,
    )
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(y, [plain_text(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(False, axis="y")
    axes.set_xlabel("worst-case error, proved")


# -- levels -----------------------------------------------------------------------------------------------


def levels_figure(certificate: Certificate) -> str:
    """The error of each nested level, and how large it may be."""
    return svg_of(
        "levels", 0.85 + 0.27 * len(certificate.levels), lambda f: _levels(f.subplots(), certificate)
    )


def _levels(axes: Axes, certificate: Certificate) -> None:
    levels = certificate.levels
    shown = [v for level in levels for v in (level.E, level.margin) if 0 < v < math.inf]
    low, high = min(shown) / 10, max(shown) * 10
    y = np.arange(len(levels))[::-1]
    for k, level in zip(y, levels, strict=True):
        within = level.within
        if level.E > 0:
            axes.barh(k, min(level.E, high) - low, left=low, color=SKY if within else RED, height=0.5)
        axes.vlines(level.margin, k - 0.4, k + 0.4, color=INK, linewidth=2)
        _at_right(axes, float(k), number(level.E))
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(y, [f"m{', m'.join(map(str, level.memories[:6]))}" for level in levels])
    axes.set_ylim(-0.6, len(levels) - 0.4)
    axes.grid(False, axis="y")
    axes.set_xlabel("worst-case error of the memory, proved; the upright line is its margin")


# -- the wall ---------------------------------------------------------------------------------------------


def wall_figure(points: Sequence[WallPoint], lags: Sequence[int] = (), bits: int | None = None) -> str:
    """Bits of mass against the lag for one lin layer, with what floats have."""
    return svg_of("wall", 3.2, lambda f: draw_wall(f.subplots(), points, lags, bits))


def draw_wall(
    axes: Axes, points: Sequence[WallPoint], lags: Sequence[int] = (), bits: int | None = None
) -> None:
    """The wall on given axes: proved lower bounds, floats' significands, and a task's lags."""
    farthest = max(point.lag for point in points)
    errors = sorted({point.error for point in points})
    curves = {e: [(p.lag, p.log2_mass) for p in points if p.error == e] for e in errors}
    for error, color, style in zip(errors, (BLUE, SKY), ("-", "--"), strict=False):
        z, b = zip(*curves[error], strict=True)
        axes.plot(
            z, b, style, color=color, linewidth=2, label=f"one lin layer, error ≤ {literal(error)} (proved)"
        )
    least = curves[errors[-1]]
    z, b = zip(*least, strict=True)
    axes.fill_between(z, b, 0, color=BLUE, alpha=0.08, linewidth=0)
    for name, significand in FLOAT_BITS.items():
        axes.axhline(significand, color=SOFT, linewidth=1.2, linestyle=":")
        axes.annotate(
            f"{name}: {significand} bits",
            (farthest, significand),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
    inside = sorted({lag for lag in lags if 2 <= lag <= farthest})
    strict_curve = dict(curves[errors[0]])
    for k, lag in enumerate(inside):
        label = "lags of this task" if k == 0 else None
        axes.plot([lag], [strict_curve[lag]], "D", color=RED, markersize=7, label=label, zorder=4)
        axes.vlines(lag, 0, strict_curve[lag], color=RED, linewidth=1, alpha=0.6)
    if bits is not None:
        axes.axhline(bits, color=GREEN, linewidth=2, label=f"this model: {bits} bits suffice (proved)")
    axes.set_xlim(1, farthest + 0.6)
    axes.set_ylim(0, max(b for _, b in strict_curve.items()) * 1.04)
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.set_xlabel("lag, tokens into the past")
    axes.set_ylabel("log₂ coefficient mass, bits")
    axes.legend(loc="upper left")


# -- certified against measured ---------------------------------------------------------------------------


def certified_figure(certificate: Certificate, seen: Measurement | None = None) -> str:
    """What is proved and what was seen, on one axis."""
    rows: list[tuple[str, float, bool]] = [("exact arithmetic", certificate.exact_bound, True)]
    rows += [(f"in {name}", E, True) for name, E in certificate.bound_by_precision.items()]
    if seen is not None:
        rows += [
            ("adversarial search", float(seen.err_adversarial), False),
            (f"{seen.sequences:,} drawn sequences", float(seen.err_sampled), False),
            ("root mean square", math.sqrt(seen.err_mean_square), False),
        ]
    return svg_of("certified", 0.95 + 0.27 * len(rows), lambda f: _certified(f, rows, certificate))


def _certified(figure: Figure, rows: Sequence[tuple[str, float, bool]], certificate: Certificate) -> None:
    axes = figure.subplots()
    shown = [v for _, v, _ in rows if 0 < v < math.inf] + [certificate.tolerance]
    low, high = min(shown) / 30, max(shown) * 30
    y = np.arange(len(rows))[::-1]
    for k, (_, value, proved) in zip(y, rows, strict=True):
        if math.isinf(value):
            axes.plot([high / 4], [k], **{**PROVED, "marker": ">"})
        elif value > 0:
            axes.plot([value], [k], **(PROVED if proved else OBSERVED))
        text = "none seen" if value == 0 and not proved else number(value)
        _at_right(axes, float(k), text)
    axes.plot([], [], **PROVED, label="proved: no input does worse")
    if not all(proved for *_, proved in rows):
        axes.plot([], [], **OBSERVED, label="observed: some input does this badly")
    axes.axvline(
        certificate.tolerance,
        color=SOFT,
        linestyle="--",
        linewidth=1.2,
        label=f"tolerance {number(certificate.tolerance)}",
    )
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    decade_ticks(axes.xaxis, 6)
    axes.set_yticks(y, [name for name, _, _ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("error")
    axes.figure.legend(
        loc="outside upper center", ncols=3, fontsize=7.5, columnspacing=1.0, handletextpad=0.3
    )


# -- rates ------------------------------------------------------------------------------------------------


def heads_figure(rates: HeadRates) -> str:
    """Error against heads, and against mass with the proved floor."""
    return svg_of(f"heads-{rates.rpe}", 3.3, lambda f: _heads_and_mass(f, rates), width=1.75 * WIDTH)


def _heads_and_mass(figure: Figure, rates: HeadRates) -> None:
    left, right = figure.subplots(1, 2)
    for (precision, points), color in zip(rates.by_heads.items(), (SKY, GREEN), strict=False):
        H, E = [p.heads for p in points], [float(p.E) for p in points]
        left.plot(H, E, color=color, marker="D", markersize=5, label=f"in {precision} (proved)")
    _mark(left, rates.built.heads, rates.built.E)
    left.set_xlabel("heads H")
    left.set_ylabel("largest l1 error of a memory")
    left.set_xscale("log")
    ticks = sorted({p.heads for points in rates.by_heads.values() for p in points} | {rates.built.heads})
    left.set_xticks(ticks, [str(H) for H in ticks])
    left.xaxis.set_minor_locator(NullLocator())
    left.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)

    masses = [p.mass for p in rates.by_mass]
    decades = max(masses) > 30 * min(masses)
    room = (max(masses) / min(masses)) ** 0.08 if decades else 1.02
    low, high = min(masses) / room, max(masses) * room
    B = np.geomspace(low, high, 300) if decades else np.linspace(low, high, 300)
    B = B[B <= rates.built.mass]  # beyond, the floor was not looked for
    floor = np.array([rates.floor(float(b)) for b in B])
    errors = [float(p.E) for points in rates.by_heads.values() for p in points]
    errors += [float(p.E) for p in rates.by_mass]
    floors = np.append(floor, rates.theorem.E_least)
    least = min([*errors, *floors[floors > min(errors) * 1e-2]])  # a floor far below would flatten the rest
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_ylim(least / 3, max(*errors, floor.max()) * 2.5)
        decade_ticks(axes.yaxis)
    bottom = right.get_ylim()[0]
    right.plot(B, np.where(floor > bottom, floor, np.nan), color=RED, linewidth=2)
    right.fill_between(B, bottom, np.maximum(floor, bottom), color=RED, alpha=0.1, linewidth=0)
    right.plot([], [], color=RED, linewidth=2, label="no heads err less (proved)")
    right.plot(
        masses,
        [float(p.E) for p in rates.by_mass],
        color=SKY,
        linestyle="none",  # a straight line between two points would cross the floor
        marker="D",
        markersize=5,
        label=f"found with {rates.built.heads} head{'s' if rates.built.heads > 1 else ''} (proved)",
    )
    _mark(right, rates.built.mass, rates.built.E)
    right.set_xlabel("mass B, the sum of the coefficients' sizes")
    if decades:
        right.set_xscale("log")
        decade_ticks(right.xaxis, 6)
    right.set_xlim(low, high)
    least_E = rates.theorem.E_least
    if bottom < least_E:  # the same floor, whatever the heads: a line across the left picture
        left.axhline(
            least_E, color=RED, linewidth=1.4, linestyle="--", label="floor at this model's mass (proved)"
        )
        left.axhspan(bottom, least_E, color=RED, alpha=0.1, linewidth=0)
    for axes in (left, right):
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, columnspacing=1.0, handletextpad=0.4
        )


def _mark(axes: Axes, x: float, y: float) -> None:
    axes.plot([x], [float(y)], **{**PROVED, "markersize": 9, "zorder": 5}, label="this model (proved)")


def width_figure(rates: WidthRates) -> str:
    """E_ffn against neurons, beside the paper's slope."""
    return svg_of("width", 3.0, lambda f: _width(f.subplots(), rates))


def _width(axes: Axes, rates: WidthRates) -> None:
    rows = [(m, float(E)) for m, E in rates.rows if m > 0 and E > 0]
    m, E = [w for w, _ in rows], [e for _, e in rows]
    axes.plot(m, E, color=SKY, marker="D", markersize=5, label="proved at each width")
    _mark(axes, *rates.built)
    # Only the slope of the dashed line means anything: its height is that of the first point.
    ends = np.array([m[0], max(*m, rates.built[0])], dtype=float)
    axes.plot(
        ends,
        E[0] * (ends / ends[0]) ** rates.paper_slope,
        color=SOFT,
        linestyle="--",
        label="the paper's slope, −1/2 (its height means nothing)",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [w for w in m if w != rates.built[0]]
    axes.set_xticks(ticks, [f"{w:,}" for w in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    decade_ticks(axes.yaxis)
    axes.set_ylim(min(*E, float(rates.built[1])) / 2.5, max(E) * 2)
    axes.set_xlabel("width m, neurons")
    axes.set_ylabel("E_ffn, readout error")
    axes.legend(loc="lower left")


# -- an example -------------------------------------------------------------------------------------------


def example_figure(example: Example) -> str:
    """A sequence, its target and the model's output; the error below."""
    return svg_of("example", 4.0, lambda f: _example(f, example), width=1.75 * WIDTH)


def _example(figure: Figure, example: Example) -> None:
    inputs, outputs, errors = figure.subplots(3, 1, sharex=True, height_ratios=[2, 3, 2])
    t = np.arange(len(example.x))[-MOST_POSITIONS:]
    x, target, output, error = (
        part[-MOST_POSITIONS:] for part in (example.x, example.target, example.output, example.error)
    )
    for c, color in zip(range(x.shape[1]), (SOFT, ORANGE, PURPLE), strict=False):
        inputs.step(t, x[:, c], where="mid", color=color, linewidth=1, label=example.channels[c])
    if x.shape[1] > 1:
        _legend_above(inputs, 3)
    inputs.set_ylabel("input")
    for o, color in zip(range(target.shape[1]), SERIES, strict=False):
        name = "" if target.shape[1] == 1 else f" {o}"
        outputs.plot(t, output[:, o], color=color, linewidth=1.4, label=f"model{name}")
        outputs.plot(
            t,
            target[:, o],
            "o",
            color=color,
            markerfacecolor="none",
            markersize=4,
            markeredgewidth=0.9,
            label=f"target{name}",
        )
        e = error[:, o]
        if (e > 0).any():
            errors.plot(t[e > 0], e[e > 0], ".", color=color, markersize=5)
    outputs.set_ylabel("output")
    _legend_above(outputs, 2 * target.shape[1])
    errors.set_ylabel("|error|")
    errors.set_xlabel("position t")
    if (error > 0).any():
        errors.set_yscale("log")
        top = error.max()
        errors.set_ylim(max(error[error > 0].min() / 3, top * 1e-6), top * 5)
        decade_ticks(errors.yaxis, 4)
    else:
        note_on(errors, "no difference anywhere")


# -- parts -----------------------------------------------------------------------------------------------


def _legend_above(axes: Axes, columns: int) -> None:
    """A legend in one row, with room made for it above the curves."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.3 * (high - low))
    axes.legend(loc="upper right", ncols=columns)


def _at_right(axes: Axes, y: float, text: str) -> None:
    """A value beside its row, where no line crosses it."""
    axes.annotate(text, (1, y), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=8)


def _cycle(n: int) -> list[str]:
    return [SERIES[i % MOST_SERIES] for i in range(n)]


def _sparse(places: np.ndarray, most: int = 24) -> np.ndarray:
    """At most `most` of the places, dense at first, so that circles stay apart on a logarithmic axis."""
    if len(places) <= most:
        return places
    return places[np.unique(np.geomspace(1, len(places), most).astype(int)) - 1]


def _thin(z: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MOST_POINTS points: of each bin the one of largest size, so no peak is lost."""
    if len(z) <= MOST_POINTS:
        return z, values
    bins = np.array_split(np.arange(len(z)), MOST_POINTS)
    keep = np.array([part[np.argmax(np.abs(values[part]))] for part in bins])
    return z[keep], values[keep]
