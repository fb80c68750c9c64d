"""Reference routines: element-wise, activation, reduction and normalisation families."""

import math

import numpy as np
import pytest

from tx8fast.errors import SimulationError
from tx8fast.numerics.formats import np_dtype
from tx8fast.numerics.routines import ROUTINES
from tx8fast.numerics.routines.special import erf

F = np.float32
OPERATIONS = """
gemm contract conv conv_transpose max_pool avg_pool layernorm rmsnorm softmax batchnorm_inference
add sub mul div max min pow mod and or xor shl shr eq ne lt le gt ge
neg abs exp log sqrt rsqrt recip square sin cos tan asin acos atan sinh cosh asinh acosh atanh tanh
sigmoid erf floor ceil round sign not isnan isinf
relu leaky_relu gelu gelu_tanh silu hswish hsigmoid softplus softsign mish elu selu celu
thresholded_relu prelu clamp select map swiglu reduce arg_reduce topk cumsum trilu rope
transpose reshape broadcast concat slice pad gather embedding gather_elements gather_nd scatter
scatter_nd kv_update convert quantize dequantize channel_norm load_var store_var load_const iota
""".split()


def run(name, *arrays, out="f32", shape=(), **attrs):
    """Run one routine and return its first result."""
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    (y, *_) = ROUTINES[name](arrays, attrs, [(shape, out)] * 2)
    assert y.dtype == np_dtype(out)
    return y


def test_every_operation_has_a_routine():
    assert [name for name in OPERATIONS if name not in ROUTINES] == []


def test_integer_division_and_remainder():
    a, b = np.array([7, -7, 7, -7, 5], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    assert run("div", a, b, out="i32").tolist() == [3, -3, -3, 3, 0]
    assert run("mod", a[:4], b[:4], out="i32").tolist() == [1, 1, -1, -1]
    assert run("mod", a[:4], b[:4], out="i32", fmod=True).tolist() == [1, -1, 1, -1]
    assert run("div", np.array([200], np.uint8), np.array([3], np.uint8), out="u8").tolist() == [66]


def test_integers_wrap_and_broadcast():
    assert run("add", np.array([127], np.int8), np.array([1], np.int8), out="i8").tolist() == [-128]
    assert run("mul", np.ones((2, 1), F), np.ones((1, 3), F)).shape == (2, 3)


def test_power():
    assert run("pow", np.array([2, 3], np.int64), np.array([10, 2], np.int64), out="i64").tolist() == [1024, 9]
    assert run("pow", np.array([2], np.int32), np.array([-1], np.int32), out="i32").tolist() == [0]
    assert run("pow", F([4.0]), np.array([0.5], F)).tolist() == [2.0]


def test_shifts_beyond_the_width():
    a, n = np.array([1, 255], np.uint8), np.array([8, 3], np.uint8)
    assert run("shl", a, n, out="u8").tolist() == [0, 248]
    assert run("shr", a, n, out="u8").tolist() == [0, 31]
    assert run("shr", np.array([-8], np.int32), np.array([40], np.int32), out="i32").tolist() == [-1]


def test_logic_and_comparison():
    t = np.array([True, True, False])
    assert run("and", t, t[::-1], out="pred").tolist() == [False, True, False]
    assert run("xor", t, t[::-1], out="pred").tolist() == [True, False, True]
    assert run("not", t, out="pred").tolist() == [False, False, True]
    x = np.array([1.0, np.nan, 2.0]).astype(np_dtype("bf16"))
    assert run("le", x, x, out="pred").tolist() == [True, False, True]
    assert run("ne", x, x, out="pred").tolist() == [False, True, False]


def test_maximum_keeps_nan():
    assert np.isnan(run("max", F([np.nan, 1]), F([1, np.nan]))).all()


def test_rounding_functions():
    x = F([0.5, 1.5, -0.5, 2.5, -1.2])
    assert run("round", x).tolist() == [0.0, 2.0, -0.0, 2.0, -1.0]
    assert run("floor", x).tolist() == [0.0, 1.0, -1.0, 2.0, -2.0]
    assert run("sign", F([-2.0, 0.0, 3.0])).tolist() == [-1.0, 0.0, 1.0]
    assert run("ceil", np.array([3], np.int32), out="i32").tolist() == [3]


def test_error_function_is_exact_to_f32():
    x = np.concatenate([np.linspace(-7, 7, 4001), [1e-30, -1e-8, np.inf, -np.inf, 0.0]])
    want = np.array([math.erf(v) for v in x])
    assert np.max(np.abs(erf(x) - want) / np.maximum(np.abs(want), 1e-300)) < 1e-14
    assert (run("erf", x.astype(F)) == F([math.erf(v) for v in x.astype(F)])).all()
    assert np.isnan(erf(np.array([np.nan])))[0]


def test_bf16_is_computed_wide_and_rounded_once():
    a = np.array([1.0]).astype(np_dtype("bf16"))
    b = np.array([2.0**-8]).astype(np_dtype("bf16"))
    assert run("add", a, b, out="f32")[0] == 1 + 2.0**-8
    assert run("add", a, b, out="bf16")[0] == 1.0


@pytest.mark.parametrize(
    ("name", "attrs", "want"),
    [
        ("relu", {}, [0.0, 0.0, 2.0]),
        ("leaky_relu", {"alpha": 0.5}, [-0.5, 0.0, 2.0]),
        ("gelu", {}, [-0.15865525393, 0.0, 1.95449973610]),
        ("gelu_tanh", {}, [-0.15880800939, 0.0, 1.95459769409]),
        ("silu", {}, [-0.26894142137, 0.0, 1.76159415596]),
        ("hswish", {}, [-1 / 3, 0.0, 5 / 3]),
        ("hsigmoid", {}, [0.3, 0.5, 0.9]),
        ("softplus", {}, [0.31326168752, 0.69314718056, 2.12692801104]),
        ("softsign", {}, [-0.5, 0.0, 2 / 3]),
        ("mish", {}, [-0.30340146137, 0.0, 1.94395895953]),
        ("elu", {"alpha": 2.0}, [2 * math.expm1(-1), 0.0, 2.0]),
        ("selu", {}, [-1.11133073, 0.0, 2.10140204]),
        ("celu", {"alpha": 2.0}, [2 * math.expm1(-0.5), 0.0, 2.0]),
        ("thresholded_relu", {"alpha": 1.0}, [0.0, 0.0, 2.0]),
        ("sigmoid", {}, [0.26894142137, 0.5, 0.88079707798]),
    ],
)
def test_activations(name, attrs, want):
    np.testing.assert_allclose(run(name, F([-1, 0, 2]), **attrs), F(want), rtol=2e-7, atol=1e-9)


def test_activations_do_not_overflow():
    x = F([-1e4, 1e4])
    assert run("softplus", x).tolist() == [0.0, 1e4]
    assert run("sigmoid", x).tolist() == [0.0, 1.0]
    assert run("silu", x).tolist() == [-0.0, 1e4]


def test_prelu_clamp_select_swiglu():
    assert run("prelu", F([[-2, 2]]), F([0.5, 1])).tolist() == [[-1.0, 2.0]]
    assert run("clamp", F([-2, 0.5, 9]), lo=0.0, hi=1.0).tolist() == [0.0, 0.5, 1.0]
    assert run("clamp", np.array([-5, 5, 100], np.int8), out="i8", lo=-1.5, hi=6.0).tolist() == [
        -1,
        5,
        6,
    ]
    assert run("clamp", np.array([5], np.int64), out="i64").tolist() == [5]
    assert run("select", np.array([True, False]), F([1, 2]), F([3])).tolist() == [1.0, 3.0]
    np.testing.assert_allclose(run("swiglu", F([2.0]), F([3.0])), 3 * 1.7615942, rtol=1e-6)
    assert run("swiglu", F([-2.0]), F([3.0]), act="relu").tolist() == [0.0]
    with pytest.raises(SimulationError, match="unknown activation 'nope'"):
        run("swiglu", F([1]), F([1]), act="nope")


X = np.arange(1, 13, dtype=F).reshape(3, 4)


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("add", X.sum(1)),
        ("max", X.max(1)),
        ("min", X.min(1)),
        ("mul", X.prod(1)),
        ("mean", X.mean(1)),
        ("l1", X.sum(1)),
        ("l2", np.sqrt((X**2).sum(1))),
        ("sumsq", (X**2).sum(1)),
        ("logsum", np.log(X.sum(1))),
        ("logsumexp", np.log(np.exp(X.astype(float)).sum(1))),
    ],
)
def test_reductions(op, want):
    np.testing.assert_allclose(run("reduce", X, op=op, axes=(-1,), keepdims=False), want, rtol=1e-6)
    assert run("reduce", X, op=op, axes=(0, 1)).shape == (1, 1)
    assert run("reduce", X, op=op, axes=(), keepdims=False).shape == ()


def test_reductions_at_the_edges():
    assert run("reduce", F([1e4, 1e4]), op="logsumexp", axes=(0,))[0] == pytest.approx(1e4 + math.log(2))
    assert run("reduce", F([-np.inf]), op="logsumexp", axes=(0,))[0] == -np.inf
    assert run("reduce", np.zeros((0,), F), op="max", axes=(0,))[0] == -np.inf
    assert run("reduce", np.array([7, -8], np.int32), op="mean", axes=(0,), out="i32")[0] == 0
    many = np.ones(4096).astype(np_dtype("bf16"))
    assert run("reduce", many, op="add", axes=(0,), out="bf16")[0] == 4096
    with pytest.raises(SimulationError, match="unknown op 'median'"):
        run("reduce", X, op="median")


def test_arg_reduce_ties():
    x = F([[3, 1, 3], [0, 5, 5]])
    assert run("arg_reduce", x, out="i64", axis=1, keepdims=False).tolist() == [0, 1]
    assert run("arg_reduce", x, out="i64", axis=1, select_last=True).tolist() == [[2], [2]]
    assert run("arg_reduce", x, out="i64", op="min", axis=-1, keepdims=False).tolist() == [1, 0]


def test_topk_ties_take_the_lowest_position():
    x = F([1, 3, 3, 2, 3, 1])
    values, where = ROUTINES["topk"]([x], {"k": 4}, [((4,), "f32"), ((4,), "i64")])
    assert values.tolist() == [3, 3, 3, 2] and where.tolist() == [1, 2, 4, 3]
    values, where = ROUTINES["topk"]([x], {"k": 3, "largest": False}, [((3,), "f32"), ((3,), "i64")])
    assert values.tolist() == [1, 1, 2] and where.tolist() == [0, 5, 3]
    y = np.array([[0, 255], [7, 7]], np.uint8)
    values, where = ROUTINES["topk"]([y], {"k": 1, "axis": 0}, [((1, 2), "u8"), ((1, 2), "i64")])
    assert values.tolist() == [[7, 255]] and where.tolist() == [[1, 0]]
    with pytest.raises(SimulationError, match="k = 7"):
        run("topk", x, k=7)


def test_cumulative_sum_variants():
    x = np.array([1, 2, 3], np.int32)
    assert run("cumsum", x, out="i32", axis=0).tolist() == [1, 3, 6]
    assert run("cumsum", x, out="i32", axis=0, exclusive=True).tolist() == [0, 1, 3]
    assert run("cumsum", x, out="i32", axis=0, reverse=True).tolist() == [6, 5, 3]
    assert run("cumsum", x, out="i32", axis=0, reverse=True, exclusive=True).tolist() == [5, 3, 0]


def test_norms_against_their_definitions():
    x = np.random.default_rng(0).normal(size=(2, 3, 8))
    g, b = np.linspace(0.5, 2, 8), np.linspace(-1, 1, 8)
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(run("layernorm", x, g, b, out="f64"), want, rtol=1e-12)
    np.testing.assert_allclose(run("layernorm", F(x), F(g), F(b)), want, rtol=1e-4, atol=1e-6)
    assert run("layernorm", F(x), None, F(b)).shape == x.shape
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * g
    np.testing.assert_allclose(run("rmsnorm", x, g, out="f64", eps=1e-3), want, rtol=1e-12)
    want = (x - b) / np.sqrt(g + 1e-6) * 3 + 1
    args = (x, np.full(8, 3.0), np.ones(8), b, g)
    np.testing.assert_allclose(run("batchnorm_inference", *args, out="f64"), want, rtol=1e-12)


def test_softmax_scale_mask_and_log():
    x, mask = np.array([[1.0, 2.0, 3.0]]), np.array([[0.0, 0.0, -np.inf]])
    want = np.exp([0.5, 1.0]) / np.exp([0.5, 1.0]).sum()
    got = run("softmax", x, mask, out="f64", scale=0.5)
    np.testing.assert_allclose(got, [[*want, 0.0]], rtol=1e-12)
    assert (run("softmax", x, np.isfinite(mask) & (mask == 0), out="f64", scale=0.5) == got).all()
    log = run("softmax", x, out="f64", axis=1, log=True)
    np.testing.assert_allclose(np.exp(log).sum(), 1.0)
    assert run("softmax", F([[1e30, -1e30]])).tolist() == [[1.0, 0.0]]


def _signed_tables(positions, lanes, width, style):
    """cos and sin tables whose sin carries the sign of the rotation; pass-through lanes 1 and 0."""
    angle = np.outer(positions, 0.5 ** np.arange(lanes // 2))
    cos, sin = np.ones((len(positions), width)), np.zeros((len(positions), width))
    first, second = (
        (np.arange(lanes // 2), np.arange(lanes // 2, lanes))
        if style == "half"
        else (np.arange(0, lanes, 2), np.arange(1, lanes, 2))
    )
    cos[:, first] = cos[:, second] = np.cos(angle)
    sin[:, first], sin[:, second] = -np.sin(angle), np.sin(angle)
    return cos, sin, angle, first, second


@pytest.mark.parametrize("style", ["half", "interleaved"])
@pytest.mark.parametrize("lanes", [8, 4])
def test_rope_rotates_pairs(style, lanes):
    heads, width, seq = 2, 8, 3
    x = np.random.default_rng(1).normal(size=(2, seq, heads * width))
    cos, sin, angle, first, second = _signed_tables(np.arange(seq), lanes, width, style)
    y = run("rope", x, cos, sin, out="f64", heads=heads, style=style, rotary_dim=lanes)
    split, got = x.reshape(2, seq, heads, width), y.reshape(2, seq, heads, width)
    turned = (split[..., first] + 1j * split[..., second]) * np.exp(1j * angle)[:, None]
    np.testing.assert_allclose(got[..., first], turned.real, rtol=1e-12)
    np.testing.assert_allclose(got[..., second], turned.imag, rtol=1e-12)
    assert (got[..., lanes:] == split[..., lanes:]).all()


def test_convert_cuts_and_saturates():
    assert run("convert", F([1.9, -1.9, 1e9, np.nan]), out="i8").tolist() == [1, -1, 127, 0]
    assert run("convert", np.array([300], np.int64), out="u8").tolist() == [44]
    assert run("convert", F([0, 0.5]), out="pred").tolist() == [False, True]
    assert run("convert", np.array([True]), out="bf16")[0] == 1


def test_quantise_and_back():
    x = F([[0.5, 1.5, -300.0], [2.5, 3.0, 4.0]])
    q = run("quantize", x, F([1.0, 2.0]), np.array([0, 1], np.int8), out="i8", axis=0)
    assert q.tolist() == [[0, 2, -128], [2, 3, 3]]  # ties to even before the zero point
    back = run("dequantize", q, F([1.0, 2.0]), np.array([0, 1], np.int8), axis=0)
    assert back.tolist() == [[0.0, 2.0, -128.0], [2.0, 4.0, 4.0]]
    assert run("quantize", F([7.0]), F(2.0), np.uint8(128), out="u8").tolist() == [132]
    blocks = run("dequantize", np.ones((1, 5), np.int8), F([[1.0, 2.0, 3.0]]), axis=1)
    assert blocks.tolist() == [[1.0, 1.0, 2.0, 2.0, 3.0]]


def test_missing_operand():
    with pytest.raises(SimulationError, match="operand 1 is missing"):
        run("add", F([1.0]))
