"""What candidates cost by formulas: every cut of an op over tiles and time at once.

May import: lower, isa, machine, _kernels, search.*. Must not: try or choose plans.

The kernel prices thousands of candidates with closed formulas. Lowerings whose cost does not follow from the sizes of
slices alone have formulas of their own, which measure the instructions of a few slices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tx8fast import isa
from tx8fast._kernels import PlanSpace, distinct_rows, plan_costs
from tx8fast.lower.base import Lowering, Slice
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.lookup import looks_up
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size
from tx8fast.records import dataclass
from tx8fast.search.cuts import candidates
from tx8fast.search.row_prices import row_prices
from tx8fast.search.slice_prices import slice_prices
from tx8fast.tile.sharing import SHARE_MIN_BYTES
from tx8fast.tile.tiling import BUFS

SAMPLE_POINTS = 1 << 17  # size of the slice whose instructions give the price per point


def priced(low: Lowering, machine: Machine) -> tuple[np.ndarray, ...]:
    """Return all candidates (parts, slices, inner factor) with cycles, scratchpad bytes and bound by the formulas."""
    parts, slices, inner = candidates(low, machine.n_tiles)
    cycles, size_bytes, bound = plan_costs(plan_space(low, machine), parts, slices, inner)
    if low.row_factors and not low.overlaps:
        cycles = np.maximum(cycles, ComputeModel.of(low, machine).cycles(low, machine, parts, slices))
    if looks_up(low):
        cycles = row_prices(low, machine, parts, slices, inner)
    if low.keeps:
        # what stays changes with outer loops, so no other order moves fewer bytes than that of the factors
        plain = (inner < 0) | (inner == max(f for f, r in enumerate(low.reduce) if not r))
        cuts, _ = distinct_rows(np.hstack([parts, slices]).view(np.uint64), range(2 * parts.shape[1]))
        plain |= np.bincount(cuts, plain)[cuts] == 0
        parts, slices, inner, size_bytes, bound = (x[plain] for x in (parts, slices, inner, size_bytes, bound))
        cycles = slice_prices(low, machine, parts, slices)
    return parts, slices, inner, cycles, size_bytes, bound


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
            reach.append(d.reach)
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
    few = [min(s, most, 8 * u) for s, u, most in zip(low.sizes, low.units, low.max_len, strict=True)]
    sample = tuple(low.sizes[f] if f in low.steady else n for f, n in enumerate(few))
    results = math.prod(n for n, summed in zip(sample, low.reduce, strict=True) if not summed)
    scratch = sum(low.scratch_bytes((0,) * len(sample), sample)) / max(1, results)
    i64 = lambda x: np.array(x, np.int64)  # noqa: E731
    u8 = lambda x: np.array(x, np.uint8)  # noqa: E731
    scalars = dict(_machine_scalars(machine, fmt if matrix else ""))
    per_point = low.ops_per_point()
    if not matrix and not low.overlaps:
        model = ComputeModel.of(low, machine)
        scalars["ct_startup"] = model.rows * machine.ct.startup
        per_point = model.per_point
    return PlanSpace(
        i64(low.sizes),
        i64(low.units),
        u8(low.reduce),
        role,
        u8([0] * len(low.reads) + [1] * len(low.writes)),
        i64([ITEM_BYTES[a.spec.dtype] for a in accesses]),
        u8([a.spec.layout == "blocked" and len(a.spec.shape) > 1 for a in accesses]),
        u8([*_sharing(low), *[0] * len(low.writes)]),
        u8([a.blocked for a in accesses]),
        i64([block_size(a.spec.dtype) for a in accesses]),
        i64(dim_ptr),
        i64(size),
        i64(reach),
        u8(full),
        i64(term_ptr),
        i64(fac),
        i64(coef),
        scalars,
        1 if low.overlaps else BUFS,
        low.shared_copies,
        matrix,
        per_point,
        scratch,
    )


@lru_cache(maxsize=32)
def _machine_scalars(machine: Machine, fmt: str) -> tuple[tuple[str, float], ...]:
    """Return what the pricing kernel needs of the machine; fmt: format of a product's operands, or none."""
    ne_groups = machine.ne_groups(fmt) if fmt else 4
    return tuple(
        {
            "total_bw": machine.chip.ddr_bw * machine.chip.ddr_efficiency,
            "port": machine.dma.port_bytes,
            "load_startup": machine.rdma.startup,
            "store_startup": machine.wdma.startup,
            "run_overhead": machine.dma.run_overhead,
            "page_penalty": machine.chip.ddr_page_penalty,
            "page": machine.chip.ddr_page,
            "ne_startup": machine.ne.startup,
            "lanes": machine.ne.pe_n * ne_groups,
            "passes": machine.ne_passes(fmt) if fmt else 1,
            "ct_startup": machine.ct.startup,
            "issue_compute": machine.kcore.issue_base + 16 * machine.kcore.issue_per_reg,
            "issue_dma": machine.kcore.issue_base + 9 * machine.kcore.issue_per_reg,
            "share_min": SHARE_MIN_BYTES,
            "link_bytes": machine.noc.link_bytes,
            "exchange": exchange_cycles(machine),
        }.items()
    )


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
    """Cycles of one exchange besides the bytes: the meeting of the sharing tiles, and the send (hardware manual 16.6, 16.7). The core
    waits for the own part and the freed buffer while engines work."""
    diameter = machine.chip.tiles_x + machine.chip.tiles_y - 2
    meet = machine.sync.barrier_base + 2 * diameter * machine.noc.hop_cycles
    send = machine.dte.setup_sw + machine.dte.setup_hw + diameter * machine.noc.hop_cycles
    return meet + send
