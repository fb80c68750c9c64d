"""Candidates made into plans, and which of them fit scratchpad.

May import: lower, machine, _kernels, tile, search.trial. Must not: price or try plans.
"""

from __future__ import annotations

import numpy as np

from tx8fast._kernels import BOUNDS
from tx8fast.lower.base import Lowering, round_up
from tx8fast.machine import Machine
from tx8fast.search.keeping import keep
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import BUFS, Plan, Tiling


class Fitting:
    """The plans of priced candidates (`prices.priced`), each made once."""

    def __init__(self, low: Lowering, machine: Machine, prices: tuple[np.ndarray, ...]) -> None:
        self.low, self.prices = low, prices
        self.capacity = machine.spm_limit - machine.spm_base
        self.known: dict[int, Tiling | None] = {}  # None: does not fit
        self.too_many = 0  # slices: the fewest of a plan that would fit otherwise

    def tiling(self, i: int) -> Tiling | None:
        """Return candidate i with its scratchpad demand, None if it does not fit or has too many slices."""
        if i not in self.known:
            shard, lens = cut(self.low, self.prices[0][i], self.prices[1][i])
            made = None
            if self.low.least_bytes(lens) <= self.capacity and self.low.fits(lens):
                made = self._made(i, shard, lens)
            if made is not None and made.plan.spm_bytes > self.capacity:
                made = None
            if made is not None and (steps := made.steps_above):
                self.too_many, made = min(self.too_many or steps, steps), None
            self.known[i] = made
        return self.known[i]

    def smallest(self) -> Tiling:
        """Return the plan with the least demand of those that were looked at."""
        made = [self._made(i, *cut(self.low, self.prices[0][i], self.prices[1][i])) for i in self.known]
        return min(made, key=lambda tiling: tiling.plan.spm_bytes)

    def _made(self, i: int, shard: tuple[int, ...], lens: tuple[int, ...]) -> Tiling:
        low = self.low
        parts, _, inner, cycles, _, bound = self.prices
        made = _tiling(low, parts[i], shard, lens, int(inner[i]), BOUNDS[int(bound[i])], len(cycles))
        made = keep(made, self.capacity)
        demand = made.demand_bytes()
        if demand > self.capacity and low.keeps and max(made.plan.shared, default=1) > 1:
            made = self.alone(made)
            demand = made.demand_bytes()
        if demand > self.capacity and low.overlaps and not low.keeps:
            # a group streams more operands than a single op; one copy each may still beat finer slices
            made = made.but(bufs=1)
            demand = made.demand_bytes()
        return made.but(spm_bytes=demand)

    def alone(self, made: Tiling) -> Tiling:
        """Return the plan with every tile loading for itself, and keeping what it then has room for."""
        return keep(made.but(shared=(), kept=()), self.capacity)


def make_tiling(low: Lowering, parts: np.ndarray, slices: np.ndarray, inner: int, bound: str, n: int) -> Tiling:
    """Return one of n candidates, with sharing as far as it goes."""
    return _tiling(low, parts, *cut(low, parts, slices), inner, bound, n)


def _tiling(
    low: Lowering, parts: np.ndarray, shard: tuple[int, ...], lens: tuple[int, ...], inner: int, bound: str, n: int
) -> Tiling:
    free = [f for f, r in enumerate(low.reduce) if not r and f != inner]
    order = (*free, *([inner] if inner >= 0 else []), *(f for f, r in enumerate(low.reduce) if r))
    made = Tiling(low, Plan(tuple(parts.tolist()), shard, lens, order, BUFS, 0, 0, bound, n))
    return made.but(shared=sharers(made))


def cut(low: Lowering, parts: np.ndarray, slices: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return length per tile and length per slice of every factor."""
    shard = tuple(
        [min(round_up(-(-s // p), u), s) for s, p, u in zip(low.sizes, parts.tolist(), low.units, strict=True)]
    )
    return shard, tuple(map(min, slices.tolist(), shard))
