"""Scores of attention beside a band of visible keys: what the mask hides takes no vector work, block of columns by block of columns.

May import: graph_table, lower.{base,emitter,links,transfer}, machine, numerics. Must not: place buffers, know how scores are made.

Row i sees the keys (i + offset - window, i + offset]. In a block of columns the rows of a head are hidden, or see all of it, or some
of it: only the last ones need the mask. What is hidden is filled by the engine that moves data: before the maximum with the lowest
number, and instead of its exponential with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from tx8fast.graph_table import Dim, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import NotLowerable, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.links import Link
from tx8fast.lower.transfer import Box, Local
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params
from tx8fast.records import dataclass

LOWEST = {"bf16": -3.3895313892515355e38, "f16": -65504.0, "f32": -3.0e38}

#: ranges [begin, end) of elements or rows
Ranges = list[tuple[int, int]]


class BandAccess(Access):
    """A mask of which only the columns are loaded that some of a slice's rows do not see, whole blocks counted from its first key.
    visible: offset and window; rows: how a tile's factors say which rows; range: the factor of keys; narrow: False: all columns are
    there."""

    placed = True

    def __init__(
        self, spec: TensorSpec, dims: Sequence[Dim], visible: tuple[int, int], rows: Link, range: int, narrow: bool
    ) -> None:
        super().__init__(spec, dims, True)
        self.visible, self.rows, self.range, self.narrow = visible, rows, range, narrow
        self.band, self.folded = rows.factor, len(rows.factors) > 1
        self.factors = self.factors.union(rows.factors if self.band in self.factors else ())
        self.block = block_size(spec.dtype)

    def hides(self, lo: Sequence[int], hi: Sequence[int]) -> str:
        """Return what is hidden of a slice: "all", "some" or "none"."""
        offset, window = self.visible
        (a, b), (c, d) = self.rows.range(lo, hi), (lo[self.range], hi[self.range] - 1)
        b -= 1
        if c > b + offset or d <= a + offset - window:
            return "all"
        return "none" if d <= a + offset and c > b + offset - window else "some"

    def whole(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> np.ndarray:
        """Return of every slice of rows in [lo, hi) how many slices of keys it sees something of."""
        begins, ends = self._ends(lo, hi, slices[self.band])
        return -(-ends // slices[self.range]) - begins // slices[self.range]

    def parts(self, lo: Sequence[int], hi: Sequence[int], slices: Sequence[int]) -> np.ndarray:
        """Return of every slice of rows in [lo, hi) how many slices of keys are as many keys as are looked at."""
        begins, ends = self._ends(lo, hi, slices[self.band])
        step = slices[self.range]
        ends = np.minimum(-(-ends // self.block) * self.block, -(-ends // step) * step)
        return (ends - begins // step * step) / step

    def density(self, lo: Sequence[int], hi: Sequence[int]) -> float:
        """Return the part of all keys that the rows in [lo, hi) see."""
        begins, ends = self._ends(lo, hi, 1)
        return float((ends - begins).sum()) / (len(ends) * self.spec.shape[-1])

    def _ends(self, lo: Sequence[int], hi: Sequence[int], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return of slices of so many rows in [lo, hi) the first key that some row sees, and the end of those that some see."""
        (offset, window), end = self.visible, hi[self.band]
        first = np.arange(lo[self.band], end, rows)
        last = np.minimum(first + rows, end) - 1
        if self.folded:
            n, (_, side) = self.rows.size, self.rows.factors
            sides = ((first, last), (n - 1 - last, n - 1 - first))[lo[side] : hi[side]]
            first, last = (np.concatenate(ends) for ends in zip(*sides, strict=True))
        return np.maximum(first + offset - window + 1, 0), np.minimum(last + offset + 1, self.spec.shape[-1])

    def shown(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return how many keys of a slice are looked at: up to the last one that a row sees, whole blocks."""
        keys = hi[self.range] - lo[self.range]
        return min(keys, round_up(self.rows.range(lo, hi)[1] + self.visible[0] - lo[self.range], self.block))

    def columns(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        """Return the columns of a slice, from its first key, that some row does not see; the hull of those at either border."""
        (offset, window), key, end = self.visible, lo[self.range], self.shown(lo, hi)
        if not self.narrow:
            return 0, end
        row, last = self.rows.range(lo, hi)
        above, below = row + offset + 1 - key, last + offset - window - key
        begin = 0 if below > 0 else max(0, above) // self.block * self.block
        return begin, end if above < end else min(end, round_up(max(0, below), self.block))

    def of(self, lo: Sequence[int], hi: Sequence[int], local: Local) -> Band:
        """Return the band of a slice whose scores lie as `local` says."""
        key, (begin, end), (a, b) = lo[self.range], self.columns(lo, hi), self.rows.range(lo, hi)
        seen = self.local(self.box(lo, hi))._replace(cols=end - begin)
        return Band.of((a - key, b - key), (0, local.cols), self.visible, local, seen, begin)

    def divides(self, lo: Sequence[int], hi: Sequence[int]) -> bool:
        """True if in some block of columns rows see some keys and not others; else whole rows of blocks are hidden, without the mask."""
        a, b = self.rows.range(lo, hi)
        return bool(self.of(lo, hi, Local(b - a, self.shown(lo, hi), self.spec.dtype, True)).masked)

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> Box:
        *rows, (key, _) = found = super().box(*(self._unfolded(lo, hi) if self.folded else (lo, hi)))
        begin, end = self.columns(lo, hi)
        return (*rows, (key + begin, key + max(begin, end))) if self.narrow else found

    def _unfolded(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the range with the rows that it means in place of its own."""
        f, (a, b) = self.band, self.rows.range(lo, hi)
        return (*lo[:f], a, *lo[f + 1 :]), (*hi[:f], b, *hi[f + 1 :])

    def form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        begin, end = self.columns(lo, hi)
        return (*super().form(lo, hi), end - begin)

    def most_bytes(self, lens: Sequence[int]) -> int:
        rows, keys = lens[self.band], lens[self.range]
        # before the keys that the first row of a slice sees, any number of them may be hidden from all its rows
        passed = self.visible[1] < self.rows.size + self.visible[0]
        own = keys if passed or not self.narrow else min(keys, round_up(rows + self.block - 2, self.block))
        ends = [(0, d.extent(lens)) for d in self.dims[:-1]]
        return self.local((*ends, (0, max(own, 1)))).size_bytes


def mask_dims(shape: Sequence[int], out: Sequence[Dim], index: Mapping[int, int]) -> list[Dim]:
    """Return the dimensions of a mask over a group's factors. out: those of the scores; index: the group's factor of each of the
    product's factors that a mask may have."""
    dims: list[Dim] = []
    for size, d in zip(shape, out[len(out) - len(shape) :], strict=True):
        if size == 1 and d is not out[-1]:
            dims.append(Dim(size, full=True))
        elif (f := d.identity) is not None and f in index:
            dims.append(Dim(size, ((index[f], 1),)))
        else:
            raise NotLowerable("the mask differs between grouped heads")
    return dims


@dataclass(frozen=True)
class Band:
    """The scores of a slice, [heads * rows, keys] as `local` says, of rows [a, b) and keys [c, d) beside a mask that lies as `seen` says:
    elements that are hidden, those that are not, and (mask's first element, elements, score's first element of every head) of
    what needs the mask; the mask begins with column `first` of the scores, where a block does."""

    hidden: Ranges
    shown: Ranges
    masked: list[tuple[int, int, list[int]]]
    local: Local
    seen: Local

    @classmethod
    @lru_cache(maxsize=1024)
    def of(
        cls,
        rows: tuple[int, int],
        keys: tuple[int, int],
        visible: tuple[int, int],
        local: Local,
        seen: Local,
        first: int = 0,
    ) -> Band:
        """Return the band; visible: offset and window. The same one for equal slices, of which there are many."""
        hidden: Ranges = []
        shown: Ranges = []
        masked = []
        n = rows[1] - rows[0]
        heads = local.rows // n
        for column, width, begin in _blocks(local):
            if not first <= column < first + seen.cols:  # all rows see these
                shown.append((begin, begin + local.rows * width))
                continue
            ends = keys[0] + column, keys[0] + min(column + width, keys[1] - keys[0]) - 1
            out, some = _parts(rows, ends, *visible)
            inside = [
                (a, b) for a, b in zip([0, *[b for _, b in out]], [*[a for a, _ in out], n], strict=True) if a < b
            ]
            at = [begin + h * n * width for h in range(heads)]
            hidden += [(x + a * width, x + b * width) for x in at for a, b in out]
            shown += [(x + a * width, x + b * width) for x in at for a, b in inside]
            under = begin // heads - first * n
            masked += [(under + a * width, (b - a) * width, [x + a * width for x in at]) for a, b in some]
        return cls(_merged(hidden), _merged(shown), masked, local, seen)

    def pays(self, machine: Machine) -> bool:
        """True if instructions on parts take the vector engine less time than the whole mask and the exponential of all scores.
        In cycles as the hardware manual counts them (16.2, 16.3)."""
        ct, item = machine.ct, ITEM_BYTES[self.local.dtype]

        def cycles(elems: int, factor: int = 1) -> float:
            return ct.startup + elems * item * factor / ct.bytes_per_cycle

        dear = ct.factor.transcendental
        under = Local(self.local.rows, self.seen.cols, self.local.dtype, True)
        whole = cycles(self.seen.elems) + cycles(under.elems) + cycles(self.local.elems, dear)
        parts = sum([cycles(n) * (1 + len(heads)) for _, n, heads in self.masked])
        return parts + sum([cycles(b - a, dear) for a, b in self.shown]) < whole

    def mask(self, em: Emitter, scores: int, mask: int) -> None:
        """Add the mask to the scores that need it, and make the hidden ones the lowest number."""
        fmt, e = self.local.dtype, ITEM_BYTES[self.local.dtype]
        for under, n, heads in self.masked:
            at = mask + under * e
            if fmt != "f16":  # as in `add_whole`
                em.vs("max", at, LOWEST[fmt], at, n, fmt)
            em.vv_each("add", [(scores + x * e, at, scores + x * e) for x in heads], n, fmt)
            for x in heads if fmt == "f16" else ():
                em.vs("max", scores + x * e, LOWEST[fmt], scores + x * e, n, fmt)
        self.fill(em, scores, LOWEST[fmt], (0, self.local.elems))

    def fill(self, em: Emitter, scores: int, value: float, within: tuple[int, int]) -> None:
        """Make the hidden scores among elements [begin, end) a number."""
        e = ITEM_BYTES[self.local.dtype]
        for a, b in _clipped(self.hidden, within):
            em.fill(scores + a * e, value, b - a, self.local.dtype)

    def shown_of(self, within: tuple[int, int]) -> Ranges:
        """Return the scores among elements [begin, end) that are not hidden."""
        return list(_clipped(self.shown, within))


def add_whole(em: Emitter, scores: int, mask: int, local: Local, seen: Local) -> None:
    """Add the mask of one head's rows, or of one row, to the scores of every head."""
    fmt, e = local.dtype, ITEM_BYTES[local.dtype]
    if fmt != "f16":  # no sum with a score overflows
        em.vs("max", mask, LOWEST[fmt], mask, seen.elems, fmt)
    if seen.rows == 1:
        em.vector("add", scores, mask, scores, local, fmt)
    elif seen.rows == local.rows:
        em.vv("add", scores, mask, scores, local.elems, fmt)
    else:
        for _, width, begin in _blocks(local):
            under, n = begin * seen.rows // local.rows, seen.rows * width
            heads = range(scores + begin * e, scores + (begin + local.rows * width) * e, n * e)
            em.vv_each("add", [(x, mask + under * e, x) for x in heads], n, fmt)
    if fmt == "f16":  # scores may be as large as the mask's numbers, so that it is their sum which has an end
        em.vs("max", scores, LOWEST[fmt], scores, local.elems, fmt)


def _blocks(local: Local) -> Iterator[tuple[int, int, int]]:
    """Yield first column, columns with those of the padding, and first element of every block."""
    (full, tail), block = blocked_params(local.cols, local.dtype), block_size(local.dtype)
    for k in range(full + (tail > 0)):
        yield k * block, block if k < full else tail, k * block * local.rows


def _parts(rows: tuple[int, int], keys: tuple[int, int], offset: int, window: int) -> tuple[Ranges, Ranges]:
    """Return the rows, from 0, that see none of the keys from the first to the last one, and those that see some but not all."""
    first, last = keys
    a, b = rows
    place = lambda i: min(max(i, a), b) - a  # noqa: E731
    begin, end = place(first - offset), place(last - offset + window)  # before and from where on all is hidden
    low, high = place(last - offset), place(first - offset + window)  # between which all is seen
    some = [(begin, low), (high, end)] if low < high else [(begin, end)]
    return [(x, y) for x, y in ((0, begin), (end, b - a)) if x < y], [(x, y) for x, y in some if x < y]


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    out: Ranges = []
    for a, b in sorted(ranges):
        if out and out[-1][1] == a:
            out[-1] = out[-1][0], b
        else:
            out.append((a, b))
    return out


def _clipped(ranges: Ranges, within: tuple[int, int]) -> Iterator[tuple[int, int]]:
    for a, b in ranges:
        a, b = max(a, within[0]), min(b, within[1])
        if a < b:
            yield a, b
