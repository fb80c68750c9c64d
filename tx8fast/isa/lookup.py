"""Rows of a table by number: the kernel core reads a number from DDR and starts the transfer of that row.

May import: numpy, errors, isa.base, isa.dma, isa.record, isa.strided, isa.tdma, isa.work. Must not: know layouts.
Source: TX8 hardware manual 13 (RDMA serves the gather of rows), 8.1 (no packet has a field for a number, so the kernel
core puts the row's address into an ordinary packet), 16.1, 16.4, 16.5. Every row is a transfer of its own, with its own
startup. Assumed: the core reads a number and compares it with both ends; the address is part of filling the packet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.base import FORMAT_BYTES, FORMAT_DTYPE, Instruction, ceil_div, class_of, declare, distinct, instruction
from tx8fast.isa.dma import Dma
from tx8fast.isa.tdma import Tdma
from tx8fast.isa.work import NUMBER_WORK
from tx8fast.numerics.formats import FORMAT_CODES

#: formats of row numbers, and their codes
NUMBER_FORMATS = ("i32", "u32", "i64", "u64")
INDEX_FORMATS = tuple(FORMAT_CODES[name] for name in NUMBER_FORMATS)
#: fields that say where the number lies: a DDR slot and a byte offset in it; `fmt` is the number's format
NUMBER = ("index_slot", "index_ddr")


class Lookup(Instruction):
    """`entries` rows `stride` bytes apart; a negative number counts from the end."""

    @staticmethod
    def alignment(r):
        return 1  # `fmt` is that of the row number, not of the rows

    @staticmethod
    def prepare(machine, r):
        return np.full(len(r), NUMBER_WORK.cycles(machine.kcore), np.int64)

    #: row, number -> the row of the ordinary instruction that moves row `number` of the table, with its DDR advance
    plain: ClassVar[Callable[..., Any]]


class RdmaRow(Dma, Lookup):
    """Load `run_bytes` of one row of a table in DDR; the DDR operand is where row 0 begins.

    The cost is that of the row that fits bursts and pages worst: nobody knows the number before the program runs."""

    FORMATS = NUMBER_FORMATS
    UNIT = "rdma"
    REGS = 5
    FIELDS_SPM = ("dst",)
    FIELDS_P = ("run_bytes", "stride", "entries", *NUMBER)

    @staticmethod
    def cycles(machine, r):
        """Not used: the cost needs the absolute DDR address, see `transfer`."""
        return np.zeros(len(r), np.int64)

    @staticmethod
    def spans(r):
        return [], [(r["spm"][:, 0], r["p"][:, 0])]

    @staticmethod
    def registers(r):
        return None

    @staticmethod
    def transfer(machine, r, ddr):
        size, stride = r["p"][:, 0], r["p"][:, 1]
        burst, page = machine.chip.ddr_burst, machine.chip.ddr_page
        charged = ceil_div(size + _worst_phase(ddr, stride, burst), burst) * burst
        pages = ceil_div(size + _worst_phase(ddr, stride, page), page) - ceil_div(size, page)
        return machine.rdma.startup + machine.dma.run_overhead + pages * machine.chip.ddr_page_penalty, charged

    @staticmethod
    def ddr_span(r):
        p = r["p"]
        return p[:, 0] + (p[:, 2] - 1) * p[:, 1]

    @classmethod
    def plain(cls, row, number):
        p = np.zeros_like(row["p"])
        p[:7] = row["p"][0], 0, 1, 0, 1, 0, 1
        return _as("rdma", row, row["spm"], p), number * _field(cls, row, "stride")


class TdmaRow(Tdma, Lookup):
    """Move one row of a table in scratchpad: runs of `size` bytes, strided on both sides."""

    FORMATS = NUMBER_FORMATS
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("size", "stride", "entries", *NUMBER, "ss0", "sn0", "ds0", "dn0")
    DEFAULTS = {"ss0": 0, "sn0": 1, "ds0": 0, "dn0": 1}

    @staticmethod
    def cycles(machine, r):
        p = r["p"]
        return machine.tdma.startup + p[:, 6] * np.maximum(1, ceil_div(p[:, 0], machine.tdma.bytes_per_cycle))

    @staticmethod
    def spans(r):
        p = r["p"]
        table = p[:, 0] + (p[:, 2] - 1) * p[:, 1] + (p[:, 6] - 1) * p[:, 5]
        return [(r["spm"][:, 0], table)], [(r["spm"][:, 1], p[:, 0] + (p[:, 8] - 1) * p[:, 7])]

    @classmethod
    def plain(cls, row, number):
        p = np.zeros_like(row["p"])
        p[:13] = row["p"][0], *row["p"][5:7], 0, 1, 0, 1, *row["p"][7:9], 0, 1, 0, 1
        spm = row["spm"].copy()
        spm[0] += number * _field(cls, row, "stride")
        return _as("gather_scatter", row, spm, p), 0


def numbers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return of all rows that look a number up: their positions, slot, byte offset and bytes of the number."""
    at = np.flatnonzero(
        (rows["opcode"] == instruction("rdma_row").OPCODE) | (rows["opcode"] == instruction("tdma_row").OPCODE)
    )
    own = rows[at]
    # both have the two fields at the same place
    k = RdmaRow.FIELDS_P.index(NUMBER[0])
    return at, own["p"][:, k], own["p"][:, k + 1], FORMAT_BYTES[own["fmt"]]


def place_numbers(rows: np.ndarray, slots: Callable[[int], int]) -> list[tuple[int, np.ndarray]]:
    """Put the numbers of `rows`, in place, into slots `slots(old slot)`; return old slots with the positions of their rows."""
    at, slot, _, _ = numbers(rows)
    found = [(k, at[slot == k]) for k in distinct(slot)]
    for k, own in found:
        rows["p"][own, RdmaRow.FIELDS_P.index(NUMBER[0])] = slots(k)
    return found


def move_numbers(rows: np.ndarray, at: np.ndarray, n_bytes: int) -> None:
    """Let the rows at these positions, in place, take numbers `n_bytes` further on."""
    rows["p"][at, RdmaRow.FIELDS_P.index(NUMBER[1])] += n_bytes


def each(row: tuple, places: Iterable[tuple[int, int]]) -> list[tuple]:
    """Return a look-up made by `isa.make` once per place: bytes to add to its destination, byte offset of its number."""
    cls = class_of(row[0])
    (*head, spm, p), d, k = row, cls.FIELDS_SPM.index("dst"), cls.FIELDS_P.index(NUMBER[1])
    before, dst, after, low, high = spm[:d], spm[d], spm[d + 1 :], p[:k], p[k + 1 :]
    return [(*head, (*before, dst + step, *after), (*low, number, *high)) for step, number in places]


def _worst_phase(start, stride, block: int):
    """Return the furthest that a row of the table begins behind a multiple of `block` bytes (columns)."""
    step = np.gcd(stride, block)
    return block - step + start % step


def _field(cls: type[Instruction], row, name: str) -> int:
    return int(row["p"][cls.FIELDS_P.index(name)])


def _as(name: str, row, spm, p):
    out = row.copy()
    out["opcode"], out["spm"], out["p"] = instruction(name).OPCODE, spm, p
    return out


class RowNumberError(SimulationError):
    """A number that no row of its table has. entries: rows of the table; address: where the number lies in DDR."""

    def __init__(self, number: int, entries: int, address: int) -> None:
        super().__init__(f"looking up a row: found number {number}, required [-{entries}, {entries})")
        self.number, self.entries, self.address = number, entries, address


def row_number(state, fmt: int, p: Sequence[int]) -> int:
    """Return the number that a look-up with parameters `p` reads, in [0, entries). Raises SimulationError for any other."""
    entries, slot, offset = p[2:5]
    dt = FORMAT_DTYPE[fmt]
    if fmt not in INDEX_FORMATS or dt is None:
        raise SimulationError(f"reading a row number: found format code {fmt}, required one of {INDEX_FORMATS}")
    if not 0 <= slot < len(state.slots):
        raise SimulationError(f"reading a row number: found slot {slot}, required 0 to {len(state.slots) - 1}")
    address = state.slots[slot] + offset
    found = int(state.ddr.view(address, int(FORMAT_BYTES[fmt])).view(dt)[0])
    if not -entries <= found < entries:
        raise RowNumberError(found, entries, address)
    return found + entries if found < 0 else found


declare(RdmaRow, 0x302, "rdma_row")
declare(TdmaRow, 0x180, "tdma_row")
