"""The one record that every instruction is stored in, and how rows are made.

May import: numpy. Must not: know any particular instruction.

A record has a fixed header, a DDR operand (slot + byte offset + loop steps), SPM addresses and
integer parameters. Which SPM address and which parameter means what is declared once by the
instruction (`FIELDS_SPM`, `FIELDS_P` in its class). Addresses are bytes; DDR byte address of an
executed row = base of its slot (launch argument + tile offset) + `ddr` + sum(ddr_step[l] * iteration[l]).
"""

from __future__ import annotations

import numpy as np

N_SPM = 6
N_P = 24
MAX_LOOPS = 2

RECORD = np.dtype(
    [
        ("opcode", "<u2"),
        ("fmt", "u1"),  # format code of the operands (numerics.formats)
        ("rnd", "u1"),  # rounding mode, 0 nearest even
        ("op", "<i4"),  # provenance: index into the segment's op list, -1 none
        ("slot", "<i4"),  # DDR slot, -1 none
        ("depth", "<i2"),  # number of loops around this row
        ("worker", "<i2"),  # register window the row is issued through, 0..2
        ("ddr", "<i8"),
        ("ddr_step", "<i8", (MAX_LOOPS,)),  # byte advance per iteration, outermost loop first
        ("spm", "<i4", (N_SPM,)),
        ("p", "<i8", (N_P,)),
    ]
)


WORD_BYTES = 8


def words_of(rows: np.ndarray) -> np.ndarray:
    """Return the words of rows, (n, RECORD.itemsize // WORD_BYTES) uint64."""
    return np.ascontiguousarray(rows, RECORD).view(np.uint64).reshape(len(rows), RECORD.itemsize // WORD_BYTES)


def words_but(*names: str) -> list[int]:
    """Return the words of a row that hold no part of these fields, each of which is of whole words."""
    left = set(range(RECORD.itemsize // WORD_BYTES))
    for name in names:
        of, begin = RECORD.fields[name][:2]  # type: ignore[index]
        left -= set(range(begin // WORD_BYTES, (begin + of.itemsize) // WORD_BYTES))
    return sorted(left)


def rows(items) -> np.ndarray:
    """Return a RECORD array of the tuples made by `isa.make`, in column order."""
    return np.array(list(items), dtype=RECORD)
