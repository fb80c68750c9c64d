"""Quantised activations are floats on engines, with the same numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from passes.lift_check import constant, lifted
from support.small_graph import SmallGraph

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
