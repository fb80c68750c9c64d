"""Reductions and normalisations over any dimensions of any length are those of the vector engine, with the same numbers."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from passes.lift_check import lifted
from support.small_graph import SmallGraph, ops_of

from tx8fast.api import compile_ir
from tx8fast.ir.ops.base import engine_of
from tx8fast.machine import load_machine
from tx8fast.numerics.formats import np_dtype
from tx8fast.options import CompileOptions
from tx8fast.passes import legalize_reductions
from tx8fast.passes.legalize import Legalize, LegalizeFormats

FNS = ("add", "mean", "max", "min", "l1", "l2", "sumsq", "logsumexp")


@pytest.fixture(autouse=True)
def short(monkeypatch) -> None:
    """Limits that small sizes are above of."""
    for name, n in (("MAX_REDUCED", 24), ("MAX_BETWEEN", 5), ("MAX_ROW", 40)):
        monkeypatch.setattr(legalize_reductions, name, n)


@st.composite
def dimensions(draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 7, 12, 31]), min_size=1, max_size=5)))
    assume(math.prod(shape) <= 20000)
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    return shape, tuple(axes)


def on_engines(program) -> bool:
    return all(
        engine_of(op) != "kcore" for op in program.main.body if op.kind in ("reduce", "softmax", "layernorm", "rmsnorm")
    )


@given(dimensions(), st.sampled_from(FNS), st.booleans())
def test_reductions(case, fn: str, keep: bool) -> None:
    shape, axes = case
    g = SmallGraph(x=(shape, "f32"))
    program = g.done(y=g("reduce", g.args["x"], op=fn, axes=axes, keepdims=keep))
    lifted(program, Legalize(), LegalizeFormats(), tolerance=1e-5)
    assert on_engines(program)


@given(dimensions(), st.sampled_from(["softmax", "log"]), st.sampled_from([1.0, 0.3]))
def test_softmax(case, kind: str, scale: float) -> None:
    shape, (axis, *_) = case
    g = SmallGraph(x=(shape, "f32"))
    program = g.done(y=g("softmax", g.args["x"], axis=axis, scale=scale, log=kind == "log"))
    lifted(program, LegalizeFormats(), tolerance=1e-5)
    assert on_engines(program)


@given(st.data(), dimensions(), st.sampled_from(["layernorm", "rmsnorm"]), st.sampled_from([1e-5, 0.1]))
def test_norms(data, case, kind: str, eps: float) -> None:
    """With vectors over what is normalised, over parts of it, or none."""
    shape, axes = case
    behind = shape[min(axes) :]
    vectors = {}
    for name in ("gamma", "beta")[: data.draw(st.integers(0, 1 + (kind == "layernorm")))]:
        own = tuple(n if data.draw(st.booleans()) else 1 for n in behind)
        vectors[name] = (own[data.draw(st.integers(0, len(own) - 1)) :], "f32")
    g = SmallGraph(x=(shape, "f32"), **vectors)
    program = g.done(y=g(kind, *g.args.values(), axes=axes, eps=eps))
    lifted(program, LegalizeFormats(), tolerance=1e-4)
    assert on_engines(program)


def test_numbers_that_are_infinite() -> None:
    x = np.array([[-np.inf] * 3, [0, np.inf, 1], [-np.inf, 2, 1]], np.float32)
    g = SmallGraph(x=((3, 3), "f32"))
    lifted(g.done(y=g("reduce", g.args["x"], op="logsumexp", axes=(1,))), LegalizeFormats(), inputs={"x": x})


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sums_of_16_bits_are_not_rounded_on_the_way(dtype: str) -> None:
    g = SmallGraph(x=((5, 100), dtype))
    program = g.done(y=g("reduce", g.args["x"], op="l2", axes=(1,)))
    LegalizeFormats().run(program)
    assert {op.result.dtype for op in ops_of(program, "reduce")} == {"f32"}


def test_integers_stay() -> None:
    g = SmallGraph(x=((3, 100), "i32"))
    program = g.done(y=g("reduce", g.args["x"], op="add", axes=(0,)))
    assert not LegalizeFormats().run(program).changed


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("kind", ["scatter", "scatter_nd"])
def test_what_falls_on_one_place_is_rounded_once(kind: str, dtype: str) -> None:
    """A count in a histogram of 16 bits ends at 256, or at 2048, if every one is rounded."""
    places = (np.arange(3000) % 2).reshape((3000, 1) if kind == "scatter_nd" else (3000,))
    x, one = np.zeros(3), np.ones(3000)
    for combine in ("add", "mul", "set"):
        g = SmallGraph(x=((3,), dtype), i=(places.shape, "i64"), u=((3000,), dtype))
        program = g.done(y=g(kind, *g.args.values(), combine=combine))
        LegalizeFormats().run(program)
        assert [op.result.dtype for op in ops_of(program, kind)] == [dtype if combine == "set" else "f32"]
        if combine == "add":
            compiled = compile_ir(program, load_machine("tx8"), CompileOptions())
            (y,) = compiled.run({"x": x, "i": places, "u": one}).values()
            assert y.astype(float).tolist() == [1504 if dtype == "bf16" else 1500] * 2 + [0]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_known_numbers_that_fall_on_one_place_are_not_added_before_that(dtype: str) -> None:
    g = SmallGraph(x=((1,), dtype))
    start, ones = (g.array(name, a.astype(np_dtype(dtype))) for name, a in (("s", np.zeros(1)), ("o", np.ones(3000))))
    y = g("scatter_nd", start, g.array("p", np.zeros((3000, 1), np.int64)), ones, combine="add")
    compiled = compile_ir(g.done(y=g("add", y, g.args["x"])), load_machine("tx8"), CompileOptions())
    (y,) = compiled.run({"x": np.zeros(1)}).values()
    assert y.astype(float) == (3008 if dtype == "bf16" else 3000)
