"""A collective's segment: code by chip and tile.

May import: lower, tile.tiling, isa, machine, program.model. Must not: choose what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.collective import Collective
from tx8fast.lower.transfer import spec_bytes
from tx8fast.machine import Machine
from tx8fast.program.model import SEVERAL, Segment
from tx8fast.schedule.buffers import buffer_table
from tx8fast.tile.tiling import Plan, segment_cycles

N_SLOTS = 2  # operand, result


def collective_segment(
    low: Collective, plan: Plan, machine: Machine, name: str, ops: Sequence[str], barrier: bool
) -> Segment:
    """Return the code of one collective for the tiles of all chips.

    Tiles whose code differs only by a shift in DDR share it.
    """
    n_chips = low.grid.n_chips
    ends = [isa.make("wait"), isa.make("barrier")] if barrier else [isa.make("wait")]
    codes: list[np.ndarray] = []
    known: dict[bytes, int] = {}
    tile_code = np.full(n_chips * machine.n_tiles, -1, np.int32)
    offset = np.zeros((len(tile_code), N_SLOTS), np.int64)
    for at in range(len(tile_code)):
        made = low.rows(*divmod(at, machine.n_tiles))
        if not made and not barrier:
            continue
        code = isa.rows([*made, *ends] if made else ends[1:])
        code["op"] = np.where(isa.units(code) == isa.UNITS.index("sync"), -1, 0)
        for slot in range(N_SLOTS):
            own = code["slot"] == slot
            if own.any():
                offset[at, slot] = code["ddr"][own].min()
                code["ddr"][own] -= offset[at, slot]
        key = code.tobytes()
        if key not in known:
            known[key] = len(codes)
            codes.append(code)
        tile_code[at] = known[key]
    cells = buffer_table((machine.spm_base + at, size, SEVERAL) for at, size in low.places())
    info = {
        "op": low.record.kind,
        "engine": low.kind,
        "bound": plan.bound,
        "useful_macs": 0,
        "rounds": low.part_bytes[1],
        "operand_bytes": spec_bytes(low.source) + spec_bytes(low.result),
    }
    return Segment(
        name,
        codes,
        tile_code,
        np.arange(N_SLOTS, dtype=np.int32),
        offset,
        N_SLOTS,
        list(ops),
        [],
        barrier,
        plan.spm_bytes,
        segment_cycles(plan, machine, barrier),
        info,
        buffers=cells,
    )
