"""Convolutions with one tap that skip positions: what they use of the image is gathered first.

May import: lower.base, lower.emitter, lower.transfer, lower.windows, graph_table, numerics. Must not: place buffers.

The engine reads the whole image once per block of output channels (hardware manual 16.3); with stride 2 three quarters
of that are of no use and take twice as long as the products.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, Rule, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Local, moves
from tx8fast.lower.windows import Window
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, blocked_params

THIN = "thin"  # an op that only lowerings know: every stride-th position of an image


class Thin(Lowering):
    """Factors: image, row, channel (whole); in scratchpad only."""

    kind = "thin"

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, out = record.operands[0], record.results[0]
        if x is None or {x.layout, out.layout} != {"blocked"}:
            raise NotLowerable("positions are gathered from blocked images")
        self.x, self.out = x, out
        stride = tuple(record.attr("stride"))
        self.window = Window(x.shape[1:3], out.shape[1:3], (1, 1), stride, (1, 1), (0, 0))  # type: ignore[arg-type]
        n, oh, _, c = out.shape
        self.set_factors((n, oh, c))
        whole = [Dim(s, full=True) for s in out.shape[2:]]
        self.reads = [Access(x, [Dim(n, ((0, 1),)), *(Dim(s, full=True) for s in x.shape[1:])], True)]
        self.writes = [Access(out, [Dim(n, ((0, 1),)), Dim(oh, ((1, 1),)), *whole], True)]

    def emit(self, em: Emitter, s: Slice) -> None:
        (_, h, w, c), (_, oh, ow, _) = self.x.shape, self.out.shape
        src, dst = (Local(rows, c, self.x.dtype, True) for rows in (h * w, oh * ow))
        b, e = block_size(self.x.dtype), ITEM_BYTES[self.x.dtype]
        blocks, tail = blocked_params(c, self.x.dtype)
        down, right = self.window.stride
        for n, lanes, at in ((blocks, b, 0), (min(tail, 1), tail, blocks * b)):
            if n:
                run = lanes * e
                axes = [(n, src.rows * run, dst.rows * run), (oh, down * w * run, ow * run), (ow, right * run, run)]
                em.gather(s.reads[0], s.writes[0], moves(axes, run, src.offset(0, at), dst.offset(0, at)))


def thinned(record: GroupRecord) -> GroupRecord:
    """Return the group with a gather before every convolution that skips positions altogether."""
    ops: list[OpRecord] = []
    wires: list[tuple] = []
    new: dict[int, int] = {}  # op of the record -> its place in the result
    for t, op in enumerate(record.ops):
        row = tuple(("op", new[w[1]]) if w is not None and w[0] == "op" else w for w in record.wires[t])
        if _skips(op):
            x, y = op.operands[0], op.results[0]
            assert x is not None
            spec = TensorSpec((*y.shape[:3], x.shape[3]), x.dtype, x.layout)
            ops.append(OpRecord(THIN, (("stride", op.attr("stride")),), (x,), (spec,), None))
            wires.append(row[:1])
            row = (("op", len(ops) - 1), *row[1:])
            attrs = tuple((n, (1, 1) if n == "stride" else v) for n, v in op.attrs)
            op = replace(op, attrs=attrs, operands=(spec, *op.operands[1:]), rule=_on_gathered(op.rule))
        new[t] = len(ops)
        ops.append(op)
        wires.append(row)
    outputs = tuple(new[t] for t in record.outputs)
    return replace(record, ops=tuple(ops), wires=tuple(wires), outputs=outputs)


def _on_gathered(rule: Rule | None) -> Rule:
    """Return the rule of a convolution with one tap whose image has the result's positions."""
    assert rule is not None
    image, *rest = rule.ins
    assert image is not None
    return replace(rule, ins=((*rule.outs[0][:3], image[3]), *rest))


def _skips(op: OpRecord) -> bool:
    if op.kind != "conv" or op.attr("groups") != 1 or op.operands[0] is None or op.operands[1] is None:
        return False
    plain = len(op.operands[0].shape) == 4 and tuple(op.operands[1].shape[:2]) == (1, 1)
    return plain and not any((*op.attr("pad_lo"), *op.attr("pad_hi"))) and max(op.attr("stride")) > 1
