"""Handlers of sequences of tensors, which exist at import only: their lengths and the places that are asked for are known there.

May import: frontend.common, frontend.onnx.{node,reader}. Must not: let a sequence become a value of the graph.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from tx8fast.frontend.common import Tensor, TensorList
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.reader import dtype_of

#: parts of one tensor, each of which is an op
MAX_PARTS = 4096


def _tensors(n: Node) -> tuple[Tensor, ...]:
    return n.inputs[0].tensors


def _place(n: Node, i: int, last: int) -> int:
    """Return input `i`, a place of at most `last`, counted from the first; the last one if it is absent."""
    if not n.has(i):
        return last
    count, place = len(_tensors(n)), int(n.number(i, "position"))
    if not -count <= place <= last:
        raise n.bad(f"position {place} of a sequence of {count}, required {-count} to {last}")
    return place + count if place < 0 else place


def _split(n: Node) -> TensorList:
    x, axis = n[0], n.axis(0)
    length = x.shape[axis]
    split = n.static(1, "split") if n.has(1) else np.array(1)
    if not split.ndim and split < 1:
        raise n.bad(f"parts of {int(split)} elements, required 1 or more")
    if (len(split) if split.ndim else -(-length // int(split))) > MAX_PARTS:
        raise n.unsupported(f"more than {MAX_PARTS} parts of an axis of {length} elements")
    sizes = (
        [int(s) for s in split] if split.ndim else [min(int(split), length - at) for at in range(0, length, int(split))]
    )
    if sum(sizes) != length or any(s < 0 for s in sizes):
        raise n.bad(f"split sizes {sizes} do not add up to {length}, the size of axis {axis}")
    parts = [n.slice(x, axis, end - s, s) for s, end in zip(sizes, accumulate(sizes), strict=True)]
    if not n.has(1) and not n.attr("keepdims", 1):
        parts = [n.reshape(t, [d for i, d in enumerate(x.shape) if i != axis]) for t in parts]
    return TensorList(x.dtype, tuple(parts))


def _at(n: Node) -> Tensor:
    return _tensors(n)[_place(n, 1, len(_tensors(n)) - 1)]


def _construct(n: Node) -> TensorList:
    return TensorList(n[0].dtype, tuple(n.inputs))


def _empty(n: Node) -> TensorList:
    dtype = n.attr("dtype")
    return TensorList("f32" if dtype is None else dtype_of(dtype, n.where), ())


def _insert(n: Node) -> TensorList:
    at, tensors = _place(n, 2, len(_tensors(n))), _tensors(n)
    return TensorList(n[1].dtype, (*tensors[:at], n[1], *tensors[at:]))


def _erase(n: Node) -> TensorList:
    tensors = _tensors(n)
    at = _place(n, 1, len(tensors) - 1)
    if not tensors:
        raise n.bad("the sequence has no tensors")
    return TensorList(n.inputs[0].dtype, (*tensors[:at], *tensors[at + 1 :]))


def _length(n: Node) -> Tensor:
    return n.const(len(_tensors(n)), "i64")


def _concat(n: Node) -> Tensor:
    tensors, new = _tensors(n), n.attr("new_axis", 0)
    if not tensors:
        raise n.bad("the sequence has no tensors")
    axis = n.norm_axis(n.required("axis"), tensors[0].rank + bool(new))
    if new:
        tensors = tuple(n.reshape(t, (*t.shape[:axis], 1, *t.shape[axis:])) for t in tensors)
    return n.concat(tensors, axis)


HANDLERS: tuple[Handler, ...] = (
    Handler("SplitToSequence", _split, 11),
    Handler("SequenceAt", _at, 11, lists=True),
    Handler("SequenceConstruct", _construct, 11),
    Handler("SequenceEmpty", _empty, 11),
    Handler("SequenceInsert", _insert, 11, lists=True),
    Handler("SequenceErase", _erase, 11, lists=True),
    Handler("SequenceLength", _length, 11, lists=True),
    Handler("ConcatFromSequence", _concat, 11, lists=True),
)
