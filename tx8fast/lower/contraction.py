"""Matrix products on the neural engine: `gemm` and `contract`, any batch, with split reductions.

May import: lower.base, lower.emitter, graph_table, numerics. Must not: place buffers.

Factors are sorted by where they occur: batch (both operands and result), m (left and result), n (right and
result), k (both operands only). A slice of an operand is one blocked matrix per batch point; its stored last
dimension decides whether the engine reads it transposed (hardware manual 12.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tx8fast.graph_table import Dim, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, FLOATS, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Box, Descriptor, Local, Move, descriptors, moves
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size

MAX_DIM = 16384  # field range of m, k, n
MAX_BATCH = 4096
PE_ROWS = 8
ACTS = {"none": 0, "relu": 1}


class MatrixAccess(Access):
    """An operand laid out as one matrix per batch point; factors give rows, columns and batches."""

    def __init__(
        self, spec: TensorSpec, dims: Sequence[Dim], rows: Sequence[int], cols: Sequence[int], batch: Sequence[int]
    ) -> None:
        super().__init__(spec, dims, blocked=True)
        self.row_factors, self.col_factors, self.batch_factors = tuple(rows), tuple(cols), tuple(batch)
        if self.dims[-1].terms and self.dims[-1].terms[-1][0] not in self.col_factors:
            raise NotLowerable("the stored last dimension is not a matrix column")
        last = self.dims[-1].terms[-1][0] if self.dims[-1].terms else -1
        self.run_col = last if last in self.col_factors else -1
        if self.run_col >= 0 and self.col_factors[-1] != self.run_col:
            raise NotLowerable("the columns' fastest factor differs from the stored one")
        # leading dimensions whose fastest factor steps rows: one descriptor can walk all of them
        self.row_axes = {
            d.terms[-1][0]: i
            for i, d in enumerate(self.dims[:-1])
            if d.terms and d.terms[-1][0] in self.row_factors and d.terms[-1][0] != last
        }

    def matrix(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return Local(_count(self.row_factors, lo, hi), _count(self.col_factors, lo, hi), self.spec.dtype, True)

    def size_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return _count(self.batch_factors, lo, hi) * self.batch_stride(lo, hi)

    def batch_stride(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return round_up(self.matrix(lo, hi).size_bytes, ALIGN_BYTES)

    def points(self, lo: Sequence[int], hi: Sequence[int]) -> Iterator[tuple[Box, int, int, int]]:
        """Yield what one descriptor can walk: its box, first row and column of a matrix, and the byte where that matrix begins."""
        stride = self.batch_stride(lo, hi)
        free = [
            f
            for f in (*self.batch_factors, *self.row_factors, *self.col_factors)
            if f not in self.row_axes and f != self.run_col
        ]
        for point in itertools.product(*(range(lo[f], hi[f]) for f in free)):
            plo, phi = list(lo), list(hi)
            for f, x in zip(free, point, strict=True):
                plo[f], phi[f] = x, x + 1
            row0, col0, matrix = (
                _radix(fs, plo, lo, hi) for fs in (self.row_factors, self.col_factors, self.batch_factors)
            )
            yield self.box(plo, phi), row0, col0, matrix * stride

    def row_strides(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        """Return how many rows of the matrix a step of every leading dimension advances."""
        strides = [0] * (len(self.dims) - 1)
        for f, i in self.row_axes.items():
            strides[i] = _count(self.row_factors[self.row_factors.index(f) + 1 :], lo, hi)
        return strides

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        local, strides = self.matrix(lo, hi), self.row_strides(lo, hi)
        out = [
            d._replace(spm=d.spm + at)
            for box, row0, col0, at in self.points(lo, hi)
            for d in descriptors(self.spec, box, local, strides, row0, col0)
        ]
        return merge_runs(out)


class LaneAccess(MatrixAccess):
    """An operand of which a matrix begins inside of a channel block: rows of the matrix come in several runs. Its slice lies as DDR has
    it, all rows of one block's lanes behind those of the block before; `packing` says what makes matrices of it.

    A transfer's local side is dense, and one that filled lanes of wider rows would be one transfer per row (hardware manual 13)."""

    def __init__(self, inner: MatrixAccess, together: bool = False) -> None:
        """together: matrices that lie side by side are loaded as one, so that blocks are whole where all that lie in them are wanted."""
        self.__dict__.update(inner.__dict__)
        self.known_bytes = {}
        self.together = together

    def size_bytes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return _count((*self.batch_factors, *self.row_factors, *self.col_factors), lo, hi) * ITEM_BYTES[self.spec.dtype]

    def _spans(self, lo: Sequence[int], hi: Sequence[int]) -> list[tuple[Box, int]]:
        """Return the boxes that a slice consists of, and where the bytes of each begin."""
        boxes: list[Box] = []
        for box, _, _, _ in self.points(lo, hi):
            last = boxes[-1] if boxes else ()
            if self.together and last and last[:-1] == box[:-1] and last[-1][1] == box[-1][0]:
                boxes[-1] = (*box[:-1], (last[-1][0], box[-1][1]))
            else:
                boxes.append(box)
        sizes = [math.prod([b - a for a, b in box]) * ITEM_BYTES[self.spec.dtype] for box in boxes]
        return list(zip(boxes, itertools.accumulate(sizes, initial=0), strict=False))

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        """One block's lanes of all rows, or whole blocks together."""
        strides, block, item, out = (
            self.row_strides(lo, hi),
            block_size(self.spec.dtype),
            ITEM_BYTES[self.spec.dtype],
            [],
        )
        for (*lead, (a, b)), at in self._spans(lo, hi):
            rows = math.prod([y - x for x, y in lead])
            for c in (a, *range(a // block * block + block, b, block)):
                end = min(c // block * block + block, b)
                local = Local(rows, end - c, self.spec.dtype, False)
                out += [
                    d._replace(spm=d.spm + at + (c - a) * rows * item)
                    for d in descriptors(self.spec, (*lead, (c, end)), local, strides)
                ]
        return merge_runs(out) if self.together else out

    def packing(
        self, lo: Sequence[int], hi: Sequence[int], within: tuple[Sequence[int], Sequence[int]]
    ) -> Iterator[tuple[int, int, list[Move]]]:
        """Yield (byte of the slice, byte of the matrix, moves) of what copies the range into its matrix. within: the slice's range."""
        matrix, block, item = self.matrix(lo, hi), block_size(self.spec.dtype), ITEM_BYTES[self.spec.dtype]
        spans = self._spans(*within)
        for (*lead, (begin, end)), row0, col0, _ in self.points(lo, hi):
            rows = math.prod([y - x for x, y in lead])
            a, b, at = next(
                (*box[-1], at) for box, at in spans if box[:-1] == tuple(lead) and box[-1][0] <= begin < box[-1][1]
            )
            c = begin
            while c < end:
                first, last, col = max(a, c // block * block), min(b, c // block * block + block), col0 + c - begin
                n = min(last, end, c + block - col % block) - c
                step = matrix.offset(1, col) - matrix.offset(0, col)
                yield (
                    at + ((first - a) * rows + c - first) * item,
                    matrix.offset(row0, col),
                    moves([(rows, (last - first) * item, step)], n * item),
                )
                c += n


class ResidentAccess(MatrixAccess):
    """The left operand with its whole reduction length: loaded once while the right one comes in pieces of it."""

    def __init__(
        self,
        spec: TensorSpec,
        dims: Sequence[Dim],
        rows: Sequence[int],
        cols: Sequence[int],
        batch: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        super().__init__(spec, dims, rows, cols, batch)
        if len(cols) != 1 or self.dims[-1].identity != cols[0]:
            raise NotLowerable("the reduction is not the left operand's last dimension")
        self.depth = (cols[0], sizes[cols[0]])
        self.dims = (*self.dims[:-1], Dim(self.dims[-1].size, full=True))
        self.factors = self.factors - {cols[0]}

    def _whole(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[list[int], list[int]]:
        f, n = self.depth
        a, b = list(lo), list(hi)
        a[f], b[f] = 0, n
        return a, b

    def matrix(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return super().matrix(*self._whole(lo, hi))

    def transfers(self, lo: Sequence[int], hi: Sequence[int]) -> list[Descriptor]:
        return super().transfers(*self._whole(lo, hi))

    def at(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Byte offset of the present piece of the reduction: whole channel blocks of all rows."""
        return self.matrix(lo, hi).offset(0, lo[self.depth[0]])


def merge_runs(items: list[Descriptor]) -> list[Descriptor]:
    """Fold equal descriptors at a constant distance on both sides into loops where the local side stays dense."""
    items = sorted(items, key=lambda d: d.spm)
    while True:
        merged = _merge_level(items)
        if len(merged) == len(items):
            return items
        items = merged


def _merge_level(items: list[Descriptor]) -> list[Descriptor]:
    out: list[Descriptor] = []
    i = 0
    while i < len(items):
        d = items[i]
        dense = d.run_bytes * math.prod(n for _, n in d.loops)
        j, step = i + 1, 0
        while j < len(items) and len(d.loops) < 3:
            e = items[j]
            if (e.piece, e.run_bytes, e.loops) != (d.piece, d.run_bytes, d.loops) or e.spm != d.spm + (j - i) * dense:
                break
            if j == i + 1:
                step = e.ddr - d.ddr
            elif e.ddr != d.ddr + (j - i) * step:
                break
            j += 1
        if j > i + 1 and step >= 0:
            if step == d.run_bytes and not d.loops:
                d = Descriptor(d.piece, d.ddr, d.spm, d.run_bytes * (j - i), ())
            else:
                d = Descriptor(d.piece, d.ddr, d.spm, d.run_bytes, (*d.loops, (step, j - i)))
            i = j
        else:
            i += 1
        out.append(d)
    return out


def _count(factors: Sequence[int], lo: Sequence[int], hi: Sequence[int]) -> int:
    n = 1
    for f in factors:
        n *= hi[f] - lo[f]
    return n


def _radix(factors: Sequence[int], at: Sequence[int], lo: Sequence[int], hi: Sequence[int]) -> int:
    x = 0
    for f in factors:
        x = x * (hi[f] - lo[f]) + at[f] - lo[f]
    return x


def _factors(dims: Sequence[Dim]) -> list[int]:
    return [f for d in dims for f, _ in d.terms]


class Contraction(Lowering):
    kind = "contraction"
    leads = "fused"
    takes = frozenset({"gemm", "contract"})

    def __init__(self, record: OpRecord, machine: Machine, rows_of_left: bool = False, resident: bool = False) -> None:
        """`rows_of_left` orders the rows as the left operand has them, not as the result does; `resident` keeps the
        left operand's whole reduction length in scratchpad."""
        super().__init__(record, machine)
        rule = record.rule
        left, right = record.operands[:2]
        out = record.results[0]
        if rule is None or left is None or right is None or left.dtype not in FLOATS or right.dtype != left.dtype:
            raise NotLowerable("matrix products take two operands of one float format")
        dims_l, dims_r, dims_o = rule.ins[0] or (), rule.ins[1] or (), rule.outs[0]
        if not (dims_l and dims_r and dims_o):
            raise NotLowerable("operands and result of a matrix product have dimensions")
        if out.dtype not in FLOATS or any(not d.terms and d.size != 1 for t in (dims_l, dims_r, dims_o) for d in t):
            raise NotLowerable("dimensions must be built from factors")
        self.lone: list[int] = []
        self.swapped = bool(dims_o[-1].terms) and dims_o[-1].terms[-1][0] not in _factors(dims_r)
        if self.swapped:
            left, right, dims_l, dims_r = right, left, dims_r, dims_l
        fl, fr, fo = set(_factors(dims_l)), set(_factors(dims_r)), _factors(dims_o)
        self.batch = [f for f in fo if f in fl and f in fr]
        self.m = [f for f in fo if f in fl and f not in fr]
        if rows_of_left:
            self.m = [f for f in _factors(dims_l) if f in self.m]
        self.n = [f for f in fo if f in fr and f not in fl]
        self.k = [f for f in _factors(dims_l) if f in fr and f not in fo]
        used = {*self.batch, *self.m, *self.n, *self.k}
        if any(f not in used and n > 1 for f, n in enumerate(rule.sizes)) or len(_factors(dims_o)) != len(set(fo)):
            raise NotLowerable("every factor must link two tensors")
        self.l_trs = int(_last(dims_l) in self.m)
        self.r_trs = int(_last(dims_r) in self.n)
        self.reads: list[Access] = [
            MatrixAccess(left, dims_l, *((self.k, self.m) if self.l_trs else (self.m, self.k)), self.batch),
            MatrixAccess(right, dims_r, *((self.k, self.n) if self.r_trs else (self.n, self.k)), self.batch),
        ]
        self.resident = self.twin = resident
        if resident:
            if self.l_trs or self.batch:
                raise NotLowerable("only a row-major, unbatched left operand can stay")
            self.reads[0] = ResidentAccess(left, dims_l, self.m, self.k, self.batch, rule.sizes)
        self.writes = [MatrixAccess(out, dims_o, self.m, self.n, self.batch)]
        spec = record.operands[2] if len(record.operands) > 2 else None
        self.bias = spec is not None
        if spec is not None:
            dims_b = rule.ins[2] or ()
            own = _factors(dims_b)
            if (
                self.swapped
                or spec.dtype not in FLOATS
                or own != self.n[len(self.n) - len(own) :]
                or dims_b[-1:] != dims_o[-1:]
            ):
                raise NotLowerable("a bias is a vector along the result's last dimension")
            self.reads.append(MatrixAccess(spec, dims_b, (), own, ()))
            self.lone = self.n[: len(self.n) - len(own)]  # the bias covers one point of these at a time
        self.act = ACTS.get(dict(record.attrs).get("act", "none"), -1)
        if self.act < 0:
            raise NotLowerable("activation is not one the matrix engine applies")
        self._units(rule.sizes)

    def _units(self, sizes: tuple[int, ...]) -> None:
        """Channels are cut at whole blocks; rows in steps of the array's height."""
        units = [1] * len(sizes)
        limit = [MAX_BATCH] * len(sizes)
        for f in (*self.m, *self.n, *self.k):
            limit[f] = 1 if f in self.lone else MAX_DIM
        if self.m:
            big = max(self.m, key=lambda f: sizes[f])
            units[big] = min(PE_ROWS, sizes[big])
        for a in (a for a in (*self.reads, *self.writes) if isinstance(a, MatrixAccess)):
            if a.run_col >= 0:
                b = block_size(a.spec.dtype)
                units[a.run_col] = max(units[a.run_col], min(b, sizes[a.run_col]))
        self.loop_over([(f,) for f in range(len(sizes))], units, limit)

    def arguments(self) -> list[int]:
        order = super().arguments()
        return [order[1], order[0], *order[2:]] if self.swapped else order

    def groups(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return self.batch, self.m, self.n, self.k

    def fits(self, lens: Sequence[int]) -> bool:
        """True if one instruction can hold a slice of these factor lengths."""
        size = [math.prod(lens[f] for f in g) for g in self.groups()]
        return size[0] <= MAX_BATCH and max(size[1:]) <= MAX_DIM

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        m = Local(_count(self.m, lo, hi), _count(self.n, lo, hi), "f32", True)
        return _count(self.batch, lo, hi) * round_up(m.size_bytes, ALIGN_BYTES)

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """A left operand that stays is read where the slice of the reduction begins."""
        form = super().slice_form(lo, hi)
        return (form, tuple(lo[f] for f in self.k)) if self.resident else form

    def ops_per_point(self) -> float:
        """Matrix cycles per point."""
        return self.machine.n_tiles / self.machine.peak_macs_per_cycle(self.reads[0].spec.dtype)

    def emit(self, em: Emitter, s: Slice) -> None:
        left, right = self.reads[0].spec.dtype, self.writes[0].spec.dtype
        access, leaves = self.reads[0], s.last and not s.stays
        stay = access.at(s.lo, s.hi) if isinstance(access, ResidentAccess) else 0
        em.gemm(
            left=s.reads[0] + stay,
            right=s.reads[1],
            out=s.writes[0] if leaves else s.acc,
            m=_count(self.m, s.lo, s.hi),
            k=_count(self.k, s.lo, s.hi),
            n=_count(self.n, s.lo, s.hi),
            batch=_count(self.batch, s.lo, s.hi),
            l_trs=self.l_trs,
            r_trs=self.r_trs,
            fmt=left,
            out_fmt=right if leaves else "f32",
            psum=s.addend if s.first else s.acc,
            psum_en=int(not s.first or s.addend > 0),
            psum_fmt=s.addend_dtype or right if s.first and s.addend else "f32",
            bias=s.reads[2] if self.bias and s.last else 0,
            bias_en=int(self.bias and s.last),
            bias_fmt=self.reads[2].spec.dtype if self.bias else "f32",
            act=self.act if s.last else 0,
        )


def _last(dims: Sequence[Dim]) -> int:
    return dims[-1].terms[-1][0] if dims[-1].terms else -1
