"""Channel-blocked (Cx) operands: sizes on columns, and f32 loads and stores for the meanings.

May import: numpy, isa.base. Must not: know any particular instruction.
Source: TX8 hardware manual 7.2, 7.3. Batches start at multiples of 256 B.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tx8fast.isa.base import BLOCK, FORMAT_BYTES, dtype_of
from tx8fast.numerics.formats import CODE_TO_DTYPE, mask_tf32, round_f32

_TF32 = 6


def _tail_table(block: int) -> np.ndarray:
    out = np.zeros(block, np.int64)
    for rest in range(1, block):
        out[rest] = block if rest > block // 2 else max(4, 1 << (rest - 1).bit_length())
    return out


class _Tails:
    """Channels stored for what is left behind whole blocks, by (channels of a block, channels left): columns or integers, or
    anything that knows how to look itself up in a column, as what writes formulas down does (`__lookup__`)."""

    def __init__(self) -> None:
        self.table = np.zeros((129, 128), np.int64)
        for block in (64, 128):
            self.table[block, :block] = _tail_table(block)

    def __getitem__(self, key):
        look = getattr(key[1], "__lookup__", None)
        return self.table[key] if look is None else look(self.table[key[0]].reshape(-1))


_TAIL = _Tails()


def padded(c, fmt):
    """Return channels stored per position for `c` logical channels (columns or integers)."""
    block = BLOCK[fmt]
    return c - c % block + _TAIL[block, c % block]


def span_bytes(n, positions, c, fmt):
    """Return the bytes from the first to the last byte of a blocked operand: n - 1 strides + one batch."""
    used = positions * padded(c, fmt) * FORMAT_BYTES[fmt]
    return (n - 1) * ((used + 255) // 256 * 256) + used


def position_bytes(c, fmt):
    """Return the bytes from one position to the next in the first region of a blocked operand, at most 256."""
    return np.minimum(np.minimum(padded(c, fmt), BLOCK[fmt]) * FORMAT_BYTES[fmt], 256)


def used_bytes(n, positions, c, fmt):
    """Return the bytes an engine streams for the operand: padded channels, no gaps between batches."""
    return n * positions * padded(c, fmt) * FORMAT_BYTES[fmt]


_GEOMETRY: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}


def geometry(c: int, fmt: int) -> tuple[int, int, int, int, int]:
    """Return (block, full blocks incl. a promoted one, C0, whole blocks, rest) for integer `c`."""
    key = (c, fmt)
    found = _GEOMETRY.get(key)
    if found is None:
        block = int(BLOCK[fmt])
        whole, rest = divmod(c, block)
        c0 = int(_TAIL[block, rest])
        cx = whole
        if c0 == block:
            cx, c0 = whole + 1, 0
        found = _GEOMETRY[key] = (block, cx, c0, whole, rest)
    return found


def _regions(spm, addr: int, n: int, pos: int, c: int, fmt: int) -> tuple[Any, Any]:
    """Return views: full blocks [n, cx, pos, block] and tail [n, pos, c0] of the operand at `addr`."""
    block, cx, c0, _, _ = geometry(c, fmt)
    dt = dtype_of(fmt)
    e = dt.itemsize
    split = cx * block * pos * e
    used = split + pos * c0 * e
    stride = (used + 255) // 256 * 256
    # the constructor checks bounds, unlike stride tricks, and costs less
    full = np.ndarray((n, cx, pos, block), dt, spm, addr, (stride, pos * block * e, block * e, e))
    tail = np.ndarray((n, pos, c0), dt, spm, addr + split, (stride, c0 * e, e)) if c0 else None
    return full, tail


def load(spm: np.ndarray, addr: int, n: int, pos: int, c: int, fmt: int, dtype: Any = np.float32) -> np.ndarray:
    """Return the operand as (n, pos, c) of `dtype`; the copy is skipped when nothing must move."""
    block, cx, c0, whole, rest = geometry(c, fmt)
    full, tail = _regions(spm, addr, n, pos, c, fmt)
    if cx == 0:
        out = tail[:, :, :c].astype(dtype, copy=False)
    elif cx == 1 and c0 == 0:
        out = full[:, 0, :, :c].astype(dtype, copy=False)
    else:
        out = np.empty((n, pos, c), dtype)
        if whole:
            # splitting the last axis of a slice is a view, so this assignment lands in `out`
            view = out[:, :, : whole * block].reshape(n, pos, whole, block)
            view[...] = full[:, :whole].transpose(0, 2, 1, 3)
        if rest:
            out[:, :, whole * block :] = (tail if c0 else full[:, whole])[:, :, :rest]
    return mask_tf32(np.ascontiguousarray(out)) if fmt == _TF32 else out


def store(spm: np.ndarray, addr: int, x: np.ndarray, fmt: int, rnd: int = 0, seed: int = 0) -> None:
    """Write `x` (n, pos, c) as a blocked operand of format `fmt`; channel padding becomes zero.

    `seed` starts stochastic rounding, mode 4.
    """
    n, pos, c = x.shape
    block, cx, c0, whole, rest = geometry(c, fmt)
    full, tail = _regions(spm, addr, n, pos, c, fmt)
    if fmt == _TF32 or (x.dtype.kind == "f" and (rnd or dtype_of(fmt).kind in "iu")):
        x = round_f32(x, CODE_TO_DTYPE[fmt], rnd, seed)
    if whole:
        full[:, :whole] = x[:, :, : whole * block].reshape(n, pos, whole, block).transpose(0, 2, 1, 3)
    if rest:
        last = tail if c0 else full[:, whole]
        last[:, :, :rest] = x[:, :, whole * block :]
        last[:, :, rest:] = 0
