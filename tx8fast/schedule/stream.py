"""The segment of a stream: one code per tile, since every tile loads other parts of the weights.

May import: lower, tile.tiling, isa, machine, program.model. Must not: choose anything.
"""

from __future__ import annotations

import numpy as np

from tx8fast import isa
from tx8fast.lower.rounds import Stream
from tx8fast.lower.transfer import PIECES, ddr_offsets
from tx8fast.machine import Machine
from tx8fast.program.model import SEVERAL
from tx8fast.schedule.buffers import buffer_table
from tx8fast.tile.stream_codes import stream_code
from tx8fast.tile.tiling import Tiling


def stream_codes(
    low: Stream, tiling: Tiling, barrier: bool, meet: bool
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
    """Return the codes, the code of each tile (-1: none), the operand of each DDR slot, and the slots' offsets (tiles, slots)."""
    machine, accesses = low.machine, tiling.accesses
    arguments = [*low.arguments(), len(low.record.operands)]
    offsets = np.zeros((machine.n_tiles, PIECES * len(accesses)), np.int64)
    tile_code = np.full(machine.n_tiles, -1, np.int16)
    whole, last = low.in_turn[0], low.in_turn[-1]
    each = whole.images_per_tile if whole.per_image == 1 else 0  # images that a tile has for itself
    starts = [t * each if t < whole.tiles else 0 for t in range(machine.n_tiles)]
    rest = low.sizes[1:]
    for t, first in enumerate(starts):
        for a, access in enumerate(accesses):
            begin = [x for x, _ in access.box((first, *[0] * len(rest)), (first + 1, *rest))]
            offsets[t, PIECES * a : PIECES * a + PIECES] = ddr_offsets(access.spec, begin)
    parts = [stream_code(s, starts, barrier or s is not last, meet) for s in low.in_turn]
    codes: list[np.ndarray] = []
    for t in range(machine.n_tiles):
        found = [code(t) for code in parts]
        if any(len(rows) for rows in found):
            tile_code[t] = len(codes)
            codes.append(isa.roll(np.concatenate([rows.view(np.uint8) for rows in found]).view(isa.RECORD)))
    return codes, tile_code, np.repeat(np.array(arguments, np.int32), PIECES), offsets


def stream_table(low: Stream, machine: Machine) -> np.ndarray:
    """Return the buffer table of a stream. Weights' buffers are their argument's; the others hold several values in turn."""
    argument = low.arguments()
    found = []
    for s in low.in_turn:
        owner = {(kind, f.key): argument[f.read] for f in s.all_fills() for kind in ("fill", "part")}
        found += [
            (machine.spm_base + s.at[name], size, owner.get(name, SEVERAL)) for name, size in s.held_bytes.items()
        ]
    return buffer_table(found)
