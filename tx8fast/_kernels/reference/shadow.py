"""Twin of the shadow memory's kernels: every cell by its index.

May import: numpy. Must not: share code with the kernel.

A form is (n, pos, c, block, full, tail, stride) as in the kernel; cells are as described there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast._kernels.reference.field import ABSENT, FINITE, HIDDEN, RESIDUE, UNDEFINED, both, mix

CONTINUED, BYTES = 5, 6
ZERO = BYTES << 24
_STEP = np.uint64(0x9E3779B97F4A7C15)


def offsets(form: Sequence[int], width: int, padding: bool = False) -> np.ndarray:
    """Return the cell offsets of the elements, row-major over (n, pos, c); of the padding lanes with `padding`."""
    n, pos, c, block, full, tail, stride = (int(x) for x in form)
    found = []
    for i in range(n):
        for p in range(pos):
            lanes = [(b * pos + p) * block + lane for b in range(full) for lane in range(block)]
            lanes += [full * pos * block + p * tail + lane for lane in range(tail)]
            found += [i * stride + lane * width for lane in (lanes[c:] if padding else lanes[:c])]
    return np.array(found, np.int64)


def load_p(plane, at: int, form, width: int, kind: int) -> tuple[np.ndarray, int]:
    """Return the words of an operand, and how many elements are of another kind."""
    where = at + offsets(form, width)
    first = plane[where]
    right = first >> 24 & 15 == kind
    zero = first == ZERO
    if width == 2:
        right &= plane[where + 1] == (CONTINUED << 24 | first & RESIDUE)
        zero &= plane[where + 1] == ZERO
    out = np.where(right, first & 0xF0FFFFFF, np.where(zero, 0, UNDEFINED)).astype(np.uint32)
    return out, int(((out == UNDEFINED) & (first >> 24 & 15 != 0)).sum())


def load_q(plane, at: int, form, width: int) -> np.ndarray:
    return plane[at + offsets(form, width)]


def store_p(plane, at: int, form, width: int, kind: int, words) -> None:
    where = at + offsets(form, width)
    plane[where] = words | np.uint32(kind << 24)
    pad = at + offsets(form, width, padding=True)
    plane[pad] = ZERO
    if width == 2:
        plane[where + 1] = np.uint32(CONTINUED << 24) | words & np.uint32(RESIDUE)
        plane[pad + 1] = ZERO


def store_q(plane, at: int, form, width: int, words) -> None:
    plane[at + offsets(form, width)] = words
    plane[at + offsets(form, width, padding=True)] = 0


def centred(plane, at: int, form, width: int, kind: int, modulus: int) -> tuple[np.ndarray, int]:
    """Return the centred residues of an operand and how many elements have none (their values do not count)."""
    words, _ = load_p(plane, at, form, width, kind)
    x = (words & RESIDUE).astype(np.float64)
    return np.where(x > modulus // 2, x - modulus, x), int((words & (UNDEFINED | HIDDEN) != 0).sum())


def run_cells(at: int, levels: Sequence[int], size: int) -> np.ndarray:
    """Return the cells of strided runs, in order."""
    s0, n0, s1, n1, s2, n2 = (int(x) for x in levels)
    starts = [at + a * s0 + b * s1 + c * s2 for c in range(n2) for b in range(n1) for a in range(n0)]
    return np.array([start + k for start in starts for k in range(size)], np.int64)


def runs(dst, dst_at: int, dst_levels, src, src_at: int, src_levels, size: int) -> None:
    """Copy runs, all read before the first is written."""
    dst[run_cells(dst_at, dst_levels, size)] = src[run_cells(src_at, src_levels, size)].copy()


def drawn(form, width: int, kind: int, key: int, p: int, q: int, thin=None) -> tuple[np.ndarray, np.ndarray]:
    """Return both planes of a whole tensor of random elements, padding zero; thin: its words modulo p and q, if it is a thin matrix."""
    n, _, _, block, full, tail, stride = (int(x) for x in form)
    cells = n * stride
    plane_p, plane_q = np.full(cells, ZERO, np.uint32), np.zeros(cells, np.uint32)
    where = offsets(form, width)
    words = mix(np.uint64(key) + (np.arange(len(where), dtype=np.uint64) + np.uint64(1)) * _STEP)
    new_p, new_q = both(words, p, q) if thin is None else thin
    plane_p[where], plane_q[where] = new_p | np.uint32(kind << 24), new_q
    if width == 2:
        plane_p[where + 1], plane_q[where + 1] = new_p | np.uint32(CONTINUED << 24), new_q
    return plane_p, plane_q


def finish(total, partial, modulus: int) -> np.ndarray:
    """Return the words of integers `total` plus partial sums (words modulo p): a hidden one hides, an undefined one spoils, one that is
    finite and else unknown makes the sum so."""
    value = np.array([(int(t) + int(w & RESIDUE)) % modulus for t, w in zip(total, partial)], np.uint32)
    value = np.where(partial & HIDDEN != 0, np.uint32(HIDDEN), value)
    value = np.where(partial & UNDEFINED != 0, np.uint32(UNDEFINED), value)
    return np.where(partial == FINITE, np.uint32(FINITE), value)


def finish_q(total, partial, modulus: int) -> np.ndarray:
    value = np.array([(int(t) + int(w)) % modulus for t, w in zip(total, partial)], np.uint32)
    return np.where(partial == ABSENT, np.uint32(ABSENT), value)


def residues(total, modulus: int) -> np.ndarray:
    return np.array([int(t) % modulus for t in total], np.uint32)
