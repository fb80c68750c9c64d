"""RDMA (DDR -> SPM) and WDMA (SPM -> DDR): strided on the DDR side, dense on the SPM side.

May import: numpy, _kernels, isa.base, isa.strided. Must not: know layouts.
Source: TX8 hardware manual 13, 16.4.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import extra_pages
from tx8fast.isa.base import Instruction, ceil_div, declare
from tx8fast.isa.strided import LEVEL_DEFAULTS, LEVELS, envelope


class Dma(Instruction):
    """Runs of `run_bytes`; byte strides and plain counts of the DDR side, level 0 innermost."""

    REGS = 9
    FIELDS_P = ("run_bytes", *LEVELS)
    DEFAULTS = LEVEL_DEFAULTS

    @staticmethod
    def runs(r):
        return r["p"][:, 2] * r["p"][:, 4] * r["p"][:, 6]

    @staticmethod
    def alignment(r):
        return 1  # the rows do not name their elements' format; a program's arguments do

    @staticmethod
    def cycles(machine, r):
        """Not used: the cost needs the absolute DDR address, see `transfer`."""
        return np.zeros(len(r), np.int64)

    @staticmethod
    def spans(r):
        size = (r["spm"][:, 0], r["p"][:, 0] * Dma.runs(r))
        none = (r["spm"][:, 0], np.zeros(len(r), np.int64))
        read = r["opcode"] == 0x301
        return [_pick(read, size, none)], [_pick(~read, size, none)]

    @staticmethod
    def registers(r):
        return np.where(Dma.runs(r) > 1, 9, 5)

    @staticmethod
    def transfer(machine, r, ddr, pages_of=extra_pages):
        """Return (cycles without the bandwidth part, bytes charged to DDR) for absolute addresses `ddr`; `pages_of`: counts the
        pages that runs open beyond the fewest (addresses, runs, bytes of a page)."""
        p = r["p"]
        runs = Dma.runs(r)
        burst = machine.chip.ddr_burst
        charged = runs * (ceil_div(p[:, 0] + ddr % burst, burst) * burst)
        pages = pages_of(ddr, p[:, :7], machine.chip.ddr_page)
        startup = np.where(r["opcode"] == 0x301, machine.wdma.startup, machine.rdma.startup)
        return (
            startup + runs * machine.dma.run_overhead + pages * machine.chip.ddr_page_penalty,
            charged,
        )

    @staticmethod
    def ddr_span(r):
        """Return the bytes of the DDR envelope."""
        p = r["p"][:, :7].T
        return envelope(p[0], p[1:])


def _pick(mask, a, b):
    return tuple(np.where(mask, x, y) for x, y in zip(a, b))


class Rdma(Dma):
    UNIT = "rdma"
    FIELDS_SPM = ("dst",)


class Wdma(Dma):
    UNIT = "wdma"
    FIELDS_SPM = ("src",)


declare(Rdma, 0x300, "rdma")
declare(Wdma, 0x301, "wdma")
