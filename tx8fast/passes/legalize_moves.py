"""Rewrites moves that no DMA engine makes into slices, and rows of tables that are looked up.

May import: ir, passes.{lift_match, make}. Must not: compute.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.ir.ops.base import engine_of
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.lift_match import static
from tx8fast.passes.make import Make

#: elements that a kernel core moves, at four cycles each, in the time of the launches that would take its place
FEW = 512
#: pieces of which a result is put together; beyond them rows are looked up
MOST_PIECES = 16
#: elements of a row that is looked up: below, its transfer costs more than the kernel core's moves
LEAST_ROW = 16
MOST_MASK = 1 << 20  # bytes of what is folded


def _ours(op: Op) -> bool:
    return static(*op.operands, op.result) and engine_of(op) == "kcore" and math.prod(op.result.shape) >= FEW


def _pieces(ids: np.ndarray) -> list[tuple[int, int, int]]:
    """Return places as (first, count, step) with steps 1, 0 and -1; those that count down are single ones."""
    found: list[tuple[int, int, int]] = []
    for i in ids.tolist():
        if found:
            first, count, step = found[-1]
            step = i - first if count == 1 else step
            if step in (0, 1) and i == first + count * step:
                found[-1] = first, count + 1, step
                continue
        found.append((i, 1, 1))
    return found


def _put_together(make: Make, x: Value, axis: int, ids: np.ndarray) -> Value | None:
    """Return these places along a dimension, None if they are too many pieces."""
    pieces = _pieces(ids)
    if len(pieces) > MOST_PIECES:
        return None
    parts = []
    for first, count, step in pieces:
        start, size = [0] * len(x.shape), list(x.shape)
        start[axis], size[axis] = first, count if step else 1
        part = make.slice(x, start, size)
        size[axis] = count
        parts.append(part if step else make("broadcast", part, shape=tuple(size)))
    return parts[0] if len(parts) == 1 else make("concat", *parts, axis=axis)


def _rows(make: Make, x: Value, axis: int, ids: Value) -> Value | None:
    """Return these places along a dimension as rows of a table; None if the rows are short."""
    rank, rest = len(x.shape), x.shape[:axis] + x.shape[axis + 1 :]
    if math.prod(rest) < LEAST_ROW:
        return None
    table = make.transpose(x, axis, *(i for i in range(rank) if i != axis))
    y = make("gather", table, ids, axis=0)
    n = len(ids.shape)
    return make.transpose(y, *range(n, n + axis), *range(n), *range(n + axis, n + rank - 1))


def _numbers(make: Make, ids: np.ndarray) -> Value:
    """Return places as a value that folding makes a constant of: counts from a first one by a step."""
    at, parts = 0, []
    while at < len(ids):
        step = int(ids[at + 1] - ids[at]) if at + 1 < len(ids) else 1
        broken = np.flatnonzero(np.diff(ids[at:]) != step)
        count = int(broken[0]) + 1 if len(broken) else len(ids) - at
        y = make("iota", shape=(count,), dtype="i64", axis=0)
        y = make("mul", y, make.number(step)) if step != 1 else y
        parts.append(make("add", y, make.number(int(ids[at]))))
        at += count
    return parts[0] if len(parts) == 1 else make("concat", *parts, axis=0)


@pattern("pad")
def _repeated_border(op: Op, rw: Rewriter) -> bool:
    """A border of copies: pieces of the tensor beside it, one dimension after the other. Long ones that are turned round stay small slices."""
    lo, hi, mode = op.attrs["lo"], op.attrs["hi"], op.attrs["mode"]
    if not _ours(op) or mode == "constant" or min(*lo, *hi) < 0 or 0 in op.operands[0].shape:
        return False
    make, y = Make(rw, op), op.operands[0]
    for axis, (a, b) in enumerate(zip(lo, hi, strict=True)):
        if a or b:
            places = np.pad(np.arange(y.shape[axis]), (a, b), mode=mode)
            y = _put_together(make, y, axis, places) or _around(make, y, axis, places, a, b)
    rw.replace(op, [y])
    return True


def _around(make: Make, x: Value, axis: int, places: np.ndarray, lo: int, hi: int) -> Value:
    """A border of many pieces, which is looked up or turned round, and the tensor between."""
    before, behind = (
        [make("gather", x, _numbers(make, end), axis=axis)] if len(end) else []
        for end in (places[:lo], places[len(places) - hi :])
    )
    return make("concat", *before, x, *behind, axis=axis)


@pattern("slice")
def _turned_round(op: Op, rw: Rewriter) -> bool:
    x, start, size, step = op.operands[0], op.attrs["start"], op.attrs["size"], op.attrs["step"]
    down = [i for i, s in enumerate(step) if s < 0]
    if not _ours(op) or len(down) != 1:
        return False
    (axis,) = down
    make = Make(rw, op)
    others = lambda mine, values: [mine if i == axis else v for i, v in enumerate(values)]  # noqa: E731
    part = make.slice(x, others(0, start), others(x.shape[axis], size), others(1, step))
    y = _chosen(make, part, axis, start[axis] + step[axis] * np.arange(size[axis]))
    if y is not None:
        rw.replace(op, [y])
    return y is not None


def _chosen(make: Make, x: Value, axis: int, places: np.ndarray) -> Value | None:
    return _put_together(make, x, axis, places) or _rows(make, x, axis, _numbers(make, places))


@pattern("gather")
def _along_another_dimension(op: Op, rw: Rewriter) -> bool:
    x, ids = op.operands
    axis = op.attrs["axis"] % len(x.shape)
    if not _ours(op) or not axis or 0 in ids.shape:
        return False
    make, y = Make(rw, op), None
    known = ids.op.attrs["value"].array if ids.op is not None and ids.op.kind == "constant" else None
    if known is not None and known.ndim == 1:
        y = _put_together(make, x, axis, np.where(known < 0, known + x.shape[axis], known))
    y = y or _rows(make, x, axis, ids)
    if y is not None:
        rw.replace(op, [y])
    return y is not None


@pattern("trilu")
def _masked(op: Op, rw: Rewriter) -> bool:
    """What a triangle leaves is chosen by a constant."""
    x, (rows, columns) = op.operands[0], op.operands[0].shape[-2:]
    if not _ours(op) or x.dtype not in ("bf16", "f16", "f32") or rows * columns > MOST_MASK:
        return False
    make = Make(rw, op)
    row = make("iota", shape=(rows, 1), dtype="i64", axis=0)
    column = make("iota", shape=(1, columns), dtype="i64", axis=1)
    kept = make("ge" if op.attrs["upper"] else "le", column, make("add", row, make.number(op.attrs["k"])))
    rw.replace(op, [make("select", kept, x, make.scalar(0.0, x.dtype))])
    return True


PATTERNS: tuple[Pattern, ...] = (_repeated_border, _turned_round, _along_another_dimension, _masked)
