"""How far a right result may be off: the oracle of the hunt on models whose answer is known."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hunt.checks import differences
from hunt.draft import Draft
from hunt.formats import BF16, F16, F32, widen
from hunt.oracle import Oracle
from hunt.recipes import apply
from hunt.reference import NoReference, Session


def model_of(code: int, *ops: str, shape=(3, 65)):
    d = Draft(np.random.default_rng(0), code)
    x = d.input(d.draw(shape))
    for op in ops:
        x = apply(d, x, ("", op))
    return d.model()


@pytest.mark.parametrize("code", [F32, BF16, F16])
def test_moves_must_be_equal_in_every_bit_and_rounding_has_its_room(code):
    model, feeds = model_of(code, "Transpose", "Relu")
    (want,) = Oracle(model, feeds).expected().values()
    assert want.exact and not want.allowed.any() and not want.unsure.any()
    model, feeds = model_of(code, "Sigmoid", "Softmax")
    (want,) = Oracle(model, feeds).expected().values()
    relative = want.allowed / np.abs(want.values)
    eps = {F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7}[code]
    assert not want.exact and eps < np.median(relative) < 400 * eps
    assert differences(want.values * np.float32(1 + 1e-9), want)[1] == 0
    assert differences(want.values + 0.5, want)[1] > 1


def test_a_decision_near_its_border_is_not_judged():
    d = Draft(np.random.default_rng(0), BF16)
    x = d.input(np.asarray([0.0, 1.0, -1.0, 0.6953125], np.float32))
    d.op("Greater", d.op("Exp", x), d.weight(np.asarray(2.0, np.float32), BF16))
    (want,) = Oracle(*d.model()).expected().values()
    assert want.unsure.tolist() == [False, False, False, True]


def test_rounded_numbers_are_never_surely_equal():
    d = Draft(np.random.default_rng(0), F32)
    x = d.input(np.asarray([0.0, 1.0, 2.0], np.float32))
    d.op("Equal", d.op("Exp", x), d.weight(np.asarray([1.0, 2.71828, 5.0], np.float32)))
    d.op("Equal", x, d.weight(np.asarray([0.0, 1.0, 3.0], np.float32)))
    rounded, exact = Oracle(*d.model()).expected().values()
    assert rounded.unsure.tolist() == [True, True, False]
    assert exact.exact and exact.values.tolist() == [True, True, False] and not exact.unsure.any()


def test_what_rounds_to_nothing_has_neither_sign_nor_inverse():
    """Disturbances come near 0, or near the divisor of a remainder, and never give exactly 0."""
    d = Draft(np.random.default_rng(0), BF16)
    x = d.input(np.asarray([1.0] * 4 + [2.0, 3.0], np.float32))
    root, divisor = d.op("Sqrt", x), d.weight(np.asarray([3.0] * 4 + [1.4140625, 1.734375], np.float32), BF16)
    d.op("Sign", d.op("Mod", root, divisor, fmod=1))
    d.op("Reciprocal", d.op("Sub", root, divisor))
    sign, inverse = Oracle(*d.model()).expected().values()
    assert (sign.allowed >= 1).tolist() == inverse.unsure.tolist() == [False] * 4 + [True] * 2


def test_every_disturbance_has_its_opposite():
    """So that a decision is seen on both sides of its border, however many there are."""
    model, feeds = model_of(BF16, "Sigmoid")
    oracle = Oracle(model, feeds)
    (name,) = oracle.outputs
    up, down = (oracle._disturbed(None, seed, 1.0)[name] for seed in (100, 101))
    assert (up != down).all() and np.abs(up + down - 2 * oracle.plain[name]).max() < 0.05 * np.abs(up - down).max()


def test_narrow_models_are_widened_for_the_reference():
    model, feeds = model_of(BF16, "Exp")
    (name,) = [o.name for o in model.graph.output]
    np.testing.assert_allclose(Session(widen(model)).run(feeds)[name], np.exp(*feeds.values()), rtol=1e-6)


def test_products_may_lose_what_their_parts_lose():
    """In some order of the numbers a partial product is below the normal ones, or above the range."""
    d = Draft(np.random.default_rng(0), F32)
    x = np.ones((4, 800), np.float32)
    x[2, :400], x[2, 400:] = 0.5, 1.9  # 2^-400 on the way
    x[3, :400], x[3, 400:] = 0.79, 1.2  # 2^-136 on the way: ten bits less
    d.op("ReduceProd", d.input(x), d.weight(np.asarray([1], np.int64)), keepdims=0)
    (want,) = Oracle(*d.model()).expected().values()
    relative = want.allowed / np.maximum(np.abs(want.values), 1e-30)
    assert relative[0] < 1e-3 and want.unsure[2] and relative[3] > 2.0**-15 and not want.unsure[3]


def test_roots_of_powers_below_the_range_may_be_nothing():
    d = Draft(np.random.default_rng(0), F32)
    x = d.input(np.asarray([[[2e-23]], [[1e-15]]], np.float32))
    d.op("GlobalLpPool", x, p=2)
    (want,) = Oracle(*d.model()).expected().values()
    assert want.values.ravel()[0] == 0 and want.allowed.ravel()[0] > 1e-22 and want.allowed.ravel()[1] < 1e-18


def test_what_is_left_of_a_single_number_less_its_mean():
    d = Draft(np.random.default_rng(0), F32)
    x = d.input(np.full((1, 1, 1, 1), 1998.3486, np.float32))
    d.op("InstanceNormalization", x, d.weight(np.ones(1, np.float32)), d.weight(np.full(1, 0.5, np.float32)))
    (want,) = Oracle(*d.model()).expected().values()
    assert differences(np.full((1, 1, 1, 1), 0.5, np.float32), want)[1] == 0


def test_how_many_rounded_numbers_differ_is_not_judged():
    for values, judged in (([1.0, 1.000001, 2.0], False), ([1.0, 1.5, 2.0], True)):
        d = Draft(np.random.default_rng(0), F32)
        d.op("Unique", d.op("Sqrt", d.input(np.asarray(values, np.float32))))
        with nullcontext() if judged else pytest.raises(NoReference, match="roundings decide"):
            Oracle(*d.model()).expected()


def test_a_shape_that_the_reference_does_not_give_is_no_model():
    model, feeds = model_of(F32, "Relu")
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 7
    with pytest.raises(NoReference, match="another shape"):
        Oracle(model, feeds)
