"""Prices of plans whose slices overlap in two halves: engine cycles of one slice times the slices that have work.

May import: lower, isa, machine, search.plan. Must not: try plans, emit programs.

The general pricing kernel knows neither slices without work nor operands that stay in scratchpad. A slice's rows
are measured once per distinct shape; the engines and the DDR work side by side, so the slowest of them is the price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tx8fast import isa
from tx8fast.lower.base import Emitter, Lowering, Slice, round_up
from tx8fast.machine import Machine
from tx8fast.search.plan import Plan, busiest, count_steps, reloads

NEVER = 1 << 40  # cycles of a slice that no scratchpad holds
WORTH = 4  # candidates whose engines need this many times the least are not priced further


def staged_prices(low: Lowering, machine: Machine, parts: np.ndarray, slices: np.ndarray) -> np.ndarray:
    """Return the cycles (n,) of candidates; parts, slices (n, n_factors)."""
    steps: dict[tuple, int] = {}
    busy: dict[tuple, int] = {}
    plans: dict[tuple, Plan] = {}
    keys: list[tuple] = []
    price: dict[tuple, float] = {}
    own = [f for f in range(len(low.sizes)) if f in low.skipping]
    for p, s in zip(parts.tolist(), slices.tolist(), strict=True):
        shard = tuple([min(round_up(-(-n // d), u), n) for n, d, u in zip(low.sizes, p, low.units, strict=True)])
        lens = tuple([min(a, b) for a, b in zip(s, shard, strict=True)])
        keys.append((shard, lens))
        if keys[-1] in price:
            continue
        plan = plans[keys[-1]] = _plan(low, p, shard, lens)
        rest = math.prod(n for f, n in enumerate(plan.trips) if f not in own)
        key = tuple([(shard[f], lens[f]) for f in own])
        if key not in steps:
            steps[key] = count_steps(low, plan) // rest
        if lens not in busy and _too_large(low, machine, lens):
            busy[lens] = NEVER
        if lens not in busy:
            whole = all(not r or n == 1 for r, n in zip(low.reduce, plan.trips, strict=True))
            busy[lens] = _slice_cycles(low, machine, lens, whole)
        price[keys[-1]] = rest * steps[key] * busy[lens]
    worth = WORTH * min(price.values())
    for k, plan in plans.items():
        if price[k] <= worth:
            price[k] = max(price[k], _ddr_cycles(low, machine, plan))
    return np.array([price[k] for k in keys], np.float64)


def _too_large(low: Lowering, machine: Machine, lens: tuple[int, ...]) -> bool:
    """True if one copy of every buffer of such a slice exceeds scratchpad."""
    lo = (0,) * len(lens)
    own = [a.size_bytes(lo, lens) for k, a in enumerate((*low.reads, *low.writes)) if k not in low.rare]
    return sum(own) + sum(low.scratch_bytes(lo, lens)) > machine.spm_limit - machine.spm_base


def _plan(low: Lowering, parts: Sequence[int], shard: tuple[int, ...], lens: tuple[int, ...]) -> Plan:
    order = sorted(range(len(shard)), key=lambda f: low.reduce[f])
    return Plan(tuple(parts), shard, lens, tuple(order), 2, 0, 0, "")


def _slice_cycles(low: Lowering, machine: Machine, lens: tuple[int, ...], whole: bool) -> int:
    """Return the cycles of the busiest engine for one slice in the middle of the loop nest."""
    em = Emitter()
    lo = (0,) * len(lens)
    sizes = [len(low.reads), len(low.writes), len(low.scratch_bytes(lo, lens)), len(low.const_bytes())]
    reads, writes, scratch, consts = ([machine.spm_base] * n for n in sizes)
    low.emit(em, Slice(lo, lens, reads, writes, scratch, consts, machine.spm_base, whole, whole))
    rows = isa.rows(em.rows)
    cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
    return int(np.bincount(isa.units(rows), cycles).max())


def _ddr_cycles(low: Lowering, machine: Machine, plan: Plan) -> float:
    """Return the cycles that all tiles' loads and stores need the DDR; what can stay is loaded once."""
    lo, hi = (0,) * len(plan.shard), plan.slices
    long = tuple([d if r else s for d, s, r in zip(plan.shard, hi, low.reduce, strict=True)])
    red = {f for f, r in enumerate(low.reduce) if r}
    common = [k for k, a in enumerate(low.reads) if red & a.factors and k not in low.rare]
    keeps = sum(low.reads[k].size_bytes(lo, long) for k in common) + sum(low.scratch_bytes(lo, hi)) \
        <= machine.spm_limit - machine.spm_base  # fmt: skip
    total = 0
    for k, a in enumerate((*low.reads, *low.writes)):
        if k in low.rare:
            continue
        if k in common and keeps:
            total += a.size_bytes(lo, long) * reloads(low, plan, a.factors - red)
        else:
            total += a.size_bytes(lo, hi) * reloads(low, plan, a.factors)
    tiles = math.prod(-(-n // d) for n, d in zip(low.sizes, plan.shard, strict=True))
    return total * tiles * low.density(*busiest(low, plan)) / machine.ddr_bytes_per_cycle
