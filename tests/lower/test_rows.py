"""Ops over whole rows - softmax, norms, reductions - and rotary embedding equal numpy under any cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.one_op import Arg, check, one_op, random_plan, with_plan

from tx8fast import isa
from tx8fast.ir.ops.base import MAX_ROW
from tx8fast.lower.base import Slice
from tx8fast.lower.emitter import Emitter

CHANNELS = (1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128, 129, 130, 192, 193)
FLOATS = ("bf16", "f16", "f32")
LAYOUTS = ("dense", "blocked")
#: several roundings to a 16-bit format follow each other in these ops
LOOSE = {"bf16": 2.5e-2, "f16": 4e-3, "f32": 1e-5}


def both_plans(case, seed: int) -> None:
    """Compare under the plan that the search found and under a random one."""
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    limit = LOOSE[case.args[0].dtype]
    check(case, inputs, tolerance=limit)
    plan = random_plan(case, rng)
    if plan is not None:
        check(with_plan(case, plan), inputs, tolerance=limit)


def shapes(draw, least=1, most=4):
    lead = draw(st.lists(st.integers(1, 6), min_size=least - 1, max_size=most - 1))
    return (*lead, draw(st.sampled_from(CHANNELS)))


def tiles(draw):
    return draw(st.sampled_from(["tx8", "test_2x2"]))


@st.composite
def softmaxes(draw):
    shape, dtype = shapes(draw), draw(st.sampled_from(FLOATS))
    layout = draw(st.sampled_from(LAYOUTS))
    masks = {
        "none": None, "full": shape, "vector": shape[-1:],
        "trailing": shape[draw(st.integers(0, len(shape) - 1)) :],
        "leading ones": (1,) * (len(shape) - 1) + shape[-1:],
        "any": (*(n if draw(st.booleans()) else 1 for n in shape[:-1]), shape[-1]),
    }  # fmt: skip
    mask = masks[draw(st.sampled_from(sorted(masks)))]
    args = [Arg(shape, dtype, layout)]
    if mask is not None:
        args.append(Arg(mask, dtype, draw(st.sampled_from(LAYOUTS)) if len(mask) > 1 else "dense", -9.0, 0.0))
    log, scale = draw(st.booleans()), draw(st.sampled_from([1.0, 0.125]))
    return one_op("softmax", *args, out=draw(st.sampled_from(LAYOUTS)), machine=tiles(draw), log=log, scale=scale)


@given(softmaxes(), st.integers(0, 1 << 20))
def test_softmax(case, seed) -> None:
    assert case.segment.info["engine"] == "rows", case.program.meta["kernel_core"]
    both_plans(case, seed)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_large_and_masked_values(dtype: str, log: bool) -> None:
    """Large scores do not overflow; -inf in the mask gives exact zeros."""
    shape = (2, 9, 70)
    x = np.zeros(shape, np.float32)
    x[0] = 30.0 * np.sin(np.arange(9 * 70)).reshape(9, 70)
    x[1, :, 3] = 5000.0
    mask = np.where(np.arange(70) > 20, -np.inf, 0.0)
    from tx8fast.numerics.formats import np_dtype

    kind = np_dtype(dtype)
    case = one_op("softmax", Arg(shape, dtype, "blocked"), Arg((70,), dtype), out="blocked", log=log)
    (got,) = check(case, [x.astype(kind), mask.astype(kind)], tolerance=LOOSE[dtype])
    if not log:
        assert not got[..., 21:].astype(np.float32).any()


@st.composite
def norms(draw):
    shape, dtype = shapes(draw), draw(st.sampled_from(FLOATS))
    kind = draw(st.sampled_from(["layernorm", "rmsnorm"]))
    vectors = draw(st.integers(0, 2 if kind == "layernorm" else 1))
    args = [Arg(shape, dtype, draw(st.sampled_from(LAYOUTS)))]
    args += [Arg(shape[-1:], draw(st.sampled_from([dtype, "f32"]))) for _ in range(vectors)]
    return one_op(kind, *args, out=draw(st.sampled_from(LAYOUTS)), machine=tiles(draw), eps=1e-3)


@given(norms(), st.integers(0, 1 << 20))
def test_norms(case, seed) -> None:
    assert case.segment.info["engine"] == "rows", case.program.meta["kernel_core"]
    both_plans(case, seed)


@st.composite
def norms_of_heads(draw):
    dtype, channels = draw(st.sampled_from(FLOATS)), draw(st.sampled_from([64, 128, 192]))
    heads = draw(st.integers(2, 5))
    lead = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
    kind = draw(st.sampled_from(["layernorm", "rmsnorm"]))
    vectors = draw(st.integers(0, 2 if kind == "layernorm" else 1))
    args = [Arg((*lead, heads * channels), dtype, draw(st.sampled_from(LAYOUTS)))]
    args += [Arg((channels,), draw(st.sampled_from([dtype, "f32"]))) for _ in range(vectors)]
    return one_op(kind, *args, out=draw(st.sampled_from(LAYOUTS)), machine=tiles(draw), eps=1e-3, heads=heads)


@settings(max_examples=25)
@given(norms_of_heads(), st.integers(0, 1 << 20))
def test_norms_of_heads(case, seed) -> None:
    """Heads are cut over tiles and slices; their channels come whole."""
    assert case.segment.info["engine"] == "rows", case.program.meta["kernel_core"]
    low = case.lowering()
    assert low.shard[-1] and low.sizes[-1] == case.records[0].attr("heads")
    both_plans(case, seed)


def test_heads_that_are_no_whole_blocks_are_not_lowered_to_engines() -> None:
    case = one_op("rmsnorm", Arg((9, 160), "bf16", "blocked"), out="blocked", heads=2)
    assert case.segment.info["engine"] == "kernel core" and "80 channels are no whole blocks" in str(
        case.program.meta["kernel_core"]
    )
    check(case)


@st.composite
def reductions(draw):
    shape = shapes(draw)
    dtype = draw(st.sampled_from(FLOATS))
    op = draw(st.sampled_from(["add", "max", "min", "mean"]))
    arg = Arg(shape, dtype, draw(st.sampled_from(LAYOUTS)))
    out = draw(st.sampled_from(LAYOUTS))
    return one_op("reduce", arg, out=out, machine=tiles(draw), op=op, axes=(-1,), keepdims=True)


@given(reductions(), st.integers(0, 1 << 20))
def test_reductions(case, seed) -> None:
    assert case.segment.info["engine"] == "rows", case.program.meta["kernel_core"]
    both_plans(case, seed)


@pytest.mark.parametrize("kind", ["softmax", "layernorm", "rmsnorm", "reduce"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_slices_with_ragged_tiles(kind: str, layout: str) -> None:
    attrs = {"reduce": {"op": "add", "axes": (-1,)}}.get(kind, {})
    case = one_op(kind, Arg((3, 1111, 930), "f32", layout), out=layout, machine="test_2x2", **attrs)
    info = case.segment.info
    assert any(-(-s // p) > t for s, p, t in zip(case.lowering().sizes, info["parts"], info["slices"], strict=True))
    check(case)


@pytest.mark.parametrize("channels", [16384, 16385, MAX_ROW])
@pytest.mark.parametrize("kind,dtype", [("softmax", "f32"), ("layernorm", "bf16")])
def test_long_rows(kind: str, dtype: str, channels: int) -> None:
    """16384 channels are a reduction's limit: longer rows are reduced in pieces, as long as they have room."""
    case = one_op(kind, Arg((3, channels), dtype, "dense"))
    assert case.segment.info["engine"] == "rows"
    check(case)


@st.composite
def ropes(draw):
    d = draw(st.sampled_from([8, 16, 32, 64, 80, 128, 192]))
    heads, s = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    style = draw(st.sampled_from(["half", "interleaved"]))
    rotary = draw(st.sampled_from([-1, d // 2, 4]))
    rows = draw(st.sampled_from([s, 1]))
    lead = draw(st.lists(st.integers(1, 3), max_size=2))
    dtype, layout = draw(st.sampled_from(["bf16", "f32"])), draw(st.sampled_from(LAYOUTS))
    table = Arg((rows, d), dtype, draw(st.sampled_from(LAYOUTS)))
    args = [Arg((*lead, s, heads * d), dtype, layout), table, table]
    case = one_op("rope", *args, out=layout, machine=tiles(draw), heads=heads, style=style, rotary_dim=rotary)
    return case, d if rotary < 0 else rotary


@given(ropes(), st.integers(0, 1 << 20))
def test_rope(made, seed) -> None:
    case, rotary = made
    assert case.segment.info["engine"] == "rope", case.program.meta["kernel_core"]
    rng = np.random.default_rng(seed)
    x, cos, sin = (a.values(rng) for a in case.args)
    cos[:, rotary:], sin[:, rotary:] = 1, 0  # lanes that do not rotate
    check(case, [x, cos, sin])
    plan = random_plan(case, rng)
    if plan is not None:
        check(with_plan(case, plan), [x, cos, sin])


@pytest.mark.parametrize("width, batch", [(64, 1), (128, 1), (128, 2), (96, 1)])
def test_heads_of_whole_blocks_need_the_scratch_of_two(width: int, batch: int) -> None:
    """Tables that have every row of a head are read where they are; heads that share blocks are turned all at once."""
    table = Arg((32, width), "bf16", "blocked")
    case = one_op(
        "rope",
        Arg((batch, 32, 8 * width), "bf16", "blocked"),
        table,
        table,
        out="blocked",
        heads=8,
        style="half",
        rotary_dim=-1,
    )
    low = case.lowering()
    head, every = batch * 32 * width * 2, 8 * batch * 32 * width * 2
    want = [every] * 3 if width == 96 else [head, head, *[head if batch > 1 else 0] * 2]
    assert low.scratch_bytes((0,) * len(low.sizes), low.sizes) == want
    rows = isa.rows(emitted(low))
    copies = np.isin(rows["opcode"], [isa.INSTRUCTIONS["gather_scatter"].OPCODE]).sum()
    assert width != 128 or copies == 8 * 2 + (2 * 2 if batch > 1 else 0)


def emitted(low) -> list[tuple]:
    """Return the instructions of the whole op as one slice."""
    zero, em = (0,) * len(low.sizes), Emitter()
    scratch = [(9 + i) << 20 for i in range(len(low.scratch_bytes(zero, low.sizes)))]
    low.emit(em, Slice(zero, low.sizes, [1 << 20, 2 << 20, 3 << 20], [4 << 20], scratch, []))
    return em.rows
