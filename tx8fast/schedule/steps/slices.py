"""How one dimension is cut into slices.

May import: errors. Must not: know groups.

A slice is (offset, length). Every distribution covers its dimension without gap or overlap; no slice is empty, so there may be
fewer of them than asked for (layer-group notes 5.1).
"""

from __future__ import annotations

from tx8fast.errors import InfeasibleError

Cut = tuple[tuple[int, int], ...]  # (offset, length) per slice
DIMS = "ncdhw"


def distribute(length: int, count: int) -> Cut:
    """Return slices whose lengths differ by at most one, longer ones first; one-element slices if there are more than elements."""
    q, r = divmod(length, count)
    cuts, at = [], 0
    for i in range(min(count, length)):
        n = q + (i < r)
        cuts.append((at, n))
        at += n
    return tuple(cuts)


def distribute_lanes(length: int, count: int, lanes: int) -> Cut:
    """Return slices that begin on multiples of `lanes`; only the last one may be ragged.

    Raises InfeasibleError if there are more slices than blocks of lanes.
    """
    blocks = -(-length // lanes)
    if count > blocks:
        raise InfeasibleError(f"cutting {length} channels into {count} slices: {lanes} lanes allow at most {blocks}")
    return tuple((a * lanes, min((a + n) * lanes, length) - a * lanes) for a, n in distribute(blocks, count))


def distribute_packed(length: int, count: int, bits: int, word_bits: int = 32) -> Cut:
    """Return slices of whole words: several elements of `bits` share one, the last slice takes what is left."""
    pack = max(1, word_bits // bits)
    step = -(-(-(-length // count)) // pack) * pack
    return tuple((a, min(step, length - a)) for a in range(0, length, step))


def whole(length: int) -> Cut:
    return ((0, length),)


def longest(cut: Cut) -> int:
    return max((n for _, n in cut), default=0)


def hull(a: Cut, b: Cut) -> Cut | None:
    """Return slices that contain both cuts slice by slice, None if a pair does not even overlap."""
    if len(a) != len(b):
        return None
    out = []
    for (x, n), (y, m) in zip(a, b, strict=True):
        lo, hi = min(x, y), max(x + n, y + m)
        if max(x, y) >= min(x + n, y + m):
            return None
        out.append((lo, hi - lo))
    return tuple(out)
