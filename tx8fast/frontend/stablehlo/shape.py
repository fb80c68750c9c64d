"""Handlers of constants and data movement: constant, iota, broadcast, reshape, transpose, slice, concatenate, pad.

May import: frontend.stablehlo.node, frontend.stablehlo.reader. Must not: compute.
"""

from __future__ import annotations

import numpy as np

from tx8fast.frontend.common import Tensor, np_type
from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.reader import dense_array
from tx8fast.frontend.stablehlo.view import Val


def _constant(n: Node) -> Val:
    shape, dtype = n.result_type(0)
    array = dense_array(n.attr("value"), shape, dtype, np_type(dtype))
    t = Tensor(array.shape, dtype, array=array)
    return Val(shape, t, tuple(range(len(shape))) if array.shape == shape else (-1,) * len(shape))


def _iota(n: Node) -> Val:
    shape, dtype = n.result_type(0)
    axis = n.int("iota_dimension")
    line = n.const(np.arange(shape[axis]).astype(np_type(dtype)), dtype)
    return n.v.spread(Val((shape[axis],), line, (0,)), [axis], shape)


def _broadcast(n: Node) -> Val:
    return n.v.spread(n[0], n.ints("broadcast_dimensions"), n.shape)


def _reshape(n: Node) -> Val:
    return n.v.viewed(n[0], n.shape)


def _transpose(n: Node) -> Val:
    return n.v.permuted(n[0], n.ints("permutation"))


def _slice(n: Node) -> Val:
    return n.v.sliced(n[0], n.ints("start_indices"), n.shape, n.ints("strides"))


def _concatenate(n: Node) -> Tensor:
    return n.v.concat([n.v.full(v) for v in n.vals], n.int("dimension"))


def _reverse(n: Node) -> Tensor:
    x = n.full(0)
    flipped = [d for d in n.ints("dimensions") if x.shape[d] > 1]
    if 0 in x.shape or not flipped:
        return x
    start = [x.shape[d] - 1 if d in flipped else 0 for d in range(x.rank)]
    return n.v.slice(x, start, x.shape, [-1 if d in flipped else 1 for d in range(x.rank)])


def spaced(n: Node, x: Tensor, gaps: list[int], value: float) -> Tensor:
    """Insert gaps[d] elements of `value` between neighbours of every dimension d."""
    for d, gap in enumerate(gaps):
        if gap <= 0 or x.shape[d] <= 1:
            continue
        lead, size, rest = x.shape[:d], x.shape[d], x.shape[d + 1 :]
        x = n.v.reshape(x, (*lead, size, 1, *rest))
        hi = tuple(gap if i == d + 1 else 0 for i in range(x.rank))
        x = n.op_("pad", x, lo=(0,) * x.rank, hi=hi, value=value)
        x = n.v.cut(n.v.reshape(x, (*lead, size * (gap + 1), *rest)), d, 0, (size - 1) * (gap + 1) + 1)
    return x


def edged(n: Node, x: Tensor, lo: list[int], hi: list[int], value: float) -> Tensor:
    """Pad with `value`; negative amounts cut."""
    start = [max(-a, 0) for a in lo]
    size = [max(s - a - max(-b, 0), 0) for s, a, b in zip(x.shape, start, hi)]
    x = n.v.slice(x, start, size)
    if not any(a > 0 or b > 0 for a, b in zip(lo, hi)):
        return x
    more = {"lo": tuple(max(a, 0) for a in lo), "hi": tuple(max(b, 0) for b in hi)}
    return n.op_("pad", x, **more, value=value)


def _pad(n: Node) -> Tensor:
    x, fill = n.full(0), n[1].splat
    lo, hi, gaps = n.ints("edge_padding_low"), n.ints("edge_padding_high"), n.ints("interior_padding")
    if fill is None:
        return _pad_by_value(n, lo, hi, gaps)
    if x.dtype == "pred":
        fill = int(fill)
    return edged(n, spaced(n, x, gaps, float(fill)), lo, hi, float(fill))


def _pad_by_value(n: Node, lo: list[int], hi: list[int], gaps: list[int]) -> Tensor:
    """The value is computed at run time: pad with zero, and choose the value where a mask is false."""
    x = n[0]
    inside = n.v.full(Val(x.shape, n.const(1.0, "f32"), (-1,) * x.rank))
    mask = edged(n, spaced(n, inside, gaps, 0.0), lo, hi, 0.0)
    data = edged(n, spaced(n, n.full(0), gaps, 0.0), lo, hi, 0.0)
    return n.op_("select", n.v.cast(mask, "pred"), data, n.v.reshape(n.full(1), ()))


HANDLERS: dict[str, Handler] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose,
    "stablehlo.slice": _slice,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.reverse": _reverse,
    "stablehlo.pad": _pad,
}
