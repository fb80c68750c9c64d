"""Prices of plans that move rows of tables: one transfer per row, started by the kernel core in program order.

May import: lower, isa, machine, search.plan. Must not: try plans, emit programs.

The general pricing kernel knows transfers of whole slices only. Here every row has its own startup, and the kernel core
goes on to a slice's compute when the next slice's rows but the last few, which the queue takes, are loaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import Emitter, Lowering, Slice
from tx8fast.lower.lookup import TableRows
from tx8fast.machine import Machine
from tx8fast.search.exchange import QUEUE_DEPTH
from tx8fast.search.plan import Plan, reloads

NEVER = float(1 << 40)  # cycles of a slice that no scratchpad holds
RDMA = isa.UNITS.index("rdma")


@dataclass(frozen=True)
class Work:
    """What a slice gives to do: cycles of the busiest engine, one instruction after the other, cycles of their issue, and
    of every table its rows with the cycles of one without its bytes, its bytes, and the cycles of its issue."""

    compute: float
    issue: float
    tables: tuple[tuple[int, int, int, int], ...] = ()

    @classmethod
    def of(cls, low: Lowering, machine: Machine, lens: tuple[int, ...]) -> Work:
        em, lo = Emitter(), (0,) * len(lens)
        if sum(a.size_bytes(lo, lens) for a in (*low.reads, *low.writes)) > machine.spm_limit - machine.spm_base:
            return cls(NEVER, NEVER)
        counts = len(low.reads), len(low.writes), len(low.scratch_bytes(lo, lens)), len(low.const_bytes())
        reads, writes, scratch, consts = ([machine.spm_base] * n for n in counts)
        low.emit(em, Slice(lo, lens, reads, writes, scratch, consts))
        rows = isa.rows(em.rows)
        cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
        busiest = float(np.bincount(isa.units(rows), cycles).max(initial=0))
        tables = []
        for access in (a for a in low.reads if isinstance(a, TableRows)):
            row = isa.rows([access.load_one(lo, lens, 0, slot=0)])
            fixed, charged = isa.durations(machine, row, np.zeros(1, np.int64))
            n = math.prod(b - a for a, b in access.box(lo, lens)[:-1])
            tables.append((n, int(fixed[0]), int(charged[0]), int(isa.issue_cycles(machine, row)[0])))
        return cls(busiest, float(isa.issue_cycles(machine, rows).sum()), tuple(tables))


def row_prices(low: Lowering, machine: Machine, parts: np.ndarray, slices: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return the cycles (n,) of candidates; parts, slices (n, n_factors), inner (n,) the innermost factor or -1."""
    unit, size = np.array(low.units, np.int64), np.array(low.sizes, np.int64)
    shards = np.minimum(-(-(-(-size // parts)) // unit) * unit, size)
    lens = np.minimum(slices, shards)
    works: dict[tuple[int, ...], Work] = {}
    out = np.zeros(len(parts))
    for i, (shard, n, last) in enumerate(zip(shards.tolist(), lens.tolist(), inner.tolist(), strict=True)):
        key = tuple(n)
        if key not in works:
            works[key] = Work.of(low, machine, key)
        order = sorted(range(len(n)), key=lambda f: f == last)  # noqa: B023
        plan = Plan(tuple(parts[i].tolist()), tuple(shard), key, tuple(order), 2, 0, 0, "")
        out[i] = _cycles(low, machine, plan, works[key])
    return out


def _cycles(low: Lowering, machine: Machine, plan: Plan, work: Work) -> float:
    lo, steps = (0,) * len(plan.shard), math.prod(plan.trips)
    tiles = math.prod(-(-s // d) for s, d in zip(low.sizes, plan.shard, strict=True))
    rate = min(float(machine.dma.port_bytes), machine.ddr_bytes_per_cycle / tiles)
    load, moved, waits, issue = 0.0, 0.0, 0.0, work.issue
    for n, fixed, charged, issued in work.tables:
        load += n * (fixed + charged / rate)
        issue += n * issued
        moved += n * charged
        waits += max(0, n - QUEUE_DEPTH[RDMA]) * (fixed + charged / rate)
    for access in low.reads:
        n_bytes = 0 if isinstance(access, TableRows) else access.size_bytes(lo, plan.slices)
        if n_bytes:
            share = reloads(low, plan, access.factors) / steps
            load += share * (machine.rdma.startup + n_bytes / rate)
            moved += share * n_bytes
    store = sum(machine.wdma.startup + a.size_bytes(lo, plan.slices) / rate for a in low.writes)
    moved += sum(a.size_bytes(lo, plan.slices) for a in low.writes)
    # between slices the DDR has little to do: tiles work in step, and the next transfers have yet to start
    ddr = moved / rate + machine.rdma.startup + machine.wdma.startup
    steady = max(load, store, issue, work.compute + waits, ddr)
    return load + (steps - 1) * steady + work.compute + store
