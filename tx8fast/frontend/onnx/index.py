"""Handlers of data-dependent selection: gather and scatter families, one-hot, compress, reverse, cache updates.

May import: frontend.onnx.node. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor, np_type
from tx8fast.frontend.onnx.node import Handler, Node

_REDUCTIONS = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _index(n: Node, t: Tensor) -> Tensor:
    return t if t.dtype in ("i64", "i32") else n.cast(t, "i64")


def _gather(n: Node) -> Tensor:
    return n.op("gather", n[0], _index(n, n[1]), axis=n.axis(0))


def _gather_elements(n: Node) -> Tensor:
    return n.op("gather_elements", n[0], _index(n, n[1]), axis=n.axis(0))


def _gather_nd(n: Node) -> Tensor:
    return n.op("gather_nd", n[0], _index(n, n[1]), batch_dims=n.attr("batch_dims", 0))


def _combine(n: Node) -> str:
    name = n.attr("reduction", "none")
    if name not in _REDUCTIONS:
        raise n.unsupported(f"reduction '{name}' is not supported, only {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def _scatter_elements(n: Node) -> Tensor:
    return n.op("scatter", n[0], _index(n, n[1]), n[2], axis=n.axis(0), combine=_combine(n))


def _scatter_nd(n: Node) -> Tensor:
    return n.op("scatter_nd", n[0], _index(n, n[1]), n[2], combine=_combine(n))


def _tensor_scatter(n: Node) -> Tensor:
    """Write a run of positions into a cache; every batch row has its own first position."""
    cache, new = n[0], n[1]
    axis = n.norm_axis(n.attr("axis", -2), cache.rank)
    first = _index(n, n[2]) if n.has(2) else n.const(np.zeros(cache.shape[0], np.int64))
    return write_run(n, cache, new, first, axis, n.attr("mode", "linear") == "circular")


def write_run(n: Node, cache: Tensor, new: Tensor, first: Tensor, axis: int, circular: bool = False) -> Tensor:
    """Write `new` into `cache` along `axis`, row b of the batch from position first[b] on."""
    length, count = cache.shape[axis], new.shape[axis]
    if cache.shape[0] == 1 and not circular:
        return n.op("kv_update", cache, new, first, axis=axis)
    steps = n.const(np.arange(count).reshape(1, -1), first.dtype)
    places = n.op("add", n.reshape(first, (-1 if first.rank == 0 else first.shape[0], 1)), steps)
    if circular:
        places = n.op("mod", places, length)
    wide = [cache.shape[0], *[1] * (cache.rank - 1)]
    wide[axis] = count
    return n.op("scatter", cache, n.broadcast(n.reshape(places, wide), new.shape), new, axis=axis)


def _one_hot(n: Node) -> Tensor:
    indices, values = n[0], n[2]
    depth = int(n.number(1, "depth"))
    # the numbers of all classes have to differ in the format of the indices
    wide = {"i8": "i32", "u8": "i32", "i16": "i32", "u16": "i32", "f16": "f32", "bf16": "f32"}.get(indices.dtype)
    indices = n.cast(indices, wide) if wide else indices
    n.bounded(depth, "the list of classes")
    rank = indices.rank + 1
    axis = n.norm_axis(n.attr("axis", -1), rank)
    wrapped = n.op("select", n.op("lt", indices, 0), n.op("add", indices, depth), indices)
    shape = list(indices.shape)
    shape.insert(axis, 1)
    wanted = n.const(np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)]), indices.dtype)
    hit = n.op("eq", n.reshape(wrapped, shape), wanted)
    off, on = n.reshape(n.slice(values, 0, 0, 1), ()), n.reshape(n.slice(values, 0, 1, 1), ())
    return n.op("select", hit, on, off)


def _compress(n: Node) -> Tensor:
    keep = np.flatnonzero(n.static(1, "condition").reshape(-1))
    x = n[0]
    if "axis" not in n.attrs:
        x, axis = n.reshape(x, (math.prod(x.shape),)), 0
    else:
        axis = n.axis(0)
    return n.op("gather", x, n.const(keep.astype(np.int64)), axis=axis)


def _non_zero(n: Node) -> Tensor:
    """Places of what is not 0; a scalar counts as a vector of one, as onnxruntime has it."""
    x = np.atleast_1d(n.static(0, "X, whose values decide the output's shape"))
    return n.const(np.array(np.nonzero(x), np.int64))


def _unique(n: Node):
    """The number of distinct values decides the shape, so the input must be a constant."""
    x = n.static(0, "X, whose values decide the output's shape")
    axis = n.attr("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n.attr("sorted", 1):
        order = np.argsort(first, kind="stable")
        back = np.argsort(order, kind="stable")
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], back[inverse]
    return [
        n.const(values.astype(np_type(n[0].dtype)), n[0].dtype),
        *[n.const(v.astype(np.int64)) for v in (first, inverse, counts)],
    ]


def _reverse_sequence(n: Node) -> Tensor:
    """Reverse the first `length` steps of every batch row; the rest keeps its place."""
    x = n[0]
    time, batch = n.axis(0, name="time_axis"), n.axis(1, name="batch_axis")
    lengths = n.cast(n[1], "i64")
    along = [1] * x.rank
    along[time] = x.shape[time]
    per_row = [1] * x.rank
    per_row[batch] = x.shape[batch]
    step = n.const(np.arange(x.shape[time]).reshape(along))
    lengths = n.reshape(lengths, per_row)
    mirrored = n.op("sub", n.op("sub", lengths, 1), step)
    places = n.op("select", n.op("lt", step, lengths), mirrored, step)
    return n.op("gather_elements", x, n.broadcast(places, x.shape), axis=time)


HANDLERS: tuple[Handler, ...] = (
    Handler("Gather", _gather),
    Handler("GatherElements", _gather_elements, 11),
    Handler("GatherND", _gather_nd, 11),
    Handler("Scatter", _scatter_elements, 9, 10),
    Handler("ScatterElements", _scatter_elements, 11),
    Handler("ScatterND", _scatter_nd, 11),
    Handler("TensorScatter", _tensor_scatter, 24),
    Handler("OneHot", _one_hot, 9),
    Handler("Compress", _compress, 9),
    Handler("NonZero", _non_zero, 9),
    Handler("Unique", _unique, 11),
    Handler("ReverseSequence", _reverse_sequence, 10),
)
