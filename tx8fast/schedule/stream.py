"""The segment of a stream: one code per tile, since every tile loads other parts of the weights.

May import: lower, tile.tiling, isa, machine, program.model. Must not: choose anything.
"""

from __future__ import annotations

import numpy as np

from tx8fast import isa
from tx8fast.lower.rounds import Stream
from tx8fast.lower.transfer import PIECES, ddr_offset
from tx8fast.machine import Machine
from tx8fast.program.model import SEVERAL
from tx8fast.schedule.buffers import buffer_table
from tx8fast.tile.stream_code import StreamCode
from tx8fast.tile.tiling import Tiling


def stream_codes(low: Stream, tiling: Tiling, barrier: bool, meet: bool
                 ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return the codes, the code of each tile (-1: none), the operand of each DDR slot, and the slots' offsets (tiles, slots)."""
    machine, accesses = low.machine, tiling.accesses
    arguments = [*low.arguments(), len(low.record.operands)]
    offsets = np.zeros((machine.n_tiles, PIECES * len(accesses)), np.int64)
    tile_code = np.full(machine.n_tiles, -1, np.int16)
    codes: list[np.ndarray] = []
    builders: dict[int, StreamCode] = {}
    shares = any(here.shared for here in low.rounds)  # tiles without an image load for the others
    for t, r in enumerate(tiling.ranges):
        if r.idle and not shares:
            continue
        for a, access in enumerate(accesses):
            starts = [x for x, _ in access.box(r.lo, r.hi)]
            offsets[t, PIECES * a : PIECES * a + PIECES] = [ddr_offset(access.spec, starts, q) for q in range(PIECES)]
        own = 0 if r.idle else r.hi[0] - r.lo[0]
        if own not in builders:
            builders[own] = StreamCode(low, machine.spm_base, own, low.images_per_tile, meet, barrier)
        tile_code[t] = len(codes)
        codes.append(isa.roll(builders[own].for_tile(t)))
    return codes, tile_code, np.repeat(np.array(arguments, np.int32), PIECES), offsets


def stream_table(low: Stream, machine: Machine) -> np.ndarray:
    """Return the buffer table of a stream. Weights' buffers are their argument's; the others hold several values in turn."""
    argument = low.arguments()
    fills = [*low.resident, *(f for r in low.rounds for f in (*r.shared, *r.private))]
    owner = {(kind, f.key): argument[f.read] for f in fills for kind in ("fill", "part")}
    return buffer_table(
        (machine.spm_base + low.at[name], size, owner.get(name, SEVERAL)) for name, size in low.held_bytes.items()
    )
