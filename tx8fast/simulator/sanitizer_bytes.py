"""Exact bytes of strided operands, as views on arrays with one entry per byte.

May import: numpy, isa, numerics. Must not: know launches, order or values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.isa.base import FORMAT_BYTES
from tx8fast.machine import DDR_BASE
from tx8fast.numerics import layout
from tx8fast.numerics.formats import ITEM_BYTES

Range = tuple[int, int]
#: picks an operand's bytes out of an array with one entry per DDR byte
Pick = Callable[[np.ndarray], np.ndarray]

#: instructions whose row number the kernel core reads from DDR
LOOKUPS = frozenset(name for name, cls in isa.INSTRUCTIONS.items() if issubclass(cls, isa.lookup.Lookup))
GATHER, MEMSET, COLLECT = (isa.INSTRUCTIONS[n].OPCODE for n in ("gather_scatter", "memset", "gather"))


def runs(array: np.ndarray, start: int, size: int, levels) -> np.ndarray:
    """Return a view (n2, n1, n0, size) of strided runs; array has one entry per byte, strides are bytes."""
    s0, n0, s1, n1, s2, n2 = levels
    e = array.itemsize
    return np.ndarray((n2, n1, n0, size), array.dtype, array, start * e, (s2 * e, s1 * e, s0 * e, e))


def spm_view(array: np.ndarray, opcode: int, fmt: int, spm, p, write: bool) -> np.ndarray | None:
    """Return the bytes of a strided operand, None if the row's envelopes have no holes."""
    if opcode == GATHER:
        return runs(array, spm[1], p[0], p[7:13]) if write else runs(array, spm[0], p[0], p[1:7])
    if opcode == MEMSET and write:
        return runs(array, spm[0], p[1] * int(FORMAT_BYTES[fmt]), p[2:8])
    if opcode == COLLECT and not write:
        return runs(array, spm[0], p[3], p[4:10])
    return None


def touched(record: np.ndarray, write: bool, span: Range) -> np.ndarray:
    """Return for every SPM byte of `span` whether the row reads (or writes) it."""
    found = isa.ranges(record[None], np.zeros(1, np.int64))["spm_write" if write else "spm_read"][0].tolist()
    out = np.zeros(span[1] - span[0], bool)
    if record["opcode"] == GATHER or record["opcode"] == (MEMSET if write else COLLECT):
        top = max(b for _, b in found)
        whole = np.zeros(max(top, span[1]), bool)
        view = spm_view(
            whole, int(record["opcode"]), int(record["fmt"]), record["spm"].tolist(), record["p"].tolist(), write
        )
        assert view is not None
        view[...] = True
        return whole[span[0] : span[1]]
    for a, b in found:
        if b > a:
            out[max(a - span[0], 0) : max(b - span[0], 0)] = True
    return out


def dma_pick(address: int, p) -> tuple[Pick, Range]:
    """Return the DDR side of a transfer and its envelope in absolute addresses."""
    start, size, levels = address - DDR_BASE, p[0], p[1:7]
    end = address + size + sum((levels[2 * k + 1] - 1) * levels[2 * k] for k in range(3))
    return (lambda array: runs(array, start, size, levels)), (address, end)


def number_pick(row: Any, slots: np.ndarray) -> tuple[Pick, Range]:
    """Return the bytes of the row number that a look-up reads."""
    _, slot, offset, size = (int(x[0]) for x in isa.lookup.numbers(row[None]))
    address = int(slots[slot]) + offset
    return (lambda array: array[address - DDR_BASE : address - DDR_BASE + size]), (address, address + size)


def spans_of(row: Any) -> tuple[list[Range], list[Range]]:
    """Return the SPM envelopes read and written by a row that is not in the code."""
    found = isa.ranges(row[None], np.zeros(1, np.int64))
    return tuple([(a, b) for a, b in found[k][0].tolist() if b > a] for k in ("spm_read", "spm_write"))  # type: ignore[return-value]


def operand_pick(operand: Mapping[str, Any], slots: np.ndarray) -> tuple[Pick, Range]:
    """Return the bytes of a kernel-core routine's operand; channel-blocked ones as a whole."""
    address = int(slots[operand["slot"]]) + operand["offset"]
    start, size, shape = address - DDR_BASE, ITEM_BYTES[operand["dtype"]], tuple(operand["shape"])
    if operand.get("layout") == "blocked":
        n = layout.blocked_bytes(*layout.npc(shape), operand["dtype"])
        return (lambda array: array[start : start + n]), (address, address + n)
    strides = tuple(operand["strides"])
    last = sum((n - 1) * s for n, s in zip(shape, strides)) + size if all(shape) else 0

    def pick(array: np.ndarray) -> np.ndarray:
        e = array.itemsize
        return np.ndarray((*shape, size), array.dtype, array, start * e, (*(s * e for s in strides), e))

    return pick, (address, address + last)


def overlap(a: Pick, b: Pick, n_bytes: int) -> bool:
    """Return whether two operands share a DDR byte."""
    scratch = np.zeros(n_bytes, bool)
    a(scratch)[...] = True
    return bool(b(scratch).any())
