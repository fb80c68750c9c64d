"""The plan of a stream, and how long it takes: tile 0's code on the event kernel.

May import: lower, isa, machine, _kernels, tile. Must not: emit programs.

There is nothing to choose: one image per tile at a time. The other tiles are in step; meeting them and waiting for
their parts takes what `tile.multicast` says, as in `search.trial`.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from tx8fast import isa
from tx8fast._kernels import EventInput, simulate_events
from tx8fast.lower.rounds import Stream
from tx8fast.lower.spread import SpreadStream
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.tile.blocks import SYNC_KINDS, Columns
from tx8fast.tile.multicast import copies_own, exchanges
from tx8fast.tile.sharing import Groups, Loaders
from tx8fast.tile.spread_code import SpreadCode
from tx8fast.tile.stream_code import StreamCode
from tx8fast.tile.tiling import Plan

CT, NE = isa.UNITS.index("ct"), isa.UNITS.index("ne")
TRIED_IMAGES = 3  # the rest continues the rate of the last one


def stream_plan(low: Stream, machine: Machine, name: str) -> Plan:
    """Return the plan. Raises InfeasibleError if images and weights do not fit."""
    low.lay_out(name, lambda: _cycles(low, machine, 1))
    shared = {f.read for s in low.in_turn for f in s.shared_fills()}
    tiles = tuple(low.loaders if k in shared else 1 for k in range(len(low.reads)))
    cycles = sum([_all_cycles(s, machine) for s in low.in_turn])
    n = sum([s.images_per_tile for s in low.in_turn])
    rest = low.sizes[1:]
    ones = (1,) * len(rest)
    order = tuple(range(1 + len(rest)))
    return Plan((low.tiles, *ones), (n, *rest), (1, *ones), order, 1, cycles, low.spm_bytes, "stream", 1, shared=tiles)


def _all_cycles(low: Stream, machine: Machine) -> int:
    n = low.images_per_tile
    known = [_cycles(low, machine, i) for i in range(1, min(n, TRIED_IMAGES) + 1)]
    return known[-1] + (n - len(known)) * (known[-1] - known[-2] if n > len(known) else 0)


def _cycles(low: Stream, machine: Machine, images: int) -> int:
    if low.per_image > 1:
        code: StreamCode | SpreadCode = SpreadCode(cast(SpreadStream, low), machine.spm_base, [0], False)
    else:
        code = StreamCode(low, machine.spm_base, images, images, False, False)
    return _simulate(low, machine, code)


def _simulate(low: Stream, machine: Machine, code: StreamCode | SpreadCode) -> int:
    rows = code.for_tile(0)
    b = Columns(machine, rows)
    at = {
        name: rows["opcode"] == isa.INSTRUCTIONS[name].OPCODE for name in ("send", "recv", "barrier_sub", "send_wait")
    }
    exchange = at["send"] | at["recv"] | at["barrier_sub"]
    kind, issue, fixed, windows = b.kind.copy(), b.issue.copy(), b.fixed.copy(), b.windows.copy()
    others = exchange | at["send_wait"]
    kind[others] = SYNC_KINDS["wait_worker"]
    fixed[exchange] = 0
    windows[others] = 0
    issue[exchange] = 0
    issue[at["recv"]] = [_exchange(machine, *found) for found in code.exchanges]
    none = np.zeros((len(rows), 2), np.int64)
    arg = np.stack([windows, none[:, 0], none[:, 0]], axis=1)
    events = EventInput(
        kind=kind,
        issue=issue,
        spm_read=b.read,
        spm_write=b.write,
        code_begin=np.zeros(1, np.int64),
        tile_begin=np.array([0, len(rows)], np.int64),
        fixed=fixed,
        ddr_bytes=b.ddr_bytes,
        ddr_read=none,
        ddr_write=none,
        worker=rows["worker"].astype(np.uint8),
        arg=arg,
    )
    share = machine.ddr_bytes_per_cycle / max(low.tiles, low.loaders)
    found = simulate_events(events, QUEUE_DEPTH, float(machine.dma.port_bytes), share)
    return machine.kcore.launch_cycles + int(found.cycles)


def _exchange(
    machine: Machine, groups: tuple[Groups, ...], loaders: tuple[Loaders, ...], sizes: tuple[int, ...], meet: bool
) -> int:
    """Return the cycles from the tiles' meeting until fills of `sizes` bytes have arrived everywhere."""
    return exchanges(machine).of(groups, loaders, copies_own(machine)).cycles(sizes, meet)
