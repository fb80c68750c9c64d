"""Checks of single operands: addresses of rows before a launch runs, elements of an operand that have no value.

May import: numpy, isa, machine, numerics, simulator.sanitizer_bytes, simulator.sanitizer_clock. Must not: keep any state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.isa.comm import N_MONITORS, mask_tiles
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.numerics import layout
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.simulator.sanitizer_bytes import Range, number_pick
from tx8fast.simulator.sanitizer_clock import DTE, Run

RDMA, WDMA = isa.UNITS.index("rdma"), isa.UNITS.index("wdma")
#: formats by size: shadows are moved like elements
PLAIN = {1: "u8", 2: "u16", 4: "u32", 8: "i64"}
MAX_ROWS = 20

Found = tuple[str, int, str, Range]  # kind, row, text, byte range


def address_faults(machine: Machine, ddr_bytes: int, run: Run) -> Iterator[Found]:
    """Yield rows whose operands leave the memory given to buffers, or DDR, or name tiles that are not there."""
    facts, end = run.facts, DDR_BASE + ddr_bytes
    low, high = machine.spm_base, machine.spm_limit
    for what, table in (("reads", facts.reads), ("writes", facts.writes)):
        lo, hi = table[..., 0], table[..., 1]
        for at, k in np.argwhere((hi > lo) & ((lo < low) | (hi > high)))[:MAX_ROWS].tolist():
            a, b = int(lo[at, k]), int(hi[at, k])
            part = "reserved bytes" if 0 <= a and b <= machine.tile.spm_bytes else "bytes that do not exist"
            text = f"{what} SPM bytes [{a:#x}, {b:#x}), {part}; required within [{low:#x}, {high:#x})"
            yield "SPM address", at, text, (a, b)
    for at in np.flatnonzero((facts.units == RDMA) | (facts.units == WDMA)).tolist():
        row = facts.rows[at]
        if not 0 <= row["slot"] < len(run.slots):
            yield "DDR address", at, f"uses slot {row['slot']} of {len(run.slots)}", (0, 0)
            continue
        a = int(run.slots[row["slot"]] + row["ddr"])
        b = a + int(isa.class_of(int(row["opcode"])).ddr_span(row[None])[0])  # type: ignore[attr-defined]
        if a < DDR_BASE or b > end:
            text = f"accesses DDR bytes [{a:#x}, {b:#x}); required within [{DDR_BASE:#x}, {end:#x})"
            yield "DDR address", at, text, (a, b)
    for at in isa.lookup.numbers(facts.rows)[0].tolist():
        _, (a, b) = number_pick(facts.rows[at], run.slots)
        if a < DDR_BASE or b > end:
            text = f"reads its row number from DDR bytes [{a:#x}, {b:#x}); required within [{DDR_BASE:#x}, {end:#x})"
            yield "DDR address", at, text, (a, b)
    for at in np.flatnonzero(facts.units == DTE).tolist():
        _, mask, monitor = facts.rows["p"][at][:3].tolist()
        if mask <= 0 or mask >> machine.n_tiles or not 0 <= monitor < N_MONITORS:
            text = (
                f"sends to tiles {mask_tiles(mask)}, monitor {monitor}; the machine has {machine.n_tiles} tiles "
                f"of {N_MONITORS} monitors"
            )
            yield "send target", at, text, (0, 0)


def first_undefined(made: np.ndarray, operand: Mapping[str, Any], address: int) -> Range | None:
    """Return the DDR bytes of the first logical element without a value, None if all have one.

    made: whether each byte of the operand was written, shaped as `sanitizer_bytes.operand_pick` gives it.
    """
    if made.all():
        return None
    shape, size = tuple(operand["shape"]), ITEM_BYTES[operand["dtype"]]
    if operand.get("layout") == "blocked":
        n, p, c = layout.npc(shape)
        bad = layout.unpack((~made).view(np.uint8), n, p, c, PLAIN[size]) != 0
        if not bad.any():
            return None
        at = np.unravel_index(int(np.argmax(bad)), bad.shape)
        lo = address + int(layout.element_offset(int(at[0]), int(at[1]), int(at[2]), p, c, operand["dtype"]))
    elif "strides" in operand:
        at = np.unravel_index(int(np.argmin(made)), made.shape)[: len(shape)]
        lo = address + sum(int(i) * step for i, step in zip(at, operand["strides"]))
    else:
        lo = address + int(np.argmin(made)) // size * size
    return lo, lo + size
