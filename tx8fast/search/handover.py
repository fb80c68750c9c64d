"""What one nest may leave in scratchpad for the next one, and whether tiles can go on without waiting for each other.

May import: graph_table, isa, lower, tile. Must not: choose anything.

A buffer is handed over only if both nests fill it once, hold the same bytes in it at the same places on every tile -
which the transfers between DDR and scratchpad tell - and nothing computes over it in between.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

from tx8fast import isa
from tx8fast.graph_table import Step
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, Lowering, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import runs
from tx8fast.machine.topology import mask_tiles
from tx8fast.numerics.layout import block_size
from tx8fast.records import cached_property, dataclass
from tx8fast.tile import sharing
from tx8fast.tile.nest import loop_slices, loop_steps
from tx8fast.tile.tiling import TileRange, Tiling

SPACE = 1 << 22  # bytes between buffers of which only the writes count; more than any buffer


@dataclass(eq=False)
class Nest:
    """A planned group in its place: `items` are the steps it is made of, as positions."""

    items: tuple[int, ...]
    step: Step
    how: Tiling

    @cached_property
    def values(self) -> list[int]:
        """The value of every access."""
        return [*(self.step.inputs[a] for a in self.how.low.arguments()), *self.step.outputs]

    def reads_of(self, value: int) -> list[int]:
        """Return the read accesses of a value."""
        return [k for k in range(len(self.how.low.reads)) if self.values[k] == value]


def handed(a: Nest, b: Nest) -> tuple[tuple[int, int], ...]:
    """Return (write access of a, read access of b) for everything that b reads of a's results."""
    n_read = len(a.how.low.reads)
    return tuple((n_read + j, k) for j, v in enumerate(a.step.outputs) for k in b.reads_of(v))


def common(a: Nest, b: Nest) -> tuple[tuple[int, int], ...]:
    """Return (read access of a, read access of b) for everything that both read."""
    return tuple((j, k) for j in range(len(a.how.low.reads)) for k in b.reads_of(a.values[j]))


def may_chain(low: Lowering, step: Step) -> bool:
    """True for what runs on engines, needs in DDR nothing but what it loads, writes over nothing there, and has a result per write
    access."""
    return low.chains and len(low.writes) == len(step.outputs) and step.in_place < 0


def is_local(a: Tiling, b: Tiling, pairs: Sequence[tuple[int, int]]) -> bool:
    """True if of a's results every tile reads only what it wrote itself; pairs: (access of a, access of b)."""
    return all(
        _covers(a.accesses[ka], mine, b.accesses[kb], theirs)
        for ka, kb in pairs
        for mine, theirs in zip(a.ranges, b.ranges, strict=True)
        if not theirs.idle
    )


def _covers(made: Access, mine: TileRange, read: Access, theirs: TileRange) -> bool:
    """True if a tile's part of `made` holds its part of `read`."""
    if mine.idle:
        return False
    if _alike(made, read) and made.is_solid(mine.lo, mine.hi):
        box = read.box(theirs.lo, theirs.hi)
        return any(x >= y for x, y in box) or all(
            x0 <= y0 and y1 <= x1 for (x0, x1), (y0, y1) in zip(made.box(mine.lo, mine.hi), box, strict=True)
        )
    have, want = _bytes(made, mine), _bytes(read, theirs)
    return all(any(x0 <= y0 and y1 <= x1 for x0, x1 in have) for y0, y1 in want)


def _alike(a: Access, b: Access) -> bool:
    """True if both see their tensor with the same dimensions; some ops flatten it."""
    return a.spec == b.spec and tuple(d.size for d in a.dims) == tuple(d.size for d in b.dims) == a.spec.shape


def _bytes(access: Access, r: TileRange) -> list[tuple[int, int]]:
    """Return the DDR bytes that a tile moves, as ascending ranges."""
    ranges: list[tuple[int, int]] = []
    for ddr, _, n in sorted(_moves(access, r)):
        if ranges and ranges[-1][1] == ddr:
            ranges[-1] = ranges[-1][0], ddr + n
        else:
            ranges.append((ddr, ddr + n))
    return ranges


def same_parts(a: Tiling, ka: int, b: Tiling, kb: int) -> bool:
    """True if on every tile both accesses mean the same part of their value."""
    return all(
        x.idle == y.idle and (x.idle or _same(a.accesses[ka], x, b.accesses[kb], y))
        for x, y in zip(a.ranges, b.ranges, strict=True)
    )


def _same(a: Access, x: TileRange, b: Access, y: TileRange) -> bool:
    if _alike(a, b) and a.is_solid(x.lo, x.hi) and b.is_solid(y.lo, y.hi):
        return a.box(x.lo, x.hi) == b.box(y.lo, y.hi)
    return _bytes(a, x) == _bytes(b, y)


def columns_left(a: Tiling, ka: int, b: Tiling, kb: int) -> int:
    """Return how many columns of a's result ka every tile has in scratchpad, of those from which sets of tiles gather b's operand kb;
    0 if they cannot.

    The tiles of a set have all rows of a matrix that they read, and the columns one behind the other."""
    made, read, plan = a.accesses[ka], b.accesses[kb], b.plan
    if not may_gather(a.low, ka, b.low, kb) or ka not in a.plan.kept or ka in a.replaced:
        return 0
    room, kept = a.low.machine.spm_limit - a.low.machine.spm_base, a.copies[ka] * a.slice_bytes[ka]
    if a.moved_bytes() + a.work_bytes() > room or kept + b.moved_bytes() + b.work_bytes() > room:
        return 0
    if kb >= len(plan.shared) or plan.shared[kb] < 2 or not _whole_rows(a, ka) or not _whole_rows(b, kb):
        return 0
    if not _in_one_run(a, ka) or not _in_one_run(b, kb):
        return 0
    block, (n_columns,) = block_size(made.spec.dtype), made.spec.shape[-1:]
    lens = [access.box((0,) * len(how.low.sizes), how.plan.slices) for how, access in ((a, made), (b, read))]
    columns = made.box(a.ranges[0].lo, a.ranges[0].hi)[-1][1]
    if columns % block or any(n % block and n != n_columns for n in (lens[0][-1][1], lens[1][-1][1])):
        return 0
    if a.copies[ka] > 1 and not begins_right(a, ka):
        return 0  # what several slices have is one run of bytes
    for mask in sharing.groups(b, kb):
        for rank, tile in enumerate(mask_tiles(mask)):
            have, want = a.ranges[tile], b.ranges[tile]
            if have.idle or want.idle or not (made.is_solid(have.lo, have.hi) and read.is_solid(want.lo, want.hi)):
                return 0
            (*own, part), (*rows, whole) = made.box(have.lo, have.hi), read.box(want.lo, want.hi)
            if own != rows or part != (rank * columns, min((rank + 1) * columns, n_columns)) or whole != (0, n_columns):
                return 0
    return columns


def is_left(a: Tiling, ka: int) -> bool:
    """True if slices of columns of result ka have buffers of their own, which together are one matrix of all rows and columns of a
    tile."""
    made = a.accesses[ka]
    if ka not in a.plan.kept or ka < len(a.low.reads) or ka in a.replaced or not made.blocked:
        return False
    if not (_whole_rows(a, ka) and _in_one_run(a, ka) and begins_right(a, ka)):
        return False
    columns = made.box((0,) * len(a.low.sizes), a.plan.slices)[-1][1]
    return columns % block_size(made.spec.dtype) == 0


def has_room(how: Tiling, beside_bytes: int = 0) -> bool:
    """True if a plan's buffers have room, those together that are alive at once, beside others."""
    capacity = how.low.machine.spm_limit - how.low.machine.spm_base - beside_bytes
    return how.low.fits(how.plan.slices) and how.demand_bytes() <= capacity and not how.steps_above


def begins_right(how: Tiling, k: int) -> bool:
    """True if slices of result k may lie one right behind the other on every tile: they begin where operands may then, and none has
    gaps between its matrices, for which it would take more bytes than there are of the result."""
    access = how.accesses[k]
    sizes = ((how.pitch(k, r), access.size_bytes(*how.first_slice(r))) for r in how.ranges if not r.idle)
    return all(n % ALIGN_BYTES == 0 and n == taken for n, taken in sizes)


def may_gather(a: Lowering, ka: int, b: Lowering, kb: int) -> bool:
    """True if operand kb of b may be gathered from what tiles have of result ka of a, whatever their plans are."""
    made, read = a.writes[ka - len(a.reads)], b.reads[kb]
    if not made.dims or not _alike(made, read):
        return False
    return made.blocked and read.blocked and read.loaded and not a.positional and b.may_gather(kb)


def _whole_rows(how: Tiling, k: int) -> bool:
    """True if every slice of an access has all rows that a tile has, and slices of columns are moved once, one after the other."""
    access, low, tile = how.accesses[k], how.low, how.ranges[0]
    rows = {f for d in access.dims[:-1] for f, _ in d.terms}
    columns = [f for f in access.factors - rows if how.trips[f] > 1]
    if not access.is_solid((0,) * len(low.sizes), how.plan.slices) or any(how.trips[f] > 1 for f in rows):
        return False
    first, *_ = next(loop_slices(how, tile.lo, tile.hi))
    if len(columns) > 1 or any(first[f] != tile.lo[f] for f in columns):
        return False
    return k < len(low.reads) or how.fills(access.factors) == math.prod(how.trips[f] for f in columns)


def _in_one_run(how: Tiling, k: int) -> bool:
    """True if every slice of an access is one matrix of all rows in scratchpad, whose columns are one behind the other: heads may be
    matrices of their own, of as many bytes together or with gaps between them where there are fewer rows."""
    access, slices, zero = how.accesses[k], how.plan.slices, (0,) * len(how.low.sizes)
    lens: set[tuple[int, ...]] = set()
    for r in how.ranges:  # of whole slices and of last ones
        if not r.idle:
            ends = [
                {min(n, b - a), (b - a - 1) % n + 1} if f in access.factors else {n}
                for f, (a, b, n) in enumerate(zip(r.lo, r.hi, slices, strict=True))
            ]
            lens.update(itertools.product(*ends))
    for hi in sorted(lens):
        if runs(access.transfers(zero, hi)) != runs(Access.transfers(access, zero, hi)):
            return False
    return True


def can_hand_over(a: Tiling, ka: int, b: Tiling, kb: int) -> bool:
    """True if b may use access ka's buffer as it is for its read kb."""
    whole = a.fills_once(ka)
    if not (b.fills_once(kb) and (whole or is_left(a, ka)) and same_parts(a, ka, b, kb)):
        return False
    if whole and a.slice_bytes[ka] != b.slice_bytes[kb]:
        return False
    more = a.copies[ka] * a.slot_bytes(ka) - b.slot_bytes(kb)  # what slices have beside the operand's own bytes
    if more < 0 or more and not has_room(b, more):
        return False
    written = ka >= len(a.low.reads)
    for x, y in zip(a.ranges, b.ranges, strict=True):
        if x.idle:
            continue
        have, want = _moves(a.accesses[ka], x), _moves(b.accesses[kb], y)
        if have != want or written and sum(run for *_, run in have) != a.accesses[ka].size_bytes(x.lo, x.hi):
            return False
    return written or ka not in overwritten(a)


@lru_cache(maxsize=16)
def overwritten(a: Tiling) -> frozenset[int]:
    """Return the read accesses to whose buffers some instruction of the nest writes."""
    low, plan = a.low, a.plan
    zero = (0,) * len(plan.shard)
    spaces = itertools.count(1)
    at = lambda n: [next(spaces) * SPACE for _ in range(n)]  # noqa: E731
    places = at(len(a.accesses))
    places = [places[a.replaced.get(j, j)] for j in range(len(places))]
    reads, writes = places[: len(low.reads)], places[len(low.reads) :]
    scratch, consts = at(len(low.scratch_bytes(zero, plan.slices))), at(len(low.const_bytes()))
    acc = at(1)[0]
    em = Emitter()
    low.prologue(em, consts)
    seen: set[tuple] = set()
    for s in loop_steps(a, zero, plan.shard):
        key = low.slice_form(s.lo, s.hi), s.first, s.last, s.done % 2
        if key not in seen:
            seen.add(key)
            low.emit(em, Slice(s.lo, s.hi, reads, writes, scratch, consts, acc, s.first, s.last, s.done % 2))
    written = isa.spm_ranges(isa.rows(em.rows))[1]
    return frozenset(k for k, at in enumerate(reads) if ((written[..., 0] < at + SPACE) & (written[..., 1] > at)).any())


def _moves(access: Access, r: TileRange) -> list[tuple[int, int, int]]:
    """Return (DDR byte, scratchpad byte, bytes) of every run that a tile moves, runs that go on merged."""
    return runs(access.transfers(r.lo, r.hi))
