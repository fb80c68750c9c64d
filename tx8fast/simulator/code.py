"""One code array made ready to run: loops written out, every address checked before the first instruction.

May import: numpy, program.model, isa, machine, simulator.exchange. Must not: execute anything.
"""

from __future__ import annotations

import numpy as np

from tx8fast import isa
from tx8fast.errors import SimulationError
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.program.model import Segment
from tx8fast.simulator.exchange import stop_rows

MAX_REPORTED = 4


class Code:
    """Loop-free `rows`, the DDR operand of each, and where they may have to wait for other tiles."""

    def __init__(self, code: np.ndarray, machine: Machine, segment: Segment) -> None:
        isa.check_fields(code, len(segment.slot_arg), f"segment '{segment.name}'")
        self.rows = rows = isa.expand(code)
        self.ranges = isa.ranges(rows, np.zeros(len(rows), np.int64))
        problems = self._spm_problems(machine)
        if problems:
            raise SimulationError(f"segment '{segment.name}': " + "; ".join(problems))
        self.has_ddr = rows["slot"] >= 0
        self.stops = stop_rows(rows)

    def _spm_problems(self, machine: Machine) -> list[str]:
        """Return one line per row (the first few) whose SPM operands leave the memory given to buffers."""
        lines = []
        for kind in ("spm_read", "spm_write"):
            lo, hi = self.ranges[kind][..., 0], self.ranges[kind][..., 1]
            bad = (hi > lo) & ((lo < machine.spm_base) | (hi > machine.spm_limit))
            for at, k in np.argwhere(bad)[:MAX_REPORTED].tolist():
                lines.append(
                    f"instruction {at} ({self._name(at)}): {kind.replace('_', ' ')} of SPM bytes [{lo[at, k]:#x}, {hi[at, k]:#x}), "
                    f"required within [{machine.spm_base:#x}, {machine.spm_limit:#x})"
                )
        return lines

    def _name(self, at: int) -> str:
        return isa.class_of(int(self.rows["opcode"][at])).NAME

    def addresses(self, slots: np.ndarray, ddr_end: int, where: str) -> np.ndarray:
        """Return the absolute DDR address of every row, (n,) i64; `slots`: where each slot begins. Raises SimulationError
        for rows that leave DDR."""
        rows = self.rows
        if not len(slots):
            slots = np.zeros(1, np.int64)
        address = np.where(self.has_ddr, slots[rows["slot"]] + rows["ddr"], 0)
        span = self.ranges["ddr_read"][:, 1] + self.ranges["ddr_write"][:, 1]
        bad = np.flatnonzero((span > 0) & ((address < DDR_BASE) | (address + span > ddr_end)))
        if len(bad):
            lines = [
                f"instruction {at} ({self._name(at)}) accesses DDR bytes [{address[at]:#x}, {address[at] + span[at]:#x})"
                for at in bad[:MAX_REPORTED].tolist()
            ]
            raise SimulationError(f"{where}: {'; '.join(lines)}; required within [{DDR_BASE:#x}, {ddr_end:#x})")
        return address
