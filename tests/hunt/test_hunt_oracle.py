"""How far a right result may be off: the oracle of the hunt on models whose answer is known."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hunt.checks import differences
from hunt.draft import MICROSOFT, Draft, Value
from hunt.formats import BF16, BOOL, EPS, F16, F32, I64, widen
from hunt.nearly import any_may_win, sizes_in_norm
from hunt.oracle import Expected, Oracle
from hunt.recipes import apply
from hunt.reference import NoReference, Session, differs
from onnx import helper


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


@pytest.mark.parametrize("kind", ["ReduceProd", "CumProd"])
def test_products_may_lose_what_their_parts_lose(kind):
    """In some order of the numbers a partial product is below the normal ones, or above the range."""
    d = Draft(np.random.default_rng(0), F32)
    x = np.ones((4, 800), np.float32)
    x[2, :400], x[2, 400:] = 0.5, 1.9  # 2^-400 on the way
    x[3, :400], x[3, 400:] = 0.79, 1.2  # 2^-136 on the way: ten bits less
    if kind == "ReduceProd":
        d.op(kind, d.input(x), d.weight(np.asarray([1], np.int64)), keepdims=0)
    else:
        d.op(kind, d.input(x[:, ::-1]), d.weight(np.asarray([1], np.int64)), reverse=1)
    (want,) = Oracle(*d.model()).expected().values()
    want = (
        Expected(want.values[..., 0], want.allowed[..., 0], want.unsure[..., 0], want.exact)
        if kind == "CumProd"
        else want
    )
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


@pytest.mark.parametrize("kind", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_a_norm_may_be_off_by_what_its_mean_is_rounded_by(kind):
    """Of numbers that are nothing the norm is the mean's alone, and next to nothing remains of it beside the bias."""
    rng = np.random.default_rng(0)
    d = Draft(rng, F32)
    x = np.where(rng.random((1, 4, 512)) < 0.5, 0, np.abs(rng.standard_normal((1, 4, 512)))).astype(np.float32)
    low, high = x.min(), x.mean(-1, dtype=np.float64)[0]
    left = -(low - high) / x.std(-1, dtype=np.float64)[0]
    bias = np.full(512, left[0]) if kind == "LayerNormalization" else left
    attrs = {"num_groups": 4} if kind == "GroupNormalization" else {}
    d.op(kind, d.input(x), d.weight(np.ones_like(bias, np.float32)), d.weight(bias.astype(np.float32)), **attrs)
    (want,) = Oracle(*d.model()).expected().values()
    nothing = (x == 0) & (np.arange(4)[:, None] < (1 if kind == "LayerNormalization" else 4))
    assert (np.abs(want.values[nothing]) < 1e-4).all() and (want.allowed[nothing] > 1e-7).all()
    assert (want.allowed[nothing] < 1e-4).all()


def test_what_an_exponential_loses_below_the_range_may_be_something():
    """exp(-100) is a number that f32 holds; the reference's softmax takes it for nothing on some processors, which a sign shows."""
    d = Draft(np.random.default_rng(0), F32)
    x = np.array([[105.2, 4.4, 100.0], [1.0, 0.5, 0.25]], np.float32)
    d.op("Sign", d.op("Softmax", d.input(x)))
    (want,) = Oracle(*d.model()).expected().values()
    lost = np.array([[1, 0, 1], [1, 1, 1]], np.float32)
    assert differences(np.ones_like(lost), want)[1] == differences(lost, want)[1] == 0
    assert (want.allowed < 1e-3).tolist() == [[True, False, True], [True] * 3]


def test_a_norm_may_add_all_that_it_takes_the_mean_of_one_after_the_other():
    """As the vector engine does, in f32: of many equal numbers every addition rounds the same way."""
    rng, shape = np.random.default_rng(0), (1, 63, 24, 10)
    d = Draft(rng, F32, at_most=63 * 240)
    x = np.where(rng.random(shape) < 0.75, 0.5, 0.5 + 0.4 * rng.random(shape)).astype(np.float32)
    d.op("GroupNormalization", d.input(x), *(d.weight(np.full(63, v, np.float32)) for v in (1, 0)), num_groups=1)
    (want,) = Oracle(*d.model()).expected().values()
    left = x - np.add.accumulate(x.ravel())[-1] / np.float32(x.size)
    serial = np.add.accumulate(np.square(left).ravel())[-1] / np.float32(x.size)
    ours = left / np.sqrt(serial + np.float32(1e-5))
    assert differences(ours, want)[1] == 0 and np.abs(ours - want.values).max() > 2e-5 * np.abs(want.values).max()
    assert differences(ours * np.float32(1.02), want)[1] > 1


@pytest.mark.parametrize("compute, judged", [(None, True), (F16, False)])
def test_a_divisor_that_the_format_takes_for_nothing_is_not_judged(compute, judged):
    d = Draft(np.random.default_rng(0), BF16)
    x = d.input(np.asarray([1.0, 8e-9], np.float32))
    d.op("Div", x, x)
    with nullcontext() if judged else pytest.raises(NoReference, match="nothing in the format"):
        assert Oracle(*d.model()).expected(compute)


def test_who_wins_by_chance_may_be_anybody_else():
    """Three winners in as many runs: the fourth number may win as well. Of a row that two share in turn, the others stay below."""
    node = helper.make_node("Hardmax", ["x"], ["y"], axis=-1)
    runs = [
        np.asarray([[1.0, 0, 0, 0], [1, 0, 0, 0]]),
        np.asarray([[0, 1.0, 0, 0], [0, 1, 0, 0]]),
        np.asarray([[0, 0, 1.0, 0], [1, 0, 0, 0]]),
    ]
    near = np.asarray([[0, 0, 1.0, 0], [1, 1, 1, 1]])  # all that come near
    assert any_may_win(node, [*runs, near]).tolist() == [[True] * 4, [False] * 4]


def test_a_norm_of_a_sum_is_as_uncertain_as_the_sum_beside_its_deviation():
    """Rounded to f16 these sums are three equal numbers, whose norm is nothing: no random disturbance makes numbers equal."""
    x, y = np.asarray([[[1.25, 1.0, 1.0]]]), np.asarray([[[0.2502, 0.5001, 0.5001]]])
    assert len(np.unique((x + y).astype(np.float16))) == 1
    node = helper.make_node("SkipLayerNormalization", ["x", "y", "gain"], ["z"], domain=MICROSOFT)
    sizes = sizes_in_norm(node, {"x": x, "y": y, "gain": np.full(3, 0.5)})
    assert (sizes * EPS[F16] > 1).all() and (sizes * EPS[F32] < 0.01).all()


def test_a_stored_number_that_is_chosen_is_rounded_to_the_format_that_is_computed_in():
    d = Draft(np.random.default_rng(0), F32)
    x = d.op("Tanh", d.input(np.zeros(63, np.float32)))
    d.op("Where", d.weight(np.arange(63) < 30), x, d.weight(np.asarray(-10000.0, np.float32)))
    oracle = Oracle(*d.model())
    got = np.where(np.arange(63) < 30, 0, np.float32(-9984.0))
    assert differences(got, *oracle.expected(BF16).values())[1] == 0
    assert differences(got, *oracle.expected().values())[1] > 1000


def test_attention_of_no_numbers_is_not_judged():
    node = helper.make_node("GroupQueryAttention", ["q", "k", "v"], ["z"], domain=MICROSOFT)
    given = {name: np.ones((1, 4, 16), np.float32) for name in "qkv"}
    assert not differs(node, given)
    given["q"][0, 1, 3] = np.nan
    assert differs(node, given)


def test_a_window_with_no_number_in_it_is_not_judged():
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[1, 1])
    x = np.asarray([1.0, 2.0], np.float32).reshape(1, 1, 1, 2)
    assert not differs(node, {"x": x})
    assert differs(node, {"x": x * np.float32("nan")})


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


@pytest.mark.parametrize("kind", ["Floor", "Ceil", "Cast", "Abs"])
def test_a_rounded_number_may_be_just_where_an_op_steps(kind):
    """Disturbances come near a whole number on both sides, where floor(x) < x; of the whole number itself that is not true. Farther
    from it, a wrong answer is one."""
    d = Draft(np.random.default_rng(0), F16)
    number = lambda x: d.weight(np.asarray(x, np.float32), F16)  # noqa: E731
    root = d.op("Sqrt", d.input(np.asarray([80.9375, 6.25, 12.25, 0.3125], np.float32)))  # the first one rounds to 9
    if kind == "Cast":
        d.op("Less", d.op("Cast", d.op("Cast", root, to=I64), to=F16), root)
    elif kind == "Abs":
        d.op("Greater", d.op("Abs", d.op("Sub", root, number([9, 1, 1, 1]))), number(0))
    else:
        d.op("Less" if kind == "Floor" else "Greater", d.op(kind, root), root)
    (want,) = Oracle(*d.model()).expected().values()
    assert want.unsure.tolist() == [True, False, False, False]
    assert differences(~want.values, want)[0].tolist() == [False, True, True, True]


def test_a_rounded_number_may_be_just_where_an_op_rounds():
    """Round(x) is x at whole numbers alone, and takes the even one of its neighbours at halves, where x < half does not hold."""
    d = Draft(np.random.default_rng(0), F16)
    root = d.op("Sqrt", d.input(np.asarray([80.9375, 72.1875, 5.0], np.float32)))  # these round to 9, 8.5 and 2.2
    rounded, half = d.op("Round", root), d.weight(np.asarray([9.5, 8.5, 2.5], np.float32), F16)
    d.op("Greater", d.op("Abs", d.op("Sub", rounded, root)), d.weight(np.asarray(0, np.float32), F16))
    d.op("Xor", d.op("Less", rounded, root), d.op("Less", root, half))
    whole, halves = Oracle(*d.model()).expected().values()
    assert whole.unsure[0] and halves.unsure[1] and not whole.unsure[2] and not halves.unsure[2]


def test_a_tangent_beside_its_pole_has_no_reference():
    """One step of bf16 from the pole the tangent is 2,000, two steps from it 120: a softmax behind it says nothing."""
    for root, near in ((2.46875, True), (1.90625, False)):
        d = Draft(np.random.default_rng(0), BF16)
        d.op("Softmax", d.op("Tan", d.op("Sqrt", d.input(np.asarray([root, 1.0, 0.5], np.float32)))))
        if near:
            with pytest.raises(NoReference, match="side of a pole"):
                Oracle(*d.model()).expected()
        else:
            assert not next(iter(Oracle(*d.model()).expected().values())).unsure[0]


@pytest.mark.parametrize("kind", ["Floor", "Ceil", "Sign", "Cast", "Greater"])
@pytest.mark.parametrize(("code", "factors"), [(BF16, (-1e-20, 1e-23)), (F16, (-1e-4, 1e-4))])
def test_a_number_below_the_least_of_its_format_may_be_nothing(kind, code, factors):
    """Nothing is its own floor; a number just below nothing is not. One that the format has, and nothing itself, are judged."""
    d = Draft(np.random.default_rng(0), code)
    x = d.input(np.asarray([[-1.0, 1e-3], factors, [-1.0, 0.5], [0.0, 1.0]], np.float32))
    product = d.op("CumProd", x, d.weight(np.asarray(1)))
    last, zero = d.op("Gather", product, d.weight(np.asarray(1)), axis=1), d.weight(np.asarray(0, np.float32), code)
    if kind == "Cast":
        d.op(kind, last, to=BOOL)
    elif kind == "Greater":
        d.op(kind, zero, last)
    else:
        d.op(kind, d.op("Neg", last) if kind == "Ceil" else last)
    want = list(Oracle(*d.model()).expected().values())[-1]
    assert (want.unsure | (want.allowed >= 1)).tolist() == [False, True, False, False]
    other = ~want.values if want.values.dtype == bool else want.values + np.float32(1)
    assert differences(other, want)[0].tolist() == [True, False, True, True]


@pytest.mark.parametrize("kind", ["Equal", "OneHot", "Cast", "Two", "Xor"])
def test_a_whole_number_that_roundings_move_far_may_be_any_on_the_way(kind):
    """One of many is met by chance alone. Those that no rounding leads to are not the right ones."""
    d = Draft(np.random.default_rng(0), BF16)
    number = lambda x: d.weight(np.asarray(x, np.float32), BF16)  # noqa: E731
    scale, middle, each = number(8.0), d.weight(np.asarray(50, np.int8)), d.weight(np.arange(100, dtype=np.int8))

    def whole() -> Value:  # 0.4 of 148, of which roundings take and leave some units
        left = d.op("Sub", d.op("Exp", d.input(np.full((1, 1), 5.0, np.float32))), number(148.0))
        return d.op("QuantizeLinear", left, scale, middle)

    one = whole()
    if kind == "Equal":
        d.op("Equal", one, each)
    elif kind == "Two":
        d.op("Equal", d.op("Sub", one, whole()), d.op("Sub", each, middle))
    elif kind == "Cast":
        d.op("Not", d.op("Cast", d.op("Sub", one, each), to=BOOL))
    elif kind == "Xor":
        d.op("Xor", d.op("Less", one, each), d.op("LessOrEqual", one, each))
    else:
        d.op("OneHot", d.op("Cast", one, to=I64), d.weight(np.asarray(100)), d.weight(np.asarray([0, 1])))
    want = list(Oracle(*d.model()).expected().values())[-1]
    unsure = np.flatnonzero(want.unsure)
    assert np.flatnonzero(want.values) == [50] and len(unsure) < 25
    assert unsure.tolist() == list(range(unsure[0], unsure[-1] + 1)) and unsure[0] < 49 and unsure[-1] > 51
    other = np.roll(want.values, 30, axis=-1)
    assert np.flatnonzero(differences(other, want)[0]).tolist() == [80]


def test_two_rounded_numbers_may_be_equal_at_once_in_all_comparisons():
    """One of them is the greater one in every disturbed run."""
    d = Draft(np.random.default_rng(0), F16)
    x = d.input(np.asarray([80.9375, 6.25], np.float32))
    root, nine = d.op("Sqrt", x), d.weight(np.asarray(9, np.float32), F16)
    d.op("Or", d.op("Less", root, nine), d.op("Greater", root, nine))
    (want,) = Oracle(*d.model()).expected().values()
    assert want.values.all() and want.unsure.tolist() == [True, False]


def test_the_numbers_inside_a_formula_are_those_of_an_element():
    """A large element says nothing about what the roundings of a small one come to."""
    d = Draft(np.random.default_rng(0), BF16)
    d.op("Sinh", d.input(np.asarray([0.5, 0.5, 0.5, 8.0], np.float32)))
    (want,) = Oracle(*d.model()).expected().values()
    assert want.allowed[0] < 0.5 and want.allowed[3] > 20


def test_wholes_of_roundings_as_bools_and_remainders_as_divisors_are_judged():
    d = Draft(np.random.default_rng(0), F32)
    root = d.op("Sqrt", d.input(np.asarray([2.0, 7.0], np.float32)))
    d.op("Cast", d.op("Cast", root, to=I64), to=BOOL)
    d.op("Reciprocal", d.op("Mod", root, d.weight(np.asarray(1.0, np.float32)), fmod=1))
    for want in Oracle(*d.model()).expected().values():
        assert not want.unsure.any()


def test_a_number_that_may_be_nothing_has_no_direction():
    """Alone along its axis it is 1 or -1 beside its norm, or nothing."""
    d = Draft(np.random.default_rng(0), BF16)
    left = d.op(
        "Sub",
        d.op("Exp", d.input(np.asarray([[5.0], [1.0], [2.0], [3.0]], np.float32))),
        d.weight(np.asarray(148.4, np.float32), BF16),
    )
    d.op("LpNormalization", left, axis=1, p=2)
    want = list(Oracle(*d.model()).expected().values())[-1]
    assert (want.unsure | (want.allowed >= 1)).ravel().tolist() == [True, False, False, False]


@pytest.mark.parametrize("spread, judged", [(1.0, True), (1e-6, False)])
def test_deviations_of_next_to_nothing_are_not_judged(spread, judged):
    """ONNX adds 1e-9 to them, the reference does not."""
    d = Draft(np.random.default_rng(0), F32)
    d.op("MeanVarianceNormalization", d.input(np.asarray([[0.0, spread]], np.float32)), axes=[1])
    if judged:
        assert Oracle(*d.model()).expected()
    else:
        with pytest.raises(NoReference, match="does not follow ONNX"):
            Oracle(*d.model())
