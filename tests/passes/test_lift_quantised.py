"""Quantised activations and products of their integers are floats on engines, with the same numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph

from tx8fast.ir.ops.base import engine_of
from tx8fast.passes.dce import Dce
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.legalize import LegalizeFormats
from tx8fast.passes.lift_activation import LiftActivation

TYPES = {"u8": np.uint8, "i8": np.int8, "i16": np.int16, "u16": np.uint16}
scales = st.sampled_from([0.013, 0.05, 0.5, 3.0])


def point(g: SmallGraph, scale: float, zero: int, dtype: str):
    return constant(g, np.float32(scale)), constant(g, zero, TYPES[dtype])


@given(st.data(), st.sampled_from(list(TYPES)), scales, scales)
def test_there_and_back(data, dtype: str, scale: float, other: float) -> None:
    limits = np.iinfo(TYPES[dtype])
    zero, back = (data.draw(st.integers(max(limits.min, -300), min(limits.max, 300))) for _ in range(2))
    x = np.concatenate([np.arange(-40, 40) * np.float32(scale) / 2, [1e30, -1e30, np.inf, -np.inf]]).astype(np.float32)
    g = SmallGraph(x=(x.shape, "f32"))
    q = g("quantize", g.args["x"], *point(g, scale, zero, dtype), axis=0, dtype=dtype)
    program = g.done(y=g("dequantize", q, *point(g, other, back, dtype), axis=0, dtype="f32"))
    assert lifted(program, LiftActivation(), inputs={"x": x}, tolerance=0) == ["map"]


@given(st.data(), st.sampled_from(["u8", "i8", "u16"]), st.booleans(), st.booleans())
def test_integers_that_stay(data, dtype: str, each: bool, known: bool) -> None:
    """One scale or one per channel, known or given."""
    n = 5 if each else 1
    shape = (n,) if each else ()
    limits = np.iinfo(TYPES[dtype])
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    s, z = (
        rng.uniform(0.01, 2, shape).astype(np.float32),
        rng.integers(limits.min, limits.max, shape).astype(TYPES[dtype]),
    )
    x = (rng.standard_normal((3, 5, 4)) * 50).astype(np.float32)
    given_ = {} if known else {"s": (shape, "f32"), "z": (shape, dtype)}
    g = SmallGraph(x=(x.shape, "f32"), **given_)
    scale, zero = (constant(g, s), constant(g, z, TYPES[dtype])) if known else (g.args["s"], g.args["z"])
    q = g("quantize", g.args["x"], scale, zero, axis=1, dtype=dtype)
    y = g("dequantize", q, scale, zero, axis=1, dtype="f32")
    made = lifted(g.done(q=q, y=y), LegalizeFormats(), inputs={"x": x, "s": s, "z": z}, tolerance=1e-6)
    assert not {"quantize", "dequantize"} & {*made}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("zeros", ["one", "per column"])
def test_products_of_integers(bias: bool, zeros: str) -> None:
    rng = np.random.default_rng(1)
    w = rng.integers(-128, 128, (24, 6)).astype(np.int8)
    g = SmallGraph(x=((3, 24), "f32"))
    q = g("quantize", g.args["x"], *point(g, 0.02, 120, "u8"), axis=0, dtype="u8")
    i32 = lambda v: g("convert", v, dtype="i32")  # noqa: E731
    a = g("sub", i32(q), i32(constant(g, 120, np.uint8)))
    b = i32(g.array("w", w))
    if zeros == "per column":
        b = g("sub", b, i32(constant(g, rng.integers(-9, 9, (1, 6)), np.int8)))
    extra = [constant(g, rng.integers(-999, 999, 6), np.int32)] * bias
    total = g("gemm", a, b, *extra)
    program = g.done(y=g("convert", g("transpose", total, perm=(1, 0)), dtype="f32"))
    lifted(program, LiftActivation(), FoldConstants(), Dce(), tolerance=0)
    assert all(engine_of(op) != "kcore" for op in program.main.body)


def wrapped(g: SmallGraph, how: str):
    """Bytes of which a conversion or a difference leaves the low 8 bits, or that end where the format does."""
    a = g.args["a"]
    if how == "difference":
        return g("sub", a, g("convert", constant(g, 100, np.uint8), dtype="u8"))
    if how == "conversion":
        return g("convert", a, dtype="i8")
    return g("convert", g("clamp", g("round", g("convert", a, dtype="f32")), lo=0.0, hi=256.0), dtype="i8")


@pytest.mark.parametrize("how", ["difference", "conversion", "clamp"])
def test_bytes_that_wrap_are_what_they_are(how: str) -> None:
    """200 as a signed byte is -56, and so it is multiplied."""
    g = SmallGraph(a=((3, 8), "u8"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in (wrapped(g, how), g.args["b"])))
    fed = bytes_of(3, 8, 4) | {"a": np.arange(24, dtype=np.uint8).reshape(3, 8) * 10}
    made = lifted(
        g.done(y=g("convert", total, dtype="f32")), LiftActivation(), FoldConstants(), Dce(), inputs=fed, tolerance=0
    )
    assert "gemm" in made


def test_short_sums_stay() -> None:
    """Sums of 16 bits wrap, those of floats do not."""
    g = SmallGraph(a=((3, 8), "i8"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i16") for v in g.args.values()))
    assert not LiftActivation().run(g.done(y=g("convert", total, dtype="f32"))).changed


def test_sums_that_stay_integers_stay() -> None:
    g = SmallGraph(a=((3, 8), "i8"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in g.args.values()))
    assert "gemm" in lifted(g.done(y=total), LiftActivation(), inputs=bytes_of(3, 8, 4))
    assert all(v.dtype == "i32" for v in (total,))


def test_large_factors_stay() -> None:
    """16 bits are more than a format of the matrix engine holds."""
    g = SmallGraph(a=((3, 8), "i16"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in g.args.values()))
    program = g.done(y=g("convert", total, dtype="f32"))
    assert not LiftActivation().run(program).changed


def bytes_of(m: int, k: int, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {"a": rng.integers(-128, 128, (m, k)).astype(np.int8), "b": rng.integers(-128, 128, (k, n)).astype(np.int8)}


def test_a_large_table_of_bytes_is_made_floats_when_its_bytes_are_needed() -> None:
    w = np.random.default_rng(0).integers(-128, 128, (64, 32)).astype(np.int8)
    g = SmallGraph(x=((3, 64), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in (g.args["x"], g.array("w", w))))
    program = g.done(y=g("convert", total, dtype="f32"))
    LiftActivation().run(program)
    FoldConstants(limit_bytes=100).run(program)
    (product,) = [op for op in program.main.body if op.kind == "gemm"]
    key = product.operands[1].op.attrs["key"]
    assert key != "w" and np.array_equal(program.weights.view(key), w.astype(np.float32))
