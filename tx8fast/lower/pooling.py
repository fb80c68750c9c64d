"""Pools and reductions over positions on the vector engine, one image per instruction.

May import: lower.base, lower.emitter, lower.windows, graph_table, numerics. Must not: place buffers.

An average divides by the whole window. Where windows at a border average fewer positions, the same pool over an
image of ones gives the share that counts; the result is divided by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import Dim, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.rows import REDUCES
from tx8fast.lower.transfer import Local
from tx8fast.lower.windows import MAX_EXTENT, ROW, Window
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params
from tx8fast.numerics.windows import window_counts

MAX_CHANNELS = 16384
WORK = "f32"


class Pool(Lowering):
    """max_pool and avg_pool. Factors: image, output row, channel; columns stay whole."""

    kind = "pool"
    takes = frozenset({"max_pool", "avg_pool"})
    positional = True

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, out = record.operands[0], record.results[0]
        pair = lambda name: tuple(record.attr(name))  # noqa: E731
        kernel, dilation, lo, hi = pair("kernel"), pair("dilation"), pair("pad_lo"), pair("pad_hi")
        if x is None or x.dtype not in FLOATS or out.dtype != x.dtype or {x.layout, out.layout} != {"blocked"}:
            raise NotLowerable("a pool takes one float format in blocked layout")
        if any(d > 1 and k > 1 for d, k in zip(dilation, kernel, strict=True)):
            raise NotLowerable("the pool instruction has no dilation")
        if min(*lo, *hi) < 0 or any(p >= k for p, k in zip((*lo, *hi), (*kernel, *kernel), strict=True)):
            raise NotLowerable("a pool's padding is smaller than its window")
        self.x, self.out, self.dtype = x, out, x.dtype
        self.window = Window((x.shape[1], x.shape[2]), (out.shape[1], out.shape[2]), kernel, pair("stride"), (1, 1), lo)
        if max(x.shape[2], out.shape[2]) > MAX_EXTENT or self.window.most_rows < 1:
            raise NotLowerable(f"the columns of an image, or the rows of a window, are above the limit of {MAX_EXTENT}")
        self.average = record.kind == "avg_pool"
        self.share = self._share(hi, bool(record.attr("count_pad"))) if self.average else None
        # images, output rows and channels; columns and taps come whole
        self.loop_over(
            [(0,), (1,), (3,)], (1, 1, min(out.shape[3], block_size(x.dtype))), (1, self.window.most_rows, MAX_CHANNELS)
        )
        self.reads, self.writes = [self.operand_access(0)], [self.result_access()]

    def _share(self, hi: Sequence[int], padding: bool) -> Window | None:
        """Return the window over the positions that count, if not every window is full."""
        w = self.window
        counts = [window_counts(w.size[i], w.out[i], w.kernel[i], w.stride[i], w.lo[i], hi[i], padding) for i in (0, 1)]
        if any((c == 0).any() for c in counts):
            raise NotLowerable("a window lies in the padding altogether")
        if all((c == k).all() for c, k in zip(counts, w.kernel, strict=True)):
            return None
        if not padding:
            return w
        size = (w.size[0] + w.lo[0] + hi[0], w.size[1] + w.lo[1] + hi[1])
        return Window(size, w.out, w.kernel, w.stride, (1, 1), (0, 0))

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return (self.window.form(lo, hi), self.share.form(lo, hi) if self.share is not None else ())

    def _local(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return self.writes[0].local(self.writes[0].box(lo, hi))

    def _ones_rows(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Most rows of ones that a slice of these lengths needs, wherever it lies."""
        assert self.share is not None
        return self.share.rows.extent([b - a for a, b in zip(lo, hi, strict=True)])

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        if self.share is None:
            return []
        local = self._local(lo, hi)
        lanes = max(self._parts(local))  # of another slice of these lengths at most, too, whatever its parts
        width = Local(1, lanes, WORK, True).elems * ITEM_BYTES[WORK]
        sizes = [self._ones_rows(lo, hi) * self.share.size[1] * width, local.rows * width]
        return sizes + ([local.elems * ITEM_BYTES[WORK]] if self.dtype != WORK else [])

    def _parts(self, local: Local) -> list[int]:
        """Lanes of whole blocks and of the tail, as far as the slice has them."""
        cx, c0 = blocked_params(local.cols, self.dtype)
        return [64] * bool(cx) + [c0] * bool(c0)

    def emit(self, em: Emitter, s: Slice) -> None:
        c = s.hi[2] - s.lo[2]
        name = "pool_avg" if self.average else "pool_max"
        em.add(
            name,
            src0=s.reads[0],
            dst=s.writes[0],
            n=1,
            c=c,
            fmt=FORMAT_CODES[self.dtype],
            **self.window.fields(s.lo, s.hi),
        )
        if self.share is not None:
            self._divide(em, s)

    def _divide(self, em: Emitter, s: Slice) -> None:
        """Divide by the share of each window that counts; in f32, since both factors would be rounded otherwise."""
        assert self.share is not None
        local = self._local(s.lo, s.hi)
        parts = self._parts(local)
        ones, mask = s.scratch[:2]
        y = s.writes[0]
        if self.dtype != WORK:
            y = s.scratch[-1]
            em.cvt(s.writes[0], y, local.elems, self.dtype, WORK)
        fields = self.share.fields(s.lo, s.hi)
        em.fill(ones, 1.0, fields["h"] * fields["w"] * max(parts), WORK)
        e = ITEM_BYTES[WORK]
        at = y
        for lanes in parts:
            n = local.rows * lanes
            em.add("pool_avg", src0=ones, dst=mask, n=1, c=lanes, fmt=FORMAT_CODES[WORK], **fields)
            em.v("recip", mask, mask, n, WORK)
            blocks = blocked_params(local.cols, self.dtype)[0] if lanes == 64 else 1
            for _ in range(blocks):
                em.vv("mul", at, mask, at, n, WORK)
                at += n * e
        if self.dtype != WORK:
            em.cvt(y, s.writes[0], local.elems, WORK, self.dtype)

    def ops_per_point(self) -> float:
        taps = math.prod(self.window.kernel) * self.out.shape[2]
        return taps * ITEM_BYTES[self.dtype] / self.machine.ct.bytes_per_cycle


class PositionReduce(Lowering):
    """sum, mean, max or min over positions of each image: rows, columns or both; channels stay."""

    kind = "positions"
    in_lines = True
    takes = frozenset({"reduce"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, out = record.operands[0], record.results[0]
        self.fn = REDUCES.get(record.attr("op"), "")
        if x is None or x.dtype not in FLOATS or out.dtype != x.dtype or {x.layout, out.layout} != {"blocked"}:
            raise NotLowerable("a reduction over positions takes one float format in blocked layout")
        rank = len(x.shape)
        axes = sorted({a % rank for a in record.attr("axes")})
        if not self.fn or rank < 3 or not axes or axes[0] < 1 or axes[-1] > rank - 2:
            raise NotLowerable("the vector engine reduces with sum, mean, max or min over channels or positions")
        if axes != list(range(axes[0], axes[-1] + 1)) or 1 < axes[0] and axes[-1] < rank - 2:
            raise NotLowerable("the reduced positions are not adjacent")
        self.dtype = x.dtype
        n, c = x.shape[0], x.shape[-1]
        summed = math.prod(x.shape[a] for a in axes)
        rows = math.prod(x.shape[1:-1]) // max(1, summed)
        self.inner = axes[-1] == rank - 2  # kept positions come first
        if summed > MAX_EXTENT * MAX_EXTENT or rows > MAX_EXTENT or c > MAX_CHANNELS:
            raise NotLowerable("the reduction is outside the instruction's field ranges")
        self.summed = self._factor(summed)
        if self.summed[0] > 1 and not self.inner and rows > 1:
            raise NotLowerable("the reduction is outside the instruction's field ranges")
        block = min(c, block_size(x.dtype))
        unit = rows if not self.inner else 1
        capacity = machine.spm_limit - machine.spm_base
        if 2 * unit * (summed + 1) * max(block, 4) * ITEM_BYTES[x.dtype] > capacity:
            raise NotLowerable(f"{summed} positions do not fit scratchpad")
        kept = [f for f in range(1, rank - 1) if f not in axes]
        self.loop_over(
            [(0,), kept, (rank - 1,)], (1, unit, block), (1, MAX_EXTENT, MAX_CHANNELS), whole=[] if self.inner else [1]
        )
        self.reads = [self.operand_access(0, merged=True)]
        lead, keep, chans = (Dim(size, ((k, 1),)) for k, size in enumerate(self.sizes))
        self.writes = [self._result(out, rank, n, rows, c, [lead, keep, chans])]

    @staticmethod
    def _result(out: TensorSpec, rank: int, n: int, rows: int, c: int, dims: list[Dim]) -> Access:
        """The result as [images, kept positions, channels]; without kept ones it may be a matrix of images."""
        if len(out.shape) == 2:
            return Access(out, [dims[0], dims[2]], True)
        return Access(TensorSpec((n, rows, c), out.dtype, out.layout), dims, True)

    @staticmethod
    def _factor(n: int) -> tuple[int, int]:
        """Two field-sized factors of the number of positions."""
        if n <= MAX_EXTENT:
            return 1, n
        w = next(d for d in range(MAX_EXTENT, 0, -1) if n % d == 0)
        if n // w > MAX_EXTENT:
            raise NotLowerable(f"{n} positions have no factors in the instruction's field ranges")
        return n // w, w

    def emit(self, em: Emitter, s: Slice) -> None:
        rows, c = s.hi[1] - s.lo[1], s.hi[2] - s.lo[2]
        h, w = self.summed
        code = FORMAT_CODES[self.dtype]

        def add(**fields: int) -> None:
            em.add(f"reduce_{self.fn}", src0=s.reads[0], dst=s.writes[0], n=1, c=c, fmt=code, **fields)

        if rows == 1:
            add(dim=4, h=h, w=w)
        elif self.inner:
            add(dim=1, h=rows, w=w)
        else:
            add(dim=2, h=w, w=rows)

    def fits(self, lens: Sequence[int]) -> bool:
        return self.summed[0] == 1 or lens[ROW] == 1

    def ops_per_point(self) -> float:
        return math.prod(self.summed) * ITEM_BYTES[self.dtype] / self.machine.ct.bytes_per_cycle
