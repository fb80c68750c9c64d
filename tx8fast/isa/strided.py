"""Three-level strided byte runs: views, envelopes and the DDR pages they open.

May import: numpy. Must not: know any particular instruction.
Source: TX8 hardware manual 11.1, 13, 16.4. Level 0 is the innermost; strides are bytes, counts >= 1.
"""

from __future__ import annotations

import numpy as np

#: fields of three levels: byte stride and count each, level 0 innermost
LEVELS = ("s0", "n0", "s1", "n1", "s2", "n2")
LEVEL_DEFAULTS = {"s0": 0, "n0": 1, "s1": 0, "n1": 1, "s2": 0, "n2": 1}


def copy(
    dst: np.ndarray,
    dst_addr: int,
    dst_levels,
    src: np.ndarray,
    src_addr: int,
    src_levels,
    size: int,
) -> None:
    """Copy runs of `size` bytes; levels are (s0, n0, s1, n1, s2, n2) and both have equally many runs.

    The copy moves words as wide as size and all strides allow.
    """
    s0, n0, s1, n1, s2, n2 = src_levels
    t0, j0, t1, j1, t2, j2 = dst_levels
    low = size | s0 | s1 | s2 | t0 | t1 | t2
    width = 8 if not low & 7 else 4 if not low & 3 else 2 if not low & 1 else 1
    kind = f"u{width}"
    a = np.ndarray((n2, n1, n0, size // width), kind, src, src_addr, (s2, s1, s0, width))
    b = np.ndarray((j2, j1, j0, size // width), kind, dst, dst_addr, (t2, t1, t0, width))
    b[...] = a if a.shape == b.shape else a.reshape(b.shape)


def envelope(size, levels):
    """Return bytes from the first to the last byte of the runs; `levels` = columns s0,n0,s1,n1,s2,n2."""
    s0, n0, s1, n1, s2, n2 = levels
    return size + (n0 - 1) * s0 + (n1 - 1) * s1 + (n2 - 1) * s2


def floor_sum(start, step, count, m: int):
    """Return sum of floor((start + i * step) / m) for 0 <= i < count; columns of integers >= 0."""
    a, b, n = (np.array(v, np.int64) for v in np.broadcast_arrays(step, start, count))
    ans = np.zeros(n.shape, np.int64)
    mod = np.full(n.shape, m, np.int64)
    while True:
        ans += (n * (n - 1) // 2) * (a // mod) + n * (b // mod)
        a, b = a % mod, b % mod
        top = a * n + b
        if not (top >= mod).any():
            return ans
        # lanes that are finished get n = 0 and contribute nothing more
        n, b = top // mod, top % mod
        a, mod = np.where(n > 0, mod, 0), np.where(n > 0, a, 1)


def _box_sum(start, strides, counts, m: int):
    """Return the sum of floor(address / m) over a 3-level box of addresses (columns)."""
    counts = np.stack(counts)
    strides = np.stack(strides)
    longest = np.argmax(counts, axis=0)
    cols = np.arange(counts.shape[1])
    n, s = counts[longest, cols], strides[longest, cols]
    if int(counts.max(initial=1)) <= 1 or not ((np.prod(counts, axis=0) != n).any()):
        return np.where(np.prod(counts, axis=0) > 0, floor_sum(start, s, n, m), 0)
    a, b = (longest + 1) % 3, (longest + 2) % 3
    na, nb = counts[a, cols], counts[b, cols]
    boxes = na * nb
    row = np.repeat(cols, boxes)
    k = np.arange(len(row)) - np.repeat(np.cumsum(boxes) - boxes, boxes)
    offset = (k % na[row]) * strides[a, cols][row] + (k // na[row]) * strides[b, cols][row]
    part = floor_sum(start[row] + offset, s[row], n[row], m)
    out = np.zeros(len(cols), np.int64)
    np.add.at(out, row, part)
    return out


def extra_pages(start, size, levels, page: int):
    """Return the page openings charged to each transfer (columns), exactly as the manual counts them.

    Per run: pages touched beyond ceil(size / page). Between consecutive runs: one if the next
    starts in another page than the previous ended in. Addresses advance regularly, so both are
    differences of floor sums and cost does not grow with the number of runs of the longest level.
    """
    start = np.asarray(start, np.int64) % page + page  # only the phase matters; keep gaps non-negative
    s, n = [levels[0], levels[2], levels[4]], [levels[1], levels[3], levels[5]]
    runs = n[0] * n[1] * n[2]
    last = size - 1
    if not (runs > 1).any():
        return (start + last) // page - start // page + 1 - -(-size // page)
    total = _box_sum(start + last, s, n, page) - _box_sum(start, s, n, page) + runs - runs * -(-size // page)
    done = np.zeros_like(start)
    for k in range(3):
        # transitions of level k happen at the last index of every level below
        box = [np.minimum(n[j], 1) if j < k else n[j] - 1 if j == k else n[j] for j in range(3)]
        count = box[0] * box[1] * box[2]
        if count.any():
            gap = s[k] - done - last
            end = start + done + last
            # a jump of a page or more always changes the page; a smaller one by -1, 0 or +1, never both
            near = np.abs(gap) < page
            moved = _box_sum(end + np.where(near, gap, 0), s, box, page) - _box_sum(end, s, box, page)
            total += np.where(near, np.abs(moved), count)
        done = done + (n[k] - 1) * s[k]
    return total
