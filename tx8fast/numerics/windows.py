"""Window arithmetic that graph and lowering must agree on: channel groups, and how many positions a window averages.

May import: numpy. Must not: know ops, layouts or instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def dense_groups(groups: int, ins: int, outs: int, block: int) -> int:
    """Return how many of `groups` channel groups (`ins`, `outs` channels each) form one dense product whose channels
    begin at whole blocks; all of them if there is no smaller number."""
    return min(groups, math.lcm(block // math.gcd(block, ins), block // math.gcd(block, outs)))


def is_depthwise(groups: int, ins: int, outs: int, dilation: Sequence[int]) -> bool:
    """True if every channel is a group of its own and the engine's depthwise form, which has no dilation, fits."""
    return groups > 1 and ins == outs == 1 and tuple(dilation) == (1, 1)


def window_counts(size: int, out: int, kernel: int, stride: int, lo: int, hi: int, with_padding: bool) -> np.ndarray:
    """Return how many positions each of `out` windows along one axis averages, i64. Positions behind the trailing
    padding, which rounding the output length up may add, never count."""
    begin = np.arange(out) * stride - lo
    first, last = (-lo, size + hi) if with_padding else (0, size)
    return np.maximum(np.minimum(begin + kernel, last) - np.maximum(begin, first), 0)
