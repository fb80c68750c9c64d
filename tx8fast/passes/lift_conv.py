"""Folds what follows a convolution into it: a scale and a shift per channel into weight and bias, and a ReLU.

May import: ir, passes.base, passes.lift_match. Must not: change numbers beyond rounding, or scale weights at run time:
a weight above `limit_bytes` would not be folded and keeps its product.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.fold_constants import nbytes
from tx8fast.passes.lift_match import Constants, is_parameter, made_by, orders, reshaped, static, used_once
from tx8fast.records import dataclass

FLOATS = ("bf16", "f16", "f32")


def _conv(v: Value, other: Value, op: Op) -> Op | None:
    """The convolution that makes `v`, if `other` is a parameter with one value per channel."""
    conv = made_by(v, "conv")
    if conv is None or not used_once(v) or conv.attrs["act"] != "none" or not static(v, other):
        return None
    channels = v.shape[-1]
    if v.type is not op.result.type or other.dtype != v.dtype or not is_parameter(other):
        return None
    return conv if other.shape[-1:] == (channels,) and all(d == 1 for d in other.shape[:-1]) else None


def _attrs(conv: Op) -> dict:
    return {n: v for n, v in conv.attrs.items() if n not in ("layout_str", "mem_layout")}


def _too_large(constants: Constants, w: Value, s: Value) -> bool:
    """True if f16 does not hold a known weight times a known scale."""
    found = []
    for v in (w, s):
        while (view := made_by(v, "reshape", "transpose")) is not None:
            v = view.operands[0]
        found.append(constants.array(v) if v.dtype == "f16" else None)
    known = [np.abs(a.astype(np.float32)).max(initial=0.0) for a in found if a is not None]
    return len(known) == 2 and bool(known[0] * known[1] > np.finfo(np.float16).max)


def _scale(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """conv(x, w) * s."""
        for v, s in orders(op):
            conv = _conv(v, s, op)
            if conv is None or len(conv.operands) != 2 or not static(conv.operands[1]):
                continue
            w = conv.operands[1]
            if not is_parameter(w) or nbytes(w.type) > constants.limit_bytes:  # type: ignore[arg-type]
                continue
            if _too_large(constants, w, s):
                continue
            column = reshaped(rw, s, (s.shape[-1], 1), op)
            rw.replace_with(
                op,
                "conv",
                conv.operands[0],
                rw.insert("mul", w, column, before=op).result,
                **_attrs(conv),
            )
            return True
        return False

    return Pattern("scale", ("tx8be.mul",), apply)


@pattern("add")
def _shift(op: Op, rw: Rewriter) -> bool:
    """conv(x, w) + b."""
    for v, b in orders(op):
        conv = _conv(v, b, op)
        if conv is not None and len(conv.operands) == 2:
            bias = reshaped(rw, b, (b.shape[-1],), op)
            rw.replace_with(op, "conv", *conv.operands, bias, **_attrs(conv))
            return True
    return False


@pattern("relu")
def _relu(op: Op, rw: Rewriter) -> bool:
    """relu(conv(...)) and relu(gemm(...)): the engine's last step on the sums."""
    product = made_by(op.operands[0], "conv", "gemm")
    if product is None or not used_once(op.operands[0]) or product.attrs["act"] != "none":
        return False
    if op.result.dtype not in FLOATS or op.operands[0].type is not op.result.type:
        return False
    rw.replace_with(op, product.kind, *product.operands, **{**_attrs(product), "act": "relu"})
    return True


@dataclass(frozen=True)
class LiftConv(CompilerPass):
    """Gives convolutions the scale, the shift and the ReLU that follow them, and products the ReLU."""

    name: ClassVar[str] = "lift-conv"
    limit_bytes: int = 1 << 20

    def run(self, program: IRProgram) -> PassResult:
        constants = Constants(program, self.limit_bytes)
        result = rewrite_greedily(program.ctx, program.module, (_scale(constants), _shift, _relu))
        return PassResult(result.changed, {**result.applied, "dead": result.dead})
