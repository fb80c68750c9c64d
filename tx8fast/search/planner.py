"""Find the cheapest plan of one op: enumerate cuts, price them all in the kernel, check the best exactly.

May import: graph_table, lower, isa, machine, _kernels, search.*. Must not: emit programs.

The kernel prices thousands of candidates with closed formulas; the few cheapest that fit scratchpad are tried on
the event kernel with the instructions their slices really emit, and the fastest wins. Ties go to
the earlier candidate, so the result never depends on the machine the compiler runs on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tx8fast import isa
from tx8fast._kernels import BOUNDS, PlanSpace, enumerate_shardings, plan_costs
from tx8fast.lower.base import Emitter, Lowering, Slice, round_up
from tx8fast.lower.collective import Collective
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.lower.lookup import looks_up
from tx8fast.lower.rounds import Stream
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size
from tx8fast.search.cuts import candidates
from tx8fast.search.infeasible import no_plan
from tx8fast.search.plan import (
    SHARE_MIN_BYTES,
    Plan,
    ddr_cycles,
    least_demand,
    reloads,
    sharers,
    spm_demand,
)
from tx8fast.search.row_prices import row_prices
from tx8fast.search.staged import staged_prices
from tx8fast.search.stream_trial import stream_plan
from tx8fast.search.trial import MAX_KEPT, PlanTimer

REFINE = 5  # candidates tried on the event kernel, at most
PER_SHARDING = 1  # of them with one sharding, then
REFINE_BEST = 2  # more with the best sharding
TRIED_ALONE = 2  # of these, plans with shared loads that are also tried without, unless
FAR_BELOW = (
    1.5  # times the best trial is less than what the DDR needs; sizes in scratchpad are somewhat above those in DDR
)
PRICED_ABOVE = 1.1  # times the truth: prices of groups, and of shared loads
PRICED_ABOVE_ALONE = 1.02  # the least price of a single op, which is hardly ever above it
ROOM = 1.2  # times scratchpad: candidates the size formula puts above are looked at last
MAX_LOOKED = 2000  # candidates whose scratchpad demand is worked out
SAMPLE_POINTS = 1 << 17  # size of the slice whose instructions give the price per point
BUFS = 2


class Draft:
    """A lowering whose candidates are priced and none is tried yet. bound: cycles its best plan hardly goes below; where
    there is nothing to choose, its cycles. Raises InfeasibleError if nothing can fit whatever is tried."""

    def __init__(self, low: Lowering, machine: Machine, name: str = "") -> None:
        self.low, self.machine, self.name = low, machine, name
        self.only: Plan | None = None
        if isinstance(low, KernelCore):
            self.only = _kernel_core_plan(low, machine)
        elif isinstance(low, Collective):
            self.only = Plan((), (), (), (), 1, low.estimate_cycles(), low.spm_bytes, "dte")
        elif isinstance(low, Stream):
            self.only = stream_plan(low, machine, name or low.record.kind)
        if self.only is not None:
            self.bound = float(self.only.estimate_cycles)
            return
        self.prices = priced(low, machine)
        _, _, _, cycles, size_bytes, _ = self.prices
        # the formula is rough, and knows nothing of staged lowerings: what may fit is looked at by price
        self.fits = low.staged | (size_bytes <= ROOM * (machine.spm_limit - machine.spm_base))
        least = float(np.min(cycles[self.fits] if self.fits.any() else cycles))
        self.bound = least / (PRICED_ABOVE if low.overlaps else PRICED_ABOVE_ALONE)

    def best(self, ceiling: float = math.inf, uncut: dict[tuple, int] | None = None) -> Plan | None:
        """Return the best plan, or None if nothing that is priced near `ceiling` cycles or below fits. uncut: what is known
        of plans that twins have in common. Without a ceiling, raises InfeasibleError if even the finest slices exceed
        scratchpad."""
        if self.only is not None:
            return self.only
        parts, slices, inner, cycles, size_bytes, bound = self.prices
        order = np.argsort(cycles, kind="stable")
        trials = Trials(self.low, self.machine, len(order), ceiling, uncut)
        shardings: dict[bytes, int] = {}
        later: list[int] = []
        fits = self.fits[order]
        for i in itertools.chain(order[fits], order[~fits]):
            if trials.done(REFINE, float(cycles[i])):
                break
            tried = shardings.get(parts[i].tobytes(), 0)
            if tried == PER_SHARDING:
                later.append(i)
            elif trials.run(parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])], float(cycles[i])):
                shardings[parts[i].tobytes()] = tried + 1
        trials.time()
        if trials.best is None:
            if ceiling < math.inf:
                return None
            # the price of scratchpad is an estimate, and not every candidate was looked at: this one is the last hope
            i = int(np.argmin(size_bytes))
            if not trials.run(parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])]):
                assert trials.smallest is not None
                raise no_plan(self.low, trials.smallest, trials.capacity, self.name)
            trials.time()
        best = trials.best
        assert best is not None
        for i in (i for i in later if tuple(parts[i]) == best.parts):
            if trials.done(REFINE + REFINE_BEST, float(cycles[i])):
                break
            trials.run(parts[i], slices[i], int(inner[i]), BOUNDS[int(bound[i])], float(cycles[i]))
        trials.time()
        assert trials.best is not None
        return replace(trials.best, runner_up=trials.runner_up)


def priced(low: Lowering, machine: Machine) -> tuple[np.ndarray, ...]:
    """Return all candidates (parts, slices, inner factor) with cycles, scratchpad bytes and bound by the formulas."""
    parts, slices, inner = candidates(low, machine.n_tiles)
    cycles, size_bytes, bound = plan_costs(plan_space(low, machine), parts, slices, inner)
    if low.row_factors and not low.overlaps:
        cycles = np.maximum(cycles, ComputeModel.of(low, machine).cycles(low, machine, parts, slices))
    if looks_up(low):
        cycles = row_prices(low, machine, parts, slices, inner)
    if low.staged:
        cycles = staged_prices(low, machine, parts, slices)
    return parts, slices, inner, cycles, size_bytes, bound


class Trials:
    """Candidates tried so far. `smallest`: the one with the least scratchpad demand, if none could be used.

    Candidates of nearly one price wait for each other, so that their instructions are made together."""

    def __init__(self, low: Lowering, machine: Machine, n_candidates: int, ceiling: float = math.inf,
                 uncut: dict[tuple, int] | None = None) -> None:  # fmt: skip
        self.low, self.machine, self.n, self.ceiling = low, machine, n_candidates, ceiling
        self.capacity = machine.spm_limit - machine.spm_base
        self.timer = PlanTimer(low, machine, uncut)
        self.best: Plan | None = None
        self.runner_up: Plan | None = None
        self.smallest: Plan | None = None
        self.hopeless = 0  # bytes: what needs as much does not fit, and is not the smallest
        self.tried = self.looked = 0
        self.waiting: list[Plan] = []
        self.alone: list[Plan] = []  # plans of these that every tile loads for itself
        self.least = math.inf  # price of the first one that waits

    def done(self, limit: int, price: float) -> bool:
        """Say whether candidates of this price and above need not be tried."""
        if self.tried >= limit or price > PRICED_ABOVE * self.least:
            self.time()
        if price > PRICED_ABOVE * min(self.best.estimate_cycles if self.best is not None else math.inf, self.ceiling):
            return True  # prices are seldom above the truth: what is priced well above the best trial cannot win
        return self.tried >= limit if self.tried else self.looked >= MAX_LOOKED

    def run(self, parts, slices, inner: int, bound: str, price: float = math.inf) -> bool:
        """Try a candidate with and, for the first few, without shared loads. Return False if it does not fit."""
        if self.smallest is not None and least_demand(self.low, cut(self.low, parts, slices)[1]) >= self.hopeless:
            self.looked += 1
            return False
        plan = make_plan(self.low, parts, slices, inner, bound, self.n)
        if self.low.staged:
            plan = self._keep(plan)
        used = spm_demand(self.low, plan)
        if used > self.capacity and self.low.overlaps and not self.low.staged:
            # a group streams more operands than a single op; one copy each may still beat finer slices
            plan = replace(plan, bufs=1)
            used = spm_demand(self.low, plan)
        self.looked += 1
        if used > self.capacity or not _encodable(self.low, plan):
            if self.smallest is None or used < self.smallest.spm_bytes:
                self.smallest = replace(plan, spm_bytes=used)
                self.hopeless = max(used, self.capacity + 1)
            return False
        self.tried += 1
        if not self.waiting:
            self.least = price
        self.waiting.append(replace(plan, spm_bytes=used))
        if max(plan.shared, default=1) > 1 and self.tried <= TRIED_ALONE:
            self.alone.append(replace(plan, shared=()))
        return True

    def time(self) -> None:
        """Time what waits, and of what is loaded by every tile for itself what the DDR does not rule out."""
        self._time(self.waiting)
        most = FAR_BELOW * self.best.estimate_cycles if self.best is not None else math.inf
        hopeful = [p for p in self.alone if ddr_cycles(self.low, p, self.machine) < most]
        self._time([replace(p, spm_bytes=spm_demand(self.low, p)) for p in hopeful])
        self.waiting, self.alone, self.least = [], [], math.inf

    def _time(self, plans: Sequence[Plan]) -> None:
        for plan, cost in zip(plans, self.timer.all_cycles(plans), strict=True):
            made = replace(plan, estimate_cycles=cost)
            if self.best is None or cost < self.best.estimate_cycles:
                self.best, self.runner_up = made, self.best
            elif self.runner_up is None or cost < self.runner_up.estimate_cycles:
                self.runner_up = made

    def _keep(self, plan: Plan) -> Plan:
        """Return the plan with its reduction's operands kept in scratchpad if there is room and a second use."""
        red = frozenset(f for f, r in enumerate(self.low.reduce) if r)
        pieces = math.prod(plan.trips[f] for f in red)
        if not 1 < pieces <= MAX_KEPT:
            return plan
        again = [k for k, a in enumerate(self.low.reads)
                 if red & a.factors and k not in self.low.rare and reloads(self.low, plan, a.factors) > pieces]  # fmt: skip
        kept = replace(plan, kept=tuple(again))
        return kept if spm_demand(self.low, kept) <= self.capacity else plan


def _kernel_core_plan(low: KernelCore, machine: Machine) -> Plan:
    """Return the sharding that keeps most kernel cores busy; a routine runs in one piece on each tile."""
    limit = [machine.n_tiles if ok else 1 for ok in low.shard]
    vectors, _, _ = enumerate_shardings(low.sizes, low.units, machine.n_tiles, limit)
    ones = np.ones(len(low.sizes), np.int64)
    busy = lambda v: math.prod(-(-s // -(-s // int(p))) for s, p in zip(low.sizes, v, strict=True))  # noqa: E731
    parts = tuple(int(p) for p in max([ones, *vectors], key=busy))
    shard = tuple(-(-s // p) for s, p in zip(low.sizes, parts, strict=True))
    elems = low.descriptor((0,) * len(shard), shard)[1]
    rows = isa.rows([isa.make("kcore", routine=0, elems=elems), isa.make("wait"), isa.make("barrier")])
    cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
    cost = int(cycles.sum() + isa.issue_cycles(machine, rows).sum())
    return Plan(parts, shard, shard, tuple(range(len(shard))), 1, cost, 0, "kernel core", len(vectors))


def make_plan(low: Lowering, parts, slices, inner: int, bound: str, n: int) -> Plan:
    shard, lens = cut(low, parts, slices)
    order = [f for f in range(len(shard)) if not low.reduce[f] and f != inner]
    order += [inner] if inner >= 0 else []
    order += [f for f in range(len(shard)) if low.reduce[f]]
    plan = Plan(tuple(parts.tolist()), shard, lens, tuple(order), BUFS, 0, 0, bound, n)
    return replace(plan, shared=sharers(low, plan))


def cut(low: Lowering, parts: np.ndarray, slices: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return length per tile and length per slice of every factor."""
    shard = tuple(
        [min(round_up(-(-s // p), u), s) for s, p, u in zip(low.sizes, parts.tolist(), low.units, strict=True)]
    )
    return shard, tuple(map(min, slices.tolist(), shard))


def _encodable(low: Lowering, plan: Plan) -> bool:
    return low.fits(plan.slices)


def _slice_rows(low: Lowering, machine: Machine, lens: Sequence[int]) -> tuple[int, int]:
    """Return instructions of a slice and their cycles one after the other."""
    em = Emitter()
    lo, hi = (0,) * len(lens), tuple(lens)
    sizes = [len(low.reads), len(low.writes), len(low.scratch_bytes(lo, hi)), len(low.const_bytes())]
    reads, writes, scratch, consts = ([machine.spm_base] * n for n in sizes)
    low.emit(em, Slice(lo, hi, reads, writes, scratch, consts, machine.spm_base))
    rows = isa.rows(em.rows)
    cycles, _ = isa.durations(machine, rows, np.zeros(len(rows), np.int64))
    return len(rows), int(cycles.sum())


@dataclass(frozen=True)
class ComputeModel:
    """Cycles of a slice's instructions, one after the other: rows * startup + points * per_point. The number of rows
    grows by `growth` with every further unit point of `Lowering.row_factors`."""

    rows: int
    growth: float
    per_point: float

    @classmethod
    def of(cls, low: Lowering, machine: Machine) -> ComputeModel:
        """Measure two slices: a large one for the rate, one that is short in `row_factors` for the growth."""
        lens = list(low.units)
        points = math.prod(lens)
        for f in reversed(range(len(lens))):
            n = min(low.sizes[f], low.max_len[f], 64 * low.units[f], lens[f] * max(1, SAMPLE_POINTS // points))
            points = points // lens[f] * n
            lens[f] = n
        units = math.prod(-(-lens[f] // low.units[f]) for f in low.row_factors)
        rows, took = _slice_rows(low, machine, lens)
        least = [u if f in low.row_factors else n for f, (u, n) in enumerate(zip(low.units, lens, strict=True))]
        base = _slice_rows(low, machine, least)[0] if units > 1 else rows
        return cls(base, (rows - base) / max(1, units - 1), max(0, took - rows * machine.ct.startup) / points)

    def cycles(self, low: Lowering, machine: Machine, parts: np.ndarray, slices: np.ndarray) -> np.ndarray:
        """Return the vector engine's cycles of every candidate, parts and slices (n, n_factors)."""
        unit = np.array(low.units, np.int64)
        shard = np.minimum(-(-(-(-np.array(low.sizes) // parts)) // unit) * unit, low.sizes)
        lens = np.minimum(slices, shard)
        units = np.prod(-(-lens // unit)[:, list(low.row_factors)], axis=1)
        rows = self.rows + self.growth * (units - 1)
        return np.prod(-(-shard // lens), axis=1) * (rows * machine.ct.startup + np.prod(lens, axis=1) * self.per_point)


def plan_space(low: Lowering, machine: Machine) -> PlanSpace:
    """Return the op's loop space in the arrays that the pricing kernel reads."""
    accesses: Sequence = [*low.reads, *low.writes]
    dim_ptr, size, reach, full, term_ptr, fac, coef = [0], [], [], [], [0], [], []
    for a in accesses:
        for d in a.dims:
            size.append(d.size)
            reach.append(getattr(d, "reach", getattr(d, "width", 1) - 1))
            full.append(int(d.full))
            for f, c in d.terms:
                fac.append(f)
                coef.append(abs(c))
            term_ptr.append(len(fac))
        dim_ptr.append(len(size))
    matrix = isinstance(low, Contraction)
    role = np.zeros(len(low.sizes), np.int64)
    fmt = low.reads[0].spec.dtype if low.reads else "bf16"
    if isinstance(low, Contraction):
        for r, group in enumerate(low.groups()):
            role[group] = r
    sample = tuple(min(s, 8 * u) for s, u in zip(low.sizes, low.units, strict=True))
    results = math.prod(n for n, summed in zip(sample, low.reduce, strict=True) if not summed)
    scratch = sum(low.scratch_bytes((0,) * len(sample), sample)) / max(1, results)
    i64 = lambda x: np.array(x, np.int64)  # noqa: E731
    u8 = lambda x: np.array(x, np.uint8)  # noqa: E731
    ne_groups = machine.ne_groups(fmt) if matrix else 4
    scalars = {
        "total_bw": machine.chip.ddr_bw * machine.chip.ddr_efficiency, "port": machine.dma.port_bytes,
        "load_startup": machine.rdma.startup, "store_startup": machine.wdma.startup,
        "run_overhead": machine.dma.run_overhead, "page_penalty": machine.chip.ddr_page_penalty,
        "page": machine.chip.ddr_page, "ne_startup": machine.ne.startup, "lanes": machine.ne.pe_n * ne_groups,
        "passes": machine.ne_passes(fmt) if matrix else 1, "ct_startup": machine.ct.startup,
        "issue_compute": machine.kcore.issue_base + 16 * machine.kcore.issue_per_reg,
        "issue_dma": machine.kcore.issue_base + 9 * machine.kcore.issue_per_reg,
        "share_min": SHARE_MIN_BYTES, "link_bytes": machine.noc.link_bytes, "exchange": exchange_cycles(machine),
    }  # fmt: skip
    per_point = low.ops_per_point()
    if not matrix and not low.overlaps:
        model = ComputeModel.of(low, machine)
        scalars["ct_startup"] = model.rows * machine.ct.startup
        per_point = model.per_point
    return PlanSpace(
        i64(low.sizes), i64(low.units), u8(low.reduce), role, u8([0] * len(low.reads) + [1] * len(low.writes)),
        i64([ITEM_BYTES[a.spec.dtype] for a in accesses]),
        u8([a.spec.layout == "blocked" and len(a.spec.shape) > 1 for a in accesses]),
        u8([*_sharing(low), *[0] * len(low.writes)]),
        u8([a.blocked for a in accesses]), i64([block_size(a.spec.dtype) for a in accesses]),
        i64(dim_ptr), i64(size), i64(reach), u8(full), i64(term_ptr), i64(fac), i64(coef),
        scalars, 1 if low.overlaps else BUFS, low.shared_copies, matrix, per_point, scratch,
    )  # fmt: skip


def _sharing(low: Lowering) -> list[int]:
    """Return per read 0 if tiles load it alone, 1 if they may share it, 2 if its parts then come with another read's."""
    seen: set[frozenset[int]] = set()
    out = []
    for k, access in enumerate(low.reads):
        out.append(int(low.may_share(k)) * (1 + (access.factors in seen)))
        if out[-1]:
            seen.add(access.factors)
    return out


def exchange_cycles(machine: Machine) -> float:
    """Cycles of one exchange besides the bytes: waits for the own part and the freed buffer, the meeting of the
    sharing tiles, and the send (hardware manual 16.6, 16.7)."""
    diameter = machine.chip.tiles_x + machine.chip.tiles_y - 2
    meet = machine.sync.barrier_base + 2 * diameter * machine.noc.hop_cycles
    send = machine.dte.setup_sw + machine.dte.setup_hw + diameter * machine.noc.hop_cycles
    return 3 * machine.kcore.wait_cycles + meet + send
