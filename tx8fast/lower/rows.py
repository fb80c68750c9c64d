"""Ops that look at a whole row: softmax, layernorm, rmsnorm and reductions over the last dimension.

May import: lower.base, lower.emitter, lower.transfer, graph_table. Must not: place buffers.

A slice is a blocked matrix [rows, C] with all channels. Row statistics come from the vector engine's channel
reduction as [rows, 1]; a product with ones on the matrix engine spreads them over a block of lanes, and one
instruction per block, of few rows per several blocks, applies them. Rows longer than a reduction's field are
reduced in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tx8fast.graph_table import OpRecord, TensorSpec
from tx8fast.lower.base import ALIGN_BYTES, FLOATS, Lowering, NotLowerable, Slice, round_up
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Local
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params, padded_channels

WORK = "f32"
REDUCES = {"add": "sum", "mean": "avg", "max": "max", "min": "min"}
SPREADS = 2  # buffers of a statistic over lanes: the matrix engine spreads the next head's while one is applied
MAX_CHANNELS = 16384  # field range of the reduce instruction
#: channels of a piece of a longer row: the engine adds one after the other, so that a sum of n equal numbers may be n/2 roundings off
PIECE = 4096
JOINS = {"sum": "add", "avg": "add", "max": "max", "min": "min"}
SPREAD_ROWS = 16  # rows of blocks that one instruction works on at least: fewer rows of a slice are taken several blocks at a time


class RowOp(Lowering):
    """Common part: the last dimension is whole, every leading dimension may be cut."""

    kind = leads = "rows"

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x = record.operands[0]
        assert x is not None
        self.dtype = x.dtype
        if not x.shape or self.dtype not in FLOATS or record.results[0].dtype != x.dtype:
            raise NotLowerable("row operations take one float format and rank 1 or more")
        self.heads = self._heads()
        self.channels = x.shape[-1] // self.heads  # of a head
        if self.heads > 1 and self.channels % block_size(self.dtype):
            raise NotLowerable(f"heads of {self.channels} channels are no whole blocks")
        self.long = self.channels > MAX_CHANNELS
        #: whether tiles may have few enough of its rows
        self.few = math.prod(x.shape[:-1]) * self.heads <= SPREAD_ROWS * machine.n_tiles or self.long
        if self.long and self.heads > 1:
            raise NotLowerable(f"heads of {self.channels} channels are above the reduction's limit of {MAX_CHANNELS}")
        rank = len(x.shape)
        if {a % rank for a in self._axes()} != {rank - 1}:
            raise NotLowerable("only the last dimension can be normalised on the vector engine")
        # with heads the last loop runs over them, and their channels come whole
        self.loop_over([(f,) for f in range(rank)], whole=[rank - 1] if self.heads == 1 else [])
        self.reads = [self.operand_access(0)]
        self.writes = [self.result_access()]

    def _heads(self) -> int:
        return 1

    def _axes(self) -> Sequence[int]:
        return self.record.attr("axes")

    def local(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return self.reads[0].local(self.reads[0].box(lo, hi))

    @property
    def wide(self) -> bool:
        """16-bit formats are widened to f32 first: the roundings of a dozen steps would add up."""
        return self.dtype != WORK

    def work_bytes(self, local: Local) -> int:
        return local.elems * ITEM_BYTES[WORK]

    def row_bytes(self, local: Local) -> int:
        return local.rows * 4 * ITEM_BYTES[WORK]

    def stat_bytes(self, local: Local) -> int:
        """Bytes of a statistic, and of that of a piece beside it if rows are reduced in pieces."""
        return 2 * round_up(self.row_bytes(local), ALIGN_BYTES) if self.long else self.row_bytes(local)

    def block_bytes(self, local: Local) -> int:
        """Bytes of blocks that a statistic is spread over, also of a slice of fewer rows, which takes more blocks at a time."""
        return max(local.rows, SPREAD_ROWS if self.few else 0) * 64 * ITEM_BYTES[WORK]

    def _together(self, local: Local) -> int:
        """Blocks of channels that one instruction works on."""
        return max(1, min(SPREAD_ROWS // local.rows, local.cols // 64)) if self.few else 1

    def reduce_rows(self, em: Emitter, fn: str, x: int, stat: int, local: Local) -> None:
        """stat [rows, 1] = fn over the channels, in the work format; of long rows in pieces, with room behind it."""
        if not self.long:
            em.reduce(fn, x, stat, local, WORK)
            return
        part, lanes = stat + round_up(self.row_bytes(local), ALIGN_BYTES), local.rows * 4
        for at, piece in _pieces(local):
            em.reduce("sum" if fn == "avg" else fn, x + at, part if at else stat, piece, WORK)
            if at:
                em.vv(JOINS[fn], stat, part, stat, lanes, WORK)
        if fn == "avg":
            em.vs("mul", stat, 1.0 / self.channels, stat, lanes, WORK)

    def const_bytes(self) -> list[int]:
        return [self._lanes_of_ones() * ITEM_BYTES[WORK]]

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        em.fill(consts[0], 1.0, self._lanes_of_ones(), WORK)

    def _lanes_of_ones(self) -> int:
        return 64 * (min(SPREAD_ROWS, max(1, self.channels // 64)) if self.few else 1)

    def widen(self, em: Emitter, src: int, dst: int, n: int) -> int:
        """Return where `n` elements lie in the work format; `dst` is used only if they must be converted."""
        if not self.wide:
            return src
        em.cvt(src, dst, n, self.dtype, WORK)
        return dst

    def apply_rows(self, em: Emitter, fn: str, x: int, stat: int, y: int, spread: int, ones: int, local: Local) -> None:
        """y = fn(x, stat) with stat [rows, 1] spread over lanes through the buffer `spread` (one block)."""
        cx, c0 = blocked_params(local.cols, WORK)
        step = self._together(local)
        block = local.rows * 64 * ITEM_BYTES[WORK]
        if cx:
            em.broadcast_rows(stat, ones, spread, local.rows, 64 * step, WORK)
            whole = [(x + j * block, spread, y + j * block) for j in range(0, cx - step + 1, step)]
            em.vv_each(fn, whole, local.rows * 64 * step, WORK)
            left = cx % step * 64
            if left:
                at = (cx - cx % step) * block
                em.vv(fn, x + at, spread, y + at, local.rows * left, WORK)
        if c0:
            tail = local.cols - cx * 64
            em.broadcast_rows(stat, ones, spread, local.rows, tail, WORK)
            em.vv(fn, x + cx * block, spread, y + cx * block, local.rows * c0, WORK)

    def ops_per_point(self) -> float:
        return 8 * ITEM_BYTES[WORK] / self.machine.ct.bytes_per_cycle


def _pieces(local: Local) -> Iterator[tuple[int, Local]]:
    """Yield (bytes from the begin, form) of the pieces of rows in the work format that one reduction takes."""
    work = Local(local.rows, local.cols, WORK, True)
    for c in range(0, local.cols, PIECE):
        yield work.offset(0, c), Local(local.rows, min(PIECE, local.cols - c), WORK, True)


class Norm(RowOp):
    """layernorm and rmsnorm over the last dimension, or over the channels of each of its heads: in the blocked form these are
    matrices one after the other. Scale and shift have the rows' format or the work format, which takes more digits."""

    takes = frozenset({"layernorm", "rmsnorm"})
    in_place = (0,)

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.centred = record.kind == "layernorm"
        self.eps = float(record.attr("eps"))
        for j, spec in enumerate(record.operands[1:], 1):
            if spec is not None:
                if (
                    math.prod(spec.shape) != self.channels
                    or spec.shape[-1:] != (self.channels,)
                    or spec.dtype not in (self.dtype, WORK)
                ):
                    raise NotLowerable(
                        "scale and shift must be vectors over the last dimension, in the rows' format or f32"
                    )
                self.reads.append(self.operand_access(j))
        self.gamma = len(record.operands) > 1 and record.operands[1] is not None
        self.beta = len(record.operands) > 2 and record.operands[2] is not None

    def _heads(self) -> int:
        return int(self.record.attr("heads"))

    def _of_head(self, local: Local) -> tuple[int, Local]:
        """Return how many heads a slice has, and the form of one."""
        n = local.cols // self.channels
        return n, Local(local.rows, self.channels, WORK, True)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        local = self.local(lo, hi)
        lanes = padded_channels(self.channels, WORK) * ITEM_BYTES[WORK]
        n, _ = self._of_head(local)
        own = [self.work_bytes(local), n * self._stat_bytes(local), min(n, SPREADS) * self.block_bytes(local)]
        return own + ([self.work_bytes(local), lanes] if self.wide else [])

    def emit(self, em: Emitter, s: Slice) -> None:
        local = self.local(s.lo, s.hi)
        square, stat, spread, *room = s.scratch
        n, ones = local.elems, s.consts[0]
        x = self.widen(em, s.reads[0], room[0] if room else 0, n)
        y = room[0] if room else s.writes[0]
        if self.centred:
            self._statistic(em, x, stat, local)
            self._apply_heads(em, "sub", x, stat, y, spread, ones, local)
            x = y
        em.v("square", x, square, n, WORK)
        self._statistic(em, square, stat, local)
        heads, head = self._of_head(local)
        step, lanes = self._stat_bytes(local), local.rows * 4
        close = heads == 1 or step == self.row_bytes(local)  # statistics of all heads are one vector
        for at in (stat,) if close else range(stat, stat + heads * step, step):
            em.vs("add", at, self.eps, at, lanes * heads if close else lanes, WORK)
            em.v("rsqrt", at, at, lanes * heads if close else lanes, WORK)
        self._apply_heads(em, "mul", x, stat, y, spread, ones, local)
        channels = padded_channels(self.channels, WORK)
        for j, fn in enumerate(["mul"] * self.gamma + ["add"] * self.beta):
            own = self.widened_vector(em, j, s.reads[1 + j], room[1] if room else 0, channels)
            for at in range(y, y + heads * head.size_bytes, head.size_bytes):
                em.vector(fn, at, own, at, head, WORK)
        if room:
            em.cvt(y, s.writes[0], n, WORK, self.dtype)

    def widened_vector(self, em: Emitter, j: int, src: int, dst: int, n: int) -> int:
        """Return where the `j`th of scale and shift lies in the work format; `dst` is used only if it must be converted."""
        return src if self.reads[1 + j].spec.dtype == WORK else self.widen(em, src, dst, n)

    def _stat_bytes(self, local: Local) -> int:
        """Bytes from one head's statistic to the next one's, which reductions write: whole lines if there are several."""
        return self.stat_bytes(local) if self.heads == 1 else round_up(self.row_bytes(local), ALIGN_BYTES)

    def _statistic(self, em: Emitter, x: int, stat: int, local: Local) -> None:
        """stat [heads, rows, 1] = the mean over the channels of every head."""
        heads, head = self._of_head(local)
        for h in range(heads):
            self.reduce_rows(em, "avg", x + h * head.size_bytes, stat + h * self._stat_bytes(local), head)

    def _apply_heads(
        self, em: Emitter, fn: str, x: int, stat: int, y: int, spread: int, ones: int, local: Local
    ) -> None:
        """y = fn(x, stat) head by head."""
        heads, head = self._of_head(local)
        for h in range(heads):
            at = h * head.size_bytes
            room = spread + h % SPREADS * self.block_bytes(local)
            self.apply_rows(em, fn, x + at, stat + h * self._stat_bytes(local), y + at, room, ones, head)


class Softmax(RowOp):
    """softmax(x * scale + mask) or its logarithm; the mask broadcasts to x."""

    takes = frozenset({"softmax"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.scale = float(record.attr("scale"))
        self.log = bool(record.attr("log"))
        self.online = not self.log
        self.mask = ""
        spec = record.operands[1] if len(record.operands) > 1 else None
        if spec is not None:
            self._add_mask(spec)

    def _axes(self) -> Sequence[int]:
        return [self.record.attr("axis")]

    def _add_mask(self, spec: TensorSpec) -> None:
        shape = (1,) * (len(self.sizes) - len(spec.shape)) + spec.shape
        if spec.dtype != self.dtype or shape[-1] != self.channels or len(shape) != len(self.sizes):
            raise NotLowerable("the mask must have the scores' format and last dimension")
        if any(n not in (1, m) for n, m in zip(shape, self.sizes, strict=True)):
            raise NotLowerable("the mask does not broadcast to the scores")
        lead = [(d, shape[d] != 1) for d in range(len(shape) - 1) if self.sizes[d] != 1]
        kinds = [follows for _, follows in lead]
        self.mask = "vector" if not any(kinds) else "full" if all(kinds) else "mixed"
        # the innermost dimensions that all follow the mask, or all repeat it, go into one instruction
        n_inner = next((i for i, k in enumerate(kinds[::-1]) if k != kinds[-1]), len(kinds))
        self.mask_outer, self.mask_inner = lead[: len(lead) - n_inner], lead[len(lead) - n_inner :]
        self.row_factors = tuple(d for d, _ in self.mask_outer)
        self.reads.append(self.operand_access(1))

    def _mask_elems(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return self.reads[1].local(self.reads[1].box(lo, hi)).elems if self.mask else 0

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        local = self.local(lo, hi)
        own = [self.stat_bytes(local), self.block_bytes(local)] + [self.work_bytes(local)] * self.log
        mask = [self._mask_elems(lo, hi) * ITEM_BYTES[WORK]] if self.mask else []
        return own + ([self.work_bytes(local), *mask] if self.wide else [])

    def emit(self, em: Emitter, s: Slice) -> None:
        local = self.local(s.lo, s.hi)
        n, ones = local.elems, s.consts[0]
        stat, spread = s.scratch[:2]
        room = s.scratch[2 + self.log :]
        x = self.widen(em, s.reads[0], room[0] if room else 0, n)
        y = room[0] if room else s.writes[0]
        if self.scale != 1.0:
            em.vs("mul", x, self.scale, y, n, WORK)
            x = y
        if self.mask:
            mask = self.widen(em, s.reads[1], room[1] if room else 0, self._mask_elems(s.lo, s.hi))
            self._apply_mask(em, x, mask, y, local, s)
            x = y
        self.reduce_rows(em, "max", x, stat, local)
        self.apply_rows(em, "sub", x, stat, y, spread, ones, local)
        e = s.scratch[2] if self.log else y
        em.v("exp_lp" if self.wide else "exp", y, e, n, WORK)
        self.reduce_rows(em, "sum", e, stat, local)
        em.v("ln" if self.log else "recip", stat, stat, local.rows * 4, WORK)
        self.apply_rows(em, "sub" if self.log else "mul", y, stat, y, spread, ones, local)
        if room:
            em.cvt(y, s.writes[0], n, WORK, self.dtype)

    def _apply_mask(self, em: Emitter, x: int, mask: int, y: int, local: Local, s: Slice) -> None:
        if self.mask == "vector":
            em.vector("add", x, mask, y, local, WORK)
            return
        if self.mask == "full":
            em.vv("add", x, mask, y, local.elems, WORK)
            return
        self._apply_mixed_mask(em, x, mask, y, local, s)

    def _apply_mixed_mask(self, em: Emitter, x: int, mask: int, y: int, local: Local, s: Slice) -> None:
        e = ITEM_BYTES[WORK]
        cx, c0 = blocked_params(local.cols, WORK)
        length = s.lens
        inner = math.prod(length[d] for d, _ in self.mask_inner)
        repeats = not self.mask_inner[-1][1]
        step = 1 if repeats else inner
        pairs = [(0, 0)]  # score row, mask row
        for d, follows in self.mask_outer:
            n = length[d]
            pairs = [(r * n + i, q * n + i if follows else q) for r, q in pairs for i in range(n)]
        mask_rows = step * math.prod(length[d] for d, follows in self.mask_outer if follows)
        for j in range(cx + bool(c0)):
            width = 64 if j < cx else c0
            for r, q in pairs:
                at = (j * local.rows * 64 + r * inner * width) * e
                mask_at = mask + (j * mask_rows * 64 + q * step * width) * e
                if repeats:
                    em.vuv("add", x + at, mask_at, y + at, inner * width, width, WORK)
                else:
                    em.vv("add", x + at, mask_at, y + at, inner * width, WORK)


class Reduce(RowOp):
    """Reduction of the last dimension, kept as extent 1."""

    takes = frozenset({"reduce"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.fn = REDUCES.get(record.attr("op"), "")
        if not self.fn or not record.attr("keepdims"):
            raise NotLowerable("the vector engine reduces with sum, mean, max or min and keeps the dimension")
        if self.long:
            raise NotLowerable(f"{self.channels} channels are above the reduction's limit of {MAX_CHANNELS}")

    def const_bytes(self) -> list[int]:
        return []

    def prologue(self, em: Emitter, consts: Sequence[int]) -> None:
        """Nothing: no row statistics are spread."""

    def emit(self, em: Emitter, s: Slice) -> None:
        em.reduce(self.fn, s.reads[0], s.writes[0], self.local(s.lo, s.hi), self.dtype)
