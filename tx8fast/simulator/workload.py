"""How much work a segment gives every engine, whatever waits for what.

May import: program.model, machine, and timing beside it. Must not: run anything.
"""

from __future__ import annotations

import numpy as np

from tx8fast.machine import Machine
from tx8fast.program.model import Segment
from tx8fast.simulator.timing import ENGINES, KCORE, SegmentCode


def engine_cycles(machine: Machine, segment: Segment) -> dict[str, int]:
    """Return the cycles of each engine's instructions on the tile that has most of them, one after the other, and of
    the DDR for the bytes of all tiles at its full rate. Addresses are taken to begin at a DDR page.

    Raises SimulationError for instructions without a timing.
    """
    unrolled = SegmentCode(machine, segment)
    most = np.zeros(KCORE + 1, np.int64)
    per_code = []
    for code in unrolled.codes:
        fixed, moved = code.durations(np.zeros(len(segment.slot_arg), np.int64))
        # a transfer takes its own time and that of its bytes through the port
        cycles = fixed + moved // machine.dma.port_bytes
        engines = code.kind <= KCORE
        sums = np.bincount(code.kind[engines], cycles[engines], KCORE + 1).astype(np.int64)
        most = np.maximum(most, sums)
        per_code.append(int(moved.sum()))
    ddr_bytes = sum(per_code[c] for c in segment.tile_code.tolist() if c >= 0)
    out = dict(zip((*ENGINES, "kcore"), most.tolist(), strict=True))
    return {**out, "ddr": int(ddr_bytes / machine.ddr_bytes_per_cycle)}
