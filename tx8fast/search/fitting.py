"""Candidates made into plans, and which of them fit scratchpad.

May import: lower, machine, search.plan. Must not: price or try plans.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast._kernels import BOUNDS
from tx8fast.lower.base import Lowering, round_up
from tx8fast.machine import Machine
from tx8fast.search.plan import BUFS, Plan, least_demand, reloads, sharers, spm_demand
from tx8fast.search.trial import MAX_KEPT


class Fitting:
    """The plans of priced candidates (`prices.priced`), each made once."""

    def __init__(self, low: Lowering, machine: Machine, prices: tuple[np.ndarray, ...]) -> None:
        self.low, self.prices = low, prices
        self.capacity = machine.spm_limit - machine.spm_base
        self.known: dict[int, Plan | None] = {}  # None: does not fit

    def plan(self, i: int) -> Plan | None:
        """Return candidate i as a plan with its scratchpad demand, None if it does not fit."""
        if i not in self.known:
            lens = cut(self.low, self.prices[0][i], self.prices[1][i])[1]
            plan = None
            if least_demand(self.low, lens) <= self.capacity and self.low.fits(lens):
                plan = self._made(i)
            self.known[i] = plan if plan is not None and plan.spm_bytes <= self.capacity else None
        return self.known[i]

    def smallest(self) -> Plan:
        """Return the plan with the least demand of those that were looked at."""
        return min([self._made(i) for i in self.known], key=lambda plan: plan.spm_bytes)

    def _made(self, i: int) -> Plan:
        low = self.low
        parts, slices, inner, cycles, _, bound = self.prices
        plan = make_plan(low, parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])], len(cycles))
        if low.staged:
            plan = self._keep(plan)
        used = spm_demand(low, plan)
        if used > self.capacity and low.overlaps and not low.staged:
            # a group streams more operands than a single op; one copy each may still beat finer slices
            plan = plan.but(bufs=1)
            used = spm_demand(low, plan)
        return plan.but(spm_bytes=used)

    def _keep(self, plan: Plan) -> Plan:
        """Return the plan with its reduction's operands kept in scratchpad if there is room and a second use."""
        red = frozenset(f for f, r in enumerate(self.low.reduce) if r)
        pieces = math.prod(plan.trips[f] for f in red)
        if not 1 < pieces <= MAX_KEPT:
            return plan
        again = [k for k, a in enumerate(self.low.reads)
                 if red & a.factors and k not in self.low.rare and reloads(self.low, plan, a.factors) > pieces]  # fmt: skip
        kept = plan.but(kept=tuple(again))
        return kept if spm_demand(self.low, kept) <= self.capacity else plan


def make_plan(low: Lowering, parts, slices, inner: int, bound: str, n: int) -> Plan:
    shard, lens = cut(low, parts, slices)
    order = [f for f in range(len(shard)) if not low.reduce[f] and f != inner]
    order += [inner] if inner >= 0 else []
    order += [f for f in range(len(shard)) if low.reduce[f]]
    plan = Plan(tuple(parts.tolist()), shard, lens, tuple(order), BUFS, 0, 0, bound, n)
    return plan.but(shared=sharers(low, plan))


def cut(low: Lowering, parts: np.ndarray, slices: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return length per tile and length per slice of every factor."""
    shard = tuple(
        [min(round_up(-(-s // p), u), s) for s, p, u in zip(low.sizes, parts.tolist(), low.units, strict=True)]
    )
    return shard, tuple(map(min, slices.tolist(), shard))
