"""Which memory does this data have? The order of questions, and the choice among the answers.

    match by key -> lag tables -> kernel -> fixed lags -> parity -> what is left of each beside the best -> the reference

Each class is searched with its share of the stated error rate, and judged by what it explains out of fold; the best counts,
a memory costing a little. What one class leaves is searched again by the others, so memories mix. Nothing is forced: where
the reference predicts far better than all of them, the answer is "outside".
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from memloci.core.errors import BadInput
from memloci.core.numbers import decimals, number, percent
from memloci.core.specs import shorten
from memloci.detect.adaptive import adaptive_lags
from memloci.detect.correlate import scores
from memloci.detect.data import Recording, recording
from memloci.detect.detection import (
    Candidate,
    DetectedMemory,
    DetectedPeriod,
    Detection,
    Explained,
    LagCorrelation,
    Tail,
)
from memloci.detect.essential import best_kernel
from memloci.detect.explanation import Explanation
from memloci.detect.fixed import fixed_lags
from memloci.detect.forward import linear_transforms
from memloci.detect.match import best_match
from memloci.detect.parity import parity
from memloci.detect.periods import find_periods
from memloci.detect.reference import Reference, ratio_interval, reference, share
from memloci.detect.series import Series, prepare
from memloci.detect.symbols import symbol_lags

Progress = Callable[[str, float], None]

PRICE = 0.002  # of the variance, that a memory must add to be worth a line (tuned)
UNCLEAR = 0.5  # of the variance: below, a parity of signs is tried as well
SETTLED = 0.97  # of the variance: no other class is asked
LEAST_MIX = 0.01  # of the variance that a further class must add
OUTSIDE = 0.5  # of what the reference explains: below, no class is named
PREDICTABLE = 0.01  # of the variance, above which the reference found something
DENSE = 10  # lags: beyond, a list of them describes nothing
MOST_SHOWN = 4  # channels in the profiles
SHARES = {"match": 0.1, "adaptive": 0.15, "kernel": 0.1, "fixed": 0.55, "parity": 0.1}  # of the error rate


def detect(
    data: Any,
    y: Any = None,
    *,
    max_lag: int = 512,
    fdr: float = 0.05,
    target: str | None = None,
    seed: int = 0,
    own_past: bool = False,
    with_reference: bool = True,
    progress: Progress | None = None,
) -> Detection:
    """The memories of a data set, with the error rate that was asked for, and the task that says the same."""
    began = time.perf_counter()
    if isinstance(max_lag, bool) or not isinstance(max_lag, int | np.integer) or not 1 <= max_lag <= 100_000:
        raise BadInput(f"max_lag is a whole number from 1 to 100,000, found {shorten(max_lag)}")
    if isinstance(fdr, bool) or not isinstance(fdr, int | float) or not 0 < fdr < 1:
        raise BadInput(f"fdr is a number between 0 and 1, found {shorten(fdr)}")
    tell = progress or (lambda text, done: None)
    tell("reading", 0.0)
    recorded = recording(data, y, target, own_past)
    series = prepare(recorded, int(max_lag))
    words = series.y_symbols is not None
    with _one_thread():
        answer = (
            _of_words(series, recorded, fdr)
            if words
            else _of_numbers(series, recorded, fdr, seed, with_reference, tell)
        )
    return replace(answer, seconds=time.perf_counter() - began)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hundreds of small products and trees: threads that wait for one another take longer than one."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1):
        yield


# -- numbers ----------------------------------------------------------------------------------------------


def _of_numbers(
    series: Series, recording: Recording, fdr: float, seed: int, with_reference: bool, progress: Progress
) -> Detection:
    best, tried, notes = explain(series, fdr, seed, progress)
    notes = [*series.notes, *notes]
    progress("the periods", 0.8)
    periods = find_periods(series, fdr)
    progress("the reference predictor", 0.85)
    judged = reference(series, [c for _, c in best.columns], seed) if with_reference else None
    if with_reference and judged is None:
        notes.append("No reference: scikit-learn is not installed; type pip install 'memloci[detect]'.")
    explained = _explained(series, best, judged, seed)
    kind = best.kind
    if reason := _outside(best, explained, judged):
        kind = "outside"
        notes.append(reason)
    elif kind == "none":
        notes.append(
            "No memory was found. A parity of three or more signs with more than about 1 % of flipped labels, a product of "
            "many inputs under strong noise, and lags beyond the largest one searched would not be seen."
        )
    data = None
    if best.count or best.columns:
        data, written = best.task_data()
        if best.r2 - written > 0.02:
            notes.append(
                f"The readout in the task is an approximation: it explains {percent(written)}, a wider dictionary {percent(best.r2)}."
            )
    tail = Tail()
    if best.kernel is not None:
        tail = Tail(best.kernel.tail, best.kernel.rate, best.kernel.interval)
        if best.kernel.interval is None:
            notes.append("No interval is given for the rate: the residual still depends on single lags.")
    progress("the profiles", 0.95)
    return Detection(
        kind,
        best.memories() if best.columns else (),
        fdr,
        explained,
        tail,
        tuple(DetectedPeriod(p.period, p.share, p.p_value) for p in periods),
        tuple(notes),
        0.0,
        recording.steps,
        recording.target,
        series.T,
        data if best.count else None,
        tuple(tried),
        influences(series, series.y),
        influences(series, best.readout.residual()) if best.columns else (),
    )


def explain(
    series: Series, fdr: float, seed: int, progress: Progress
) -> tuple[Explanation, list[Candidate], list[str]]:
    """The best explanation, what else was tried, and notes."""
    notes: list[str] = []
    tried: list[Candidate] = []
    options: list[Explanation] = []

    def consider(kind: str, option: Explanation | None) -> None:
        tried.append(Candidate(kind, option.count if option else 0, option.r2 if option else None))
        if option is not None:
            options.append(option)

    progress("matches by key", 0.02)
    match = best_match(series, SHARES["match"] * fdr)
    consider("matched", Explanation(series, match=match) if match else None)
    progress("lag tables", 0.05)
    pointers = adaptive_lags(series, SHARES["adaptive"] * fdr)
    consider("adaptive", pointers and Explanation(series, pointers.places, pointers.tables))
    if not any(option.r2 > SETTLED for option in options):
        progress("kernels", 0.15)
        kernel = best_kernel(series, SHARES["kernel"] * fdr)
        consider("essential", kernel and Explanation(series, kernel=kernel))
        if kernel is None or kernel.interval is None:
            progress("fixed lags", 0.25)
            lags = fixed_lags(series, SHARES["fixed"] * fdr)
            if lags.minor:
                few = ", ".join(str(z) for _, z in sorted(lags.minor, key=lambda p: p[1])[:8])
                notes.append(
                    f"Lags {few} are significant too, but each adds less than 0.4 % of what is explained."
                )
            fixed = Explanation(
                series, lags.places, p_values=dict(zip(lags.places, lags.p_values, strict=True))
            )
            consider("fixed", fixed if lags.places else None)
    if not any(option.r2 > UNCLEAR for option in options):
        progress("parities", 0.7)
        odd = parity(series, seed, SHARES["parity"] * fdr)
        if odd is not None:
            option = Explanation(series, odd.places, p_values=dict.fromkeys(odd.places, odd.p_value))
            consider("fixed", option)
            notes.append(f"A parity of {len(odd.places)} signs, found by elimination over GF(2).")
    if not options:
        return Explanation(series), tried, notes
    best = max(options, key=lambda option: option.r2 - PRICE * option.count)
    return _mixed(series, best, fdr, progress), tried, notes


def _mixed(series: Series, best: Explanation, fdr: float, progress: Progress) -> Explanation:
    """What the best class leaves, searched by the others."""
    if best.r2 > SETTLED or (best.kernel is not None and best.kernel.interval is not None):
        return best
    progress("what is left", 0.6)
    alpha = SHARES["adaptive"] * fdr
    residual = best.readout.residual()
    left = replace(series, y=residual / (residual.std() + 1e-12))
    if best.match is None and (match := best_match(left, alpha / 2)):
        best = _better(best, replace(best, match=match))
    if best.tables or best.match:
        given = [c for memory, c in best.columns if memory is not None and not isinstance(memory, int)]
        more = fixed_lags(series, alpha, given)
        places = tuple(dict.fromkeys((*best.places, *more.places)))
        p_values = best.p_values | dict(zip(more.places, more.p_values, strict=True))
        best = _better(best, replace(best, places=places, p_values=p_values))
    elif pointers := adaptive_lags(left, alpha / 2):
        best = _better(best, replace(best, tables=pointers.tables))
    return best


def _better(best: Explanation, wider: Explanation) -> Explanation:
    wider = replace(wider)  # a record of its own, with columns of its own
    added = wider.count - best.count
    return wider if added > 0 and wider.r2 > best.r2 + LEAST_MIX * max(best.r2, 0.1) + PRICE * added else best


def _explained(series: Series, best: Explanation, judged: Reference | None, seed: int) -> Explained:
    """On the last fifth of the time."""
    if not best.columns:
        own_r2, f, rows = 0.0, None, None
    else:
        out = best.readout.folds == best.readout.folds.max()
        rows, f = best.readout.rows[out], best.readout.best[2][out]
        own_r2 = share(series.y[rows], f)
    if judged is None:
        return Explained(None, None, own_r2, None)
    if f is None or rows is None:
        return Explained(None if judged.r2 < PREDICTABLE else 0.0, None, 0.0, judged.r2)
    both, at, of = np.intersect1d(rows, judged.rows, return_indices=True)
    y, f, g = series.y[both], f[at], judged.prediction[of]
    top = share(y, g)
    if top <= 0:
        return Explained(None, None, own_r2, judged.r2)
    return Explained(share(y, f) / top, ratio_interval(y, f, g, seed), own_r2, judged.r2)


def _outside(best: Explanation, explained: Explained, judged: Reference | None) -> str | None:
    """Why no class is named."""
    if len(best.lags) > DENSE:
        return f"Outside: dense. {len(best.lags)} lags matter, and no kernel describes them."
    if judged is None:
        return None
    predictable = judged.r2 > PREDICTABLE and judged.p_value < 1e-3
    if not best.count and not best.columns and predictable:
        return (
            f"Outside: no class of memory explains what the reference predicts ({percent(judged.r2)} of the variance); "
            "the dependence is dense, or on content that has no name here."
        )
    if best.count and predictable and explained.interval is not None and explained.interval[1] < OUTSIDE:
        share = percent(explained.share or 0.0)
        return f"Outside: the memories below explain only {share} of what the reference predicts."
    return None


def influences(series: Series, target: np.ndarray) -> tuple[LagCorrelation, ...]:
    """The correlation with each channel at each lag."""
    e = target - target.mean()
    listed = []
    for c, u in enumerate(linear_transforms(series)[:MOST_SHOWN]):
        C, z = scores(series, e, u)
        size = e.std() * u.u[series.inside > 0].std() * series.n + 1e-12
        with np.errstate(divide="ignore", invalid="ignore"):
            half = np.where(z != 0, np.abs(C / z), 0.0) * 1.96 / size
        lags = range(series.least, series.T + 1)
        listed.append(
            LagCorrelation(
                series.names[c],
                tuple(lags),
                tuple((C[series.least :] / size).tolist()),
                tuple(half[series.least :].tolist()),
            )
        )
    return tuple(listed)


# -- words ------------------------------------------------------------------------------------------------


def _of_words(series: Series, recording: Recording, fdr: float) -> Detection:
    """Bits in place of variances; a list of lags, or dense."""
    lags = symbol_lags(series, fdr)
    saved = lags.entropy - lags.remaining_bits
    name = series.names[series.self_channel or 0]
    memories = tuple(
        DetectedMemory((name,), bits / max(lags.entropy, 1e-9), p, lag=z)
        for z, bits, p in zip(lags.lags, lags.saved, lags.p_values, strict=True)
    )
    kind = "outside" if lags.dense else "fixed" if memories else "none"
    notes = [
        *series.notes,
        f"Bits per symbol on held-out text: {decimals(lags.entropy, 2)} without a past, {decimals(lags.remaining_bits, 2)} with lags "
        f"{', '.join(map(str, lags.lags)) or 'none'}.",
    ]
    if lags.dense:
        few = ", ".join(number(v) for v in lags.information[:4])
        notes.append(
            f"Outside: dense. Every further lag still saves bits; information at lags 1, 2, 3, 4: {few} bits."
        )
    shown = LagCorrelation(
        name, tuple(range(1, len(lags.information) + 1)), lags.information, (0.0,) * len(lags.information)
    )
    return Detection(
        kind,
        () if lags.dense else memories,
        fdr,
        Explained(None, None, saved / max(lags.entropy, 1e-9), None),
        Tail(),
        (),
        tuple(notes),
        0.0,
        recording.steps,
        recording.target,
        series.T,
        None,
        (Candidate("fixed", len(memories), saved / max(lags.entropy, 1e-9)),),
        (shown,),
    )
