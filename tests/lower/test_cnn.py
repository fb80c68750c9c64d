"""Groups that a convolution leads: fused element-wise ops, chains of convolutions and pools, whole small networks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cnn_models import CnnBuilder
from support.one_op import Arg, Case, build, check_drawn, grouped
from support.thorough import few_examples

from tx8fast import api
from tx8fast.lower import NotLowerable, lower
from tx8fast.lower.conv_chain import ConvChain
from tx8fast.lower.fused import Fused


def agrees(case: Case, seed: int, kind: type) -> None:
    low = lower(case.records[0], case.machine)[0]
    assert isinstance(low, kind), low
    rng = np.random.default_rng(seed)
    inputs = [a.values(rng) for a in case.args]
    # several bf16 results in a row: each rounds once, in another order than the reference adds; of f32 sums of a thousand
    # products a clamp leaves values that are small against what was summed
    slack = {"bf16": 3e-2, "f32": 1e-4}.get(case.args[0].dtype)
    check_drawn(case, low, rng, inputs, tolerance=slack)


def blocked(dtype: str, *shape: int) -> Arg:
    return Arg(shape, dtype, "blocked", -1.0, 1.0)


@st.composite
def fused(draw):
    """conv (+ add of another image) (+ clamp or relu)."""
    dtype, n, h, w = (
        draw(st.sampled_from(["bf16", "f32"])),
        draw(st.integers(1, 2)),
        draw(st.integers(3, 11)),
        draw(st.integers(3, 11)),
    )
    c, o = draw(st.sampled_from([3, 33, 64, 96, 130])), draw(st.sampled_from([4, 64, 72, 130]))
    k, stride = draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 2]))
    kind = draw(st.sampled_from(["dense", "depthwise", "grouped"]))
    groups = 1
    if kind != "dense":
        c = o = draw(st.sampled_from([64, 128]))
        groups = c if kind == "depthwise" else 2 if c == 128 else 8
    pad = (k // 2, k // 2)
    oh, ow = [(s + 2 * pad[0] - k) // stride + 1 for s in (h, w)]
    residual, act = draw(st.booleans()), draw(st.sampled_from(["relu", "clamp", "silu"]))
    args = [blocked(dtype, n, h, w, c), blocked(dtype, k, k, o, c // groups), Arg((o,), dtype)]
    if residual:
        args.append(blocked(dtype, n, oh, ow, o))

    def body(b, x, weight, bias, *rest):
        y = b.op(
            "conv",
            x,
            weight,
            bias,
            stride=(stride, stride),
            pad_lo=pad,
            pad_hi=pad,
            groups=groups,
            mem_layout="blocked",
        )
        if rest:
            y = b.op("add", y.result, rest[0], mem_layout="blocked")
        attrs = {"lo": 0.0, "hi": 1.0} if act == "clamp" else {}
        return b.op(act, y.result, mem_layout="blocked", **attrs).result

    return grouped(build(args, body, draw(st.sampled_from(["tx8", "test_2x2"]))))


@few_examples
@given(fused(), st.integers(0, 1 << 20))
def test_convolution_leads_a_group(case, seed) -> None:
    agrees(case, seed, Fused)


def bottleneck(dtype: str, n: int, size: tuple[int, int], c: int, mid: int, stride: int, machine: str) -> Case:
    """Three convolutions and the sum with the input or its projection."""
    out = 2 * c if stride > 1 else c
    args = [blocked(dtype, n, *size, c), blocked(dtype, 1, 1, mid, c), Arg((mid,), dtype), blocked(dtype, 3, 3, mid, mid),
            blocked(dtype, 1, 1, out, mid), Arg((out,), dtype)]  # fmt: skip
    if stride > 1:
        args.append(blocked(dtype, 1, 1, out, c))

    def body(b, x, w1, b1, w2, w3, b3, *project):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        y = op("relu", op("conv", x, w1, b1))
        y = op("conv", y, w2, None, stride=(stride, stride), pad_lo=(1, 1), pad_hi=(1, 1), act="relu")
        y = op("conv", y, w3, b3)
        skip = op("conv", x, project[0], None, stride=(stride, stride)) if project else x
        return op("relu", op("add", y, skip))

    return grouped(build(args, body, machine))


@few_examples
@given(
    st.sampled_from(["bf16", "f32"]), st.integers(1, 3), st.tuples(st.integers(2, 13), st.integers(2, 9)),
    st.sampled_from([20, 64, 100]), st.sampled_from([8, 64]), st.sampled_from([1, 2]),
    st.sampled_from(["tx8", "test_2x2"]), st.integers(0, 1 << 20),
)  # fmt: skip
def test_bottleneck_in_scratchpad(dtype, n, size, c, mid, stride, machine, seed) -> None:
    agrees(bottleneck(dtype, n, size, c, mid, stride, machine), seed, ConvChain)


@few_examples
@given(
    st.sampled_from(["max_pool", "avg_pool"]), st.booleans(), st.integers(5, 20), st.sampled_from([24, 64, 96]),
    st.integers(0, 1 << 20),
)  # fmt: skip
def test_stem_and_separable_layers(pool, count_pad, height, c, seed) -> None:
    """conv, pool, depthwise, pointwise: windows of every kind widen the band."""
    args = [blocked("f32", 2, height, 14, 3), blocked("f32", 5, 5, c, 3), blocked("f32", 3, 3, c, 1),
            blocked("f32", 1, 1, 70, c), Arg((70,), "f32")]  # fmt: skip

    def body(b, x, w1, w2, w3, b3):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        pads = {"pad_lo": (1, 1), "pad_hi": (1, 1)}
        y = op("conv", x, w1, None, stride=(2, 2), pad_lo=(2, 2), pad_hi=(2, 2), act="relu")
        extra = {"count_pad": count_pad} if pool == "avg_pool" else {}
        y = op(pool, y, kernel=(3, 3), stride=(2, 2), **pads, **extra)
        y = op("clamp", op("conv", y, w2, None, groups=c, **pads), lo=0.0, hi=6.0)
        return op("conv", y, w3, b3)

    agrees(grouped(build(args, body)), seed, ConvChain)


def test_sum_of_two_products() -> None:
    """Only one of two operands may be overwritten by their sum."""
    args = [blocked("f32", 64, 128), blocked("f32", 128, 96), blocked("f32", 128, 96)]

    def body(b, x, w, v):
        op = lambda kind, *values: b.op(kind, *values, mem_layout="blocked").result  # noqa: E731
        return op("add", op("gemm", x, w), op("gemm", x, v))

    agrees(grouped(build(args, body)), 0, Fused)


def test_inner_results_must_not_leave_a_chain() -> None:
    case = bottleneck("f32", 1, (6, 6), 64, 8, 1, "tx8")
    record = dataclasses.replace(case.records[0], outputs=(0, len(case.records[0].ops) - 1))
    with pytest.raises(NotLowerable, match="one result"):
        lower(record, case.machine)


def test_stages_share_one_buffer() -> None:
    """What is never alive together shares bytes: far less than the sum of all results."""
    case = bottleneck("bf16", 1, (32, 32), 256, 64, 1, "tx8")
    low = lower(case.records[0], case.machine)[0]
    most = low.most_rows(8)
    assert most["op", 0] == most["in", 0] == 10 and most["op", 2] == 8
    (arena,) = low.scratch_bytes((0, 0), (1, 8))
    assert arena < sum(size for _, size, _ in low._wishes(most))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_small_network_runs_on_the_engines(tmp_path, dtype) -> None:
    """Every kind of layer in one ONNX model: nothing is left to the kernel cores."""
    onnxruntime = pytest.importorskip("onnxruntime")
    b = CnnBuilder(seed=3)
    y = b.node("Relu", b.conv("x", 3, 64, 7, 2))
    y = b.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    z = b.node("Relu", b.conv(b.node("Relu", b.conv(y, 64, 64, 3)), 64, 64, 3, groups=16))
    y = b.node("Add", y, b.conv(b.node("Clip", b.conv(z, 64, 64, 3, groups=64)), 64, 64, 1))
    y = b.node("AveragePool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    y = b.node("Flatten", b.node("GlobalAveragePool", b.conv(y, 64, 128, 1, 2)))
    y = b.node("Gemm", y, b.weight((10, 128), 0.1), b.weight((10,), 0.1), transB=1)
    path = b.save(tmp_path / "net.onnx", (2, 3, 40, 36), y, (2, 10))
    x = np.random.default_rng(0).standard_normal((2, 3, 40, 36)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype=dtype)
    assert not compiled.program.meta["kernel_core"]
    (got,) = compiled.run({"x": x}).values()
    error = np.abs(got.astype(np.float32) - want).max() / np.abs(want).max()
    assert error < (1e-4 if dtype == "fp32" else 5e-2)
