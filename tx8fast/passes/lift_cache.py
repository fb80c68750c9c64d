"""Recognises writes of consecutive positions into a cache.

May import: ir, passes.base, passes.canonicalize, passes.lift_match. Must not: change numbers.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tx8fast.ir.attrs import DENSE_DTYPES, DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.canonicalize import splat
from tx8fast.passes.lift_match import Constants, made_by, orders, reshaped, static, used_once
from tx8fast.records import dataclass

_LIMIT_BYTES = 1 << 16


@pattern("add", benefit=8)
def _neutral(op: Op, rw: Rewriter) -> bool:
    """x + 0 that only adds dimensions of 1."""
    if not static(op.result):
        return False
    for x, zero in orders(op):
        if splat(zero) == 0 and static(x) and x.dtype == op.result.dtype and x.shape != op.result.shape:
            if math.prod(x.shape) == math.prod(op.result.shape):
                rw.replace(op, [reshaped(rw, x, op.result.shape, op)])
                return True
    return False


def _first(v: Value, count: int, constants: Constants, op: Op, rw: Rewriter) -> Value | None:
    """The first of `count` consecutive positions as a value of shape [1], or None if they are not known to be so."""
    if count == 1:
        return reshaped(rw, v, (1,), op)
    while (view := made_by(v, "reshape")) is not None:
        v = view.operands[0]
    added = made_by(v, "add")
    for start, steps in orders(added) if added is not None else ():
        known = constants.array(steps)
        if known is None or math.prod(start.shape) != 1 or not _consecutive(known):
            continue
        first = reshaped(rw, start, (1,), op)
        return _plus(rw, first, int(known.reshape(-1)[0]), op)
    return None


def _plus(rw: Rewriter, v: Value, offset: int, op: Op) -> Value:
    return rw.insert("add", v, _number(rw, np.array([offset]), v.dtype, op), before=op).result if offset else v


def _number(rw: Rewriter, array: np.ndarray, dtype: str, op: Op) -> Value:
    return rw.insert("constant", before=op, value=DenseAttr(array.astype(DENSE_DTYPES[dtype][1]))).result


def _consecutive(array: np.ndarray) -> bool:
    flat = array.reshape(-1).astype(np.int64)
    return bool((np.diff(flat) == 1).all()) if flat.size > 1 else False


def _scatter(constants: Constants):
    def write(op: Op, rw: Rewriter) -> bool:
        """Whole consecutive rows of the first dimension."""
        cache, indices, new = op.operands
        if op.attrs["combine"] != "set" or not static(*op.operands) or len(indices.shape) != 2 or indices.shape[1] != 1:
            return False
        if not 0 < indices.shape[0] <= cache.shape[0] or len(cache.shape) < 2:
            return False
        known = constants.array(indices) if indices.shape[0] == 1 else None
        if known is not None and known.item() < 0:  # counted from the end
            indices = _number(rw, known + cache.shape[0], indices.dtype, op)
        first = _first(indices, indices.shape[0], constants, op, rw)
        if first is None:
            return False
        rw.replace_with(op, "kv_update", cache, new, first, axis=0)
        return True

    return Pattern("scatter-of-rows", ("tx8be.scatter_nd",), write)


@pattern("transpose", benefit=2)
def _in_place(op: Op, rw: Rewriter) -> bool:
    """A write between a transposition and its inverse writes along another axis of the cache as it lies."""
    write = made_by(op.operands[0], "kv_update")
    if write is None or not used_once(write.result):
        return False
    there = made_by(write.operands[0], "transpose")
    if there is None:
        return False
    perm, back = there.attrs["perm"], op.attrs["perm"]
    if [perm[p] for p in back] != list(range(len(perm))):
        return False
    cache, new = there.operands[0], write.operands[1]
    axis = perm[write.attrs["axis"] % len(perm)]
    turned = rw.insert("transpose", new, before=op, perm=back).result
    rw.replace_with(op, "kv_update", cache, turned, write.operands[2], axis=axis)
    return True


@dataclass(frozen=True)
class LiftCache(CompilerPass):
    """Makes `kv_update` of scatters that write consecutive rows."""

    name: ClassVar[str] = "lift-cache"

    def run(self, program: IRProgram) -> PassResult:
        patterns = (_neutral, _scatter(Constants(program, _LIMIT_BYTES)), _in_place)
        result = rewrite_greedily(program.ctx, program.module, patterns)
        return PassResult(result.changed, {**result.applied, "dead": result.dead})
