"""Every diagnosis comes out where it holds, and what it calls proved is not contradicted by weights that exist."""

import json
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
import pytest

from memloci.model.architecture import Architecture
from memloci.model.transformer import Transformer
from memloci.pipeline import compile
from memloci.tasks.gallery import GALLERY
from memloci.tasks.inputs import sample
from memloci.tasks.short import Adaptive, Fixed
from memloci.tasks.task import Task
from memloci.train import diagnosis as d
from memloci.train import witness
from memloci.train.diagnose import diagnose, inside
from memloci.train.record import record_from_dict
from memloci.train.spec import Run

KERNELS: dict[str, Any] = {"layers": 1, "heads": 4, "width": 0, "attention": "dpf", "encoding": "lin"}
KERNELS |= {"normalisation": "infinite", "dim": 16, "key_dim": 4, "value_dim": 4}
SOFTMAX: dict[str, Any] = {**KERNELS, "attention": "dp", "normalisation": "softmax", "width": 32}
DELAY = Fixed(lags=[3], readout="x1")


def case(task: Task, architecture: dict[str, Any], err_sup: float | None = 0.5, **training: Any):
    """A run that ended with this error, without running it."""
    run = Run(task=task, architecture=architecture, training=training)
    assert run.architecture is not None
    record = {"status": "done", "stopped": "all steps", "err_sup": err_sup, "loss": 0.1, "held_out": 0.1}
    return run, record_from_dict({**record, "architecture": run.architecture.model_dump(mode="json")})


def named(task: Task, architecture: dict[str, Any], err_sup: float | None = 0.5, **training: Any) -> str:
    found = diagnose(*case(task, architecture, err_sup, **training))
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.sentence.endswith(".") and "\n" not in found.sentence
    return found.name


# -- names ------------------------------------------------------------------------------------------------


def test_an_error_within_the_tolerance_is_learned():
    assert named(DELAY, SOFTMAX, 1e-4) == d.LEARNED
    assert named(DELAY, SOFTMAX, 1e-2, tolerance=0.02) == d.LEARNED


def test_a_loss_that_is_no_number_is_divergence():
    run, record = case(DELAY, KERNELS)
    found = diagnose(
        run, record_from_dict({**record, "status": "diverged", "diverged_at": 7, "err_sup": None})
    )
    assert (found.name, found.evidence["step"]) == (d.DIVERGED, 7)
    assert "step 7" in found.sentence and "slope" in found.sentence
    assert named(DELAY, KERNELS, None) == d.DIVERGED  # a finite loss, and an output that is none


@pytest.mark.parametrize("kind", ["text", "arrays"])
def test_data_has_nothing_to_compare_with(kind):
    run = Run(task={"kind": kind, "path": "data", "sha256": "0"}, architecture=SOFTMAX)
    assert diagnose(run, record_from_dict({"status": "done", "held_out": 1.0})).name == d.NO_TARGET
    assert diagnose(run, record_from_dict({"status": "diverged", "diverged_at": 0})).name == d.DIVERGED


def test_a_memory_that_is_always_blank_says_nothing_about_recall():
    assert named(DELAY, SOFTMAX, 1e-9, length=3) == d.TOO_SHORT
    assert named(DELAY, SOFTMAX, 1e-9, length=4) == d.LEARNED
    pointer = Adaptive(channels=[{"name": "a", "values": [5, 6]}], lags=["a0"], readout="a1")
    assert named(pointer, SOFTMAX, 1.0, length=5) == d.TOO_SHORT
    assert "Lags of 6 or more" in diagnose(*case(pointer, SOFTMAX, 1e-9, length=6)).sentence


def test_windows_and_strides_hide_memories():
    assert named(DELAY, {**KERNELS, "window": 2}) == d.OUT_OF_SIGHT
    assert named(DELAY, {**SOFTMAX, "stride": 2}) == d.OUT_OF_SIGHT
    for other in ({"window": 2, "layers": 2}, {"stride": 3}):  # nothing that is fitted would come before it
        assert diagnose(*case(DELAY, {**SOFTMAX, **other}), thorough=False).name != d.OUT_OF_SIGHT
    layer = {name: KERNELS[name] for name in ("heads", "width", "attention", "encoding", "normalisation")}
    blocks = [{**layer, "window": 2}, {**layer, "stride": 4}]  # lags 0, 1, 2 and then 0, 4, 8, ... more
    assert named(DELAY, {**KERNELS, "layers": 2, "blocks": blocks}) == d.OUT_OF_SIGHT
    far = Fixed(lags=[6], readout="x1")
    seen = diagnose(*case(far, {**KERNELS, "layers": 2, "blocks": blocks}), thorough=False)
    assert seen.name != d.OUT_OF_SIGHT


def test_factorising_weights_are_below_the_capacity_bound():
    one = {**KERNELS, "heads": 1, "value_dim": 4, "width": 32}
    assert named(GALLERY["pointer"](), one) == d.NO_DOT_PRODUCT
    assert named(GALLERY["pointer"](), {**one, "heads": 2}) != d.NO_DOT_PRODUCT
    # Sequences of five tokens can ask for lags up to 4 only, and as many numbers are carried.
    assert named(GALLERY["pointer"](), one, length=5) != d.NO_DOT_PRODUCT


def test_one_softmax_layer_does_not_see_the_start():
    assert named(DELAY, SOFTMAX) == d.START
    assert named(GALLERY["power-law"](), SOFTMAX) == d.START
    assert named(DELAY, {**SOFTMAX, "layers": 3}) == d.UNKNOWN
    assert named(DELAY, {**SOFTMAX, "encoding": "learned"}) == d.UNKNOWN
    assert diagnose(*case(DELAY, {**SOFTMAX, "layers": 2}), thorough=False).name == d.UNKNOWN


def test_an_affine_model_needs_an_affine_target():
    product = Fixed(lags=[1, 2], readout="x1 * x2")
    assert named(product, KERNELS) == d.NO_FFN
    assert named(product, {**KERNELS, "normalisation": "softmax", "layers": 3}) == d.NO_FFN
    assert named(Fixed(lags=[1], readout="x1 ** 2"), KERNELS) == d.NO_FFN
    assert named(Fixed(lags=[1], readout="x1 * x0"), {**SOFTMAX, "width": 0}) != d.NO_FFN


def test_few_neurons_have_few_pieces():
    square = Fixed(lags=[1], readout="x1 ** 2")
    found = diagnose(*case(square, {**KERNELS, "width": 8}))
    assert (found.name, found.evidence["width"]) == (d.NARROW, 8)
    # x^2 on [-1, 1] takes 2 / sqrt(8 e) pieces.
    assert found.evidence["width_least"] == pytest.approx(2 / np.sqrt(8e-3) - 1, abs=1)
    assert named(square, {**KERNELS, "width": 64}) != d.NARROW


def test_lags_behind_the_wall_take_more_bits():
    found = diagnose(*case(Fixed(lags=[8], readout="x1"), KERNELS))
    assert found.name == d.BITS
    assert found.evidence["log2_mass_least"] > found.evidence["bits"] == 24
    assert "proved" in found.sentence


def test_a_kernel_may_need_the_other_encoding():
    power, exponential = GALLERY["power-law"](), GALLERY["exponential"]()
    assert named(power, {**KERNELS, "heads": 2}) == d.TAIL
    found = diagnose(*case(exponential, {**KERNELS, "heads": 1, "encoding": "log"}))
    assert found.name == d.TAIL
    assert found.evidence["E_other"] < 1e-6 < found.evidence["E_own_least"] <= found.evidence["E_own"]


def test_more_heads_may_be_what_is_missing():
    found = diagnose(*case(DELAY, {**KERNELS, "heads": 2}, tolerance=0.1))
    assert (found.name, found.evidence["heads_that_do"]) == (d.HEADS, 4)
    assert "not proved" in found.sentence.replace("\n", " ")


def test_weights_that_training_did_not_find():
    assert named(Fixed(lags=[1], readout="x1"), KERNELS) == d.NOT_FOUND
    assert named(DELAY, {**KERNELS, "layers": 3}) == d.NOT_FOUND  # three shifts
    assert named(GALLERY["exponential"](), KERNELS) == d.NOT_FOUND
    narrow = {**KERNELS, "dim": 1}  # no room for what is recalled beside the present
    assert named(Fixed(lags=[1], readout="x1"), narrow) == d.UNKNOWN


def test_fewer_layers_than_constructions_have():
    found = diagnose(*case(GALLERY["nested-2"](), {**SOFTMAX, "layers": 2}))
    assert (found.name, found.evidence["layers_of_constructions"]) == (d.LAYERS, 4)
    assert "not a proof" in found.sentence
    # Memories 1, 3 and 4 wait for nothing: three layers, where the paper's count is 3 as well.
    assert named(GALLERY["partly-nested"](), {**SOFTMAX, "layers": 3}) == d.UNKNOWN


def test_samples_that_were_learned_by_heart():
    run, record = case(DELAY, {**SOFTMAX, "layers": 3}, samples=16)
    assert diagnose(run, replace(record, loss=1e-4, held_out=0.2)).name == d.SAMPLES
    assert diagnose(run, record).name == d.UNKNOWN


def test_without_searches_nothing_is_claimed_of_them():
    found = diagnose(*case(DELAY, KERNELS), thorough=False)
    assert found.name == d.UNKNOWN and "fitted" in found.sentence


# -- truths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task, route", [("delay", "rotary"), ("parity", "t5"), ("exponential", "one-layer-lin")]
)
def test_no_bound_excludes_what_compiled_weights_do(task, route):
    """A certified model is a counterexample to every lower bound above its error."""
    built = compile(GALLERY[task](), route=route)
    a, n = built.model.architecture, 40
    for bound in (witness.out_of_sight, witness.start_unseen, witness.not_affine):
        assert bound(built.task, a, n) <= built.certificate.bound
    pieces = witness.pieces(built.task, a, n, float(built.certificate.bound))
    assert pieces <= a.width + 1


@pytest.mark.slow
def test_an_affine_random_model_is_its_own_task(getkey):
    """What a model of the kind computes is never out of its reach: the witness finds no bend in it."""
    a = Architecture(**KERNELS)
    model = Transformer(a, 1, 1, key=getkey())
    A, B = (np.asarray(sample(DELAY, getkey(), 32, model.W_E.dtype)) for _ in range(2))
    mixed = np.asarray(jr.bernoulli(getkey(), 0.5, A.shape))
    H = lambda X: np.asarray(model(X), dtype=float)
    bend = H(A) - H(np.where(mixed, A, B)) - H(np.where(mixed, B, A)) + H(B)
    assert np.abs(bend).max() < 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_lags_that_are_reached_are_sums_of_visible_ones(seed):
    """At most one visible lag of each layer, whose windows and strides may differ."""
    chance, n = np.random.default_rng(seed), 40
    layer = {name: KERNELS[name] for name in ("heads", "width", "attention", "encoding", "normalisation")}
    blocks, sums = [], {0}
    for _ in range(chance.integers(1, 4)):
        stride = int(chance.integers(1, 6))
        window = None if chance.random() < 0.3 else stride + int(chance.integers(0, 12))
        blocks.append({**layer, "stride": stride, "window": window})
        visible = [z for z in range(stride, n, stride) if window is None or z <= window]
        sums |= {s + z for s in sums for z in visible}
    a = Architecture(**{**KERNELS, "layers": len(blocks), "blocks": blocks})
    assert set(np.flatnonzero(witness.reached_lags(a, n))) == {s for s in sums if s < n}


def test_one_softmax_layer_answers_a_constant_sequence_at_once(getkey):
    model = eqx.filter_jit(Transformer(Architecture(**SOFTMAX), 1, 1, key=getkey()))
    y = np.asarray(model(np.full((20, 1), 0.7, "float32")))
    assert np.ptp(y[1:], axis=0).max() < 1e-5


def test_pieces_are_counted_exactly_where_they_are_known():
    s = np.linspace(0, 1, 513)
    count = lambda y, e=1e-6: witness._fewest_pieces(s, y, e)
    assert count(3 * s - 1) == 1
    assert count(np.abs(s - 0.5)) == 2
    assert count(np.abs(np.abs(s - 0.5) - 0.25)) == 4
    assert count(np.abs(s - 0.5), 0.26) == 1  # a flat line will do


def test_sizes_are_inside_larger_ones_of_the_same_kind():
    small = Architecture(**KERNELS)
    assert inside(small, Architecture(**{**KERNELS, "layers": 2, "heads": 8, "width": 4}))
    assert inside(small, Architecture(**{**KERNELS, "attention": "dp"}))
    for other in (
        {"heads": 3},
        {"encoding": "log"},
        {"normalisation": "softmax"},
        {"norm": "pre"},
        {"window": 9},
    ):
        assert not inside(small, Architecture(**{**KERNELS, **other}))
