"""Convolution on the neural engine equals numpy for strides, dilations, paddings, groups and ragged bands of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
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
                                              (64, 1, 2), (2, 20, 20), (128, 1, 1), (3, 40, 40), (13, 8, 8), (9, 16, 8), (7, 48, 3)]))  # fmt: skip
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
    """Groups of whole blocks one by one, small groups as a block-diagonal weight, of the last blocks fewer."""
    try:
        case = data.draw(grouped())
    except Exception as err:  # a window that a dilation of 2 makes longer than the image
        assume("at least the window" not in str(err))
        raise
    assert case.segment.info["engine"] == "grouped conv", case.program.meta["kernel_core"]
    check_plans(case, seed)


@st.composite
def long_kernels(draw):
    """Kernels of more rows than scratchpad has room for, in groups or not."""
    taps, length, dtype = draw(st.integers(96, 200)), draw(st.integers(1, 90)), draw(st.sampled_from(["bf16", "f32"]))
    groups, each = draw(st.sampled_from([(1, 64), (1, 130), (3, 40), (2, 64), (4, 48)]))
    lo, hi, stride = draw(st.integers(0, taps + 9)), draw(st.integers(0, taps + 9)), draw(st.sampled_from([1, 1, 2, 7]))
    dilation = draw(st.sampled_from([1, 1, 2]))
    assume(length + lo + hi >= dilation * (taps - 1) + 1)
    args = [Arg((draw(st.integers(1, 2)), length, 1, groups * each), dtype, "blocked", -1, 1)]
    args += [Arg((taps, 1, groups * each, each), dtype, "blocked", -0.1, 0.1)]
    if draw(st.booleans()):
        args.append(Arg((groups * each,), dtype))
    return one_op("conv", *args, out="blocked", groups=groups, act=draw(st.sampled_from(["none", "relu"])),
                  stride=(stride, 1), dilation=(dilation, 1), pad_lo=(lo, 0), pad_hi=(hi, 0))  # fmt: skip


@settings(max_examples=12)
@given(long_kernels(), st.integers(0, 1 << 20))
@pytest.mark.slow
def test_the_rows_of_a_kernel_are_summed_in_slices(case, seed) -> None:
    """Some slices of taps see padding alone."""
    assert case.segment.info["engine"] in ("conv", "grouped conv"), case.program.meta["kernel_core"]
    check_plans(case, seed)


def test_a_long_kernel_is_cut() -> None:
    """16 groups of 48 channels and 128 taps: the weights of a block with zeros between are 22 MB."""
    args = [Arg((1, 40, 1, 768), "bf16", "blocked", -1, 1), Arg((128, 1, 768, 48), "bf16", "blocked", -0.1, 0.1)]
    case = one_op("conv", *args, out="blocked", groups=16, pad_lo=(64, 0), pad_hi=(63, 0))
    assert case.segment.info["engine"] == "grouped conv"
    assert len(case.segment.info["slices"]) == 4 and case.segment.info["slices"][3] < 128
    check(case)


def test_images_have_more_rows_than_an_instruction_takes() -> None:
    """9,000 rows, windows three apart; their columns stay within the instruction's 4,096."""
    args = [Arg((1, 9000, 1, 3), "f32", "blocked"), Arg((10, 1, 16, 3), "f32", "blocked")]
    case = one_op("conv", *args, out="blocked", stride=(3, 1), dilation=(2, 1), pad_lo=(5, 0))
    assert case.segment.info["engine"] == "conv"
    check(case)
    case = one_op("max_pool", args[0], out="blocked", kernel=(4, 1), stride=(2, 1), pad_lo=(1, 0), pad_hi=(1, 0))
    assert case.segment.info["engine"] == "pool"
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


def test_chains_have_whole_kernels(tmp_path) -> None:
    """Long kernels one behind the other, with a pool: their slices of taps are in no chain of images."""
    import onnx
    from frontend.onnx.onnx_build import info, model, node

    import tx8fast

    rng = np.random.default_rng(3)
    weights = {n: rng.uniform(-0.1, 0.1, (64, 64, k)).astype(np.float32) for n, k in (("a", 127), ("b", 3), ("c", 127))}
    steps = [node("Conv", "x a", "s", pads=[63, 63]), node("Relu", "s", "t"), node("Conv", "t b", "u", pads=[1, 1])]
    steps += [node("Conv", "u c", "v", pads=[63, 63]), node("MaxPool", "v", "y", kernel_shape=[3], strides=[2])]
    net = model(steps, [info("x", (1, 64, 40))], [info("y", None)], weights)
    onnx.save(net, tmp_path / "net.onnx")
    x = rng.standard_normal((1, 64, 40)).astype(np.float32)
    one, *others = (
        tx8fast.compile(tmp_path / "net.onnx", dtype="fp32", opt=opt).run({"x": x})["y"] for opt in (1, 2, 3)
    )
    for other in others:
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(one).max())
