"""Vector-engine element-wise ops equal numpy: every kind, special values, every broadcast in both orders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import Arg, build, check, one_op, random_plan, with_plan

from tx8fast import isa
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.sequences import BINARY, COMPARE, NARROW, UNARY, Recipe
from tx8fast.numerics.formats import np_dtype

CHANNELS = (1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128, 129, 130, 192, 193)
FLOATS = ("bf16", "f16", "f32")
LAYOUTS = ("dense", "blocked")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 20.0, -20.0, 90.0, -90.0, 3e4, -3e4, np.inf, -np.inf, np.nan)
POSITIVE = ("log", "sqrt", "rsqrt")
ATTRS = {
    "clamp": {"lo": -0.75, "hi": 1.25}, "leaky_relu": {"alpha": 0.2}, "elu": {"alpha": 0.7},
    "hsigmoid": {"alpha": 0.2, "beta": 0.5},
}  # fmt: skip


def shapes(draw, rank=(1, 4)):
    lead = draw(st.lists(st.integers(1, 7), min_size=rank[0] - 1, max_size=rank[1] - 1))
    return (*lead, draw(st.sampled_from(CHANNELS)))


def both_plans(case, seed: int, **more) -> None:
    """Compare under the plan that the search found and under a random one."""
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    check(case, inputs, **more)
    plan = random_plan(case, rng)
    if plan is not None:
        check(with_plan(case, plan), inputs, **more)


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 77, 193), (77, 193)), ((1, 9, 100), (1, 1, 9, 100)), ((1, 1, 50, 64), (50, 64))]
)
@pytest.mark.parametrize("first", [False, True])
def test_blocked_rows_that_lack_leading_dimensions_of_one(shape, rows, first) -> None:
    args = Arg(shape, "bf16", "blocked"), Arg(rows, "bf16", "blocked")
    case = one_op("sub", *(args if first else args[::-1]), out="blocked")
    assert case.segment.info["engine"] == "elementwise"
    both_plans(case, 3)


@pytest.mark.parametrize("kind, recipe", [*UNARY.items(), *NARROW.items()])
def test_what_works_in_place_reads_its_operand_no_more(kind: str, recipe: Recipe) -> None:
    """Behind the first instruction that writes the result none reads the operand."""
    em, x, y, n = Emitter(), 1 << 16, 1 << 17, 64
    recipe.emit(em, x, y, n, "bf16", [k << 18 for k in range(1, 1 + recipe.scratch)], ATTRS.get(kind, {}))
    read, write = isa.spm_ranges(isa.rows(em.rows))
    begins = lambda ranges, at: ((ranges[..., 0] == at) & (ranges[..., 1] > at)).any(axis=1).nonzero()[0]  # noqa: E731
    assert recipe.in_place == (begins(read, x).max() <= begins(write, y).min())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", UNARY)
def test_unary_on_special_values(kind: str, dtype: str) -> None:
    """Infinities, NaN, zeros and large values give what the reference gives, in every format."""
    values = np.resize(np.array(SPECIAL), 68).astype(np_dtype(dtype))
    case = one_op(kind, Arg((68,), dtype), **ATTRS.get(kind, {}))
    assert case.segment.info["engine"] == "elementwise"
    with np.errstate(all="ignore"):
        finite = case.expected([values])[0]
        scale = np.abs(np.nan_to_num(finite.astype(np.float64), posinf=0, neginf=0)).max()
        check(case, [values], tolerance=1e-5 if scale > 1e3 and dtype == "f32" else None)


@pytest.mark.parametrize("kind", UNARY)
def test_unary_pointwise(kind: str) -> None:
    """Every value, small ones too, is right to a few units in the last place of its own magnitude or of 1e-3."""
    lo = 0.01 if kind in POSITIVE else -8.0
    x = np.linspace(lo, 8.0, 901, dtype=np.float32)
    case = one_op(kind, Arg(x.shape), **ATTRS.get(kind, {}))
    got, want = case.run([x])["y0"], case.expected([x])[0]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@st.composite
def unaries(draw):
    kind = draw(st.sampled_from(sorted(UNARY)))
    dtype = draw(st.sampled_from(FLOATS))
    layout = draw(st.sampled_from(LAYOUTS))
    out = layout if draw(st.integers(0, 3)) else draw(st.sampled_from(LAYOUTS))
    lo = 0.05 if kind in POSITIVE else -4.0
    arg = Arg(shapes(draw), dtype, layout, lo, 4.0)
    return one_op(kind, arg, out=out, machine=draw(st.sampled_from(["tx8", "test_2x2"])), **ATTRS.get(kind, {}))


@given(unaries(), st.integers(0, 1 << 20))
def test_unary(case, seed) -> None:
    both_plans(case, seed)


@st.composite
def binaries(draw, kinds):
    """A result shape and two operands, one of which may lack or repeat any dimensions."""
    kind = draw(st.sampled_from(kinds))
    shape = shapes(draw)
    how = draw(st.sampled_from(["full", "scalar", "vector", "rows", "any"]))
    short = {
        "full": shape, "scalar": (1,), "vector": shape[-1:], "rows": (*shape[:-1], 1),
        "any": tuple(n if draw(st.booleans()) else 1 for n in shape[draw(st.integers(0, len(shape) - 1)) :]),
    }[how]  # fmt: skip
    dtype = draw(st.sampled_from(FLOATS))
    layout = draw(st.sampled_from(LAYOUTS))
    other = layout if draw(st.integers(0, 3)) else draw(st.sampled_from(LAYOUTS))
    positive = kind == "div"
    args = [Arg(shape, dtype, layout), Arg(short, dtype, other, 0.3 if positive else -2.0)]
    if draw(st.booleans()):
        args.reverse()
        args[1] = Arg(args[1].shape, dtype, args[1].layout, 0.3 if positive else -2.0)
    out = "dense" if kind in COMPARE else layout
    return one_op(kind, *args, out=out, machine=draw(st.sampled_from(["tx8", "test_2x2"])))


@given(binaries([*BINARY, "swiglu"]), st.integers(0, 1 << 20))
def test_binary(case, seed) -> None:
    both_plans(case, seed)


@given(binaries(COMPARE), st.integers(0, 1 << 20))
def test_compare(case, seed) -> None:
    rng = np.random.default_rng(seed)
    a, b = (np.round(arg.values(rng).astype(np.float32)).astype(np_dtype(arg.dtype)) for arg in case.args)
    check(case, [a, b])  # rounded, so that many elements are equal
    plan = random_plan(case, rng)
    if plan is not None:
        check(with_plan(case, plan), [a, b])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", [*BINARY, *COMPARE])
def test_binary_on_special_values(kind: str, dtype: str) -> None:
    v = np.array(SPECIAL).astype(np_dtype(dtype))
    a, b = (m.reshape(-1) for m in np.meshgrid(v, v))
    with np.errstate(all="ignore"):
        check(one_op(kind, Arg(a.shape, dtype), Arg(b.shape, dtype)), [a, b])


@given(st.data(), st.integers(0, 1 << 20))
def test_select(data, seed) -> None:
    draw = data.draw
    shape, dtype = shapes(draw), draw(st.sampled_from(FLOATS))

    def operand(kind):
        cut = draw(st.sampled_from(["full", "scalar", "any"]))
        own = {"full": shape, "scalar": (1,), "any": tuple(n if draw(st.booleans()) else 1 for n in shape)}[cut]
        return Arg(own, kind)

    both_plans(one_op("select", operand("pred"), operand(dtype), Arg(shape, dtype)), seed)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("src", (*FLOATS, "pred", "i32", "i64"))
@pytest.mark.parametrize("dst", (*FLOATS, "i32"))
def test_convert(src: str, dst: str, layout: str) -> None:
    if layout == "blocked" and src == "pred":
        layout = "dense"
    for shape in ((3, 70), (2, 5, 33), (7,)):
        check(one_op("convert", Arg(shape, src, layout, -100, 100), out=layout, dtype=dst))


@given(st.data(), st.integers(0, 1 << 20))
def test_swiglu(data, seed) -> None:
    draw = data.draw
    shape, dtype = shapes(draw), draw(st.sampled_from(FLOATS))
    layout = draw(st.sampled_from(LAYOUTS))
    act = draw(st.sampled_from(["silu", "gelu", "gelu_tanh", "relu", "sigmoid"]))
    args = [Arg(shape, dtype, layout), Arg(shape, dtype, layout)]
    both_plans(one_op("swiglu", *args, out=layout, act=act), seed)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["gelu", "add", "sub", "le", "swiglu"])
@pytest.mark.slow(but_every=7)
def test_tensors_far_above_scratchpad(kind: str, layout: str) -> None:
    """Several slices per tile on a chip of four tiles, the last one ragged."""
    shape, n = (3, 1500, 833), 2 if kind != "gelu" else 1
    layout = out = "dense" if kind == "le" else layout  # comparisons yield bytes, whose blocks differ
    args = [Arg(shape, "f32", layout)] * n
    case = one_op(kind, *args, out=out, machine="test_2x2")
    slices, parts = case.segment.info["slices"], case.segment.info["parts"]
    assert any(-(-s // p) > t for s, p, t in zip(case.lowering().sizes, parts, slices, strict=True))
    check(case)


def test_one_result_read_by_two_ops() -> None:
    """Temporaries of a chain live until their last reader."""

    def body(b, x, y):
        s = b("add", x, y, mem_layout="dense")
        t = b("mul", s, x, mem_layout="dense")
        u = b("sub", s, t, mem_layout="dense")
        return [b("add", u, s, mem_layout="dense"), t]

    check(build([Arg((40, 70)), Arg((40, 70))], body))
