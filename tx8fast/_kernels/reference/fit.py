"""Twin of the first-fit placement: every item is compared with every placed one.

May import: the standard library. Must not: share code with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence


def _legal(offset: int, size: int, align: int, bank: int) -> int:
    offset = -(-offset // align) * align
    if bank and (size >= bank or offset % bank + size > bank):
        offset = -(-offset // bank) * bank
        offset = -(-offset // align) * align
    return offset


def first_fit(
    ptr: Sequence[int],
    start: Sequence[int],
    end: Sequence[int],
    size_bytes: Sequence[int],
    align_bytes: Sequence[int],
    order: Sequence[int],
    fixed: Sequence[int] | None = None,
    bank_bytes: int = 0,
) -> tuple[list[int], int]:
    """Return offsets and peak in bytes; see `_kernels.first_fit`."""
    n = len(size_bytes)
    fixed = fixed if fixed is not None else [-1] * n
    lives = [[(start[j], end[j]) for j in range(ptr[i], ptr[i + 1])] for i in range(n)]
    offset = [max(f, 0) for f in fixed]
    placed = [i for i in range(n) if fixed[i] >= 0 and size_bytes[i] > 0]
    for i in order:
        if fixed[i] >= 0 or size_bytes[i] == 0:
            continue
        busy = sorted(
            (offset[k], offset[k] + size_bytes[k])
            for k in placed
            if any(a < d and c < b for a, b in lives[i] for c, d in lives[k])
        )
        at = _legal(0, size_bytes[i], align_bytes[i], bank_bytes)
        for lo, hi in busy:
            if hi <= at:
                continue
            if lo >= at + size_bytes[i]:
                break
            at = _legal(hi, size_bytes[i], align_bytes[i], bank_bytes)
        offset[i] = at
        placed.append(i)
    return offset, max((offset[i] + size_bytes[i] for i in placed), default=0)
