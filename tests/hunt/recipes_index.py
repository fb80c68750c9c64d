"""Recipes: reading and writing at indices, choices, reductions, sorting."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Unfit, Value
from hunt.formats import I32, I64
from hunt.recipes import broadcastable, recipe


def _is_index(x: Value, most: int = 4000) -> bool:
    return x.code in (I64, I32) and x.array.size <= 4096 and 0 <= x.array.min() and x.array.max() < most


def _indices(d: Draft, shape, n: int) -> Value:
    a = d.rng.integers(0, n, shape).astype(np.int64)
    if d.chance(0.3):
        a = np.where(a % 2 == 0, a - n, a)
    return d.weight(a) if d.chance(0.6) else d.input(a, I64)


@recipe("Gather")
def gather(d: Draft, x: Value, op: str) -> Value:
    if _is_index(x) and d.chance(0.7):
        table = d.floats(x, (int(x.array.max()) + 1 + d.int(0, 3), d.pick([1, 64, 65, 8])))
        return d.op(op, d.weight(table.array, d.code), x, axis=0)
    axis = d.axis(x)
    shape = d.pick([(), (1,), (3,), (2, 3), (x.shape[axis],)])
    return d.op(op, x, _indices(d, shape, x.shape[axis]), axis=axis)


@recipe("GatherElements")
def gather_elements(d: Draft, x: Value, op: str) -> Value:
    axis = d.axis(x)
    shape = list(x.shape)
    shape[axis] = d.pick([1, 3, shape[axis]])
    return d.op(op, x, _indices(d, shape, x.shape[axis]), axis=axis)


@recipe("GatherND")
def gather_nd(d: Draft, x: Value, op: str) -> Value:
    if not x.rank:
        raise Unfit("scalar")
    last = d.int(1, min(2, x.rank))
    idx = np.stack([d.rng.integers(0, x.shape[k], (3,)) for k in range(last)], -1).astype(np.int64)
    return d.op(op, x, d.weight(idx) if d.chance(0.5) else d.input(idx, I64))


def _place(d: Draft, x: Value) -> tuple[Value, Value]:
    """Distinct places of ScatterND, and what is written: x is the target."""
    last = d.int(1, min(2, x.rank))
    room = int(np.prod(x.shape[:last]))
    flat = d.rng.choice(room, min(room, d.int(1, 4)), replace=False)
    idx = np.stack(np.unravel_index(flat, x.shape[:last]), -1).astype(np.int64)
    known = d.chance(0.5)
    if known and d.chance(0.3):  # counted from the end
        idx = idx - np.array(x.shape[:last])
    where = d.weight(idx) if known else d.input(idx, I64)
    return where, d.like(x, (*idx.shape[:-1], *x.shape[last:]))


@recipe("ScatterND")
def scatter_nd(d: Draft, x: Value, op: str) -> Value:
    if not x.rank:
        raise Unfit("scalar")
    if x.rank > 1 and d.chance(0.3):  # x is written into another
        rows = x.shape[0] + d.int(0, 3)
        where = d.rng.choice(rows, x.shape[0], replace=False).astype(np.int64)[:, None]
        return d.op(op, d.like(x, (rows, *x.shape[1:])), d.weight(where), x)
    where, updates = _place(d, x)
    reduction = d.pick(["none", "none", "add", "mul", "max"]) if x.is_float else "none"
    return d.op(op, x, where, updates, reduction=reduction)


@recipe("ScatterElements")
def scatter_elements(d: Draft, x: Value, op: str) -> Value:
    axis = d.axis(x)
    shape = list(x.shape)
    shape[axis] = d.int(1, min(4, shape[axis]))
    order = np.argsort(d.rng.random(x.shape), axis=axis)  # distinct along the axis
    idx = np.take(order, range(shape[axis]), axis=axis).astype(np.int64)
    reduction = d.pick(["none", "none", "add", "max"]) if x.is_float else "none"
    return d.op(op, x, d.weight(idx), d.like(x, shape), axis=axis, reduction=reduction)


@recipe("TensorScatter")
def tensor_scatter(d: Draft, x: Value, op: str) -> Value:
    if x.rank not in (3, 4):
        raise Unfit("rank")
    rows = d.int(1, x.shape[-2])
    start = d.rng.integers(0, x.shape[-2] - rows + 1, x.shape[0]).astype(np.int64)
    return d.op(op, x, d.like(x, (*x.shape[:-2], rows, x.shape[-1])), d.input(start, I64))


@recipe("OneHot")
def one_hot(d: Draft, x: Value, op: str) -> Value:
    depth = int(x.array.max()) + 1 if _is_index(x, 200) else 0
    if not depth:
        raise Unfit("no indices")
    values = d.weight(np.asarray([0.5, 2.0], np.float32))
    return d.op(op, x, d.weight(np.asarray(depth, np.int64)), values, axis=-1)


@recipe("Where")
def where(d: Draft, x: Value, op: str) -> Value:
    if x.array.dtype == bool and d.chance(0.7):
        a = d.like(Value("", d.draw(x.shape), d.code, "none"), profile="normal")
        return d.op(op, x, a, broadcastable(d, a))
    test = d.rng.random(d.pick([x.shape, x.shape[-1:], ()])) < 0.5
    test = d.weight(test) if d.chance(0.5) else d.input(test)
    other = broadcastable(d, x)
    return d.op(op, test, x, other) if d.chance(0.5) else d.op(op, test, other, x)


@recipe("Compress")
def compress(d: Draft, x: Value, op: str) -> Value:
    axis = d.axis(x)
    return d.op(op, x, d.weight(d.rng.random(x.shape[axis]) < 0.6), axis=axis)


@recipe("TopK")
def top_k(d: Draft, x: Value, op: str) -> Value:
    axis = d.axis(x)
    k = d.weight(np.asarray([d.int(1, min(5, x.shape[axis]))], np.int64))
    return d.pick(d.node(op, [x, k], 2, axis=axis, largest=d.int(0, 1)))


@recipe("ArgMax", "ArgMin")
def arg(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, axis=d.axis(x), keepdims=d.int(0, 1), select_last_index=d.int(0, 1))


@recipe("Unique")
def unique(d: Draft, x: Value, op: str) -> Value:
    return d.pick(d.node(op, [x], 4, sorted=1))


@recipe("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSum", "ReduceSumSquare")  # fmt: skip
def reduce(d: Draft, x: Value, op: str) -> Value:
    keep = d.int(0, 1)
    if not x.is_float and op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean"):
        raise Unfit("a whole number cut from one that is not")
    if not x.rank or d.chance(0.15):
        return d.op(op, x, keepdims=keep)
    n = d.pick([1, 1, 1, min(2, x.rank)])
    axes = sorted(int(a) for a in d.rng.choice(x.rank, n, replace=False))
    if d.chance(0.4):
        axes = [-1]
    return d.op(op, x, d.ints(*axes), keepdims=keep)


@recipe("CumSum", "CumProd")
def cumulate(d: Draft, x: Value, op: str) -> Value:
    axis = d.weight(np.asarray(d.axis(x), np.int64))
    return d.op(op, x, axis, exclusive=d.int(0, 1), reverse=d.int(0, 1))


@recipe("Range")
def range_(d: Draft, x: Value, op: str) -> Value:
    if x.rank or x.kind != "weight":
        raise Unfit("not a stored scalar")
    step = d.weight(np.asarray(1, x.array.dtype), x.code)
    return d.op(op, d.weight(np.asarray(0, x.array.dtype), x.code), x, step)
