"""Convolutions on the neural engine, one image and a band of output rows per instruction.

May import: lower.base, lower.emitter, lower.windows, lower.contraction, graph_table, numerics. Must not: place buffers.

A convolution with one tap per result is a matrix product and is lowered as one. Grouped convolutions take as many
groups at a time as fill whole channel blocks, or all of them; of several groups the weights are laid out as one dense,
block-diagonal matrix per tap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tx8fast.graph_table import Dim, OpRecord, Rule, TensorSpec
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.contraction import ACTS, Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.loops import Loops, Runs
from tx8fast.lower.transfer import Local, moves
from tx8fast.lower.windows import MAX_EXTENT, Window
from tx8fast.machine import Machine
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params, padded_channels
from tx8fast.numerics.windows import dense_groups, is_depthwise

MAX_KERNEL = 255
MAX_CHANNELS = 16384
ACC = "f32"
N, Y, X, GROUP, OUT, IN, TAPS = range(
    7
)  # of the rule's factors: image, output row and column, group, its channels, rows of the kernel


def as_product(record: OpRecord) -> OpRecord | None:
    """Return a convolution with one tap, stride 1 and no padding as a matrix product over all positions, or None.

    Rows and columns of an image become one dimension, which leaves the blocked form's bytes as they are."""
    if record.kind != "conv" or record.operands[0] is None or record.operands[1] is None:
        return None
    x, w, *bias = record.operands
    out = record.results[0]
    assert x is not None and w is not None
    plain = tuple(w.shape[:2]) == tuple(record.attr("stride")) == (1, 1) and record.attr("groups") == 1
    if not plain or any(record.attr("pad_lo")) or any(record.attr("pad_hi")) or len(x.shape) != 4:
        return None
    if {x.layout, w.layout, out.layout} != {"blocked"}:
        return None
    n, h, width, c = x.shape
    o, p = out.shape[-1], h * width
    flat = lambda spec, shape: TensorSpec(shape, spec.dtype, spec.layout)  # noqa: E731
    dim = [Dim(s, ((f, 1),)) for f, s in enumerate((n, p, o, c))]
    ins: tuple = ((dim[0], dim[1], dim[3]), (dim[2], dim[3]), *((dim[2],) if b is not None else None for b in bias))
    rule = Rule((n, p, o, c), "PPPR", ins, ((dim[0], dim[1], dim[2]),), (("ne", 1, (0, 1, 2, 3)),))
    operands = (flat(x, (n, p, c)), flat(w, (o, c)), *bias)
    attrs = (("act", record.attr("act")),)
    return replace(record, kind="contract", attrs=attrs, operands=operands, results=(flat(out, (n, p, o)),), rule=rule)


def convolution(record: OpRecord, machine: Machine) -> Lowering:
    """Return the family of convolution that fits. Raises NotLowerable."""
    product = as_product(record)
    if product is not None:
        low = Contraction(product, machine)
        low.loops = Loops(record.rule, ((N,), (Y, X), (GROUP, OUT), (IN,)))  # type: ignore[arg-type]
        return low
    if record.kind not in Windowed.takes:
        raise NotLowerable(f"{record.kind} is no convolution")
    x, w = record.operands[:2]
    groups = record.attr("groups")
    if groups == 1 or x is None or w is None:
        return Convolution(record, machine)
    outs = w.shape[2] // groups
    if is_depthwise(groups, w.shape[3], outs, record.attr("dilation")):
        return Depthwise(record, machine)
    return GroupedConvolution(record, machine)


class Windowed(Lowering):
    """Common part: operands, window and bias. Factors begin with image, output row and output channel."""

    kind = "conv"
    leads = "fused conv"
    takes = frozenset({"conv"})
    positional = True
    steady = frozenset((0, 1))  # images and rows
    overlaps = True  # priced by its work alone: short samples are bound by the weight's port, real slices are not
    sum_dtype = ACC  # format of what the sums are added to
    sums = True  # its instruction adds to partial sums

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, w = record.operands[:2]
        out = record.results[0]
        if x is None or w is None or len(x.shape) != 4:
            raise NotLowerable("a convolution on the matrix engine has an image and a weight")
        if (
            x.dtype not in FLOATS
            or {w.dtype, out.dtype} != {x.dtype}
            or {x.layout, w.layout, out.layout} != {"blocked"}
        ):
            raise NotLowerable("convolution takes one float format in blocked layout")
        pair = lambda name: tuple(record.attr(name))  # noqa: E731
        self.x, self.w, self.out, self.dtype = x, w, out, x.dtype
        self.dilation = pair("dilation")
        self.window = Window(
            (x.shape[1], x.shape[2]),
            (out.shape[1], out.shape[2]),
            (w.shape[0], w.shape[1]),
            pair("stride"),
            self.dilation,
            pair("pad_lo"),
        )
        self.act = ACTS.get(record.attr("act"), -1)
        columns, kernel = max(x.shape[2], out.shape[2]), w.shape[1] if self.sums else max(w.shape[:2])
        if self.act < 0 or kernel > MAX_KERNEL or columns > MAX_EXTENT or self.window.most_rows < 1:
            raise NotLowerable("convolution is outside the instruction's field ranges")
        if min(*pair("pad_lo"), *pair("pad_hi")) < 0:
            raise NotLowerable("a convolution that crops its input")
        self.bias = record.operands[2] if len(record.operands) > 2 else None

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return self.window.form(lo, hi)

    def loop_over_images(self, channels: Runs, units: Sequence[int], most: Sequence[int]) -> None:
        """Loop over images, output rows and `channels`; columns and taps come whole. Where that leaves no room for two slices, however
        small, or the kernel has more rows than an instruction takes, they are a reduction, too."""
        runs, room = [(N,), (Y,), *channels], self.machine.spm_limit - self.machine.spm_base
        self._loop(runs, (1, 1, *units), (1, self.window.most_rows, *most))
        high = self.w.shape[0] > MAX_KERNEL
        if self.sums and (high or 2 * self.least_bytes(tuple(map(min, self.units, self.sizes))) > room):
            self.window = replace(self.window, taps=len(runs))
            self._loop([*runs, (TAPS,)], (1, 1, *units, 1), (1, self.window.most_rows, *most, MAX_KERNEL))

    def _loop(self, runs: Runs, units: Sequence[int], most: Sequence[int]) -> None:
        self.loop_over(runs, units, most)
        self.reads = [self.operand_access(j) for j, spec in enumerate(self.record.operands) if spec is not None]
        self.writes = [self.result_access()]
        self.known_bytes, self.known_slices, self.known_scratch = {}, {}, {}

    def acc_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
        return Local((hi[1] - lo[1]) * self.out.shape[2], self.out_channels(lo, hi), ACC, True).size_bytes

    def taps_of(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        """Return the taps of a slice."""
        rows = self.w.shape[0] if self.window.taps < 0 else hi[self.window.taps] - lo[self.window.taps]
        return rows * self.w.shape[1]

    def out_channels(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        a, b = self.writes[0].dims[-1].box(lo, hi)
        return b - a

    def in_channels(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        a, b = self.reads[0].dims[-1].box(lo, hi)
        return b - a

    def _widens_bias(self) -> bool:
        """The convolution takes its bias in f32 only."""
        return self.bias is not None and self.bias.dtype != ACC

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """Two copies: with shared operands, neighbouring slices go through different register windows."""
        return self.own_scratch(lo, hi) * 2

    def own_scratch(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        return [padded_channels(self.out_channels(lo, hi), ACC) * ITEM_BYTES[ACC]] if self._widens_bias() else []

    def scratch_of(self, s: Slice) -> list[int]:
        """Addresses of the slice's copy."""
        n = len(s.scratch) // 2
        return list(s.scratch[n * (s.parity % 2) :][:n])

    def ops_per_point(self) -> float:
        """Matrix cycles per point; a point of the third factor is a channel, a row of the kernel is one where slices have some of them."""
        taps = math.prod(self.window.kernel[self.window.taps >= 0 :]) * self.out.shape[2]
        return taps / self.machine.peak_macs_per_cycle(self.dtype) * self.machine.n_tiles

    def convolve(self, em: Emitter, s: Slice, name: str, weight: int, out: int) -> None:
        """Emit the instruction `name` on the slice, on top of `s.acc` unless it is the first, with bias and activation
        if it ends the reduction."""
        oc = self.out_channels(s.lo, s.hi)
        bias = s.reads[2] if self.bias is not None and s.last else 0
        if bias and self._widens_bias():
            wide = self.scratch_of(s)[0]
            em.cvt(bias, wide, padded_channels(oc, ACC), self.bias.dtype, ACC)  # type: ignore[union-attr]
            bias = wide
        fields = self.window.fields(s.lo, s.hi)
        em.add(
            name,
            src=s.reads[0],
            weight=weight,
            out=out,
            bias=bias,
            n=1,
            c=self.in_channels(s.lo, s.hi),
            oh=s.hi[1] - s.lo[1],
            ow=self.out.shape[2],
            oc=oc,
            dx=self.dilation[1],
            dy=self.dilation[0],
            psum=0 if s.first else s.acc,
            psum_en=int(not s.first),
            psum_fmt=FORMAT_CODES[s.addend_dtype or self.sum_dtype],
            out_fmt=FORMAT_CODES[self.dtype if s.last else ACC],
            bias_en=int(bool(bias)),
            act=self.act if s.last else 0,
            fmt=FORMAT_CODES[self.dtype],
            **fields,
        )


class Convolution(Windowed):
    """Factors: image, output row, output channel, input channel (summed); columns and taps stay whole."""

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        if record.attr("groups") != 1:
            raise NotLowerable("grouped convolution")
        block = block_size(self.dtype)
        units = [min(n, block) for n in (self.out.shape[3], self.x.shape[3])]
        self.loop_over_images([(OUT,), (IN,)], units, (MAX_CHANNELS, MAX_CHANNELS))

    def emit(self, em: Emitter, s: Slice) -> None:
        self.convolve(em, s, "conv", s.reads[1], s.writes[0] if s.last else s.acc)


class Depthwise(Windowed):
    """Factors: image, output row, channel. The weight's one input channel pads to four lanes in DDR; the engine wants
    channels as lanes, so the weight is gathered in scratchpad."""

    kind = "depthwise"
    sums = False

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.loop_over_images([(GROUP,)], [min(self.out.shape[3], block_size(self.dtype))], [MAX_CHANNELS])

    def _weight(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return Local(math.prod(self.w.shape[:2]), hi[2] - lo[2], self.dtype, True)

    def own_scratch(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        return [*super().own_scratch(lo, hi), self._weight(lo, hi).size_bytes]

    def emit(self, em: Emitter, s: Slice) -> None:
        weight = self.scratch_of(s)[-1]
        self._gather(em, s.reads[1], weight, self._weight(s.lo, s.hi))
        self.convolve(em, s, "depthwise", weight, s.writes[0])

    def _gather(self, em: Emitter, src: int, dst: int, local: Local) -> None:
        """[tap, channel | 4 lanes] -> [tap | channel]."""
        e = ITEM_BYTES[self.dtype]
        lane = blocked_params(1, self.dtype)[1] * e  # from one channel's value to the next
        cx, c0 = blocked_params(local.cols, self.dtype)
        b = block_size(self.dtype)
        whole = local.cols // b if cx * b > local.cols else cx  # blocks without padding lanes
        taps = (local.rows, local.cols * lane)
        if whole:
            axes = [(b, lane, e), (*taps, b * e), (whole, b * lane, local.rows * b * e)]
            em.gather(src, dst, moves(axes, e))
        rest = local.cols - whole * b
        if rest:
            width = c0 if whole == cx else b
            axes = [(rest, lane, e), (*taps, width * e)]
            em.gather(src + whole * b * lane, dst + local.offset(0, whole * b), moves(axes, e))


class GroupedConvolution(Windowed):
    """Factors: image, output row, group. As many groups are a slice as begin and end at whole channel blocks, or all of them; the last
    ones may be fewer."""

    kind = "grouped conv"

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        groups = int(record.attr("groups"))
        self.ins, self.outs = self.w.shape[3], self.w.shape[2] // groups
        self.n_set = dense_groups(groups, self.ins, self.outs, block_size(self.dtype))
        self.loop_over_images([(GROUP,)], [self.n_set], [self.n_set])

    def _dense(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        """The block-diagonal weight of a slice."""
        n_groups = hi[2] - lo[2]
        return Local(self.taps_of(lo, hi) * n_groups * self.outs, n_groups * self.ins, self.dtype, True)

    def own_scratch(self, lo: Sequence[int], hi: Sequence[int]) -> list[int]:
        return super().own_scratch(lo, hi) + ([self._dense(lo, hi).size_bytes] if self.n_set > 1 else [])

    def emit(self, em: Emitter, s: Slice) -> None:
        weight = s.reads[1]
        if self.n_set > 1:
            weight = self.scratch_of(s)[-1]
            self._spread(em, s.reads[1], weight, s)
        self.convolve(em, s, "conv", weight, s.writes[0] if s.last else s.acc)

    def ops_per_point(self) -> float:
        return super().ops_per_point() * self.n_set * self.outs * self.ins

    def _spread(self, em: Emitter, src: int, dst: int, s: Slice) -> None:
        """Put every group's weight on the diagonal of a zero matrix per tap."""
        dense, n_groups, taps = self._dense(s.lo, s.hi), s.hi[2] - s.lo[2], self.taps_of(s.lo, s.hi)
        if dense.elems > taps * n_groups * self.outs * self.ins:  # a slice of one group has nothing between
            em.fill(dst, 0.0, dense.elems, self.dtype)
        e = ITEM_BYTES[self.dtype]
        rows = n_groups * self.outs
        own = Local(dense.rows, self.ins, self.dtype, True)
        b = block_size(self.dtype)
        for g in range(n_groups):
            done = 0
            while done < self.ins:
                at = g * self.ins + done
                n = min(self.ins - done, b - done % b, b - at % b)
                widths = [m.offset(1, c) - m.offset(0, c) for m, c in ((own, done), (dense, at))]
                axes = [(self.outs, *widths), (taps, rows * widths[0], rows * widths[1])]
                em.gather(
                    src + own.offset(g * self.outs, done), dst + dense.offset(g * self.outs, at), moves(axes, n * e)
                )
                done += n
