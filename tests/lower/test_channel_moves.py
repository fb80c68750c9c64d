"""Channels of blocked tensors put one behind the other, and taken out of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from hypothesis import example, given
from hypothesis import strategies as st
from lower.test_movement import CHANNELS
from support.cnn_models import CnnBuilder
from support.one_op import Arg, check_plans, one_op

from tx8fast import api
from tx8fast.lower.channel_moves import ChannelMoves, _pieces
from tx8fast.lower.movement import Movement

FLOATS = st.sampled_from(["bf16", "f32", "f16"])
LEAD = st.lists(st.integers(1, 7), min_size=1, max_size=3)
MACHINE = st.sampled_from(["tx8", "test_2x2"])


@given(LEAD, st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=4), FLOATS, MACHINE, st.integers(0, 1 << 20))
@example([2, 20, 3], [32, 32, 100], "bf16", "test_2x2", 0)  # whole lines
@example([1, 1], [64, 64], "f32", "tx8", 0)  # whole blocks of one position
def test_concat(lead, channels, dtype, machine, seed) -> None:
    args = [Arg((*lead, c), dtype, "blocked") for c in channels]
    case = one_op("concat", *args, out="blocked", machine=machine, axis=-1)
    assert isinstance(case.lowering(), ChannelMoves if len(args) > 1 else Movement)
    check_plans(case, seed)


@given(LEAD, st.sampled_from(CHANNELS), st.data(), FLOATS, MACHINE, st.integers(0, 1 << 20))
def test_slice(lead, channels, data, dtype, machine, seed) -> None:
    start = data.draw(st.integers(0, channels - 1))
    size = data.draw(st.integers(1, channels - start))
    rank = len(lead) + 1
    ends = {"start": (*(0,) * len(lead), start), "size": (*lead, size), "step": (1,) * rank}
    case = one_op("slice", Arg((*lead, channels), dtype, "blocked"), out="blocked", machine=machine, **ends)
    assert isinstance(case.lowering(), ChannelMoves if size < channels else Movement)
    check_plans(case, seed)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 300))
def test_pieces_are_all_channels_and_cross_no_block(a, b, n) -> None:
    found = list(_pieces(a, b, n, 64))
    assert [at for at, _ in found] == [sum(w for _, w in found[:i]) for i in range(len(found))]
    assert sum(w for _, w in found) == n
    assert all((x + at) // 64 == (x + at + w - 1) // 64 for at, w in found for x in (a, b))


@pytest.mark.parametrize(("channels", "many"), [(32768, False), (40000, True)])
def test_more_channels_than_come_whole_are_moved_in_rows(tmp_path, channels, many) -> None:
    x = np.random.default_rng(0).standard_normal((3, channels)).astype(np.float32)
    steps = [node("Relu", "x", "a"), node("Concat", "a a", "c", axis=-1), node("Slice", "c lo hi ax", "y")]
    weights = {"lo": np.array([channels - 5]), "hi": np.array([channels + 9]), "ax": np.array([1])}
    onnx.save(model(steps, [info("x", (3, channels))], [info("y", (3, 14))], weights), tmp_path / "m.onnx")
    compiled = api.compile(tmp_path / "m.onnx")
    assert not compiled.program.meta["kernel_core"]
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    wide = np.maximum(x, 0)
    assert np.array_equal(got, np.concatenate([wide, wide], 1)[:, channels - 5 : channels + 9])


def branches(path: Path, batch: int, size: int) -> Path:
    """Dense and split branches: growing by 32 channels, halves that go different ways, a skip across a change of size."""
    b = CnnBuilder(seed=5)
    y, c = b.node("Relu", b.conv("x", 3, 64, 3, 2)), 64
    skip = y
    for _ in range(3):
        z = b.node("Relu", b.conv(y, c, 32, 3))
        y, c = b.node("Concat", y, z, axis=1), c + 32
    y, c = b.conv(y, c, 80, 1), 80
    b.nodes.append(onnx.helper.make_node("Split", [y, b.constant([40, 40])], ["left", "right"], axis=1))
    z = b.node("Add", b.conv("left", 40, 40, 3), "right")
    y = b.node("Concat", "left", "right", z, skip, axis=1)
    y = b.conv(y, 120 + 64, 24, 1)
    half = -(-size // 2)
    return b.save(path, (batch, 3, size, size), y, (batch, 24, half, half))


@pytest.mark.slow(but_every=3)
@pytest.mark.parametrize(
    ("batch", "size", "dtype"), [(1, 34, "bf16"), (3, 12, "fp32"), (16, 10, "fp16"), (18, 8, "bf16")]
)
def test_branches_of_images_stay_in_blocks(tmp_path, batch, size, dtype) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = branches(tmp_path / "m.onnx", batch, size)
    x = np.random.default_rng(1).standard_normal((batch, 3, size, size)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    close = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 3e-2}[dtype]
    for opt in (1, 2, 3):
        compiled = api.compile(path, dtype=dtype, opt=opt)
        (got,) = compiled.run({"x": x}, sanitize=True).values()
        assert np.abs(got - want).max() < close * np.abs(want).max()
    inner = [s.info["op"] for s in compiled.program.segments if "channel_norm" in s.info["op"]]
    assert len(inner) <= 3, inner  # what comes in and what leaves
    if batch >= 16:  # a tile for each image
        (stream,) = (s.info["op"] for s in compiled.program.segments if s.info["engine"] == "conv stream")
        assert stream.count("concat") == 4 and stream.count("slice") == 2


@pytest.mark.parametrize("batch", [1, 16])
def test_channels_that_nobody_reads_are_not_kept_in_scratchpad(tmp_path, batch) -> None:
    """Half of what a convolution makes is left out: the sanitizer tells of no result that is lost."""
    onnxruntime = pytest.importorskip("onnxruntime")
    b = CnnBuilder(seed=6)
    y = b.conv("x", 3, 160, 3)
    y = b.node("Slice", y, b.constant([70]), b.constant([150]), b.constant([1]))
    y = b.conv(b.node("Relu", b.conv(y, 80, 40, 3)), 40, 8, 1)
    path = b.save(tmp_path / "m.onnx", (batch, 3, 8, 8), y, (batch, 8, 8, 8))
    x = np.random.default_rng(1).standard_normal((batch, 3, 8, 8)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    (got,) = api.compile(path, dtype="fp32").run({"x": x}, sanitize=True).values()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
