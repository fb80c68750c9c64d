"""Dense two-dimensional convolution on the neural engine, one image and a band of output rows per instruction.

May import: lower.base, graph_table. Must not: place buffers.
"""

from __future__ import annotations

from tx8fast.graph_table import Dim, OpRecord
from tx8fast.lower.base import FLOATS, Access, Emitter, Lowering, NotLowerable, Slice
from tx8fast.lower.contraction import ACTS
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES
from tx8fast.numerics.layout import block_size, padded_channels


class Convolution(Lowering):
    """Factors: image, output row, output channel; columns, input channels and taps stay whole."""

    kind = "conv"
    positional = True

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, w = record.operands[:2]
        out = record.results[0]
        assert x is not None and w is not None
        if record.attr("groups") != 1 or len(x.shape) != 4:
            raise NotLowerable("grouped or non-planar convolution has no matrix-engine form")
        if x.dtype not in FLOATS or {w.dtype, out.dtype} != {x.dtype} or {x.layout, w.layout, out.layout} != {"blocked"}:
            raise NotLowerable("convolution takes one float format in blocked layout")
        self.sy, self.sx = record.attr("stride")
        self.dy, self.dx = record.attr("dilation")
        self.top, self.left = record.attr("pad_lo")
        self.right = record.attr("pad_hi")[1]
        self.act = ACTS.get(record.attr("act"), -1)
        self.ky, self.kx = w.shape[:2]
        if self.act < 0 or max(self.ky, self.kx) > 255 or max(x.shape[1:3]) > 4096:
            raise NotLowerable("convolution is outside the instruction's field ranges")
        n, oh, ow, oc = out.shape
        self.set_factors((n, oh, oc), (1, 1, min(oc, block_size(x.dtype))), max_len=(1, 4096, 16384))
        reach = (self.ky - 1) * self.dy
        self.reads = [
            Access(x, [Dim(n, ((0, 1),)), _Band(x.shape[1], self.sy, reach, self.top),
                       Dim(x.shape[2], full=True), Dim(x.shape[3], full=True)], True),
            Access(w, [Dim(self.ky, full=True), Dim(self.kx, full=True), Dim(oc, ((2, 1),)),
                       Dim(w.shape[3], full=True)], True),
        ]  # fmt: skip
        bias = record.operands[2] if len(record.operands) > 2 else None
        if bias is not None:
            self.reads.append(Access(bias, [Dim(oc, ((2, 1),))], True))
        self.bias = bias is not None
        self.writes = [Access(out, [Dim(n, ((0, 1),)), Dim(oh, ((1, 1),)), Dim(ow, full=True), Dim(oc, ((2, 1),))], True)]

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """The convolution takes its bias in f32 only: room for the widened vector."""
        return [self._bias_lanes(lo, hi) * 4] if self._widens_bias() else []

    def _widens_bias(self) -> bool:
        return self.bias and self.reads[2].spec.dtype != "f32"

    def _bias_lanes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        return padded_channels(hi[2] - lo[2], "f32")

    def emit(self, em: Emitter, s: Slice) -> None:
        x, out = self.reads[0].spec, self.writes[0].spec
        rows = self.reads[0].box(s.lo, s.hi)[1]
        first = s.lo[1] * self.sy - self.top
        last = (s.hi[1] - 1) * self.sy - self.top + (self.ky - 1) * self.dy + 1
        top, bottom = max(0, -first), max(0, last - rows[1])
        right = max(0, (out.shape[2] - 1) * self.sx - self.left + (self.kx - 1) * self.dx + 1 - x.shape[2])
        bias = s.reads[2] if self.bias else 0
        if self._widens_bias():
            em.cvt(bias, s.scratch[0], self._bias_lanes(s.lo, s.hi), self.reads[2].spec.dtype, "f32")
            bias = s.scratch[0]
        em.add(
            "conv", src=s.reads[0], weight=s.reads[1], out=s.writes[0], psum=0, bias=bias,
            n=1, h=rows[1] - rows[0], w=x.shape[2], c=x.shape[3], oh=s.hi[1] - s.lo[1], ow=out.shape[2],
            oc=s.hi[2] - s.lo[2], top=top, bottom=bottom, left=self.left, right=right, kx=self.kx, ky=self.ky,
            sx=self.sx, sy=self.sy, dx=self.dx, dy=self.dy, out_fmt=FORMAT_CODES[out.dtype],
            psum_fmt=FORMAT_CODES["f32"], psum_en=0, bias_en=int(self.bias), act=self.act, fmt=FORMAT_CODES[x.dtype],
        )  # fmt: skip


class _Band:
    """Input rows that a band of output rows needs, clipped to the image."""

    full = False

    def __init__(self, size: int, stride: int, reach: int, pad: int) -> None:
        self.size, self.stride, self.reach, self.pad = size, stride, reach, pad
        self.terms = ((1, stride),)

    def box(self, lo, hi) -> tuple[int, int]:
        a = max(0, lo[1] * self.stride - self.pad)
        b = min(self.size, (hi[1] - 1) * self.stride - self.pad + self.reach + 1)
        return a, max(a, b)

    def extent(self, lens) -> int:
        return min(self.size, (lens[1] - 1) * self.stride + self.reach + 1)
