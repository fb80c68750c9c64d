"""What no engine does: a routine on the tiles' kernel cores, working on DDR directly.

May import: lower.base, graph_table, isa.routines, numerics. Must not: use scratchpad.

The routine is the C function of the op's name (`isa/routines`). It is cut over tiles along the result's factors where the rule
allows it (every operand's needed box is then affine in the cut), else tile 0 runs it alone. Of tensors in channel blocks a part is one
where it is some of the batches, each of which lies apart from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tx8fast.graph_table import Dim, OpRecord, TensorSpec
from tx8fast.isa.routines import Work, work_of
from tx8fast.lower.base import Lowering
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import batch_stride_bytes, npc

#: ops whose reference function may be applied to a part of the result with unchanged attributes, operand boxes
#: given by the rule; anything whose attributes speak of absolute coordinates is not here
SLICEABLE = frozenset(
    {
        "embedding",
        "add",
        "sub",
        "mul",
        "div",
        "max",
        "min",
        "pow",
        "mod",
        "and",
        "or",
        "xor",
        "not",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "select",
        "convert",
        "neg",
        "abs",
        "exp",
        "log",
        "sqrt",
        "erf",
        "floor",
        "ceil",
        "round",
        "sign",
        "tanh",
        "sigmoid",
        "relu",
        "gelu",
        "gelu_tanh",
        "silu",
        "clamp",
        "prelu",
        "square",
        "isnan",
        "isinf",
        "shl",
        "shr",
        "bitcast",
        "quantize",
        "dequantize",
    }
)
#: ops of which this is so but for dimensions of the first operand that an attribute names, of which operands or results speak
BESIDE = {
    "kv_update": "axis",
    "kv_update_": "axis",
    "reduce": "axes",
    "arg_reduce": "axis",
    "topk": "axis",
    "cumsum": "axis",
    "cumprod": "axis",
}


class KernelCore(Lowering):
    kind = "kcore"

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        self.out = record.results[0]
        beside = BESIDE.get(record.kind)
        self.cut = (
            (beside is not None or record.kind in SLICEABLE)
            and record.rule is not None
            and 0 not in record.rule.sizes
            and all(dims == record.rule.outs[0] for dims in record.rule.outs)
            and all(d.identity is not None or d.size == 1 for d in record.rule.outs[0])
        )
        if self.cut:
            factors = range(len(self.rule.sizes))
            whole = self._within_blocks()
            if beside is not None:
                whole |= self._named(record.attr(beside)) | {*factors} - {d.identity for d in self.rule.outs[0]}
            self.cut = len(whole) < len(factors)
            self.loop_over([(f,) for f in factors], whole=sorted(whole), uncut=factors)

    def _named(self, axes: int | Sequence[int]) -> set[int]:
        """Return the factors of these dimensions of the first operand."""
        dims = self.rule.ins[0] or ()
        return {f for a in ([axes] if isinstance(axes, int) else axes) for f, _ in dims[a % len(dims)].terms}

    def _within_blocks(self) -> set[int]:
        """Return the factors that cut an operand in channel blocks elsewhere than between batches."""
        seen = zip((*self.record.operands, *self.record.results), (*self.rule.ins, *self.rule.outs), strict=True)
        return {
            f
            for spec, dims in seen
            if spec is not None and _is_blocked(spec)
            for d in (dims or ())[len(spec.shape) > 2 :]
            for f, _ in d.terms
        }

    def boxes(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Return per operand and per result the (spec, box) of one tile's part."""
        if not self.cut:
            whole = lambda spec: tuple((0, n) for n in spec.shape)  # noqa: E731
            return (
                [None if s is None else (s, whole(s)) for s in self.record.operands],
                [(s, whole(s)) for s in self.record.results],
            )

        def part(spec: TensorSpec | None, dims: tuple[Dim, ...] | None):
            return None if spec is None or dims is None else (spec, tuple(d.box(lo, hi) for d in dims))

        ins = [part(s, d) for s, d in zip(self.record.operands, self.rule.ins, strict=True)]
        outs = [part(s, d) for s, d in zip(self.record.results, self.rule.outs, strict=True)]
        return ins, outs

    def descriptor(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[dict[str, Any], Work]:
        """Return the routine descriptor of one tile's part and its work.

        Slots: operand i is slot i, result j slot len(operands) + j; offsets are relative to the tensors."""
        ins, outs = self.boxes(lo, hi)
        n_in = len(self.record.operands)
        desc = {
            "routine": self.record.routine or self.record.kind,
            "attrs": {k: list(v) if isinstance(v, tuple) else v for k, v in self.record.attrs},
            "inputs": [None if x is None else _operand(i, *x) for i, x in enumerate(ins)],
            "outputs": [_operand(n_in + j, *x) for j, x in enumerate(outs)],
        }
        work = work_of(desc)
        desc["work"] = work.to_json()
        return desc, work


def _operand(slot: int, spec: TensorSpec, box: Sequence[tuple[int, int]]) -> dict[str, Any]:
    strides, acc = [], ITEM_BYTES[spec.dtype]
    for n in reversed(spec.shape):
        strides.append(acc)
        acc *= n
    strides.reverse()
    layout = "blocked" if _is_blocked(spec) else "dense"
    steps = [batch_stride_bytes(*npc(spec.shape)[1:], spec.dtype)] if layout == "blocked" else strides
    offset = sum(a * s for (a, _), s in zip(box, steps, strict=layout == "dense"))
    shape = [b - a for a, b in box]
    return {"slot": slot, "offset": offset, "shape": shape, "strides": strides, "dtype": spec.dtype, "layout": layout}


def _is_blocked(spec: TensorSpec) -> bool:
    return spec.layout == "blocked" and len(spec.shape) > 1
