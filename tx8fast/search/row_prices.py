"""Prices of plans that move rows of tables: one transfer per row, started by the kernel core in program order.

May import: lower, isa, machine, tile. Must not: try plans, emit programs.

The general pricing kernel knows transfers of whole slices only. Here every row has its own startup, and the kernel core
goes on to a slice's compute when the next slice's rows but the last few, which the queue takes, are loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import Lowering, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.lookup import TableRows
from tx8fast.machine import QUEUE_DEPTH, Machine
from tx8fast.records import dataclass
from tx8fast.tile.tiling import Plan, Tiling

NEVER = float(1 << 40)  # cycles of a slice that no scratchpad holds
WORTH = 1.3  # candidates whose rows need this many times the least price are not priced further
RDMA = isa.UNITS.index("rdma")


@dataclass(frozen=True)
class Work:
    """What a slice gives to do: cycles of the busiest engine, one instruction after the other, and cycles of their issue."""

    compute: float = 0.0
    issue: float = 0.0

    @classmethod
    def of(cls, low: Lowering, machine: Machine, lens: tuple[int, ...]) -> Work:
        em, lo = Emitter(), (0,) * len(lens)
        counts = len(low.reads), len(low.writes), len(low.scratch_bytes(lo, lens)), len(low.const_bytes())
        reads, writes, scratch, consts = ([machine.spm_base] * n for n in counts)
        low.emit(em, Slice(lo, lens, reads, writes, scratch, consts))
        rows = isa.rows(em.rows)
        cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
        busiest = float(np.bincount(isa.units(rows), cycles).max(initial=0))
        return cls(busiest, float(isa.issue_cycles(machine, rows).sum()))


def row_prices(low: Lowering, machine: Machine, parts: np.ndarray, slices: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return the cycles (n,) of candidates; parts, slices (n, n_factors), inner (n,) the innermost factor or -1."""
    unit, size = np.array(low.units, np.int64), np.array(low.sizes, np.int64)
    shards = np.minimum(-(-(-(-size // parts)) // unit) * unit, size)
    lens = np.minimum(slices, shards)
    room = machine.spm_limit - machine.spm_base
    tables = Tables(low, machine)
    tilings: list[Tiling] = []
    out = np.full(len(parts), NEVER)
    for i, (shard, n, last) in enumerate(zip(shards.tolist(), lens.tolist(), inner.tolist(), strict=True)):
        order = sorted(range(len(n)), key=lambda f: f == last)  # noqa: B023
        plan = Plan(tuple(parts[i].tolist()), tuple(shard), tuple(n), tuple(order), 2, 0, 0, "")
        tilings.append(Tiling(low, plan))
        if low.least_bytes(plan.slices) <= room:
            out[i] = _cycles(tilings[i], machine, tables, Work())
    works: dict[tuple[int, ...], Work] = {}
    least = NEVER
    for i in np.argsort(out, kind="stable").tolist():  # rows alone, without what is done with them, cost that much
        if out[i] > WORTH * least or out[i] == NEVER:
            break
        key = tilings[i].plan.slices
        if key not in works:
            works[key] = Work.of(low, machine, key)
        out[i] = _cycles(tilings[i], machine, tables, works[key])
        least = min(least, float(out[i]))
    return out


class Tables:
    """The tables of a lowering, and what one row of each costs."""

    def __init__(self, low: Lowering, machine: Machine) -> None:
        self.machine = machine
        self.reads = [a for a in low.reads if isinstance(a, TableRows)]
        self.known: dict[tuple[int, int], tuple[int, int, int]] = {}

    def rows(self, lens: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
        """Yield of every table the rows that a slice needs, with the cycles of one without its bytes, its bytes, and the
        cycles of its issue."""
        lo = (0,) * len(lens)
        for k, access in enumerate(self.reads):
            key = k, access.run_bytes(lo, lens)
            if key not in self.known:
                row = isa.rows([access.load_one(lo, lens, 0, slot=0)])
                fixed, charged = isa.durations(self.machine, row, np.zeros(1, np.int64))
                self.known[key] = int(fixed[0]), int(charged[0]), int(isa.issue_cycles(self.machine, row)[0])
            yield math.prod([b - a for a, b in access.box(lo, lens)[:-1]]), *self.known[key]


def _cycles(tiling: Tiling, machine: Machine, tables: Tables, work: Work) -> float:
    low, lens = tiling.low, tiling.plan.slices
    steps, tiles = math.prod(tiling.trips), math.prod(tiling.pieces)
    rate = min(float(machine.dma.port_bytes), machine.ddr_bytes_per_cycle / tiles)
    load, moved, waits, issue = 0.0, 0.0, 0.0, work.issue
    for n, fixed, charged, issued in tables.rows(lens):
        load += n * (fixed + charged / rate)
        issue += n * issued
        moved += n * charged
        waits += max(0, n - QUEUE_DEPTH[RDMA]) * (fixed + charged / rate)
    for access in low.reads:
        n_bytes = 0 if isinstance(access, TableRows) else low.access_bytes(access, lens)
        if n_bytes:
            share = tiling.fills(access.factors) / steps
            load += share * (machine.rdma.startup + n_bytes / rate)
            moved += share * n_bytes
    stored = sum([low.access_bytes(a, lens) for a in low.writes])
    store = len(low.writes) * machine.wdma.startup + stored / rate
    moved += stored
    # between slices the DDR has little to do: tiles work in step, and the next transfers have yet to start
    ddr = moved / rate + machine.rdma.startup + machine.wdma.startup
    steady = max(load, store, issue, work.compute + waits, ddr)
    return load + (steps - 1) * steady + work.compute + store
