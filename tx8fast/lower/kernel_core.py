"""What no engine does: a routine on the tiles' kernel cores, working on DDR directly.

May import: lower.base, graph_table, numerics. Must not: use scratchpad.

The routine is the op's reference function. It is cut over tiles along the result's factors where the rule
allows it (every operand's needed box is then affine in the cut), else tile 0 runs it alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tx8fast.graph_table import Dim, OpRecord, TensorSpec
from tx8fast.lower.base import Lowering
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES

#: ops whose reference function may be applied to a part of the result with unchanged attributes, operand boxes
#: given by the rule; anything whose attributes speak of absolute coordinates is not here
SLICEABLE = frozenset({
    "embedding", "add", "sub", "mul", "div", "max", "min", "pow", "mod", "and", "or", "xor", "not", "eq", "ne", "lt",
    "le", "gt", "ge", "select", "convert", "neg", "abs", "exp", "log", "sqrt", "erf", "floor", "ceil", "round", "sign",
    "tanh", "sigmoid", "relu", "gelu", "gelu_tanh", "silu", "clamp",
})  # fmt: skip


WORD_BYTES = 8  # the kernel core loads and stores 64 bits at a time (hardware manual 1)


class KernelCore(Lowering):
    kind = "kcore"

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        specs = [s for s in (*record.operands, *record.results) if s is not None]
        dense = not any(_is_blocked(s) for s in specs)
        out = record.results[0]
        self.cut = (
            dense
            and record.kind in SLICEABLE
            and record.rule is not None
            and len(record.results) == 1
            and all(d.identity is not None for d in record.rule.outs[0])
        )
        if self.cut:
            factors = range(len(self.rule.sizes))
            self.loop_over([(f,) for f in factors], uncut=factors)
        self.elems = _work(record)
        self.out = out

    def boxes(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Return per operand and per result the (spec, box) of one tile's part."""
        if not self.cut:
            whole = lambda spec: tuple((0, n) for n in spec.shape)  # noqa: E731
            return ([None if s is None else (s, whole(s)) for s in self.record.operands],
                    [(s, whole(s)) for s in self.record.results])  # fmt: skip

        def part(spec: TensorSpec | None, dims: tuple[Dim, ...] | None):
            return None if spec is None or dims is None else (spec, tuple(d.box(lo, hi) for d in dims))

        ins = [part(s, d) for s, d in zip(self.record.operands, self.rule.ins, strict=True)]
        outs = [part(s, d) for s, d in zip(self.record.results, self.rule.outs, strict=True)]
        return ins, outs

    def descriptor(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[dict[str, Any], int]:
        """Return the routine descriptor of one tile's part and its work in elements.

        Slots: operand i is slot i, result j slot len(operands) + j; offsets are relative to the tensors."""
        ins, outs = self.boxes(lo, hi)
        n_in = len(self.record.operands)
        desc = {
            "routine": self.record.routine or self.record.kind,
            "attrs": {k: list(v) if isinstance(v, tuple) else v for k, v in self.record.attrs},
            "inputs": [None if x is None else _operand(i, *x) for i, x in enumerate(ins)],
            "outputs": [_operand(n_in + j, *x) for j, x in enumerate(outs)],
        }
        whole = max(1, math.prod(self.out.shape))
        part = math.prod(b - a for a, b in outs[0][1])
        elems = max(1, self.elems * part // whole)
        desc["elems"] = elems
        return desc, elems


def _operand(slot: int, spec: TensorSpec, box: Sequence[tuple[int, int]]) -> dict[str, Any]:
    strides, acc = [], ITEM_BYTES[spec.dtype]
    for n in reversed(spec.shape):
        strides.append(acc)
        acc *= n
    strides.reverse()
    offset = sum(a * s for (a, _), s in zip(box, strides, strict=True))
    shape = [b - a for a, b in box]
    layout = "blocked" if _is_blocked(spec) else "dense"
    return {"slot": slot, "offset": offset, "shape": shape, "strides": strides, "dtype": spec.dtype, "layout": layout}


def _is_blocked(spec: TensorSpec) -> bool:
    return spec.layout == "blocked" and len(spec.shape) > 1


def _work(record: OpRecord) -> int:
    """Elements the core touches: results and read operands; a table is read only where it is indexed, and an
    update in place touches what is new only. Whole rows are copied word by word."""
    if record.kind == "kv_update":
        new = record.operands[1]
        assert new is not None
        copied = 0 if record.in_place >= 0 else _words(record.results[0], 0)
        return copied + _words(new, record.attr("axis"))
    if record.in_place >= 0:
        return max(
            1, *(math.prod(s.shape) for i, s in enumerate(record.operands) if s is not None and i != record.in_place)
        )
    if record.kind in ("embedding", "gather"):
        table, indices = record.operands[:2]
        assert table is not None and indices is not None
        axis = record.attr("axis") % len(table.shape) if record.kind == "gather" else 0
        return _words(record.results[0], axis + len(indices.shape))
    out = sum(math.prod(s.shape) for s in record.results)
    if record.kind in ("gather_elements", "gather_nd"):
        return out
    if record.rule is not None and record.rule.macs():
        return record.rule.macs()
    return max(out, *(math.prod(s.shape) for s in record.operands if s is not None), 1) if record.operands else out


def _words(spec: TensorSpec, axis: int) -> int:
    """Words in the rows of a tensor that lie together from dimension `axis` on."""
    axis = axis % len(spec.shape) if axis < len(spec.shape) else len(spec.shape)
    run = math.prod(spec.shape[axis:]) * ITEM_BYTES[spec.dtype]
    return math.prod(spec.shape[:axis]) * -(-run // WORD_BYTES)
