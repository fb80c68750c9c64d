"""Products on the means of images, as convolutions on images of one position.

May import: ir, passes.base, passes.lift_match. Must not: change numbers, or touch products that no image is multiplied by.
Exporters write a squeeze-and-excite block with convolutions of one position or with products of rows: the first form stays an image from
beginning to end, so that it may stay where the images are.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tx8fast.ir.core import ELEMENTWISE, PURE, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Rewriter, pattern, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.lift_match import is_parameter, reshaped, static
from tx8fast.records import dataclass

LONGEST = 16  # ops from a mean to what it gates
WINDOW: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "pad_lo": (0, 0), "pad_hi": (0, 0), "groups": 1}


@pattern("reshape")
def _gate(op: Op, rw: Rewriter) -> bool:
    """Rows that become images of one position, and are made of such."""
    x = op.operands[0]
    if (
        not static(x, op.result)
        or not _one_position(op.result.shape, x.shape)
        or not any(_gates(u, op.result) for u in op.result.users)
    ):
        return False
    ops: dict[Value, Op] = {}
    if not _of_images(x, ops) or not any(made.kind == "gemm" for made in ops.values()):
        return False
    known: dict[Value, Value] = {}
    for v, made in ops.items():
        known[v] = _as_image(made, known, rw)
    rw.replace_with(op, "reshape", known[x], shape=op.result.shape)
    return True


def _one_position(image: tuple[int, ...], rows: tuple[int, ...]) -> bool:
    """True for the shape of images with one position for each of the rows."""
    return len(rows) == 2 and image in ((*rows, 1, 1), (rows[0], 1, 1, rows[1]))


def _gates(user: Op, gate: Value) -> bool:
    """True for what joins images of one position with larger ones."""
    return user.has(ELEMENTWISE) and static(user.result) and math.prod(user.result.shape) > math.prod(gate.shape)


def _of_images(v: Value, ops: dict[Value, Op], limit: int = LONGEST) -> bool:
    """Find the ops between images of one position and `v`, in order; False if there is something else, or no end within `limit`."""
    op = v.op
    if v in ops:
        return True
    if limit <= 0 or op is None or not static(v, *op.operands) or len(v.shape) != 2 or len(op.results) != 1:
        return False
    x = op.operands[0]
    if op.kind == "reshape":
        found = _one_position(x.shape, v.shape)
    elif op.kind == "reduce":
        found = len(x.shape) == 4 and len(op.attrs["axes"]) == 2 and not op.attrs["keepdims"]
    elif op.kind == "gemm":
        found = not op.attrs["trans_a"] and all(map(is_parameter, op.operands[1:])) and len(op.operands[1].shape) == 2
        found = found and all(math.prod(b.shape) == b.shape[-1] == v.shape[1] for b in op.operands[2:])
        found = found and _of_images(x, ops, limit - 1)
    else:
        rest = [y for y in op.operands if not (is_parameter(y) and math.prod(y.shape) in (1, *y.shape[-1:]))]
        found = op.has(ELEMENTWISE | PURE) and "shape" not in op.attrs and all(y.shape == v.shape for y in rest)
        found = bool(found and rest) and all(_of_images(y, ops, limit - 1) for y in rest)
    if found:
        ops[v] = op
    return found


def _as_image(op: Op, known: dict[Value, Value], rw: Rewriter) -> Value:
    """Return the result of an op as images of one position, channels last."""
    n, c = op.result.shape
    attrs: dict[str, Any] = {name: v for name, v in op.attrs.items() if name not in ("layout_str", "mem_layout")}
    if op.kind == "reshape":
        return reshaped(rw, op.operands[0], (n, 1, 1, c), op)
    if op.kind == "reduce":
        attrs["keepdims"] = True
        kept = rw.insert("reduce", op.operands[0], before=op, **attrs)
        return reshaped(rw, kept.result, (n, 1, 1, c), op)
    if op.kind == "gemm":
        x, w, *bias = op.operands
        if not op.attrs["trans_b"]:
            w = rw.insert("transpose", w, before=op, perm=(1, 0)).result
        w = reshaped(rw, w, (1, 1, *w.shape), op)
        bias = [reshaped(rw, b, (c,), op) for b in bias]
        return rw.insert("conv", known[x], w, *bias, before=op, act=op.attrs["act"], **WINDOW).result
    return rw.insert(op.kind, *(known.get(v, v) for v in op.operands), before=op, **attrs).result


@dataclass(frozen=True)
class LiftGates(CompilerPass):
    """Makes convolutions of the products whose results gate images."""

    name: ClassVar[str] = "lift-gates"

    def run(self, program: IRProgram) -> PassResult:
        result = rewrite_greedily(program.ctx, program.module, (_gate,))
        return PassResult(result.changed, {**result.applied, "dead": result.dead})
