"""Handlers of reductions, softmax family, arg-reductions, top-k, cumulative sums and products.

May import: frontend.onnx.node. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node

_REDUCTIONS = {
    "ReduceSum": "add",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "mul",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sumsq",
    "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
}


def _reduction(op: str):
    def run(n: Node) -> Tensor:
        x = n[0]
        axes = n.ints(1, "axes")
        keep = bool(n.attr("keepdims", 1))
        if not axes:
            if n.attr("noop_with_empty_axes", 0):
                return _each(n, op, x)
            axes = list(range(x.rank))
        axes = sorted({n.norm_axis(a, x.rank) for a in axes})
        if x.dtype == "pred":
            found = n.reduce(n.cast(x, "u8"), op, axes, keep)
            return n.op("ne", found, 0)
        if not axes:
            return _each(n, op, x)
        return n.reduce(x, op, axes, keep)

    return run


def _each(n: Node, op: str, x: Tensor) -> Tensor:
    """Reduce over no axis: every element is a set of one."""
    kind = {"l1": "abs", "l2": "abs", "sumsq": "square", "logsum": "log"}.get(op)
    return n.op(kind, x) if kind else x


def _arg_reduce(op: str):
    def run(n: Node) -> Tensor:
        keep, last = bool(n.attr("keepdims", 1)), bool(n.attr("select_last_index", 0))
        return n.op("arg_reduce", n[0], op=op, axis=n.axis(0), keepdims=keep, select_last=last)

    return run


def _softmax(log: bool):
    return lambda n: n.op("softmax", n[0], axis=n.axis(-1), log=log)


def _softmax_flat(log: bool):
    """Before operator set 13 the axes from `axis` on are one."""

    def run(n: Node) -> Tensor:
        x, axis = n[0], n.axis(1)
        flat = n.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        return n.reshape(n.op("softmax", flat, axis=1, log=log), x.shape)

    return run


def _hardmax(n: Node) -> Tensor:
    x = n[0]
    if 0 in x.shape:
        return x
    axis = n.axis(-1 if n.opset >= 13 else 1)
    flat = x if n.opset >= 13 else n.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    axis = axis if n.opset >= 13 else 1
    best = n.op("arg_reduce", flat, op="max", axis=axis, keepdims=True, select_last=False)
    places = np.arange(flat.shape[axis]).reshape([-1 if i == axis else 1 for i in range(flat.rank)])
    hit = n.op("eq", n.const(places), best)
    return n.reshape(n.cast(hit, x.dtype), x.shape)


def _topk(n: Node):
    x = n[0]
    k = int(n.number(1, "K")) if n.has(1) else int(n.required("k"))
    values, indices = n.ops("topk", x, k=k, axis=n.axis(-1), largest=bool(n.attr("largest", 1)))
    return [values, indices]


def _cumulative(kind: str):
    def run(n: Node) -> Tensor:
        axis = n.norm_axis(int(n.number(1, "axis")), n[0].rank)
        flags = {"exclusive": bool(n.attr("exclusive", 0)), "reverse": bool(n.attr("reverse", 0))}
        return n.op(kind, n[0], axis=axis, **flags)

    return run


def _lp_normalization(n: Node) -> Tensor:
    x, axis, p = n[0], n.axis(-1), n.attr("p", 2)
    if p not in (1, 2):
        raise n.bad(f"attribute 'p' is {p}, required 1 or 2")
    norm = n.reduce(x, f"l{p}", (axis,))
    zero = n.op("eq", norm, 0.0)
    return n.op("div", x, n.op("select", zero, n.const(1.0, x.dtype), norm))


def _mean_variance(n: Node) -> Tensor:
    x = n.with_room(n[0])
    axes = [n.norm_axis(a, x.rank) for a in n.attr("axes", [0, 2, 3])]
    centred = n.op("sub", x, n.reduce(x, "mean", axes))
    variance = n.reduce(n.op("square", centred), "mean", axes)
    return n.cast(n.op("div", centred, n.op("add", n.op("sqrt", variance), 1e-9)), n[0].dtype)


HANDLERS: tuple[Handler, ...] = (
    *[Handler(name, _reduction(op)) for name, op in _REDUCTIONS.items()],
    Handler("ArgMax", _arg_reduce("max")),
    Handler("ArgMin", _arg_reduce("min")),
    Handler("Softmax", _softmax(False), 13),
    Handler("LogSoftmax", _softmax(True), 13),
    Handler("Softmax", _softmax_flat(False), high=12),
    Handler("LogSoftmax", _softmax_flat(True), high=12),
    Handler("Hardmax", _hardmax),
    Handler("TopK", _topk),
    Handler("CumSum", _cumulative("cumsum"), 11),
    Handler("CumProd", _cumulative("cumprod"), 26),
    Handler("LpNormalization", _lp_normalization),
    Handler("MeanVarianceNormalization", _mean_variance, 9),
)
