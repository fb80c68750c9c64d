"""Placement in DDR: bank-aligned packing of constants, and variables that share space by lifetime.

May import: `problem`, `solve`, `errors`. Must not: read weights or know tensors.
A bank (one DDR page) is the unit a transfer should open as few of as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tx8fast.alloc.problem import Buffer, Placement, Problem
from tx8fast.alloc.solve import solve
from tx8fast.errors import AllocationError

BANK_BYTES = 4096  # back-end notes 15.2
ALIGN_BYTES = 64


def pack_banks(
    sizes_bytes: Sequence[int],
    align_bytes: int = ALIGN_BYTES,
    bank_bytes: int = BANK_BYTES,
    large_first: bool = False,
) -> tuple[list[int], int]:
    """Return one offset per item and the end of the last one, in bytes; nothing shares space.

    An item of at least a bank, or one that would straddle a bank border, starts at the next bank;
    smaller items follow one another. `large_first` lays all items of at least a bank before the
    small ones, each kind in given order; offsets are returned in the order of `sizes_bytes`.
    Source: back-end notes 15.2.
    """
    _check_units(align_bytes, bank_bytes)
    order = list(range(len(sizes_bytes)))
    if large_first:
        order.sort(key=lambda i: sizes_bytes[i] < bank_bytes)
    offsets = [0] * len(sizes_bytes)
    at = 0
    for i in order:
        size = sizes_bytes[i]
        at = _round_up(at, align_bytes)
        if size >= bank_bytes or at % bank_bytes + size > bank_bytes:
            at = _round_up(at, bank_bytes)
        offsets[i] = at
        at += size
    return offsets, at


def allocate_ddr(
    buffers: Iterable[Buffer],
    capacity_bytes: int | None = None,
    align_bytes: int = ALIGN_BYTES,
    bank_bytes: int = BANK_BYTES,
) -> Placement:
    """Return offsets for variables that reuse space once their lifetimes end; without capacity they may need any height.

    Alignment of every buffer is raised to `align_bytes`; `bank_bytes` 0 turns the bank rule off.
    Raises AllocationError with the largest contributors when `capacity_bytes` is exceeded.
    """
    _check_units(align_bytes, bank_bytes)
    raised = tuple(b if b.align_bytes >= align_bytes else replace(b, align_bytes=align_bytes) for b in buffers)
    for b in raised:
        _check_units(b.align_bytes, bank_bytes)
    return solve(Problem(raised, capacity_bytes), bank_bytes=bank_bytes)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _check_units(align_bytes: int, bank_bytes: int) -> None:
    fits = bank_bytes == 0 or bank_bytes % align_bytes == 0 or align_bytes % bank_bytes == 0
    if align_bytes < 1 or bank_bytes < 0 or not fits:
        raise AllocationError(
            f"placing in DDR: alignment {align_bytes} and bank {bank_bytes} bytes must divide one another"
        )
