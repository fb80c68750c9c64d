"""Laying out parameters: bytes per second of the larger of source and image, one core.

pytest benchmarks/bench_images.py --benchmark-only
"""

from __future__ import annotations

import numpy as np
import pytest

from tx8fast.machine import DDR_BASE
from tx8fast.numerics.formats import np_dtype
from tx8fast.numerics.layout import image_bytes
from tx8fast.program.model import Tensor
from tx8fast.program.params import pack_param

PAIRS = [
    ("f32", "f32"),
    ("bf16", "bf16"),
    ("i8", "i8"),
    ("f32", "bf16"),
    ("f32", "f16"),
    ("bf16", "f32"),
    ("f16", "bf16"),
    ("bf16", "f16"),
]


@pytest.mark.parametrize("turned", [False, True], ids=["straight", "turned"])
@pytest.mark.parametrize("layout", ["dense", "blocked"])
@pytest.mark.parametrize(("src", "dst"), PAIRS)
def test_a_matrix(benchmark, src: str, dst: str, layout: str, turned: bool) -> None:
    """Bar: 1 GB/s."""
    x = np.random.default_rng(0).standard_normal((768, 3072), np.float32).astype(np_dtype(src))
    order = [1, 0] if turned else [0, 1]
    shape = tuple(x.shape[i] for i in order)
    size = image_bytes(shape, dst, layout)
    tensor = Tensor("w", shape, src, dst, layout, DDR_BASE, size, {"transform": [["transpose", order]]})
    room = np.zeros(size, np.uint8)
    benchmark(pack_param, x, tensor, room)
    benchmark.extra_info["GB/s"] = max(x.nbytes, size) / benchmark.stats.stats.min / 1e9
