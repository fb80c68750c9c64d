"""Moves transpositions down through element-wise and axis-wise ops, so that those of neighbouring ops meet and cancel.

May import: ir, passes.base, passes.lift_match, passes.turn_regions. Must not: change numbers, or leave more transpositions than before.
Convolutions and pools work channel-last; models that are channel-first put a pair around each of them.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import ClassVar

from tx8fast.ir.core import ELEMENTWISE, PURE, Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.canonicalize import PATTERNS as CANONICAL
from tx8fast.passes.lift_contract import Factors
from tx8fast.passes.lift_match import is_parameter, made_by, static, used_once
from tx8fast.passes.turn_regions import Perm, transposed_bytes, turn_regions, turned_attrs, turned_parameter
from tx8fast.records import dataclass


def _moved(op: Op, rw: Rewriter, operands: list[Value], perm: Perm) -> None:
    """Replace `op` by the same op on untransposed operands, transposed afterwards."""
    made = rw.insert(op.kind, *operands, before=op, **turned_attrs(op, perm))
    rw.replace_with(op, "transpose", made.result, perm=perm)


def _before(v: Value, perm: Perm, rw: Rewriter, op: Op) -> Value | None:
    """The operand that takes the place of `v` if the transposition by `perm` happens after the op."""
    t = made_by(v, "transpose")
    if t is not None and t.attrs["perm"] == perm and used_once(v):
        return t.operands[0]
    if not static(v) or not is_parameter(v):
        return None
    return turned_parameter(v, perm, rw, op)


@pattern()
def _through_elementwise(op: Op, rw: Rewriter) -> bool:
    if not op.has(ELEMENTWISE | PURE) or len(op.results) != 1 or not static(op.result, *op.operands):
        return False
    first = next(
        (t for v in op.operands if (t := made_by(v, "transpose")) is not None and used_once(v)),
        None,
    )
    if first is None or first.result.shape != op.result.shape:
        return False
    perm = first.attrs["perm"]
    for v in op.operands:
        t = made_by(v, "transpose")
        if not (t is not None and t.attrs["perm"] == perm and used_once(v)) and not is_parameter(v):
            return False
    if op.operands.count(first.result) > 1:
        return False
    operands = [_before(v, perm, rw, op) for v in op.operands]
    if any(v is None for v in operands):
        return False
    _moved(op, rw, operands, perm)  # type: ignore[arg-type]
    return True


@pattern("concat")
def _through_concat(op: Op, rw: Rewriter) -> bool:
    sources = [made_by(v, "transpose") for v in op.operands]
    if None in sources or not all(used_once(v) for v in op.operands):
        return False
    perms = {t.attrs["perm"] for t in sources if t is not None}
    if len(perms) != 1:
        return False
    perm = perms.pop()
    _moved(op, rw, [t.operands[0] for t in sources if t is not None], perm)
    return True


@pattern("slice")
def _through_slice(op: Op, rw: Rewriter) -> bool:
    t = made_by(op.operands[0], "transpose")
    if t is None or not used_once(t.result):
        return False
    _moved(op, rw, [t.operands[0]], t.attrs["perm"])
    return True


@pattern("reduce")
def _through_reduce(op: Op, rw: Rewriter) -> bool:
    t = made_by(op.operands[0], "transpose")
    if t is None or not used_once(t.result) or not op.attrs["keepdims"] or not op.attrs["axes"]:
        return False
    _moved(op, rw, [t.operands[0]], t.attrs["perm"])
    return True


@pattern("transpose")
def _through_views(op: Op, rw: Rewriter) -> bool:
    """Transposition, view, transposition that together keep the order of all elements are one view."""
    view = made_by(op.operands[0], "reshape")
    first = None if view is None else made_by(view.operands[0], "transpose")
    if view is None or first is None or not static(op.result, first.operands[0]):
        return False
    f = Factors()
    f.tensors[0] = [f.add(f"d{i}", n) for i, n in enumerate(first.operands[0].shape)]
    f.tensors[2] = [list(d) for d in f.tensors[0]]  # follows every split
    f.permute(0, list(first.attrs["perm"]))
    if 0 in op.result.shape or not f.regroup(0, view.result.shape):
        return False
    f.permute(0, list(op.attrs["perm"]))
    order = [n for d in f.tensors[2] for n in d]
    if [n for d in f.tensors[0] for n in d] != order:
        return False
    rw.replace_with(op, "reshape", first.operands[0], shape=op.result.shape)
    return True


PATTERNS: tuple[Pattern, ...] = (
    _through_elementwise,
    _through_concat,
    _through_slice,
    _through_reduce,
    _through_views,
)


@dataclass(frozen=True)
class SinkTransposes(CompilerPass):
    """Moves transpositions towards the results of the graph."""

    name: ClassVar[str] = "sink-transposes"

    def run(self, program: IRProgram) -> PassResult:
        applied: Counter[str] = Counter()
        moved, turned = math.inf, 1
        while turned:
            result = rewrite_greedily(program.ctx, program.module, (*PATTERNS, *CANONICAL))
            applied.update({**result.applied, "dead": result.dead})
            moved, before = transposed_bytes(program), moved
            turned = turn_regions(program) if moved < before else 0
            applied["turned"] += turned
        return PassResult(any(applied.values()), {name: n for name, n in applied.items() if n or name == "dead"})
