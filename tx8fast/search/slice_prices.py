"""Prices of plans whose operands may stay and whose slices may have no work: engine cycles of one slice times the slices that have some.

May import: lower, isa, machine, _kernels, tile. Must not: try plans, emit programs.

The general pricing kernel knows neither slices without work nor operands that stay in scratchpad. A slice's rows
are measured once per distinct shape; the engines and the DDR work side by side, so the slowest of them is the price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import add

import numpy as np

from tx8fast import isa
from tx8fast._kernels import distinct_rows
from tx8fast.lower.base import Lowering, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.machine import Machine
from tx8fast.search.keeping import keep
from tx8fast.tile.sharing import sharers
from tx8fast.tile.tiling import Plan, Tiling

NEVER = 1 << 40  # cycles of a slice that no scratchpad holds
WORTH = 2  # candidates whose engines need this many times the least price are not priced further


def slice_prices(low: Lowering, machine: Machine, parts: np.ndarray, slices: np.ndarray) -> np.ndarray:
    """Return the cycles (n,) of candidates; parts, slices (n, n_factors)."""
    own = sorted(low.skipping)
    rest = [f for f in range(len(low.sizes)) if f not in own]
    size, unit = np.array(low.sizes, np.int64), np.array(low.units, np.int64)
    shards = np.minimum(-(-(-(-size // parts)) // unit) * unit, size)
    lens = np.minimum(slices, shards)
    trips = -(-shards // lens)
    whole = ((trips == 1) | ~np.array(low.reduce, bool)).all(axis=1)
    cuts = np.hstack([shards, lens])
    first: dict[bytes, int] = {}  # shard and lengths -> the first candidate that has them
    same = [
        first.setdefault(key, i)
        for i, key in enumerate(cuts.view(np.dtype((np.void, cuts[0].nbytes))).ravel().tolist())
    ]
    some = list(first.values())
    own_parts, shards, lens, trips = parts[some], shards[some], lens[some], trips[some]
    forms = [(tuple(n), w) for n, w in zip(lens.tolist(), whole[some].tolist(), strict=True)]
    traffic = Traffic(low, machine)
    busy = _slice_cycles(traffic, list(dict.fromkeys(forms)))
    around = trips[:, rest].prod(axis=1)
    price = around * np.array([busy[form] for form in forms], np.float64)
    order = tuple(sorted(range(len(low.sizes)), key=lambda f: low.reduce[f]))

    def tiling(i: int) -> Tiling:
        pieces, shard, length = (tuple(x[i].tolist()) for x in (own_parts, shards, lens))
        return Tiling(low, Plan(pieces, shard, length, order, 2, 0, 0, ""))

    tile_of, first_of = distinct_rows(shards.view(np.uint64), range(shards.shape[1]))
    density = np.array([low.density(*tiling(i).busiest) for i in first_of.tolist()])
    # about so many slices of the factors whose place matters have work; they are counted where it may matter
    found = price * trips[:, own].prod(axis=1) * density[tile_of]
    steps: dict[bytes, float] = {}  # shard and lengths of these factors -> slices of them, by their work
    own_cuts = np.hstack([shards[:, own], lens[:, own]])
    least = math.inf
    for i in np.argsort(found, kind="stable").tolist():
        if found[i] > WORTH * least or price[i] >= NEVER:
            break
        key, made = own_cuts[i].tobytes(), tiling(i)
        if key not in steps:
            steps[key] = float(np.sum(low.amounts(*made.busiest, made.plan.slices))) if own else 1
        found[i] = price[i] * steps[key]
        if found[i] <= WORTH * least:
            found[i] = max(found[i], traffic.cycles(made))
        least = min(least, found[i])
    out = np.zeros(len(parts))
    out[some] = found
    return out[same]


def _slice_cycles(traffic: Traffic, forms: Sequence[tuple[tuple[int, ...], bool]]) -> dict[tuple, int]:
    """Return the cycles of the busiest engine for slices (lengths, whether they hold whole reductions) in the middle of
    the loop nest: where it depends on the place what they do, far from the border of the slices without work."""
    low, machine = traffic.low, traffic.machine
    at = machine.spm_base
    reads, writes, consts = ([at] * len(x) for x in (low.reads, low.writes, low.const_bytes()))
    scratch = [at] * len(low.scratch_bytes((0,) * len(low.sizes), low.units))
    rows: list[tuple] = []
    begin: list[int] = []
    number: dict[tuple, int] = {}  # what the cycles of a slice depend on -> one of those that are measured
    of: list[int] = []  # which of them every form is; -1: none
    for lens, whole in forms:
        if not traffic.fits(lens):
            of.append(-1)
            continue
        lo = low.hindmost(lens)  # the last rows with the first keys
        hi = tuple(map(add, lo, lens))
        form = low.cost_form(lo, hi), whole
        if form not in number:
            number[form] = len(begin)
            begin.append(len(rows))
            em = Emitter(rows)
            low.emit(em, Slice(lo, hi, reads, writes, scratch, consts, at, whole, whole))
        of.append(number[form])
    made = isa.rows(rows)
    cycles, _ = isa.durations(machine, made, np.zeros(len(made), np.int64))
    units = isa.units(made)
    engines = [np.add.reduceat(np.where(units == u, cycles, 0), begin) for u in set(units.tolist())]
    busy = [*np.maximum.reduce(engines or [np.zeros(0, np.int64)]).tolist(), NEVER]
    return {form: busy[i] for form, i in zip(forms, of, strict=True)}


class Traffic:
    """Cycles that all tiles' loads and stores need the DDR, or one tile's loads its own engine; what can stay is loaded once."""

    def __init__(self, low: Lowering, machine: Machine) -> None:
        self.low, self.machine = low, machine
        self.room = machine.spm_limit - machine.spm_base
        self.red = frozenset(f for f, r in enumerate(low.reduce) if r)
        self.accesses = [(k, a) for k, a in enumerate((*low.reads, *low.writes)) if k not in low.rare]
        self.scratch: dict[tuple[int, ...], int] = {}
        self.parts: dict[tuple[int, ...], float] = {}  # shard -> tiles times the part of their points that have work
        self.starts: dict[
            tuple[int, ...], tuple[int, int]
        ] = {}  # read access, lengths of its factors -> transfers of a load, and runs

    def fits(self, lens: tuple[int, ...]) -> bool:
        """True if scratchpad holds one copy of every buffer of such a slice."""
        size = self.low.slice_bytes(lens)
        return sum([size[k] for k, _ in self.accesses]) + self._scratch(lens) <= self.room

    def cycles(self, tiling: Tiling) -> float:
        """Return the cycles of a plan."""
        low, plan, hi = self.low, tiling.plan, tiling.plan.slices
        long = tuple([d if r else s for d, s, r in zip(plan.shard, hi, low.reduce, strict=True)])
        tiling = keep(tiling.but(shared=sharers(tiling)), self.room)
        kept, shared, total, starts = tiling.plan.kept, tiling.plan.shared, 0.0, 0.0
        for k, a in self.accesses:
            size, fills = (long, a.factors - self.red) if k in kept else (hi, a.factors)
            times, tiles = tiling.fills(fills), shared[k] if k < len(shared) else 1
            total += low.access_bytes(a, size) * times / tiles
            if k < len(low.reads):
                pieces = math.prod([tiling.trips[f] for f in self.red]) if k in kept else 1
                starts += self._starts(k, hi, tiles) * times * pieces
        tiles = math.prod(tiling.pieces)
        if plan.shard not in self.parts:
            self.parts[plan.shard] = tiles * low.density(*tiling.busiest)
        part = self.parts[plan.shard]
        # where the tiles are many all of them need the DDR for longer than one of them its engine
        own = total / min(self.machine.dma.port_bytes, self.machine.ddr_bytes_per_cycle / tiles)
        return max(total * part / self.machine.ddr_bytes_per_cycle, (own + starts) * part / tiles)

    def _starts(self, k: int, lens: tuple[int, ...], tiles: int) -> float:
        """Return the cycles of a load of access k besides those of its bytes, for a slice of such lengths that so many tiles share."""
        access = self.low.reads[k]
        key = (k, *[lens[f] for f in access.sorted_factors])
        if key not in self.starts:
            lo = self.low.hindmost(lens)
            moved = access.transfers(lo, tuple(map(add, lo, lens))) if access.loaded else ()
            self.starts[key] = len(moved), sum([math.prod([n for _, n in d.loops]) for d in moved])
        count, runs = self.starts[key]
        return -(-count // tiles) * self.machine.rdma.startup + runs / tiles * self.machine.dma.run_overhead

    def _scratch(self, lens: tuple[int, ...]) -> int:
        if lens not in self.scratch:
            self.scratch[lens] = sum(self.low.scratch_bytes((0,) * len(lens), lens))
        return self.scratch[lens]
