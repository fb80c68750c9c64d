"""Data movement: transpose, slice, broadcast, concat, pad and the change between dense and blocked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.one_op import Arg, check, check_plans, one_op, with_plan

from tx8fast.tile.tiling import Plan

CHANNELS = (1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 128, 129, 130, 192, 193)
DTYPES = ("bf16", "f32", "i8", "i64", "pred")


def shapes(draw, least=1, most=4):
    lead = draw(st.lists(st.integers(1, 7), min_size=least - 1, max_size=most - 1))
    return (*lead, draw(st.sampled_from(CHANNELS)))


def tiles(draw):
    return draw(st.sampled_from(["tx8", "test_2x2"]))


@given(st.data(), st.integers(0, 1 << 20))
def test_transpose(data, seed) -> None:
    shape = shapes(data.draw)
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    dtype = data.draw(st.sampled_from(DTYPES))
    check_plans(one_op("transpose", Arg(shape, dtype), machine=tiles(data.draw), perm=perm), seed)


@given(st.data(), st.integers(0, 1 << 20))
def test_slice(data, seed) -> None:
    shape = shapes(data.draw)
    start, size, step = [], [], []
    for n in shape:
        a = data.draw(st.integers(0, n - 1))
        k = data.draw(st.sampled_from([1, 1, 2, 3]))
        start.append(a)
        step.append(k)
        size.append(data.draw(st.integers(1, -(-(n - a) // k))))
    arg = Arg(shape, data.draw(st.sampled_from(DTYPES)))
    case = one_op("slice", arg, machine=tiles(data.draw), start=tuple(start), size=tuple(size), step=tuple(step))
    check_plans(case, seed)


def test_slice_with_negative_step() -> None:
    check(one_op("slice", Arg((5, 70)), start=(4, 60), size=(5, 20), step=(-1, -3)))


@given(st.data(), st.integers(0, 1 << 20))
def test_broadcast(data, seed) -> None:
    shape = shapes(data.draw)
    own = tuple(n if data.draw(st.booleans()) else 1 for n in shape)[data.draw(st.integers(0, len(shape) - 1)) :]
    arg = Arg(own, data.draw(st.sampled_from(DTYPES)))
    check_plans(one_op("broadcast", arg, machine=tiles(data.draw), shape=shape), seed)


@given(st.data(), st.integers(0, 1 << 20))
def test_concat(data, seed) -> None:
    shape = shapes(data.draw)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from(DTYPES))
    lengths = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=4))
    args = [Arg(tuple(n if d == axis % len(shape) else s for d, s in enumerate(shape)), dtype) for n in lengths]
    check_plans(one_op("concat", *args, machine=tiles(data.draw), axis=axis), seed)


@given(st.data(), st.integers(0, 1 << 20))
def test_pad(data, seed) -> None:
    shape = shapes(data.draw)
    lo, hi = (tuple(data.draw(st.integers(0, 5)) for _ in shape) for _ in range(2))
    arg = Arg(shape, data.draw(st.sampled_from(["bf16", "f32"])))
    check_plans(one_op("pad", arg, machine=tiles(data.draw), lo=lo, hi=hi, value=1.5), seed)


@given(st.data(), st.integers(0, 1 << 20))
def test_layout_change_and_back(data, seed) -> None:
    shape = shapes(data.draw)
    dtype = data.draw(st.sampled_from(["bf16", "f16", "f32", "i8"]))
    to_blocked = data.draw(st.booleans()) and len(shape) > 1
    src, dst, to = ("dense", "blocked", "align") if to_blocked else ("blocked", "dense", "compact")
    if len(shape) == 1:
        return
    case = one_op("channel_norm", Arg(shape, dtype, src), out=dst, machine=tiles(data.draw), to=to)
    assert case.segment.info["engine"] == "channel_norm"
    check_plans(case, seed)


@pytest.mark.parametrize(("kind", "attrs"), [
    ("transpose", {"perm": (1, 0, 2)}), ("transpose", {"perm": (2, 0, 1)}),
    ("slice", {"start": (0, 3, 1), "size": (2, 1400, 700), "step": (1, 1, 1)}),
    ("concat", {"axis": 1}), ("broadcast", {"shape": (2, 2, 1500, 830)}),
    ("pad", {"lo": (0, 1, 2), "hi": (0, 0, 3)}), ("channel_norm", {"to": "align"}),
])  # fmt: skip
def test_tensors_above_scratchpad(kind: str, attrs: dict) -> None:
    args = [Arg((2, 1500, 830), "f32")] * (2 if kind == "concat" else 1)
    case = one_op(kind, *args, out="blocked" if kind == "channel_norm" else "dense", machine="test_2x2", **attrs)
    info = case.segment.info
    assert any(-(-s // p) > t for s, p, t in zip(case.lowering().sizes, info["parts"], info["slices"], strict=True))
    check(case)


def test_slices_that_straddle_the_parts_of_a_concatenation() -> None:
    """Tile 3 works on rows 57..67 and 67..76; 9 rows of the second operand are the most in one slice."""
    case = one_op("concat", Arg((7, 62, 4, 64), "i8"), Arg((7, 14, 4, 64), "i8"), machine="test_2x2", axis=1)
    plan = Plan((1, 4, 1, 1), (7, 19, 4, 64), (7, 10, 2, 64), (3, 0, 1, 2), 2, 0, 0, "")
    check(with_plan(case, plan))


@given(st.sampled_from(["slice", "broadcast", "concat", "pad"]), st.data(), st.integers(0, 1 << 20))
def test_positions_of_images_in_blocks(kind: str, data, seed: int) -> None:
    """Whole positions, whatever channels they have: the last dimension is not touched."""
    shape = shapes(data.draw, 2, 5)
    *lead, c = shape
    dtype = data.draw(st.sampled_from(["bf16", "f32", "f16"]))
    args = [Arg(shape, dtype, "blocked")]
    attrs: dict = {}
    if kind == "slice":
        ends = [
            (a := data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, n - a)), data.draw(st.integers(1, 3)))
            for n in lead
        ]
        attrs = {
            "start": (*(a for a, _, _ in ends), 0),
            "size": (*(-(-n // k) for _, n, k in ends), c),
            "step": (*(k for _, _, k in ends), 1),
        }
    elif kind == "broadcast":
        attrs["shape"] = shape
        args = [Arg((*(n if data.draw(st.booleans()) else 1 for n in lead), c), dtype, "blocked")]
    elif kind == "concat":
        axis = data.draw(st.integers(0, len(lead) - 1))
        attrs["axis"] = axis
        lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
        args = [Arg(tuple(n if d == axis else s for d, s in enumerate(shape)), dtype, "blocked") for n in lengths]
    else:
        attrs = {
            "lo": (*(data.draw(st.integers(0, 3)) for _ in lead), 0),
            "hi": (*(data.draw(st.integers(0, 3)) for _ in lead), 0),
            "value": 1.5,
        }
    case = one_op(kind, *args, out="blocked", machine=tiles(data.draw), **attrs)
    if kind != "concat" or attrs["axis"] != len(lead):
        assert case.segment.info["engine"] in ("movement", "channel moves")
    check_plans(case, seed)
