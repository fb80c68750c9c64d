"""Networks with several tiles per image, against the reference and under the sanitizer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from lower.test_cnn import bottleneck, grouped
from lower.test_stream import agrees, network, networks
from support.cnn_models import resnet50
from support.one_op import MACHINES, Case, build, with_plan

from tx8fast import api, isa
from tx8fast.errors import InfeasibleError
from tx8fast.lower import NotLowerable, rounds
from tx8fast.lower.rounds import Stream
from tx8fast.lower.spread import SpreadStream
from tx8fast.search import planner
from tx8fast.search.stream_trial import stream_plan
from tx8fast.tile.tiling import Plan

NO_SHRINK = (Phase.explicit, Phase.generate)


def spread(case: Case, spare: float = 1.0, share_min: int = 1) -> tuple[Case, SpreadStream]:
    """Return the case with several tiles per image. spare: of the room beside the images, what it may use; share_min: bytes of the
    smallest weight that tiles load together."""
    old = rounds.SHARE_MIN_BYTES
    rounds.SHARE_MIN_BYTES = share_min
    try:
        low = SpreadStream(case.records[0], case.machine)
        low.image_of = low._images()
        images = max(low._alive())
        low.capacity = images + int((low.capacity - images) * spare)
        plan = stream_plan(low, case.machine, "case")
        return with_plan(case, plan, low), low
    finally:
        rounds.SHARE_MIN_BYTES = old


@settings(max_examples=5, phases=NO_SHRINK)
@given(
    st.sampled_from(["bf16", "f32"]), st.sampled_from([1, 2, 5, 6]), st.tuples(st.integers(2, 9), st.integers(2, 9)),
    st.sampled_from([20, 64, 100]), st.sampled_from([8, 130]), st.sampled_from([1, 2]), st.sampled_from([1.0, 0.3]),
    st.sampled_from([1, 16384]), st.integers(0, 1 << 20),
)  # fmt: skip
@example("bf16", 1, (9, 9), 100, 130, 2, 1.0, 1, 0)  # by rows, sums over several blocks
@example(
    "bf16", 1, (15, 15), 64, 129, 1, 1.0, 1, 0
)  # weights of a single channel are no multiple of 256 bytes per block
@example("f32", 2, (3, 2), 130, 130, 1, 1.0, 1, 0)  # by channels
def test_bottleneck(dtype, n, size, c, mid, stride, spare, share_min, seed) -> None:
    """One or two images on four tiles, and such images behind one of every tile."""
    try:
        case, _ = spread(bottleneck(dtype, n, size, c, mid, stride, "test_2x2"), spare, share_min)
    except (NotLowerable, InfeasibleError):
        assume(False)
    agrees(case, seed)


@settings(max_examples=5, phases=NO_SHRINK)
@given(
    networks((1, 2, 5)), st.sampled_from([1.0, 0.3]), st.sampled_from([1, 16384]), st.sampled_from(["port", "no port"]),
    st.integers(0, 1 << 20),
)  # fmt: skip
def test_layers_of_every_kind(layers, spare, share_min, machine, seed) -> None:
    try:
        case, _ = spread(grouped(build(*layers, machine)), spare, share_min)
    except (NotLowerable, InfeasibleError):
        assume(False)
    agrees(case, seed, 1e-4)


@pytest.mark.parametrize(("batch", "dtype"), [(1, "bf16"), (3, "fp32"), (17, "bf16")])
@pytest.mark.slow(but_every=4)
def test_network_with_planes_in_and_means_out(tmp_path, monkeypatch, batch, dtype) -> None:
    """From the input's planes to the mean, images on 16 tiles and one more behind them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(planner, "stream_plan", lambda *a: favoured(stream_plan(*a), a[0]))
    path = network(tmp_path, batch)
    x = np.random.default_rng(0).standard_normal((batch, 3, 24, 22)).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    compiled = api.compile(path, dtype=dtype)
    assert [s.info["engine"] for s in compiled.program.segments].count("spread stream") == 1
    (got,) = compiled.run({"x": x}, sanitize=True).values()
    error = np.abs(got.astype(np.float32) - want).max() / np.abs(want).max()
    assert error < (1e-4 if dtype == "fp32" else 5e-2)


def favoured(plan: Plan, low: Stream) -> Plan:
    return plan.but(estimate_cycles=1) if low.per_image > 1 else plan


def test_members_with_many_positions_go_by_rows() -> None:
    """Few positions and many channels: a tile has channels, and what it makes goes to all; else rows, which a product needs alone."""
    case, low = spread(bottleneck("bf16", 1, (16, 16), 64, 64, 1, "test_2x2"))
    assert low.by_rows == [True] * 3
    opcodes = [code["opcode"] for code in case.segment.codes]
    sends = sum((o == isa.INSTRUCTIONS["send"].OPCODE).sum() for o in opcodes)
    # of the product's result a row to each neighbour; of the block that comes in, rows that others need; never the window's own
    assert all((low.takers(("op", i), pieces(low, i)) != [[]] * 4) == (i == 0) for i in range(3)) and sends
    _, low = spread(bottleneck("bf16", 1, (4, 4), 256, 256, 1, "test_2x2"))
    assert low.by_rows == [False] * 3


def pieces(low: SpreadStream, i: int) -> list[list[tuple[int, int]]]:
    return [[r for p, part in enumerate(low.parts) if part[0] == i for r in low.runs(p, k)] for k in range(4)]


def test_channels_turn_so_that_all_tiles_load() -> None:
    """Two blocks of channels on four tiles: every member begins at other tiles."""
    _, low = spread(bottleneck("bf16", 1, (4, 4), 128, 128, 1, "test_2x2"))
    assert low.turned == [0, 2, 0]
    assert [[bool(own) for own in low.owns[p]] for p in range(2)] == [
        [True, True, False, False],
        [False, False, True, True],
    ]


def test_a_single_row_shares_nothing() -> None:
    """Results of one row are one tile's: its weights are nobody else's, and it has nobody to send them to."""
    case, low = spread(bottleneck("f32", 1, (2, 6), 100, 8, 2, "port"))
    alone = [p for p, (i, _, _) in enumerate(low.parts) if low.by_rows[i] and sum(map(bool, low.owns[p])) == 1]
    assert alone and not any(low.shares(f) for p in alone for f in low.fills[p])
    agrees(case, 0)


@pytest.mark.parametrize("images", [3, 4, 7])
def test_many_images_have_a_tile_each(images) -> None:
    with pytest.raises(NotLowerable, match="half of these or more"):
        SpreadStream(bottleneck("bf16", images, (4, 4), 64, 64, 1, "test_2x2").records[0], MACHINES["test_2x2"])


@pytest.mark.slow
def test_no_batch_of_a_network_falls_off_a_cliff(tmp_path) -> None:
    """ResNet-50 around the number of tiles and below half of it."""
    cycles = {}
    for n in (1, 2, 3, 4, 8, 9, 16, 17):
        cycles[n] = api.compile(resnet50(tmp_path / f"{n}.onnx", n), dtype="bf16").simulate().cycles
    counts = list(cycles)
    for few, more in itertools.pairwise(counts):
        assert cycles[few] <= 1.02 * cycles[more], (few, more)
        assert more > few + 1 or cycles[more] / more <= 1.35 * cycles[few] / few, (few, more)
