"""Twin of the sharding enumeration: all ordered factorisations, sorted by their key.

May import: the standard library. Must not: share code with the kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def enumerate_shardings(
    shape: Sequence[int],
    base: Sequence[int],
    n_parts: int,
    limit: Sequence[int] | None = None,
    n_first: bool = False,
) -> tuple[list[tuple[int, ...]], list[int], list[int]]:
    """Return vectors, effective tiles and factors; see `_kernels.enumerate_shardings`."""
    limit = limit or [n_parts] * len(shape)
    divisors = [k for k in range(1, n_parts + 1) if n_parts % k == 0]
    vectors = {
        s
        for s in itertools.product(divisors, repeat=len(shape))
        if math.prod(s) == n_parts and all(k <= most for k, most in zip(s, limit))
    }
    vectors.add((1,) * len(shape))
    if not shape and n_parts > 1:
        vectors = {()}

    def effective(s: tuple[int, ...]) -> int:
        return math.prod(min(-(-length // b), k) for length, b, k in zip(shape, base, s))

    ordered = sorted(vectors, reverse=n_first)
    ordered.sort(key=effective, reverse=True)  # stable: ties keep their lexicographic order
    eff = [effective(s) for s in ordered]
    return ordered, eff, [max(e, 1).bit_length() - 1 for e in eff]
