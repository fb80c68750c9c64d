"""Convolution on the neural engine equals numpy for strides, dilations, paddings and ragged bands of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.one_op import Arg, check, one_op, random_plan, with_plan

from tx8fast.search.plan import Plan

CHANNELS = (1, 3, 4, 5, 31, 33, 64, 65, 97, 128, 130)


@st.composite
def convolutions(draw):
    n, h, w = draw(st.integers(1, 3)), draw(st.integers(1, 17)), draw(st.integers(1, 17))
    c, o = draw(st.sampled_from(CHANNELS)), draw(st.sampled_from(CHANNELS))
    pair = lambda a, b: (draw(st.integers(a, b)), draw(st.integers(a, b)))  # noqa: E731
    kernel, stride, dilation, lo, hi = pair(1, 5), pair(1, 3), pair(1, 3), pair(0, 4), pair(0, 4)
    for i, size in enumerate((h, w)):
        assume(size + lo[i] + hi[i] >= dilation[i] * (kernel[i] - 1) + 1)
    dtype = draw(st.sampled_from(["bf16", "f32"]))
    args = [Arg((n, h, w, c), dtype, "blocked"), Arg((*kernel, o, c), dtype, "blocked")]
    if draw(st.booleans()):
        args.append(Arg((o,), dtype))
    return one_op("conv", *args, out="blocked", machine=draw(st.sampled_from(["tx8", "test_2x2"])), stride=stride,
                  dilation=dilation, pad_lo=lo, pad_hi=hi, act=draw(st.sampled_from(["none", "relu"])))  # fmt: skip


@pytest.mark.feature("B26")
@given(convolutions(), st.integers(0, 1 << 20))
def test_convolution(case, seed) -> None:
    assert case.segment.info["engine"] == "conv", case.program.meta["kernel_core"]
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    check(case, inputs)
    plan = random_plan(case, rng)
    if plan is not None:
        check(with_plan(case, plan), inputs)


@pytest.mark.feature("B26")
def test_image_above_scratchpad() -> None:
    case = one_op("conv", Arg((1, 113, 113, 64), "f32", "blocked"), Arg((3, 3, 66, 64), "f32", "blocked"),
                  out="blocked", machine="test_2x2", stride=(2, 2), pad_lo=(1, 1), pad_hi=(1, 1))  # fmt: skip
    assert case.segment.info["slices"][1] < 57
    check(case)


@pytest.mark.feature("B26", "B28")
def test_last_band_needs_fewer_input_rows() -> None:
    """Padding below: the lowest output row reads no input row; bands of one output row look alike but load less."""
    args = [Arg((1, 7, 9, 1), "bf16", "blocked"), Arg((1, 1, 3, 1), "bf16", "blocked")]
    case = one_op("conv", *args, out="blocked", pad_hi=(1, 0))
    check(case)
    one_tile = Plan((1, 1, 1), (1, 8, 3), (1, 3, 3), (0, 1, 2), 2, 0, 0, "")
    check(with_plan(case, one_tile))
