"""Convolution on the neural engine equals numpy for strides, dilations, paddings, groups and ragged bands of rows."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from support.one_op import Arg, check, check_plans, one_op, with_plan

from tx8fast.lower.contraction import Contraction
from tx8fast.tile.tiling import Plan

CHANNELS = (1, 3, 4, 5, 31, 33, 64, 65, 97, 128, 130)
ENGINES = {"conv", "contraction"}


@st.composite
def windows(draw, dilations=3):
    """Image sizes and window attributes that leave an output."""
    h, w = draw(st.integers(1, 17)), draw(st.integers(1, 17))
    pair = lambda a, b: (draw(st.integers(a, b)), draw(st.integers(a, b)))  # noqa: E731
    kernel, stride, dilation, lo, hi = pair(1, 5), pair(1, 3), pair(1, dilations), pair(0, 4), pair(0, 4)
    for i, size in enumerate((h, w)):
        assume(size + lo[i] + hi[i] >= dilation[i] * (kernel[i] - 1) + 1)
    return (h, w), kernel, {"stride": stride, "dilation": dilation, "pad_lo": lo, "pad_hi": hi}


def case_of(draw, size, kernel, attrs, c, o, groups=1):
    n, dtype = draw(st.integers(1, 3)), draw(st.sampled_from(["bf16", "f32"]))
    args = [Arg((n, *size, c), dtype, "blocked"), Arg((*kernel, o, c // groups), dtype, "blocked")]
    if draw(st.booleans()):
        args.append(Arg((o,), dtype))
    return one_op("conv", *args, out="blocked", machine=draw(st.sampled_from(["tx8", "test_2x2"])), groups=groups,
                  act=draw(st.sampled_from(["none", "relu"])), **attrs)  # fmt: skip


@st.composite
def convolutions(draw):
    size, kernel, attrs = draw(windows())
    return case_of(draw, size, kernel, attrs, draw(st.sampled_from(CHANNELS)), draw(st.sampled_from(CHANNELS)))


@st.composite
def depthwise(draw):
    size, kernel, attrs = draw(windows(dilations=1))
    c = draw(st.sampled_from([c for c in CHANNELS if c > 1]))
    return case_of(draw, size, kernel, attrs, c, c, c)


@st.composite
def grouped(draw):
    size, kernel, attrs = draw(windows())
    groups, ins, outs = draw(st.sampled_from([(2, 64, 64), (2, 64, 128), (4, 3, 6), (32, 4, 4), (2, 96, 32), (16, 8, 8),
                                              (64, 1, 2), (2, 20, 20), (128, 1, 1)]))  # fmt: skip
    return case_of(draw, size, kernel, {**attrs, "dilation": (2, 1)}, groups * ins, groups * outs, groups)


@given(convolutions(), st.integers(0, 1 << 20))
def test_convolution(case, seed) -> None:
    assert case.segment.info["engine"] in ENGINES, case.program.meta["kernel_core"]
    check_plans(case, seed)


@given(depthwise(), st.integers(0, 1 << 20))
def test_depthwise(case, seed) -> None:
    assert case.segment.info["engine"] == "depthwise", case.program.meta["kernel_core"]
    check_plans(case, seed)


@given(st.data(), st.integers(0, 1 << 20))
def test_grouped(data, seed) -> None:
    """Groups of whole blocks one by one, small groups as a block-diagonal weight."""
    try:
        case = data.draw(grouped())
    except Exception as err:  # a window that a dilation of 2 makes longer than the image
        assume("at least the window" not in str(err))
        raise
    assert case.segment.info["engine"] == "grouped conv", case.program.meta["kernel_core"]
    check_plans(case, seed)


def test_groups_that_fill_no_block() -> None:
    """Three groups of 40 channels never end at a block: the kernel core does it and says why."""
    from tx8fast.ir import new_context
    from tx8fast.ir.ops.base import engine_of

    ctx = new_context()
    types = [ctx.tensor((1, 8, 8, 120), "bf16"), ctx.tensor((3, 3, 120, 40), "bf16")]
    block = ctx.create("module", n_regions=1).regions[0].add_block(types)
    op = ctx.create("conv", operands=block.args, groups=3)
    assert engine_of(op) == "kcore"
    case = one_op("conv", *(Arg(t.shape, "bf16") for t in types), groups=3)
    assert case.segment.info["engine"] == "kernel core"
    check(case)


def test_groups_whose_weights_have_no_room() -> None:
    """Eight groups of 40 channels end at a block together, but their weights with zeros between are more than a tile has."""
    args = [Arg((1, 1, 21, 320), "f32", "blocked"), Arg((1, 5, 320, 40), "f32", "blocked")]
    case = one_op("conv", *args, out="blocked", groups=8, pad_lo=(0, 2), pad_hi=(0, 2))
    assert case.segment.info["engine"] == "kernel core" and "smallest slices need" in str(
        case.program.meta["kernel_core"]
    )
    check(case)


def test_one_tap_is_a_matrix_product() -> None:
    args = [Arg((3, 9, 7, 130), "bf16", "blocked"), Arg((1, 1, 97, 130), "bf16", "blocked"), Arg((97,), "bf16")]
    case = one_op("conv", *args, out="blocked", act="relu")
    assert isinstance(case.lowering(), Contraction)
    assert len(case.lowering().sizes) == 4 and case.lowering().sizes[1] == 63
    check(case)


def test_image_above_scratchpad() -> None:
    case = one_op("conv", Arg((1, 113, 113, 64), "f32", "blocked"), Arg((3, 3, 66, 64), "f32", "blocked"),
                  out="blocked", machine="test_2x2", stride=(2, 2), pad_lo=(1, 1), pad_hi=(1, 1))  # fmt: skip
    assert case.segment.info["slices"][1] < 57
    check(case)


def test_weight_above_scratchpad_sums_in_pieces() -> None:
    """One block of result channels needs 5.9 MB of weight: input channels are cut, partial sums stay in f32."""
    case = one_op("conv", Arg((1, 5, 6, 1024), "f32", "blocked"), Arg((5, 5, 64, 1024), "f32", "blocked"),
                  out="blocked", pad_lo=(2, 2), pad_hi=(2, 2))  # fmt: skip
    assert case.segment.info["slices"][3] < 1024
    check(case)


def test_last_band_needs_fewer_input_rows() -> None:
    """Padding below: the lowest output row reads no input row; bands of one output row look alike but load less."""
    args = [Arg((1, 7, 9, 1), "bf16", "blocked"), Arg((1, 1, 3, 1), "bf16", "blocked")]
    case = one_op("conv", *args, out="blocked", pad_hi=(1, 0))
    check(case)
    one_tile = Plan((1, 1, 1, 1), (1, 8, 3, 1), (1, 3, 3, 1), (0, 1, 2, 3), 2, 0, 0, "")
    check(with_plan(case, one_tile))


def test_a_band_of_results_in_the_padding_alone() -> None:
    """Its rows of padding are those of its windows, however far above the image they lie."""
    case = one_op("conv", Arg((1, 1, 1, 1), "bf16", "blocked"), Arg((1, 1, 1, 1), "bf16", "blocked"), out="blocked",
                  stride=(1, 1), dilation=(1, 1), pad_lo=(2, 0), pad_hi=(0, 0), groups=1, act="none")  # fmt: skip
    check(case)
