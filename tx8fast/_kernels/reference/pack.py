"""Twin of the exact placement: every order, each item at its lowest free offset. For a handful of items.

May import: the standard library. Must not: share code with the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def minimum_height(start: Sequence[int], end: Sequence[int], size_bytes: Sequence[int]) -> int:
    """Return the lowest height in bytes at which the items fit; n! placements are tried.

    Lowest-free placement in some order reaches the optimum: sort an optimal placement by offset and
    let every item fall.
    """
    n = len(size_bytes)
    best = sum(size_bytes)
    for order in itertools.permutations(range(n)):
        offset: dict[int, int] = {}
        for i in order:
            at = 0
            for k in sorted(offset, key=lambda k: offset[k]):
                alive = start[k] < end[i] and start[i] < end[k]
                if alive and offset[k] < at + size_bytes[i] and at < offset[k] + size_bytes[k]:
                    at = offset[k] + size_bytes[k]
            offset[i] = at
        best = min(best, max((offset[i] + size_bytes[i] for i in order), default=0))
    return best
