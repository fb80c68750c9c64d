"""How one lowering is cut over tiles and time: the choice (`Plan`), and what follows from it (`Tiling`).

May import: lower, isa, machine, tile.sharing. Must not: know how plans are found, emit instructions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tx8fast import isa
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, Lowering, round_up
from tx8fast.machine import Machine
from tx8fast.records import cached_property, dataclass
from tx8fast.tile import sharing

MAX_SLICES = (
    1 << 17
)  # of a tile in one launch: each is some rows of code, and a minute goes by while so many are emitted
BUFS = 2  # copies of a buffer that is filled more than once
CUTS = frozenset({"parts", "shard", "slices", "order"})  # fields of a plan; what follows from them alone:
OF_CUTS = ("trips", "pieces", "filled", "busiest", "steps", "slice_bytes", "ranges")


@dataclass(frozen=True)
class Plan:
    """One choice per factor. Lengths in factor points.

    parts: pieces over tiles; shard: length per tile; slices: length per time slice; order: loop order, outermost
    first (reductions last); bufs: copies of a buffer that is loaded or stored more than once.
    """

    parts: tuple[int, ...]
    shard: tuple[int, ...]
    slices: tuple[int, ...]
    order: tuple[int, ...]
    bufs: int
    estimate_cycles: int
    spm_bytes: int
    bound: str
    candidates: int = 1
    shared: tuple[int, ...] = ()  # per read access: tiles that load it together and pass it on (1: alone)
    runner_up: Plan | None = None  # the second best of those that were tried
    held: frozenset[int] = frozenset()  # accesses (reads, then writes) that stay in scratchpad: not loaded, not stored
    kept: tuple[
        int, ...
    ] = ()  # accesses with a buffer per slice: of a reduction, loaded when first needed; of a result
    #: (read access, columns) of operands of which every tile that needs them has so many columns from the nest before
    gathered: tuple[tuple[int, int], ...] = ()
    #: read accesses with a buffer per slice, all of them filled before the nest begins: tiles have sent each other what is in them, or it
    #: is what an earlier nest has left
    delivered: tuple[int, ...] = ()

    @property
    def runner_up_cycles(self) -> int:
        """Cycles of the second best plan, 0 if there is none."""
        return self.runner_up.estimate_cycles if self.runner_up is not None else 0

    @property
    def waits(self) -> bool:
        """True if it is transfers that it waits for: a plan that waits for an engine gains nothing by moving less."""
        return self.bound in ("ddr", "load")

    def but(self, **fields: Any) -> Plan:
        """Return the plan with other fields; searches ask for thousands, so the rest is not looked at again."""
        out = object.__new__(Plan)
        out.__dict__.update(self.__dict__, **fields)
        return out


@dataclass(frozen=True)
class TileRange:
    """Half-open factor range of one tile; empty in any factor means the tile idles."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def idle(self) -> bool:
        return any(a >= b for a, b in zip(self.lo, self.hi, strict=True))


class Tiling:
    """A plan of a lowering, wherever it stands in a model. What follows from it is worked out when first asked for."""

    def __init__(self, low: Lowering, plan: Plan) -> None:
        self.low, self.plan = low, plan

    def but(self, **fields: Any) -> Tiling:
        """Return the tiling with other fields of its plan."""
        out = Tiling(self.low, self.plan.but(**fields))
        if CUTS.isdisjoint(fields):
            own = self.__dict__
            out.__dict__.update({name: own[name] for name in OF_CUTS if name in own})
        return out

    # -- loops ---------------------------------------------------------------------------------------------------

    @cached_property
    def trips(self) -> tuple[int, ...]:
        """Slices per factor."""
        return tuple([-(-a // b) for a, b in zip(self.plan.shard, self.plan.slices, strict=True)])

    @cached_property
    def pieces(self) -> tuple[int, ...]:
        """Tiles per factor that have something to do."""
        return tuple([-(-s // d) for s, d in zip(self.low.sizes, self.plan.shard, strict=True)])

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """Reads, then writes."""
        return (*self.low.reads, *self.low.writes)

    @cached_property
    def filled(self) -> dict[frozenset[int], int]:
        """What `fills` found."""
        return {}

    def fills(self, factors: frozenset[int]) -> int:
        """Return how often a buffer that depends on `factors` is filled during the whole loop nest."""
        found = self.filled.get(factors)
        if found is None:
            found = total = 1
            for f in self.plan.order:
                total *= self.trips[f]
                if f in factors and self.trips[f] > 1:
                    found = total
            self.filled[factors] = found
        return found

    @cached_property
    def busiest(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The factor range of the tile with the most work: the first, or the last along factors of which it depends
        which slices have work, unless the lowering balances that."""
        low, shard = self.low, self.plan.shard
        later = frozenset() if low.balanced else low.skipping
        place = enumerate(zip(self.pieces, shard, strict=True))
        lo = tuple([(n - 1) * d if f in later else 0 for f, (n, d) in place])
        return lo, tuple([min(a + d, s) for a, d, s in zip(lo, shard, low.sizes, strict=True)])

    @cached_property
    def steps(self) -> int:
        """Steps of the tile with the most work."""
        low = self.low
        rest = math.prod(n for f, n in enumerate(self.trips) if f not in low.skipping)
        return rest * low.working(*self.busiest, self.plan.slices) if low.skipping else rest

    @property
    def steps_above(self) -> int:
        """The number of steps if it is above `MAX_SLICES`, else 0."""
        if math.prod(self.trips) <= MAX_SLICES:
            return 0
        return self.steps if self.steps > MAX_SLICES else 0

    @property
    def sums(self) -> bool:
        """True if a reduction takes several slices."""
        return any([r and n > 1 for r, n in zip(self.low.reduce, self.trips, strict=True)])

    @cached_property
    def ranges(self) -> tuple[TileRange, ...]:
        """One range per tile of the machine; tiles beyond the number of parts idle.

        Tile t takes the shard whose coordinates are t written in the mixed radix of `parts`, last factor fastest."""
        return _ranges(tuple(self.low.sizes), self.plan.parts, self.plan.shard, self.low.machine.n_tiles)

    # -- bytes ---------------------------------------------------------------------------------------------------

    @cached_property
    def slice_bytes(self) -> tuple[int, ...]:
        """Largest scratchpad footprint of every access over all slices (windows differ at the borders)."""
        return self.low.slice_bytes(self.plan.slices)

    @cached_property
    def copies(self) -> tuple[int, ...]:
        """How many scratchpad buffers every access has: one if it is moved only once."""
        exchanges = max(self.plan.shared, default=1) > 1
        found = [self._copies(k, self.fills(a.factors), exchanges) for k, a in enumerate(self.accesses)]
        for k, taken in self.replaced.items():
            found[k] = found[taken] = max(found[k], found[taken])
        return tuple(found)

    def _copies(self, k: int, times: int, exchanges: bool) -> int:
        low, plan = self.low, self.plan
        if k in plan.delivered:
            return times
        if k in plan.kept:
            return (
                times if k >= len(low.reads) else math.prod(n for n, r in zip(self.trips, low.reduce, strict=True) if r)
            )
        if times == 1:
            return 1
        shared = exchanges and k < len(plan.shared) and plan.shared[k] > 1
        return low.buffers(k, shared, exchanges, plan.bufs)

    @cached_property
    def replaced(self) -> Mapping[int, int]:
        """Accesses of results that have no buffers of their own, with the read accesses whose buffers they take."""
        (write, read), known = self.low.rows_at, self.low.replaced
        return {**known, write: read} if write >= 0 and self.opens and self.sums else known

    def pitch(self, k: int, r: TileRange) -> int:
        """Return the bytes from one slice of a result that stays to the next one, on a tile with such a range: those of a slice alone, so
        that what tiles have is one run whatever rows they have."""
        access = self.accesses[k]
        return access.local(access.box(*self.first_slice(r))).size_bytes

    def first_slice(self, r: TileRange) -> tuple[tuple[int, ...], list[int]]:
        """Return the factor ranges of the first slice on a tile with such a range, which is its longest."""
        return r.lo, [min(a + n, b) for a, n, b in zip(r.lo, self.plan.slices, r.hi, strict=True)]

    def slot_bytes(self, k: int) -> int:
        """Return the bytes from one buffer of an access to the next one."""
        return round_up(self.slice_bytes[k], ALIGN_BYTES)

    def once(self, k: int) -> bool:
        """True if every slice of an access is moved once, so that there may be a buffer for each."""
        factors = self.accesses[k].factors
        return self.fills(factors) == math.prod([self.trips[f] for f in factors])

    def fills_once(self, k: int) -> bool:
        """True if access k has one buffer that holds all of the tile's bytes during the whole nest. A nest that keeps operands may
        leave out loads that no slice needs."""
        shared = k < len(self.plan.shared) and self.plan.shared[k] > 1
        return not shared and not self.low.keeps and self.fills(self.accesses[k].factors) == 1

    def items(self) -> list[tuple[str, int]]:
        """Return what the plan puts into scratchpad, with the bytes of all copies."""
        low, lo, hi = self.low, (0,) * len(self.plan.shard), self.plan.slices
        items = [(f"scratch {i}", b) for i, b in enumerate(low.scratch_bytes(lo, hi))]
        items += [(f"constant {i}", b) for i, b in enumerate(low.const_bytes())]
        items = [(name, round_up(b, ALIGN_BYTES)) for name, b in items]
        n_read = len(low.reads)
        for k, n, size in self._buffers():
            name = f"operand {k}" if k < n_read else f"result {k - n_read}"
            items.append((f"{name} ({n} copies)" if n > 1 else name, n * size))
        for reads, size, stages in self.staging:
            items.append((f"own part of operand {', '.join(map(str, reads))}", stages * size))
        if self.sums:
            items.append(("partial sums", round_up(low.acc_bytes(lo, hi), ALIGN_BYTES)))
        return items

    def _buffers(self) -> Iterator[tuple[int, int, int]]:
        """Yield the accesses that have buffers of their own, with their copies, and bytes of a copy."""
        for k, (n, size) in enumerate(zip(self.copies, self.slice_bytes, strict=True)):
            if k not in self.replaced:
                yield k, n, round_up(size, ALIGN_BYTES)

    @cached_property
    def opens(self) -> bool:
        """True if scratch of what prepares an access is used in the beginning only (`Lowering.opening`)."""
        return self.low.opening > 0 and self.fills(self.low.opens_with) == 1

    def demand_bytes(self) -> int:
        """Bytes that the buffers take: the sum of `items`, less where only buffers that are not alive at once leave room."""
        machine = self.low.machine
        every = self.moved_bytes() + self.work_bytes()
        if every <= machine.spm_limit - machine.spm_base or not self.opens:
            return every
        later = sum([(self.copies[k] - 1) * round_up(self.slice_bytes[k], ALIGN_BYTES) for k in self.behind])
        return every - self.low.turned_bytes(self.plan.slices, later)

    def moved_bytes(self) -> int:
        """Bytes of the buffers from and to which slices are moved; `bufs` matters to these alone."""
        sizes = enumerate(zip(self.copies, self.slice_bytes, strict=True))
        return sum([n * -(-size // ALIGN_BYTES) * ALIGN_BYTES for k, (n, size) in sizes if k not in self.replaced])

    def work_bytes(self) -> int:
        """Bytes of all other buffers."""
        own = sum([n * size for _, size, n in self.staging]) if max(self.plan.shared, default=1) > 1 else 0
        return own + self.low.inner_bytes(self.plan.slices, self.sums)

    def ddr_cycles(self) -> float:
        """Cycles that the DDR needs if every tile loads for itself, halos of windows left out; 0 of one that keeps operands,
        where slices may have no work and operands may stay."""
        low, shard = self.low, self.plan.shard
        if low.keeps:
            return 0.0
        total = 0.0
        for access in self.accesses:
            passes = self.fills(access.factors) / math.prod([self.trips[f] for f in access.factors])
            tiles = math.prod(
                [
                    s / d if f in access.factors else n
                    for f, (s, d, n) in enumerate(zip(low.sizes, shard, self.pieces, strict=True))
                ]
            )
            total += low.access_bytes(access, shard) * passes * tiles
        return total / low.machine.ddr_bytes_per_cycle

    # -- what tiles have in common (`tile.sharing`) --------------------------------------------------------------

    @cached_property
    def loaders(self) -> dict[int, tuple[int, int]]:
        """Which of the tiles that share a read load it, per shared read: the first one's rank, and how many."""
        return sharing.loaders(self)

    @cached_property
    def behind(self) -> frozenset[int]:
        """Shared reads that a slice needs when the next one may have begun: they come with what that one begins with."""
        shared = [k for k in self.low.trailing if k < len(self.plan.shared) and self.plan.shared[k] > 1]
        return frozenset([k for k in shared if self.fills(self.accesses[k].factors) > 1])

    @cached_property
    def staging(self) -> list[tuple[tuple[int, ...], int, int]]:
        """The buffers of own parts: (the shared reads that take turns in them, bytes, copies)."""
        return sharing.staging(self)


@lru_cache(maxsize=1024)
def _ranges(
    sizes: tuple[int, ...], parts: tuple[int, ...], shard: tuple[int, ...], n_tiles: int
) -> tuple[TileRange, ...]:
    none = (0,) * max(1, len(parts))
    ranges = []
    for coords in itertools.islice(itertools.product(*map(range, parts)), n_tiles):
        lo = tuple([min(k * d, s) for k, d, s in zip(coords, shard, sizes, strict=True)])
        hi = tuple([min(a + d, s) for a, d, s in zip(lo, shard, sizes, strict=True)])
        ranges.append(TileRange(lo, hi))
    return (*ranges, *[TileRange(none, none)] * (n_tiles - len(ranges)))


class Stay(NamedTuple):
    """A result of a chain that stays where it is until a later nest than the next one reads it: nest and access of either."""

    maker: int
    result: int
    reader: int
    operand: int


@dataclass(frozen=True)
class Planned:
    """A record's tiling, and why it fell to the kernel core (empty: an engine does it).

    Of a chain: `nests` are its parts; holds[i]: pairs (access of nest i, access of nest i + 1) of which the second one is not loaded: they
    have one buffer, or it is gathered or delivered from what the first one left; stays: operands of which an earlier nest has left all
    that a tile needs; meets: nests before which all tiles meet, because they read what other tiles have stored; `tiling` is the first part's
    lowering with the whole chain's figures."""

    tiling: Tiling
    reason: str
    nests: tuple[Planned, ...] = ()
    holds: tuple[tuple[tuple[int, int], ...], ...] = ()
    stays: tuple[Stay, ...] = ()
    meets: tuple[int, ...] = ()

    @property
    def low(self) -> Lowering:
        return self.tiling.low

    @property
    def plan(self) -> Plan:
        return self.tiling.plan


def of_nests(nests: Sequence[Planned], cycles: int) -> Tiling:
    """Return what stands for a launch of several nests: the first one's lowering, with the figures of all."""
    longest = max(nests, key=lambda n: n.plan.estimate_cycles)
    spm_bytes = max(n.plan.spm_bytes for n in nests)
    plan = Plan((), (), (), (), 1, cycles, spm_bytes, longest.plan.bound, shared=nests[0].plan.shared)
    return Tiling(nests[0].low, plan)


def segment_cycles(plan: Plan, machine: Machine, barrier: bool) -> int:
    """Return the estimate of a group that ends with a barrier, as every plan does, or goes on without."""
    return plan.estimate_cycles - (0 if barrier else isa.sequence_cycles(machine, isa.make("barrier")))
