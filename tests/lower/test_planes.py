"""Images in scratchpad that come and leave as rows of one channel after the other, and permutations made by whole matrices."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import onnx
import pytest
from frontend.onnx.onnx_build import info, model, node
from hypothesis import given
from hypothesis import strategies as st
from support.cnn_models import CnnBuilder
from support.one_op import MACHINES

from tx8fast import api
from tx8fast.graph_table import GroupRecord, OpRecord, TensorSpec
from tx8fast.lower import NotLowerable, lower
from tx8fast.lower.movement import turned
from tx8fast.lower.planes import Intake

TX8 = MACHINES["tx8"]
CLOSE = {"fp32": 1e-5, "bf16": 3e-2, "fp16": 4e-3}
SIZES = st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=1, max_size=5)


@given(SIZES, st.data())
def test_turned_matrices_are_the_permutation(sizes, data):
    perm = data.draw(st.permutations(range(len(sizes))))
    x = np.arange(math.prod(sizes)).reshape(sizes)
    want = x.transpose(perm)
    found = turned(want.shape, perm)
    if found is not None:
        n, rows, columns = found
        assert (x.reshape(n, rows, columns).transpose(0, 2, 1).reshape(want.shape) == want).all()
    elif len([n for n in sizes if n > 1]) < 3:
        assert (x.ravel() == want.ravel()).all(), (
            "of two dimensions each permutation that moves something turns a matrix"
        )


def test_a_permutation_of_three_dimensions_backwards_is_none():
    assert turned((3, 4, 5), (2, 1, 0)) is None
    assert [p for p in itertools.permutations(range(3)) if turned((2, 3, 4), p)] == [(0, 2, 1), (1, 2, 0), (2, 0, 1)]


def agrees(path, shape, dtype: str, io_dtype: str | None = None) -> api.CompiledModel:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype=dtype, io_dtype=io_dtype)
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    assert np.abs(got.astype(np.float64) - want).max() <= CLOSE[dtype] * np.abs(want).max()
    return compiled


@pytest.mark.parametrize("dtype", ["bf16", "fp32", "fp16"])
@pytest.mark.parametrize(("batch", "channels", "out", "size"), [
    (1, 64, 64, (9, 7)), (2, 100, 130, (5, 6)), (17, 70, 3, (8, 8)), (8, 130, 260, (3, 5)), (3, 3, 96, (33, 17)),
    (16, 128, 40, (1, 9)), (25, 64, 64, (9, 7)), (32, 64, 70, (12, 9)),
])  # fmt: skip
def test_streams_of_planes(tmp_path, batch, channels, out, size, dtype) -> None:
    """One launch: several blocks of channels, some of them not whole, and what is converted on the way in and out."""
    b = CnnBuilder(seed=1)
    y = b.node("Relu", b.conv("x", channels, 48, 3))
    y = b.conv(y, 48, out, 1)
    path = b.save(tmp_path / "net.onnx", (batch, channels, *size), y, (batch, out, *size))
    compiled = agrees(path, (batch, channels, *size), dtype, "bf16" if dtype == "bf16" else None)
    (segment,) = compiled.program.segments
    assert "stream" in segment.info["engine"]


def test_what_leaves_is_stored_once(tmp_path) -> None:
    """A convolution with squeeze and excite around a residual: what it loads and stores is little more than what there is."""
    for batch, gate in ((1, "conv"), (8, "gemm"), (16, "mean")):
        b = CnnBuilder(seed=2)
        y = b.conv(b.node("Relu", b.conv("x", 64, 64, 3)), 64, 64, 3)
        y = b.node("Add", "x", b.node("Mul", y, excited(b, y, 64, 16, gate)))
        path = b.save(tmp_path / "net.onnx", (batch, 64, 32, 32), b.node("Relu", y), (batch, 64, 32, 32))
        compiled = agrees(path, (batch, 64, 32, 32), "bf16", "bf16")
        (segment,) = compiled.program.segments
        moved = sum(g.ddr_bytes * g.count for g in compiled.simulate().groups)
        weights = sum(math.prod(w.dims) for w in onnx.load(path).graph.initializer)
        assert moved <= 1.15 * 2 * (2 * batch * 64 * 32 * 32 + weights), batch


def excited(b: CnnBuilder, x: str, channels: int, mid: int, how: str) -> str:
    """The gate: by convolutions, by products of flattened means, or of means without dimensions of one."""
    if how == "conv":
        m = b.node("GlobalAveragePool", x)
        return b.node("Sigmoid", b.conv(b.node("Relu", b.conv(m, channels, mid, 1)), mid, channels, 1))
    m = (
        b.node("ReduceMean", x, axes=[2, 3], keepdims=0)
        if how == "mean"
        else b.node("Flatten", b.node("GlobalAveragePool", x))
    )
    m = b.node("Relu", b.node("Gemm", m, b.weight((mid, channels), 0.1), b.weight((mid,), 0.1), transB=1))
    m = b.node(
        "Sigmoid", b.node("Add", b.node("MatMul", m, b.weight((mid, channels), 0.1)), b.weight((channels,), 0.1))
    )
    return b.node("Reshape", m, b.constant([-1, channels, 1, 1]))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("shape", "perm"), [
    ((3, 70, 130), (0, 2, 1)), ((129, 66), (1, 0)), ((5, 6, 7, 8), (2, 3, 0, 1)), ((4, 5, 6), (2, 1, 0)), ((1, 9000, 3), (2, 0, 1)),
])  # fmt: skip
def test_dense_transpositions(tmp_path, shape, perm, dtype) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    out = tuple(shape[p] for p in perm)
    steps = [node("Neg", "x", "a"), node("Transpose", "a", "y", perm=list(perm))]
    onnx.save(model(steps, [info("x", shape)], [info("y", out)], {}), tmp_path / "m.onnx")
    compiled = api.compile(tmp_path / "m.onnx", dtype=dtype)
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    assert np.abs(got + x.transpose(perm)).max() <= CLOSE[dtype] * np.abs(x).max()


def test_an_odd_transposition_takes_little_longer_than_a_copy(tmp_path, monkeypatch) -> None:
    """Item by item it takes more than twice as long."""

    def cycles(perm: list[int]) -> int:
        out = tuple((8, 1024, 512)[p] for p in perm)
        steps = [node("Transpose", "x", "y", perm=perm)]
        onnx.save(model(steps, [info("x", (8, 1024, 512))], [info("y", out)], {}), tmp_path / "m.onnx")
        return api.compile(tmp_path / "m.onnx", dtype="bf16", io_dtype="bf16").simulate().cycles

    whole = cycles([0, 2, 1])
    assert whole < 1.5 * cycles([1, 0, 2])
    monkeypatch.setattr("tx8fast.lower.movement.turned", lambda lens, perm: None)
    assert cycles([0, 2, 1]) > 2 * whole


def test_ops_that_do_not_follow_each_other_turn_nothing() -> None:
    """A group may come from a file or a table: kinds alone say nothing."""
    planes, dense = TensorSpec((2, 96, 5, 6), "bf16"), TensorSpec((2, 5, 6, 96), "bf16")
    blocked = TensorSpec((2, 5, 6, 96), "bf16", "blocked")
    ops = (
        OpRecord("transpose", (("perm", (0, 2, 3, 1)),), (planes,), (dense,), None),
        OpRecord("channel_norm", (("to", "align"),), (dense,), (blocked,), None),
    )
    linked = GroupRecord(ops, ((("in", 0),), (("op", 0),)), (planes,), (1,))
    assert isinstance(lower(linked, TX8)[0], Intake)
    for wrong in (
        replace(linked, wires=((("in", 0),), (("in", 1),)), operands=(planes, dense)),
        replace(linked, outputs=(0, 1)),
    ):
        with pytest.raises(NotLowerable, match="each other's results"):
            lower(wrong, TX8)


def test_an_image_that_is_half_turned_for_somebody_else(tmp_path) -> None:
    """Planes in the format of the computation have a reader besides the result in another format."""
    onnxruntime = pytest.importorskip("onnxruntime")
    b = CnnBuilder(seed=5)
    y = b.node("Relu", b.conv(b.conv("x", 8, 96, 3), 96, 96, 1))
    z = b.node("Softmax", y, axis=-1)
    path = b.save(tmp_path / "net.onnx", (2, 8, 5, 7), y, (2, 96, 5, 7))
    known = onnx.load(path)
    known.graph.output.append(onnx.helper.make_tensor_value_info(z, 1, (2, 96, 5, 7)))
    onnx.save(known, path)
    x = np.random.default_rng(0).standard_normal((2, 8, 5, 7)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    for opt in (1, 2):
        got = api.compile(path, dtype="bf16", opt=opt).run({"x": x}, sanitize=True)
        for a, b_ in zip(got.values(), want, strict=True):
            assert np.abs(a - b_).max() <= 3e-2 * np.abs(b_).max()


@pytest.mark.parametrize("shape", [(5000, 3), (3, 8191, 5), (4, 20000), (4097, 2, 3), (1, 4099, 7)])
def test_matrices_as_long_as_fields_are(tmp_path, shape) -> None:
    """Batches, rows and columns beyond what a field of an instruction holds (4,096, and 16,384 channels)."""
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    out = tuple(shape[p] for p in perm)
    onnx.save(
        model([node("Transpose", "x", "y", perm=list(perm))], [info("x", shape)], [info("y", out)], {}),
        tmp_path / "m.onnx",
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    compiled = api.compile(tmp_path / "m.onnx")
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    assert (got == x.transpose(perm)).all()
    turned_ones = [r for s in compiled.program.segments for c in s.codes for r in c if r["opcode"] == 0x82]
    assert all(max(r["p"][:3]) <= 4096 and r["p"][3] <= 16384 for r in turned_ones)


def test_pools_of_several_blocks_work_block_by_block_where_there_is_no_room(tmp_path, monkeypatch) -> None:
    """An average with a border works in f32 on all of an image: of 256 channels at once that would not fit."""
    monkeypatch.setattr("tx8fast.lower.MAX_BANDED", 0)  # bands of rows take less time
    b = CnnBuilder(seed=6)
    y = b.node("AveragePool", b.node("Relu", b.conv("x", 16, 256, 1)), kernel_shape=[3, 3], pads=[1] * 4)
    path = b.save(tmp_path / "net.onnx", (16, 16, 40, 40), b.conv(y, 256, 16, 1), (16, 16, 40, 40))
    (segment,) = agrees(path, (16, 16, 40, 40), "bf16", "bf16").program.segments
    assert segment.info["engine"] == "conv stream"
