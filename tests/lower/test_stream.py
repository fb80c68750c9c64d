"""Networks whose images stay in scratchpad while the weights stream by, against the reference and under the sanitizer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from lower.test_cnn import blocked, bottleneck, grouped
from support.cnn_models import CnnBuilder, resnet50
from support.one_op import Arg, Case, build, compare, with_plan

from tx8fast import api, isa
from tx8fast.api import CompiledProgram
from tx8fast.errors import InfeasibleError
from tx8fast.lower import NotLowerable, rounds
from tx8fast.lower.stream import ConvStream, smallest_first
from tx8fast.program.verify import verify
from tx8fast.search.stream_trial import stream_plan

NO_SHRINK = (Phase.explicit, Phase.generate)


def streamed(case: Case, sharing: bool = True, spare: float = 1.0, share_min: int = 1) -> tuple[Case, ConvStream]:
    """Return the case as a stream. spare: of the room beside the images, what it may use; share_min: bytes of the
    smallest weight that tiles load together."""
    old = rounds.SHARE_MIN_BYTES
    rounds.SHARE_MIN_BYTES = share_min
    try:
        low = ConvStream(case.records[0], case.machine)
        low.sharing = sharing
        low.image_of = low._images()
        images = max(low._alive())
        low.capacity = images + int((low.capacity - images) * spare)
        plan = stream_plan(low, case.machine, "case")
    finally:
        rounds.SHARE_MIN_BYTES = old
    return with_plan(case, plan, low), low


def agrees(case: Case, seed: int, tolerance: float | None = None) -> None:
    verify(case.program)
    rng = np.random.default_rng(seed)
    feed = [a.values(rng) for a in case.args]
    got = CompiledProgram(case.program).run({f"x{i}": a for i, a in enumerate(feed)}, sanitize=True)
    (want,) = case.expected(feed)
    # several bf16 results in a row: each rounds once, in another order than the reference adds
    compare(got["y0"], want, 3e-2 if case.args[0].dtype == "bf16" else tolerance)


@settings(max_examples=5, phases=NO_SHRINK)
@given(
    st.sampled_from(["bf16", "f32"]), st.integers(1, 9), st.tuples(st.integers(2, 9), st.integers(2, 9)),
    st.sampled_from([20, 64, 100]), st.sampled_from([8, 130]), st.sampled_from([1, 2]), st.sampled_from([1.0, 0.3, 0.1]),
    st.booleans(), st.integers(0, 1 << 20),
)  # fmt: skip
@example("bf16", 2, (4, 4), 100, 8, 2, 1.0, False, 0)  # the last row is behind the last window
def test_bottleneck(dtype, n, size, c, mid, stride, spare, sharing, seed) -> None:
    """One image and several per tile, the last tile short of one; with and without sharing; much room and little."""
    case = bottleneck(dtype, n, size, c, mid, stride, "test_2x2")
    try:
        case, _ = streamed(case, sharing, spare)
    except (NotLowerable, InfeasibleError):
        assume(False)
    agrees(case, seed)


@st.composite
def networks(draw, counts=(2, 4, 7, 8)):
    """A few layers of every kind, each on the newest image or one before it."""
    n, dtype = draw(st.sampled_from(counts)), draw(st.sampled_from(["bf16", "f32"]))
    plan = draw(st.lists(st.sampled_from(["conv", "wide", "depthwise", "grouped", "pool", "avg", "silu", "add", "scale"]),
                         min_size=3, max_size=9))  # fmt: skip
    args = [blocked(dtype, n, 9, 8, 64)]
    layers = []
    for kind in ["conv", *plan, "conv"]:
        shape = {"conv": (3, 3, 64, 64), "wide": (1, 1, 64, 64), "depthwise": (3, 3, 64, 1), "grouped": (3, 3, 64, 16)}
        layers.append((kind, len(args)))
        if kind in shape:
            args.append(dataclasses.replace(blocked(dtype, *shape[kind]), lo=-0.1, hi=0.1))
        elif kind == "scale":
            args.append(Arg((64,), dtype, "dense", 0.5, 1.0))
    pick = draw(st.lists(st.integers(0, 3), min_size=len(layers), max_size=len(layers)))

    def body(b, x, *params):
        op = lambda kind, *v, **a: b.op(kind, *v, mem_layout="blocked", **a).result  # noqa: E731
        pads = {"pad_lo": (1, 1), "pad_hi": (1, 1)}
        made = [x]
        for (kind, at), back in zip(layers, pick, strict=True):
            y = made[-1]
            if kind in ("conv", "wide", "depthwise", "grouped"):
                groups = {"depthwise": 64, "grouped": 4}.get(kind, 1)
                y = op("conv", y, params[at - 1], None, groups=groups, **(pads if kind != "wide" else {}))
            elif kind in ("pool", "avg"):
                y = op("max_pool" if kind == "pool" else "avg_pool", y, kernel=(3, 3), **pads)
            elif kind == "silu":
                y = op("silu", y)
            elif kind == "scale":
                y = op("mul", y, params[at - 1])
            else:
                y = op("relu", op("add", y, made[max(-len(made), -1 - back)]))
            made.append(y)
        return made[-1]

    return args, body


@settings(max_examples=5, phases=NO_SHRINK)
@given(
    networks(), st.sampled_from([1.0, 0.05]), st.booleans(), st.sampled_from([1, 16384]), st.sampled_from(["port", "no port"]),
    st.integers(0, 1 << 20),
)  # fmt: skip
@pytest.mark.slow
def test_layers_of_every_kind(network, spare, sharing, share_min, machine, seed) -> None:
    """Where what arrives shares a port, tiles copy their own parts of the weights."""
    try:
        case, _ = streamed(grouped(build(*network, machine)), sharing, spare, share_min)
    except (NotLowerable, InfeasibleError):
        assume(False)
    agrees(case, seed, 1e-4)


def network(folder, batch: int):
    """A model with an input of planes, every kind of layer, a repeated block, and a mean over positions."""
    b = CnnBuilder(seed=3)
    y = b.node("Relu", b.conv("x", 3, 64, 7, 2))
    y = b.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for _ in range(3):
        z = b.node("Relu", b.conv(y, 64, 64, 1))
        z = b.node("Relu", b.conv(z, 64, 64, 3))
        y = b.node("Relu", b.node("Add", b.conv(z, 64, 64, 1), y))
    z = b.node("Relu", b.conv(b.node("Relu", b.conv(y, 64, 64, 3)), 64, 64, 3, groups=16))
    y = b.node("Add", y, b.conv(b.node("Clip", b.conv(z, 64, 64, 3, groups=64)), 64, 64, 1))
    y = b.node("AveragePool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    y = b.node("Flatten", b.node("GlobalAveragePool", b.conv(y, 64, 128, 1, 2)))
    y = b.node("Gemm", y, b.weight((10, 128), 0.1), b.weight((10,), 0.1), transB=1)
    return b.save(folder / "net.onnx", (batch, 3, 24, 22), y, (batch, 10))


@pytest.mark.parametrize(("batch", "dtype"), [(19, "bf16"), (47, "fp32")])
def test_network_with_planes_in_and_means_out(tmp_path, batch, dtype) -> None:
    """One stream from the input's planes to the mean: no image crosses the DDR. 19: the last tile is one image short."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = network(tmp_path, batch)
    x = np.random.default_rng(0).standard_normal((batch, 3, 24, 22)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype=dtype)
    assert not compiled.program.meta["kernel_core"]
    (stream,) = (s for s in compiled.program.segments if s.info["engine"] == "conv stream")
    kinds = stream.info["op"].split("+")
    assert kinds.count("conv") == 15 and kinds[-1] == "reduce" and "channel_norm" in kinds
    (got,) = compiled.run({"x": x}, sanitize=batch == 19).values()
    error = np.abs(got.astype(np.float32) - want).max() / np.abs(want).max()
    assert error < (1e-4 if dtype == "fp32" else 5e-2)


@pytest.mark.parametrize("batch", [1, 2, 12])
@pytest.mark.parametrize(("size", "stride"), [(4, 2), (8, 4), (9, 3), (16, 4)])
@pytest.mark.slow(but_every=5)
def test_rows_that_every_window_steps_over_are_not_made(tmp_path, batch, size, stride) -> None:
    """One tile per image, and several; bands of rows of one image, and of a tile."""
    onnxruntime = pytest.importorskip("onnxruntime")
    b = CnnBuilder(seed=3)
    y = b.node("Relu", b.conv(b.conv("x", 3, 16, 3), 16, 40, 1, stride))
    left = -(-size // stride)
    path = b.save(tmp_path / "net.onnx", (batch, 3, size, size), y, (batch, 40, left, left))
    x = np.random.default_rng(0).standard_normal((batch, 3, size, size)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype="fp32")
    assert any(s.info["engine"] in ("conv stream", "spread stream") for s in compiled.program.segments)
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize(("batch", "size", "stride"), [(2, 5, 2), (1, 12, 4), (3, 9, 3), (18, 7, 2)])
def test_weights_shared_by_tiles_of_which_some_have_no_rows(tmp_path, monkeypatch, batch, size, stride) -> None:
    """Of several tiles of an image some have rows that nobody reads, between others: they load no part of the weights."""
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr("tx8fast.lower.MAX_BANDED", 0)  # bands of rows take less time
    b = CnnBuilder(seed=3)
    y = b.conv(b.conv("x", 63, 3, 5), 3, 1, 1, stride)
    left = -(-size // stride)
    path = b.save(tmp_path / "net.onnx", (batch, 63, size, size), y, (batch, 1, left, left))
    x = np.random.default_rng(0).standard_normal((batch, 63, size, size)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype="fp32")
    assert any(s.info["engine"] == "spread stream" for s in compiled.program.segments)
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize("batch", [2, 12, 33])
@pytest.mark.parametrize(("size", "kernel", "stride"), [(3, 2, 2), (9, 2, 4), (16, 3, 5), (17, 1, 3)])
@pytest.mark.slow(but_every=5)
def test_rows_behind_the_last_window_of_a_pool(tmp_path, batch, size, kernel, stride) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    b = CnnBuilder(seed=3)
    y = b.node("MaxPool", b.conv("x", 2, 7, 1), kernel_shape=[kernel] * 2, strides=[stride] * 2)
    left = (size - kernel) // stride + 1
    path = b.save(tmp_path / "net.onnx", (batch, 2, size, size), y, (batch, 7, left, left))
    x = np.random.default_rng(0).standard_normal((batch, 2, size, size)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    for dtype, close in (("fp32", 1e-5), ("fp16", 1e-2)):
        (got,) = api.compile(path, dtype=dtype).run({"x": x}, sanitize=True).values()
        assert np.abs(got.astype(np.float32) - want).max() < close * np.abs(want).max()


def test_narrow_layers_run_on_the_engines(tmp_path) -> None:
    """Inverted residuals: 16, 96 and 24 channels fill no whole blocks, and nothing is left to the kernel cores."""
    onnxruntime = pytest.importorskip("onnxruntime")
    b = CnnBuilder(seed=4)
    y, c = b.node("Relu", b.conv("x", 3, 16, 3, 2)), 16
    for out, stride in ((24, 2), (24, 1), (40, 2), (40, 1)):
        z = b.node("Relu", b.conv(y, c, 6 * c, 1))
        z = b.conv(b.node("Relu", b.conv(z, 6 * c, 6 * c, 3, stride, groups=6 * c)), 6 * c, out, 1)
        y, c = b.node("Add", y, z) if stride == 1 else z, out
    path = b.save(tmp_path / "net.onnx", (16, 3, 32, 32), y, (16, 40, 4, 4))
    x = np.random.default_rng(0).standard_normal((16, 3, 32, 32)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype="bf16")
    assert not compiled.program.meta["kernel_core"]
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    assert np.abs(got.astype(np.float32) - want).max() < 5e-2 * np.abs(want).max()


def test_sum_and_relu_are_the_convolutions_last_steps() -> None:
    """A bottleneck is three instructions per set of weights; the sum takes the bytes of the image it adds to."""
    case, low = streamed(bottleneck("bf16", 4, (6, 6), 64, 64, 1, "test_2x2"))
    assert [s.low.record.kind for s in low.stages] == ["conv"] * 3
    assert low.image_of[2] == ("in", 0)
    opcodes = case.segment.codes[0]["opcode"]
    assert (opcodes >> 8 == 2).sum() == len(low.parts) == 3


def test_order_of_members_frees_the_larger_image_first() -> None:
    """The projection of a bottleneck halves the image, so it waits until the main branch is through."""
    record = bottleneck("bf16", 4, (8, 8), 64, 8, 2, "test_2x2").records[0]
    kinds = [op.results[0].shape for op in smallest_first(record).ops]
    assert kinds.index((4, 4, 4, 128)) > kinds.index((4, 4, 4, 8)) > kinds.index((4, 8, 8, 8))


def test_too_large_images_are_refused() -> None:
    case = bottleneck("f32", 4, (64, 64), 128, 128, 1, "test_2x2")
    low = ConvStream(case.records[0], case.machine)
    with pytest.raises(InfeasibleError, match=r"images need 6,291,456 bytes of scratchpad"):
        low.lay_out("block", lambda: 0)


@pytest.mark.parametrize("images", [5, 8, 11])
def test_two_images_have_rounds_between_their_weights(images) -> None:
    """Rounds without weights of their own are there so that the next image's have time."""
    case, low = streamed(bottleneck("f32", images, (8, 8), 64, 8, 1, "test_2x2"))
    assert low.images_per_tile > 1 and len(low.rounds) == rounds.FEWEST_ROUNDS
    agrees(case, 1)


@pytest.mark.parametrize(("dtype", "images"), [("bf16", 1), ("f32", 3)])
def test_tiles_without_an_image_wait(dtype, images) -> None:
    case, low = streamed(bottleneck(dtype, images, (8, 8), 64, 8, 1, "test_2x2"))
    assert low.tiles == images
    agrees(case, 1)


@pytest.mark.parametrize("machine", ["port", "test_2x2"])
@pytest.mark.parametrize("images", [1, 2, 3, 5])
@pytest.mark.slow(but_every=5)
def test_weights_go_to_tiles_that_have_an_image_for_them(machine, images) -> None:
    """Tiles that only load send their parts, and get none; nor does the last tile in the round of an image that it has not."""
    case, low = streamed(bottleneck("bf16", images, (8, 8), 64, 136, 1, machine), spare=0.3 if images > 4 else 1.0)
    assert case.segment.arguments and low.loaders > 1 and low.images_per_tile == -(-images // 4)
    opcodes = {name: isa.INSTRUCTIONS[name].OPCODE for name in ("send", "recv")}
    codes = case.segment.codes
    to = [int(m) for c in codes for m in c["p"][c["opcode"] == opcodes["send"]][:, 1]]
    last = images - (low.images_per_tile - 1) * low.tiles  # tiles with as many images as any
    assert to and all(0 < m < 1 << low.tiles for m in to)
    assert low.images_per_tile == 1 or any(m < 1 << last for m in to)
    assert [bool((c["opcode"] == opcodes["recv"]).any()) for c in codes[: low.loaders]] == [
        k < low.tiles for k in range(low.loaders)
    ]
    agrees(case, 1)


@pytest.mark.slow
def test_fewer_images_do_not_take_longer(tmp_path) -> None:
    """ResNet-50 on 16 tiles with less than an image for every second tile: the search takes what it costs as it is."""
    few, half = (api.compile(resnet50(tmp_path / f"{n}.onnx", n), dtype="bf16").simulate().cycles for n in (6, 8))
    assert few <= 1.05 * half
