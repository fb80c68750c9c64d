"""Find the cheapest plan of one op: enumerate cuts, price them all in the kernel, check the best exactly.

May import: graph_table, lower, isa, machine, _kernels, search.*. Must not: emit programs.

The kernel prices thousands of candidates with closed formulas; the few cheapest that fit scratchpad are tried on
the event kernel with the instructions their slices really emit, and the fastest wins. Ties go to
the earlier candidate, so the result never depends on the machine the compiler runs on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tx8fast.lower.base import Lowering
from tx8fast.lower.collective import Collective
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.rounds import Stream
from tx8fast.machine import Machine
from tx8fast.records import cached_property
from tx8fast.search.fitting import Fitting
from tx8fast.search.infeasible import no_plan, too_long
from tx8fast.search.nests import closely_timed
from tx8fast.search.prices import priced
from tx8fast.search.routine import kernel_core_plan
from tx8fast.search.stream_trial import stream_plan
from tx8fast.search.trial import PlanTimer
from tx8fast.tile.tiling import Plan, Tiling

REFINE = 5  # candidates tried on the event kernel, at most
PER_SHARDING = 1  # of them with one sharding, then
#: the same of lowerings whose operands may stay: prices know the engines and the DDR, not how slices overlap. Of attention in nine
#: language models the best of twelve candidates was among these, or less than 2 % away
REFINE_KEPT, PER_SHARDING_KEPT = 9, 6
REFINE_BEST = 2  # more with the best sharding
TRIED_ALONE = (
    2  # of these, plans with shared loads that are also tried without (where operands may stay all of them), unless
)
FIRST_ALONE = 3  # of these, those that are tried first; no program of the replay corpus takes other cycles than where all are tried
FAR_BELOW = (
    1.5  # times the best trial is less than what the DDR needs; sizes in scratchpad are somewhat above those in DDR
)
PROMISING = 0.96  # times the best trial: prices above it are not tried when a record's further lowering was no better
NEAR, COMPARED = (
    1.1,
    4,
)  # times the best one: plans of shared nests, at most so many, that are timed again with more trips
EQUAL = 1.003  # at most, of the cycles of two plans that count as the same
BETTER = 0.999  # times the best trial before
PRICED_ABOVE = 1.15  # times the truth: prices of groups, and of shared loads
PRICED_ABOVE_ALONE = 1.02  # the least price of a single op, which is hardly ever above it
ROOM = 1.2  # times scratchpad: candidates the size formula puts above are looked at last
MAX_LOOKED = 2000  # candidates whose scratchpad demand is worked out


def only_plan(low: Lowering, machine: Machine, name: str = "") -> Plan | None:
    """Return the plan of a lowering that leaves nothing to choose, None of all others. Raises InfeasibleError if it does not fit."""
    if isinstance(low, KernelCore):
        return kernel_core_plan(low, machine, name)
    if isinstance(low, Collective):
        return Plan((), (), (), (), 1, low.estimate_cycles(), low.spm_bytes, "dte")
    return stream_plan(low, machine, name or low.record.kind) if isinstance(low, Stream) else None


class Draft:
    """A lowering whose candidates are priced and none is tried yet. bound: cycles its best plan hardly goes below; where
    there is nothing to choose, its cycles. Raises InfeasibleError if nothing can fit whatever is tried."""

    def __init__(self, low: Lowering, machine: Machine, name: str = "") -> None:
        self.low, self.machine, self.name = low, machine, name
        only = only_plan(low, machine, name)
        self.only = Tiling(low, only) if only is not None else None
        self.near: list[Tiling] = []  # plans that take about as long as the best one, the fastest first
        if only is not None:
            self.bound = float(only.estimate_cycles)
            return
        self.prices = priced(low, machine)
        self.fitting = Fitting(low, machine, self.prices)
        _, _, _, cycles, size_bytes, _ = self.prices
        # the formula is rough, and knows nothing of operands that stay: what may fit is looked at by price
        self.stay = low.keeps  # operands may
        self.fits = self.stay | (size_bytes <= ROOM * self.fitting.capacity)
        least = float(np.min(cycles[self.fits] if self.fits.any() else cycles))
        self.slack = PRICED_ABOVE if low.overlaps else PRICED_ABOVE_ALONE
        self.bound = least / self.slack

    def tighten(self) -> float:
        """Raise a group's bound to what candidates that fit allow, and return it; infinite if none does. Prices of single ops
        are too often above the truth for the first one that fits to be a bound."""
        if self.only is None and self.low.overlaps:
            cycles = self.prices[3]
            first = next((i for i in self._order[:MAX_LOOKED] if self.fitting.tiling(i) is not None), None)
            if first is not None:
                self.bound = max(self.bound, float(cycles[first]) / self.slack)
            elif len(cycles) <= MAX_LOOKED:
                self.bound = math.inf
        return self.bound

    @cached_property
    def _order(self) -> list[int]:
        """Candidates by price, those that hardly fit at the end."""
        order = np.argsort(self.prices[3], kind="stable")
        fits = self.fits[order]
        return [*order[fits].tolist(), *order[~fits].tolist()]

    def best(self, ceiling: float = math.inf, uncut: dict[tuple, int] | None = None) -> Tiling | None:
        """Return the best plan, or None if nothing that is priced near `ceiling` cycles or below fits. uncut: what is known
        of plans that twins have in common. Without a ceiling, raises InfeasibleError if even the finest slices exceed
        scratchpad."""
        if self.only is not None:
            return self.only
        parts, _, _, cycles, size_bytes, _ = self.prices
        shardings: dict[bytes, int] = {}
        later: list[int] = []
        most, each, twice = (
            (REFINE_KEPT, PER_SHARDING_KEPT, REFINE_KEPT) if self.stay else (REFINE, PER_SHARDING, TRIED_ALONE)
        )
        trials = Trials(self.low, self.machine, self.fitting.alone, twice, ceiling, uncut)
        looked, again = 0, ceiling < math.inf
        for i in self._order:
            price = float(cycles[i])
            if again and trials.waiting:
                trials.time()
            if trials.done(most, price) or not trials.tried and looked == MAX_LOOKED:
                break
            if again and trials.missed and not trials.promising(price):
                break
            sharding = parts[i].tobytes()
            tried = shardings.get(sharding, 0)
            if tried == each:
                later.append(i)
                continue
            looked += 1
            if (made := self.fitting.tiling(i)) is not None and trials.unlike(made):
                trials.add(made, price)
                shardings[sharding] = tried + 1
        trials.time()
        if trials.best is None:
            if ceiling < math.inf:
                return None
            # the price of scratchpad is an estimate, and not every candidate was looked at: this one is the last hope
            made = self.fitting.tiling(int(np.argmin(size_bytes)))
            if made is None:
                if self.fitting.too_many:
                    raise too_long(self.low, self.fitting.too_many, self.name)
                raise no_plan(self.fitting.smallest(), self.fitting.capacity, self.name)
            trials.add(made)
            trials.time()
        best = trials.best
        assert best is not None
        for i in (i for i in later if tuple(parts[i]) == best.plan.parts):
            price = float(cycles[i])
            if trials.done(most + REFINE_BEST, price) or again and trials.missed and not trials.promising(price):
                break
            if (made := self.fitting.tiling(i)) is not None and trials.unlike(made):
                trials.add(made, price)
        trials.time()
        trials.compare()
        assert trials.best is not None
        most = NEAR * trials.best.plan.estimate_cycles
        near = [t for t in trials.all if t.plan.estimate_cycles <= most]
        self.near = sorted(near, key=lambda t: t.plan.estimate_cycles)
        return trials.best.but(runner_up=trials.runner_up and trials.runner_up.plan)


class Trials:
    """Candidates tried so far.

    Candidates of nearly one price wait for each other, so that their instructions are made together."""

    def __init__(
        self,
        low: Lowering,
        machine: Machine,
        without: Callable[[Tiling], Tiling],
        twice: int,
        ceiling: float = math.inf,
        uncut: dict[tuple, int] | None = None,
    ) -> None:
        self.low, self.machine = low, machine
        self.without, self.twice = without, twice  # a plan without shared loads, and of how many it is tried
        self.least_cycles = ceiling  # of the best trial, or what has to be beaten
        self.timer = PlanTimer(low, machine, uncut)
        self.best: Tiling | None = None
        self.runner_up: Tiling | None = None
        self.tried = 0
        self.missed = False  # True: the last one was hardly better than those before
        self.waiting: list[Tiling] = []
        self.all: list[Tiling] = []  # that were timed
        #: plans of those that wait, by number, that every tile loads for itself
        self.alone: list[tuple[int, Tiling]] = []
        self.least = math.inf  # price of the first one that waits
        self.forms: set[tuple] = set()  # of all that were looked at

    def done(self, limit: int, price: float) -> bool:
        """Say whether candidates of this price and above need not be tried."""
        if self.tried >= limit or price > PRICED_ABOVE * self.least:
            self.time()
        # prices are seldom above the truth: what is priced well above the best trial cannot win
        return price > PRICED_ABOVE * self.least_cycles or self.tried >= limit

    def unlike(self, made: Tiling) -> bool:
        """Say whether no candidate before was this one: orders of loops of which one alone has several trips are one order."""
        plan = made.plan
        form = plan.parts, plan.slices, plan.kept, tuple([f for f in plan.order if made.trips[f] > 1])
        new = form not in self.forms
        self.forms.add(form)
        return new

    def promising(self, price: float) -> bool:
        """Say whether a candidate of this price may be worth a trial where others of its kind were not."""
        return price <= PROMISING * self.least_cycles

    def add(self, made: Tiling, price: float = math.inf) -> None:
        """Try a candidate that fits with and, for the first few, without shared loads."""
        self.tried += 1
        if not self.waiting:
            self.least = price
        self.waiting.append(made)
        if max(made.plan.shared, default=1) > 1 and self.tried <= self.twice:
            self.alone.append((len(self.waiting) - 1, self.without(made)))

    def compare(self) -> None:
        """Time the plans near the best one again with more of their trips, if others were left out."""
        best = self.best
        if best is None or not closely_timed(best):
            return
        near = [t for t in self.all if t.plan.estimate_cycles <= NEAR * best.plan.estimate_cycles]
        near = sorted(near, key=lambda t: t.plan.estimate_cycles)[:COMPARED]
        self.best = self.runner_up = None
        self.timer = self.timer.closer()
        self._time(near)
        assert self.best is not None
        if not closely_timed(self.best):
            plain = next(t for t in near if t.plan == self.best.plan.but(estimate_cycles=t.plan.estimate_cycles))
            self.best = plain

    def time(self) -> None:
        """Time what waits, and of what is loaded by every tile for itself what the DDR does not rule out: of many those that are like
        the best of what waits, and the others if these come near."""
        if not self.waiting:
            return
        self._time(self.waiting)
        took = [t.plan.estimate_cycles for t in self.all[-len(self.waiting) :]]
        assert self.best is not None
        most = FAR_BELOW * self.best.plan.estimate_cycles
        # what is not shared may have two copies, and then no room
        room = self.machine.spm_limit - self.machine.spm_base
        alone = [(i, t.but(spm_bytes=t.demand_bytes())) for i, t in self.alone if t.ddr_cycles() < most]
        alone = [(i, t) for i, t in alone if t.plan.spm_bytes <= room]
        alone = [t for _, t in sorted(alone, key=lambda x: took[x[0]])]
        self._time(alone[:FIRST_ALONE])
        near = NEAR * self.best.plan.estimate_cycles
        if any(t.plan.estimate_cycles <= near for t in self.all[len(self.all) - len(alone[:FIRST_ALONE]) :]):
            self._time(alone[FIRST_ALONE:])
        self.waiting, self.alone, self.least = [], [], math.inf

    def _time(self, tilings: Sequence[Tiling]) -> None:
        for tiling, cost in zip(tilings, self.timer.all_cycles(tilings, self.least_cycles), strict=True):
            made = tiling.but(estimate_cycles=cost)
            self.all.append(made)
            self.missed = cost >= BETTER * self.least_cycles
            self.least_cycles = min(self.least_cycles, cost)
            if self.best is None or cost < self._to_beat(self.best, made):
                self.best, self.runner_up = made, self.best
            elif self.runner_up is None or cost < self.runner_up.plan.estimate_cycles:
                self.runner_up = made

    @staticmethod
    def _to_beat(best: Tiling, made: Tiling) -> float:
        """Return the cycles below which a plan is taken instead of the best one so far: of plans that take the same time, that of
        fewer slices, because what tiles do to each other one tile does not show."""
        fewer = math.prod(best.trips) - math.prod(made.trips)
        return best.plan.estimate_cycles * (EQUAL if fewer > 0 else 1 / EQUAL if fewer < 0 else 1)
