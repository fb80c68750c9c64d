"""Candidates made into plans, and which of them fit scratchpad.

May import: lower, machine, _kernels, search.plan, search.trial. Must not: price or try plans.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast._kernels import BOUNDS
from tx8fast.lower.base import Lowering, round_up
from tx8fast.machine import Machine
from tx8fast.search.plan import (
    BUFS,
    Plan,
    least_demand,
    moved_bytes,
    reloads,
    sharers,
    slices_above,
    spm_demand,
    work_bytes,
)
from tx8fast.search.trial import MAX_KEPT


class Fitting:
    """The plans of priced candidates (`prices.priced`), each made once."""

    def __init__(self, low: Lowering, machine: Machine, prices: tuple[np.ndarray, ...]) -> None:
        self.low, self.prices = low, prices
        self.capacity = machine.spm_limit - machine.spm_base
        self.known: dict[int, Plan | None] = {}  # None: does not fit
        self.too_many = 0  # slices: the fewest of a plan that would fit otherwise

    def plan(self, i: int) -> Plan | None:
        """Return candidate i as a plan with its scratchpad demand, None if it does not fit or has too many slices."""
        if i not in self.known:
            shard, lens = cut(self.low, self.prices[0][i], self.prices[1][i])
            plan = None
            if least_demand(self.low, lens) <= self.capacity and self.low.fits(lens):
                plan = self._made(i, shard, lens)
            if plan is not None and plan.spm_bytes > self.capacity:
                plan = None
            if plan is not None and (slices := slices_above(self.low, plan)):
                self.too_many, plan = min(self.too_many or slices, slices), None
            self.known[i] = plan
        return self.known[i]

    def smallest(self) -> Plan:
        """Return the plan with the least demand of those that were looked at."""
        made = [self._made(i, *cut(self.low, self.prices[0][i], self.prices[1][i])) for i in self.known]
        return min(made, key=lambda plan: plan.spm_bytes)

    def _made(self, i: int, shard: tuple[int, ...], lens: tuple[int, ...]) -> Plan:
        low = self.low
        parts, _, inner, cycles, _, bound = self.prices
        plan = _plan(low, parts[i], shard, lens, int(inner[i]), BOUNDS[int(bound[i])], len(cycles))
        if low.staged:
            plan = self._keep(plan)
        work, moved = work_bytes(low, plan), moved_bytes(low, plan)
        if work + moved > self.capacity and low.overlaps and not low.staged:
            # a group streams more operands than a single op; one copy each may still beat finer slices
            plan = plan.but(bufs=1)
            moved = moved_bytes(low, plan)
        return plan.but(spm_bytes=work + moved)

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


def make_plan(low: Lowering, parts: np.ndarray, slices: np.ndarray, inner: int, bound: str, n: int) -> Plan:
    """Return the plan of one of n candidates, with sharing as far as it goes."""
    return _plan(low, parts, *cut(low, parts, slices), inner, bound, n)


def _plan(low: Lowering, parts: np.ndarray, shard: tuple[int, ...], lens: tuple[int, ...], inner: int, bound: str,
          n: int) -> Plan:  # fmt: skip
    free = [f for f, r in enumerate(low.reduce) if not r and f != inner]
    order = (*free, *([inner] if inner >= 0 else []), *(f for f, r in enumerate(low.reduce) if r))
    plan = Plan(tuple(parts.tolist()), shard, lens, order, BUFS, 0, 0, bound, n)
    return plan.but(shared=sharers(low, plan))


def cut(low: Lowering, parts: np.ndarray, slices: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return length per tile and length per slice of every factor."""
    shard = tuple(
        [min(round_up(-(-s // p), u), s) for s, p, u in zip(low.sizes, parts.tolist(), low.units, strict=True)]
    )
    return shard, tuple(map(min, slices.tolist(), shard))
