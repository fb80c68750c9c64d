"""How a long loop nest is tried with few steps, and what the others add.

May import: numpy. Must not: know plans or what a step does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

MAX_STEPS = 24  # steps of a loop nest that are tried
MIN_TRIPS = 4  # what is left of a loop at least, and
MIN_INNER = 8  # of the innermost: loads run ahead of it until its buffers are full


def shortened(trips: Sequence[int]) -> list[int]:
    """Return the trips to try of nested loops, outermost first: the longest are cut until few steps are left."""
    out = list(trips)
    least = [MIN_TRIPS] * (len(out) - 1) + [MIN_INNER]
    while math.prod(out) > MAX_STEPS and any(n > m for n, m in zip(out, least, strict=True)):
        j = max(range(len(out)), key=lambda i: out[i] / least[i])
        out[j] = max(least[j], out[j] // 2)
    return out


def left_out(tried: Sequence[int], full: Sequence[int], ends: np.ndarray) -> float:
    """Return the cycles that the trips left out of nested loops add; ends: of every step that was tried.

    A trip of a loop takes the trips of the loop inside it, and what changes between two of its own: measured here
    with the shortened loop inside, then put together with the full one. The last trip is often a shorter one.
    """
    grid = ends.reshape(tuple(tried))
    usual = [n - 2 if n > 2 else n - 1 for n in tried]
    measured = longer = 0.0  # cycles of one trip of the loop at hand, with shortened and full loops inside
    inner = inner_full = 0
    for j in reversed(range(len(tried))):
        span = max(1, (tried[j] - 1) // 4 * 2)  # even: buffers take turns
        after = (-1,) * (len(tried) - j - 1)
        at = lambda i: float(grid[(*usual[:j], i, *after)])  # noqa: B023, E731
        took = (at(usual[j]) - at(usual[j] - span)) / span
        longer = took + inner_full * longer - inner * measured
        measured, inner, inner_full = took, tried[j], full[j]
    return inner_full * longer - inner * measured
