"""Twin of the count of opened pages: run by run, as the manual tells it.

May import: the standard library. Must not: share code with the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def extra_pages(start: Sequence[int], runs: Sequence[Sequence[int]], page: int) -> list[int]:
    """Return the page openings charged to each transfer; see `_kernels.extra_pages`."""
    return [_opened(at, row, page) for at, row in zip(start, runs, strict=True)]


def _opened(start: int, runs: Sequence[int], page: int) -> int:
    size, s0, n0, s1, n1, s2, n2 = runs
    total, previous = 0, None
    for k, j, i in itertools.product(range(n2), range(n1), range(n0)):
        at = start + i * s0 + j * s1 + k * s2
        last = (at + size - 1) // page
        total += last - at // page + 1 - -(-size // page)
        total += previous is not None and previous != at // page
        previous = last
    return total
