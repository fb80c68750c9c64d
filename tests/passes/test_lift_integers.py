"""Products of small integers are products of floats where their sums become floats, with the same numbers."""

import numpy as np
import pytest
from passes.lift_check import constant, lifted
from support.run_graph import run_graph
from support.small_graph import SmallGraph

from tx8fast.ir.ops.base import engine_of
from tx8fast.passes.compute_dtype import ComputeDtype
from tx8fast.passes.dce import Dce
from tx8fast.passes.f16_range import F16Range
from tx8fast.passes.fold_constants import FoldConstants
from tx8fast.passes.legalize import Legalize
from tx8fast.passes.lift_conv import LiftConv
from tx8fast.passes.lift_integers import LiftIntegers


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("zeros", ["one", "per column"])
def test_products_of_integers(bias: bool, zeros: str) -> None:
    rng = np.random.default_rng(1)
    w = rng.integers(-128, 128, (24, 6)).astype(np.int8)
    g = SmallGraph(x=((3, 24), "f32"))
    q = g("quantize", g.args["x"], constant(g, np.float32(0.02)), constant(g, 120, np.uint8), axis=0, dtype="u8")
    i32 = lambda v: g("convert", v, dtype="i32")  # noqa: E731
    a = g("sub", i32(q), i32(constant(g, 120, np.uint8)))
    b = i32(g.array("w", w))
    if zeros == "per column":
        b = g("sub", b, i32(constant(g, rng.integers(-9, 9, (1, 6)), np.int8)))
    extra = [constant(g, rng.integers(-999, 999, 6), np.int32)] * bias
    total = g("gemm", a, b, *extra)
    program = g.done(y=g("convert", g("transpose", total, perm=(1, 0)), dtype="f32"))
    lifted(program, LiftIntegers(), FoldConstants(), Dce(), tolerance=0)
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
        g.done(y=g("convert", total, dtype="f32")), LiftIntegers(), FoldConstants(), Dce(), inputs=fed, tolerance=0
    )
    assert "gemm" in made


def test_short_sums_stay() -> None:
    """Sums of 16 bits wrap, those of floats do not."""
    g = SmallGraph(a=((3, 8), "i8"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i16") for v in g.args.values()))
    assert not LiftIntegers().run(g.done(y=g("convert", total, dtype="f32"))).changed


def test_sums_that_stay_integers_stay() -> None:
    g = SmallGraph(a=((3, 8), "i8"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in g.args.values()))
    assert "gemm" in lifted(g.done(y=total), LiftIntegers(), inputs=bytes_of(3, 8, 4))
    assert all(v.dtype == "i32" for v in (total,))


def test_large_factors_stay() -> None:
    """16 bits are more than a format of the matrix engine holds."""
    g = SmallGraph(a=((3, 8), "i16"), b=((8, 4), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in g.args.values()))
    program = g.done(y=g("convert", total, dtype="f32"))
    assert not LiftIntegers().run(program).changed


def bytes_of(m: int, k: int, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {"a": rng.integers(-128, 128, (m, k)).astype(np.int8), "b": rng.integers(-128, 128, (k, n)).astype(np.int8)}


def test_a_large_table_of_bytes_is_made_floats_when_its_bytes_are_needed() -> None:
    w = np.random.default_rng(0).integers(-128, 128, (64, 32)).astype(np.int8)
    g = SmallGraph(x=((3, 64), "i8"))
    total = g("gemm", *(g("convert", v, dtype="i32") for v in (g.args["x"], g.array("w", w))))
    program = g.done(y=g("convert", total, dtype="f32"))
    LiftIntegers().run(program)
    FoldConstants(limit_bytes=100).run(program)
    (product,) = [op for op in program.main.body if op.kind == "gemm"]
    key = product.operands[1].op.attrs["key"]
    assert key != "w" and np.array_equal(program.weights.view(key), w.astype(np.float32))


def test_a_table_less_its_zeros_is_looked_at() -> None:
    """Folding makes 32 bits of the bytes less their zero point; what they are is known then."""
    w = np.random.default_rng(0).integers(0, 256, (24, 6)).astype(np.uint8)
    g = SmallGraph(x=((3, 24), "i8"))
    table = g("sub", g("convert", g.array("w", w), dtype="i32"), constant(g, 128, np.int32))
    program = g.done(y=g("convert", g("gemm", g("convert", g.args["x"], dtype="i32"), table), dtype="f32"))
    FoldConstants().run(program)
    lifted(program, LiftIntegers(), Dce(), inputs={"x": bytes_of(3, 24, 6)["a"]}, tolerance=0)
    (product,) = [op for op in program.main.body if op.kind == "gemm"]
    assert engine_of(product) == "ne"


@pytest.mark.parametrize("way", ["scaled", "two sums", "as they are", "bounded", "turned and rounded"])
def test_sums_beyond_f16(way: str) -> None:
    """In f16 products of bytes are made in f32, where their sums have room, and stay there until a scale takes them down."""
    g = SmallGraph(a=((3, 256), "i8"), b=((256, 4), "i8"))
    i32 = lambda v: g("convert", v, dtype="i32")  # noqa: E731
    total = g("gemm", *map(i32, g.args.values()))
    if way == "two sums":
        total = g("sub", total, g("gemm", i32(g("sub", *[g.args["a"]] * 2)), i32(g.args["b"])))
    y = g("convert", total, dtype="f32")
    if way == "bounded":
        y = g("relu", y)
    if way == "turned and rounded":
        y = g("map", g("transpose", y, perm=(1, 0)), steps="mul %0 1e-05; add %1 12582912.0; sub %2 12582912.0")
    elif way != "as they are":
        y = g("mul", y, constant(g, 2.0**-12, np.float32))
    program = g.done(y=y)
    fed = {"a": np.full((3, 256), 127, np.int8), "b": bytes_of(3, 256, 4)["b"]}
    fed["b"][:, 0] = 127
    plain = run_graph(program, fed)["y"]
    for step in (LiftIntegers(), ComputeDtype("f16"), F16Range()):
        step.run(program)
    program.verify()
    assert not F16Range().run(program).changed
    found = run_graph(program, fed)["y"]
    assert np.isfinite(found).all() and np.abs(plain).max() > 40
    np.testing.assert_allclose(found, plain, rtol=1e-3, atol=1e-3 * np.abs(plain).max() * (way != "as they are"))


@pytest.mark.parametrize("form", ["volume", "padded", "put together", "rounded"])
def test_products_stay_f32_however_they_are_written(form: str) -> None:
    """A convolution over three dimensions becomes several over two, and an image has a border by then."""
    if form == "volume":
        g = SmallGraph(a=((1, 3, 5, 6, 2), "u8"), b=((2, 3, 3, 4, 2), "i8"))
        a, b = (g("convert", v, dtype="i32") for v in g.args.values())
        y = g("conv_nd", a, b, stride=(1, 1, 1), dilation=(1, 1, 1), pad_lo=(0, 1, 1), pad_hi=(1, 1, 1), groups=1)
    else:
        g = SmallGraph(a=((3, 250), "u8"), b=((256, 4), "i8"))
        a, b = (g("convert", v, dtype="f32") for v in g.args.values())
        if form == "rounded":
            a = g("clamp", g("round", a), lo=0.0, hi=255.0)
        if form == "put together":
            a = g("concat", a, g("slice", a, start=(0, 0), size=(3, 6), step=(1, 1)), axis=1)
        else:
            a = g("pad", a, lo=(0, 3), hi=(0, 3))
        y = g("gemm", a, b)
    program = g.done(y=g("convert", y, dtype="f32") if form == "volume" else y)
    rng = np.random.default_rng(0)
    fed = {
        n: rng.integers(200, 256, v.shape).astype(np.uint8)
        if v.dtype == "u8"
        else rng.integers(90, 128, v.shape).astype(np.int8)
        for n, v in zip("ab", program.main.body.args)
    }
    plain = run_graph(program, fed)["y"]
    for step in (LiftIntegers(), LiftConv(), Legalize(), ComputeDtype("f16"), F16Range()):
        step.run(program)
    found = run_graph(program, fed)["y"]
    assert np.abs(plain).max() > 1e5 and np.array_equal(found, plain)
