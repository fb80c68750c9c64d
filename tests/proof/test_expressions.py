"""Every op's expression over the field against its reference routine on whole numbers, where the field's arithmetic is exact."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.support.one_op import Arg, tables
from tx8fast.ir.ops.base import reference
from tx8fast.numerics.formats import np_dtype
from tx8fast.proof.cells import Elements
from tx8fast.proof.expression import CONCRETE, EXPRESSIONS, NotExpressed, Scope, evaluate
from tx8fast.proof.families import load
from tx8fast.proof.field import Field

load()
F = Field(3)


def one(kind: str, *args: Arg | None, **attrs: Any):
    """Return the record and the op of a kind."""
    given = [a for a in args if a is not None]

    def body(b, *values):
        rest = iter(values)
        return list(b.op(kind, *[None if a is None else next(rest) for a in args], **attrs).results)

    table, _, ops = tables(given, body)
    (step,) = table.functions["main"].steps
    return step.record, ops[-1]


def whole_numbers(arg: Arg, rng: np.random.Generator) -> np.ndarray:
    if arg.dtype == "pred":
        return rng.integers(0, 2, arg.shape).astype(bool)
    return rng.integers(int(arg.lo), int(arg.hi) + 1, arg.shape).astype(np_dtype(arg.dtype))


def value_of(array: np.ndarray, dtype: str):
    return array if dtype in CONCRETE else F.numbers(array.astype(np.int64))


def residues(array: np.ndarray) -> np.ndarray:
    """Return the residues modulo p of fractions of small denominators."""

    def residue(x: float) -> int:
        f = Fraction(x).limit_denominator(5000)
        assert abs(float(f) - x) < 1e-6 * max(1.0, abs(x)), x
        return f.numerator * pow(f.denominator, -1, F.p) % F.p

    found, where = np.unique(array.astype(np.float64), return_inverse=True)
    return np.array([residue(x) for x in found])[where].reshape(array.shape)


def check(
    kind: str, *args: Arg | None, seed: int = 0, operands: dict[int, np.ndarray] | None = None, **attrs: Any
) -> None:
    record, op = one(kind, *args, **attrs)
    rng = np.random.default_rng(seed)
    arrays = [None if a is None else whole_numbers(a, rng) for a in args]
    for i, array in (operands or {}).items():
        arrays[i] = array
    values = [None if a is None else value_of(a, arg.dtype) for a, arg in zip(arrays, args)]  # type: ignore[union-attr]
    want = reference(op, arrays)
    got = evaluate(Scope(F), record, values)
    for g, w, spec in zip(got, want, record.results, strict=True):
        assert g.shape == w.shape == spec.shape
        if isinstance(g, Elements):
            np.testing.assert_array_equal(g.p, residues(w))
        else:
            assert g.dtype == CONCRETE[spec.dtype]
            np.testing.assert_array_equal(g, w)


X = Arg((3, 4, 5), "f32", lo=-9, hi=9)
I64 = Arg((3, 4, 5), "i64", lo=-9, hi=9)
POSITIVE = Arg((3, 4, 5), "f32", lo=1, hi=9)


@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (5,), (4, 1), ()])
def test_arithmetic(kind, shape):
    check(kind, X, Arg(shape, "f32", lo=1, hi=9))
    check(kind, I64, Arg(shape, "i64", lo=-3, hi=9))


@pytest.mark.parametrize("kind", ["max", "min", "mod", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor"])
def test_integers_stay_concrete(kind):
    check(kind, I64, Arg((5,), "i64", lo=1, hi=9))
    if kind in ("and", "or", "xor"):
        check(kind, Arg((4, 5), "pred"), Arg((5,), "pred"))


def test_shifts_wrap_like_the_reference():
    for kind in ("shl", "shr"):
        check(kind, Arg((40,), "i32", lo=-900, hi=900), Arg((40,), "i32", lo=0, hi=40))
        check(kind, Arg((40,), "u8", lo=0, hi=255), Arg((40,), "u8", lo=0, hi=12))


@pytest.mark.parametrize("kind", ["neg", "square", "recip"])
def test_unary(kind):
    check(kind, POSITIVE)


@pytest.mark.parametrize("kind", ["neg", "abs", "sign", "square"])
def test_unary_of_integers(kind):
    check(kind, I64)


@pytest.mark.parametrize("attrs, args", [
    ({}, [(4, 6), (6, 5), (5,)]), ({"trans_a": True}, [(6, 4), (6, 5), None]), ({"trans_b": True}, [(2, 4, 6), (5, 6), (4, 5)]),
    ({}, [(2, 1, 4, 6), (3, 6, 5), None]),
])  # fmt: skip
def test_gemm(attrs, args):
    check("gemm", *[None if s is None else Arg(s, lo=-5, hi=5) for s in args], **attrs)


@pytest.mark.parametrize("equation, a, b, sizes", [
    ("b s (h d), b t (h d) -> b h s t", (2, 3, 8), (2, 5, 8), ("h", 2, "d", 4)),
    ("b h s t, b t (h d) -> b s (h d)", (2, 2, 3, 5), (2, 5, 8), ("h", 2, "d", 4)),
    ("b s (g h d), b t (g d) -> b g h s t", (1, 3, 24), (1, 5, 8), ("g", 2, "h", 3, "d", 4)),
    ("a b, c -> a c", (3, 4), (5,), ()),
])  # fmt: skip
def test_contract(equation, a, b, sizes):
    check("contract", Arg(a, lo=-5, hi=5), Arg(b, lo=-5, hi=5), equation=equation, sizes=sizes)


def test_einsum():
    check("einsum", Arg((3, 4), lo=-5, hi=5), Arg((4, 5), lo=-5, hi=5), Arg((5,), lo=-5, hi=5), equation="ij,jk,k->ki")


@pytest.mark.parametrize("x, w, attrs", [
    ((2, 7, 6, 4), (3, 2, 8, 4), {}),
    ((2, 7, 6, 4), (3, 2, 8, 4), {"stride": (2, 1), "pad_lo": (1, 0), "pad_hi": (2, 1), "dilation": (2, 1)}),
    ((1, 7, 6, 8), (3, 3, 8, 2), {"groups": 4, "pad_lo": (1, 1), "pad_hi": (1, 1)}),
    ((1, 7, 6, 4), (3, 3, 8, 1), {"groups": 4, "stride": (1, 2)}),
])  # fmt: skip
def test_convolution(x, w, attrs):
    check("conv", Arg(x, lo=-5, hi=5), Arg(w, lo=-5, hi=5), Arg((w[2],), lo=-5, hi=5), **attrs)


@pytest.mark.parametrize("attrs", [
    {}, {"stride": (2, 3), "out_pad": (1, 0)}, {"pad_lo": (1, 0), "pad_hi": (2, 1)},
    {"stride": (2, 2), "dilation": (2, 1), "pad_lo": (1, 1), "pad_hi": (0, 1)},
    {"stride": (3, 2), "out_pad": (2, 1), "pad_lo": (2, 0), "pad_hi": (3, 2)},
])  # fmt: skip
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(attrs, groups):
    check("conv_transpose", Arg((2, 5, 4, 4), lo=-5, hi=5), Arg((3, 3, 6 // groups, 4), lo=-5, hi=5),
          Arg((6,), lo=-5, hi=5), groups=groups, **attrs)  # fmt: skip


def test_convolutions_of_other_ranks():
    flat = {"stride": (2,), "dilation": (1,), "pad_lo": (1,), "pad_hi": (0,)}
    check("conv_nd", Arg((2, 9, 4), lo=-5, hi=5), Arg((3, 6, 4), lo=-5, hi=5), None, **flat)
    check("conv_transpose_nd", Arg((2, 9, 4), lo=-5, hi=5), Arg((3, 6, 4), lo=-5, hi=5), None, **flat, out_pad=(1,))
    check("avg_pool_nd", Arg((2, 9, 4), lo=-5, hi=5), kernel=(3,), **flat, ceil_mode=True, count_pad=False)


@pytest.mark.parametrize("attrs", [
    {"kernel": (2, 3)}, {"kernel": (3, 3), "stride": (2, 2), "pad_lo": (1, 1), "pad_hi": (1, 1)},
    {"kernel": (3, 2), "stride": (2, 2), "ceil_mode": True, "pad_lo": (1, 0), "pad_hi": (0, 1)},
])  # fmt: skip
@pytest.mark.parametrize("count_pad", [False, True])
def test_average_pool(attrs, count_pad):
    check("avg_pool", Arg((2, 7, 8, 3), lo=-5, hi=5), count_pad=count_pad, **attrs)


@pytest.mark.parametrize("kind", ["add", "mean", "sumsq", "mul"])
@pytest.mark.parametrize("axes, keepdims", [((-1,), True), ((0, 2), False), ((0, 1, 2), True)])
def test_reductions(kind, axes, keepdims):
    small = Arg((2, 2, 3), lo=1, hi=3)
    check("reduce", small, op=kind, axes=axes, keepdims=keepdims)


@pytest.mark.parametrize("kind", ["add", "max", "min", "mul"])
def test_reductions_of_integers(kind):
    check("reduce", Arg((2, 3, 4), "i64", lo=-3, hi=3), op=kind, axes=(1,), keepdims=True)


@pytest.mark.parametrize("kind", ["cumsum", "cumprod"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(kind, exclusive, reverse):
    for dtype in ("f32", "i64"):
        check(kind, Arg((2, 4, 3), dtype, lo=-3, hi=3), axis=1, exclusive=exclusive, reverse=reverse)


def test_order_of_integers():
    check("topk", Arg((3, 9), "i64", lo=-3, hi=3), k=4)
    check("topk", Arg((9, 3), "i64", lo=-3, hi=3), k=4, axis=0, largest=False)
    for op in ("max", "min"):
        for last in (False, True):
            check("arg_reduce", Arg((3, 9), "i64", lo=-3, hi=3), op=op, axis=1, select_last=last)


# --- movement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.parametrize("kind, attrs", [
    ("transpose", {"perm": (2, 0, 1)}), ("broadcast", {"shape": (2, 3, 4, 5)}), ("channel_norm", {"to": "align"}),
    ("slice", {"start": (2, 0, 1), "size": (2, 4, 2), "step": (-2, 1, 2)}),
    ("slice", {"start": (0, 0, 0), "size": (0, 4, 5), "step": (1, 1, 1)}),
    ("pad", {"lo": (1, 0, 0), "hi": (0, 2, 3), "value": 7.0}), ("pad", {"lo": (1, 2, 0), "hi": (2, 0, 3), "mode": "reflect"}),
    ("pad", {"lo": (1, 2, 0), "hi": (2, 0, 3), "mode": "edge"}), ("pad", {"lo": (1, 2, 0), "hi": (2, 0, 3), "mode": "wrap"}),
    ("trilu", {"k": 1}), ("trilu", {"k": -1, "upper": False}),
])  # fmt: skip
def test_movement(kind, attrs, dtype):
    check(kind, Arg((3, 4, 5), dtype, lo=-9, hi=9), **attrs)


def test_concat_iota_convert_and_select():
    check("concat", X, Arg((3, 2, 5), lo=-9, hi=9), X, axis=-2)
    check("iota", shape=(3, 4), dtype="i64", axis=1)
    check("convert", I64, dtype="f32")
    check("convert", I64, dtype="i8")
    check("select", Arg((4, 1), "pred"), X, Arg((5,), lo=-9, hi=9))
    check("select", Arg((4, 1), "pred"), I64, Arg((5,), "i64", lo=-9, hi=9))
    check("clamp", I64, lo=-2.5, hi=3.5)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_gathers(dtype):
    table = Arg((7, 4, 5), dtype, lo=-9, hi=9)
    check("gather", table, Arg((2, 3), "i64", lo=-4, hi=3), axis=1)
    check("embedding", Arg((7, 4), dtype, lo=-9, hi=9), Arg((2, 3), "i64", lo=-7, hi=6))
    check("gather_elements", table, Arg((7, 2, 5), "i64", lo=-4, hi=3), axis=1)
    check("gather_nd", table, Arg((3, 2), "i64", lo=-4, hi=3))
    check("gather_nd", table, Arg((7, 3, 1), "i64", lo=-4, hi=3), batch_dims=1)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.parametrize("combine", ["set", "add", "mul"])
def test_scatters(dtype, combine):
    x = Arg((4, 3, 5), dtype, lo=-9, hi=9)
    check("scatter", x, Arg((4, 2, 5), "i64", lo=-3, hi=2), Arg((4, 2, 5), dtype, lo=1, hi=3), axis=1, combine=combine)
    check("scatter_nd", x, Arg((6, 1), "i64", lo=-4, hi=3), Arg((6, 3, 5), dtype, lo=1, hi=3), combine=combine)
    check("scatter_nd", x, Arg((6, 2), "i64", lo=-3, hi=2), Arg((6, 5), dtype, lo=1, hi=3), combine=combine)


def test_kv_update_and_rope():
    check(
        "kv_update",
        Arg((2, 8, 3), lo=-9, hi=9),
        Arg((2, 2, 3), lo=-9, hi=9),
        Arg((1,), "i64"),
        axis=1,
        operands={2: np.array([5])},
    )
    for style in ("half", "interleaved"):
        for rotary in (-1, 4):
            check("rope", Arg((2, 3, 12), lo=-9, hi=9), Arg((3, 6), lo=-9, hi=9), Arg((3, 6), lo=-9, hi=9), heads=2, style=style,
                  rotary_dim=rotary)  # fmt: skip


@pytest.mark.parametrize("scale, axis", [((), 1), ((4,), 1), ((3, 2, 5), 1), ((5,), -1)])
def test_dequantise(scale, axis):
    check(
        "dequantize",
        Arg((3, 4, 5), "i8", lo=-99, hi=99),
        Arg(scale, lo=1, hi=5),
        Arg(scale, "i8", lo=-9, hi=9),
        dtype="f32",
        axis=axis,
    )


# --- what is not exact on numbers: identities -----------------------------------------------------------------------


def run(kind: str, *values, specs: list[Arg], **attrs):
    record, _ = one(kind, *specs, **attrs)
    scope = Scope(F)
    return evaluate(scope, record, list(values))[0], scope


def test_softmax_rows_sum_to_one_and_a_common_shift_cancels():
    x, spec = F.random("x", (3, 6)), Arg((3, 6))
    y, scope = run("softmax", x, specs=[spec], scale=0.3)
    assert (F.sum(y, 1).p == 1).all()
    shifted, _ = run("softmax", F.add(x, F.random("c", (3, 1))), specs=[spec], scale=0.3)
    np.testing.assert_array_equal(y.p, shifted.p)
    assert [d.shape for d in scope.denominators] == [(3, 1)]


def test_a_mask_hides_exactly():
    x, spec = F.random("x", (2, 6)), Arg((2, 6))
    keep = np.array([[1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]], bool)
    masked, _ = run("softmax", x, keep, specs=[spec, Arg((2, 6), "pred")])
    added, _ = run("softmax", x, F.numbers(np.where(keep, 0.0, -1e38)), specs=[spec, spec])
    np.testing.assert_array_equal(masked.p, added.p)
    assert (masked.p[~keep] == 0).all() and masked.p[1, 0] == 1
    short, _ = run("softmax", x.at((slice(0, 1), [0, 1, 3])), specs=[Arg((1, 3))])
    np.testing.assert_array_equal(masked.p[0, [0, 1, 3]], short.p[0])


def test_norms_ignore_order_and_shift():
    x, spec = F.random("x", (4, 8)), Arg((4, 8))
    y, _ = run("layernorm", x, specs=[spec])
    shifted, _ = run("layernorm", F.add(x, F.random("c", (4, 1))), specs=[spec])
    np.testing.assert_array_equal(y.p, shifted.p)
    plain, _ = run("rmsnorm", x, specs=[spec])
    centred, _ = run("rmsnorm", F.sub(x, F.mean(x, 1, True)), specs=[spec])
    np.testing.assert_array_equal(centred.p, y.p)
    assert (plain.p != y.p).all()


def test_losers_of_a_maximum_count():
    x, spec = F.random("x", (1, 4, 4, 2)), Arg((1, 4, 4, 2))
    y, _ = run("max_pool", x, specs=[spec], kernel=(2, 2), stride=(2, 2))
    for at in range(16):
        words = x.p.copy()
        words[0, at // 4, at % 4, 0] += 1
        other, _ = run("max_pool", Elements(words, x.q), specs=[spec], kernel=(2, 2), stride=(2, 2))
        differs = other.p != y.p
        assert differs.sum() == 1 and differs[0, at // 8, at % 4 // 2, 0]


def test_topk_follows_the_drawn_order():
    x, spec = F.random("x", (3, 7)), Arg((3, 7))
    record, _ = one("topk", spec, k=3)
    values, at = evaluate(Scope(F), record, [x])
    assert isinstance(values, Elements) and isinstance(at, np.ndarray)
    keys = F.order(x)
    assert (np.take_along_axis(keys, at, 1) == -np.sort(-keys, 1)[:, :3]).all()
    np.testing.assert_array_equal(values.p, np.take_along_axis(x.p, at, 1))


# --- what has no expression ----------------------------------------------------------------------------------------


def test_an_op_without_an_expression_is_named():
    with pytest.raises(NotExpressed, match="det: this kind has no expression"):
        run("det", F.random("x", (3, 3)), specs=[Arg((3, 3))])
    with pytest.raises(NotExpressed, match="convert to i64"):
        run("convert", F.random("x", (3,)), specs=[Arg((3,))], dtype="i64")
    with pytest.raises(NotExpressed, match="0 to 9, required indices of 3"):
        run("gather", F.random("x", (3,)), np.array([0, 9]), specs=[Arg((3,)), Arg((2,), "i64")])


def test_kinds_without_an_expression_are_these():
    """A new kind gets an expression, or a place in this list, which docs/proof.md repeats."""
    from tx8fast.ir.core import COLLECTIVE, REAL
    from tx8fast.ir.dialect import new_context

    infos = new_context().infos.values()
    real = {
        i.name.partition(".")[2].rstrip("_") for i in infos if i.traits & REAL == REAL and not i.traits & COLLECTIVE
    }
    assert real - set(EXPRESSIONS) == {
        "quantize", "det", "grid_sample", "deform_conv", "roi_align", "max_roi_pool", "col2im", "recurrent", "max_pool_indices", "bitcast",
    }  # fmt: skip
