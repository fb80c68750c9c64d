"""Number formats and layouts as cells of two bytes: kinds, widths, dense and channel-blocked operands.

May import: numpy, the kernels' forms. Must not: import numerics; the layouts are written a second time, from the manual.
Source: TX8 hardware manual 6.1 (format codes), 7.2, 7.3 (blocks of 64 channels, 128 of one-byte formats; a tail of at most
half a block is stored as 4, 8, ... channels, a longer one as a whole block; batches start at multiples of 256 bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from tx8fast._kernels._facade_shadow import Form, form
from tx8fast.errors import SimulationError

CELL_BYTES = 2
BATCH_BYTES = 256
#: kinds of cells; a cell of kind 0 was never written
BF16, F16, F32, CONTINUED, BYTES = 1, 2, 3, 5, 6
#: float formats by name: (kind, cells); tf32 is a way to read f32
FLOATS = {"bf16": (BF16, 1), "f16": (F16, 1), "f32": (F32, 2), "tf32": (F32, 2)}
INTS = {
    "i8": "i1",
    "u8": "u1",
    "pred": "u1",
    "i16": "i2",
    "u16": "u2",
    "i32": "i4",
    "u32": "u4",
    "i64": "i8",
    "u64": "u8",
}
#: the chip's format codes
NAMES = {
    0: "i8",
    1: "i16",
    2: "f16",
    3: "bf16",
    4: "i32",
    5: "f32",
    6: "tf32",
    7: "pred",
    8: "u8",
    9: "u16",
    10: "u32",
    11: "i64",
    12: "u64",
}


def name_of(code: int) -> str:
    """Return the name of a format code. Raises SimulationError if the proof knows no such format."""
    found = NAMES.get(code)
    if found is None:
        raise SimulationError(f"format code {code} has no meaning in the proof")
    return found


def bytes_of(fmt: str) -> int:
    """Return the bytes of an element. Raises SimulationError for formats outside the proof."""
    if fmt in FLOATS:
        return FLOATS[fmt][1] * CELL_BYTES
    if fmt not in INTS:
        raise SimulationError(f"format '{fmt}' has no meaning in the proof")
    return int(INTS[fmt][1])


def block_of(fmt: str) -> int:
    """Return the channels of a block."""
    return 128 if bytes_of(fmt) == 1 else 64


def tail_of(c: int, block: int) -> tuple[int, int]:
    """Return (whole blocks stored, channels of the tail) of `c` channels."""
    whole, rest = divmod(c, block)
    if rest > block // 2:
        return whole + 1, 0
    tail = 4 if rest else 0
    while tail < rest:
        tail *= 2
    return whole, tail


def blocked_sizes(pos: int, c: int, fmt: str) -> tuple[int, int, int, int, int]:
    """Return (block, whole blocks, tail, bytes used by a batch, bytes from batch to batch)."""
    block = block_of(fmt)
    whole, tail = tail_of(c, block)
    used = pos * (whole * block + tail) * bytes_of(fmt)
    return block, whole, tail, used, (used + BATCH_BYTES - 1) // BATCH_BYTES * BATCH_BYTES


def _float(fmt: str) -> tuple[int, int]:
    if fmt not in FLOATS:
        raise SimulationError(f"a float format is required, found '{fmt}'")
    return FLOATS[fmt]


@lru_cache(maxsize=1 << 14)
def dense(n: int, fmt: str) -> Form:
    """Return `n` elements one after the other, as (1, 1, n)."""
    kind, width = _float(fmt)
    return form(1, 1, n, max(n, 1), 1, 0, max(n, 1) * width, width, kind)


@lru_cache(maxsize=1 << 14)
def blocked(n: int, pos: int, c: int, fmt: str) -> Form:
    """Return a channel-blocked operand (n, pos, c)."""
    kind, width = _float(fmt)
    block, whole, tail, _, stride = blocked_sizes(pos, c, fmt)
    return form(n, pos, c, block, whole, tail, stride // CELL_BYTES, width, kind)


def batches(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return how a logical shape is seen as (batches, positions, channels)."""
    if len(shape) < 3:
        return 1, shape[0] if len(shape) == 2 else 1, shape[-1] if shape else 1
    return shape[0], prod(shape[1:-1]), shape[-1]


def offsets(n: int, pos: int, c: int, fmt: str) -> np.ndarray:
    """Return the byte offsets (n, pos, c) of the elements of a blocked operand."""
    block, whole, tail, _, stride = blocked_sizes(pos, c, fmt)
    i, p, k = np.ogrid[:n, :pos, :c]
    inner = np.where(
        k // block < whole,
        (k // block * pos + p) * block + k % block,
        (whole * block * pos + p * tail) + k - whole * block,
    )
    return i * stride + inner * bytes_of(fmt)


def footprint(shape: Sequence[int], fmt: str, layout: str) -> int:
    """Return the bytes of a tensor; of a blocked one, the last batch is padded too."""
    if layout == "dense":
        return prod(shape) * bytes_of(fmt)
    n, pos, c = batches(shape)
    return n * blocked_sizes(pos, c, fmt)[4]
