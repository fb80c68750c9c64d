"""Networks with several tiles per image, against the reference and under the sanitizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from lower.test_cnn import bottleneck, grouped
from lower.test_stream import agrees, network, networks
from support.cnn_models import resnet50
from support.one_op import Case, build, with_plan

from tx8fast import api
from tx8fast.errors import InfeasibleError
from tx8fast.lower import NotLowerable, rounds
from tx8fast.lower.spread import SpreadStream
from tx8fast.search.stream_trial import stream_plan

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


@settings(max_examples=80, phases=NO_SHRINK)
@given(
    st.sampled_from(["bf16", "f32"]), st.sampled_from([1, 2, 5, 6]), st.tuples(st.integers(2, 9), st.integers(2, 9)),
    st.sampled_from([20, 64, 100]), st.sampled_from([8, 130]), st.sampled_from([1, 2]), st.sampled_from([1.0, 0.3]),
    st.sampled_from([1, 16384]), st.integers(0, 1 << 20),
)  # fmt: skip
@example("bf16", 1, (9, 9), 100, 130, 2, 1.0, 1, 0)  # by rows, sums over several blocks
@example("f32", 2, (3, 2), 130, 130, 1, 1.0, 1, 0)  # by channels
def test_bottleneck(dtype, n, size, c, mid, stride, spare, share_min, seed) -> None:
    """One or two images on four tiles, and such images behind one of every tile."""
    try:
        case, _ = spread(bottleneck(dtype, n, size, c, mid, stride, "test_2x2"), spare, share_min)
    except (NotLowerable, InfeasibleError):
        assume(False)
    agrees(case, seed)


@settings(max_examples=80, phases=NO_SHRINK)
@given(networks([1, 2, 5]), st.sampled_from([1.0, 0.3]), st.sampled_from([1, 16384]), st.sampled_from(["port", "no port"]),
       st.integers(0, 1 << 20))  # fmt: skip
def test_layers_of_every_kind(network, spare, share_min, machine, seed) -> None:
    try:
        case, _ = spread(grouped(build(*network, machine)), spare, share_min)
    except (NotLowerable, InfeasibleError):
        assume(False)
    agrees(case, seed, 1e-4)
