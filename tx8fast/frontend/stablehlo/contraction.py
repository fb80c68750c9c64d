"""Handlers of dot_general and convolution: general dimension numbers become gemm and channel-last convolution.

May import: frontend.stablehlo.node, frontend.stablehlo.shape. Must not: choose engine forms (the passes do).
"""

from __future__ import annotations

import math

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.shape import edged, spaced

_WIDTH = {"f8e4m3fn": 0, "f8e5m2": 0, "bf16": 1, "f16": 1, "f32": 3, "f64": 4}


def _operand_dtypes(n: Node, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Bring both operands to one format, the result's kind of number; 8-bit integers multiply as they are."""
    if a.dtype == b.dtype and (a.is_float == ("f" in n.dtype)) and a.dtype != "pred":
        if a.is_float or a.dtype == n.dtype or (a.dtype in ("i8", "u8") and n.dtype == "i32"):
            return a, b
    wanted = n.dtype
    if a.is_float and b.is_float:
        wanted = max(a.dtype, b.dtype, key=lambda d: _WIDTH[d])
        if _WIDTH[wanted] == 0 or {a.dtype, b.dtype} == {"bf16", "f16"}:
            wanted = "f32"
    return n.v.cast(a, wanted), n.v.cast(b, wanted)


def _matrix(
    n: Node, t: Tensor, batch: list[int], contracted: list[int], row_first: bool, merge: bool
) -> tuple[Tensor, bool]:
    """Arrange `t` as (batch, free, contracted) or (batch, contracted, free), whichever leaves its last dimension in
    place; return it and True if that is the transposed form. `row_first`: (free, contracted) is the plain form."""
    free = [d for d in range(t.rank) if d not in batch and d not in contracted]
    sizes = [t.shape[d] for d in batch], math.prod(t.shape[d] for d in free), math.prod(t.shape[d] for d in contracted)
    last = max((d for d in range(t.rank) if t.shape[d] != 1), default=-1)
    free_last = last in free if last in free or last in contracted else not row_first
    t = n.v.transpose(t, [*batch, *contracted, *free] if free_last else [*batch, *free, *contracted])
    if merge or free_last:
        t = n.v.reshape(t, (*sizes[0], sizes[2], sizes[1]) if free_last else (*sizes[0], sizes[1], sizes[2]))
    else:
        lead = tuple(t.shape[: len(free)]) or (1,)
        t = n.v.reshape(t, (*lead, sizes[2]))
    return t, free_last == row_first


def _dot_general(n: Node) -> Tensor:
    numbers = n.numbers("DotDimensionNumbers", "dot_dimension_numbers")
    lb, rb = list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)
    lc, rc = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
    return _product(n, n.full(0), n.full(1), lb, rb, lc, rc)


def _dot(n: Node) -> Tensor:
    return _product(n, n.full(0), n.full(1), [], [], [n[0].rank - 1], [0])


def _product(n: Node, a: Tensor, b: Tensor, lb: list[int], rb: list[int], lc: list[int], rc: list[int]) -> Tensor:
    """Multiply; result dimensions are (batch, free of lhs, free of rhs)."""
    a, b = _operand_dtypes(n, a, b)
    swapped = _plain(b, rb, rc) and not _plain(a, lb, lc) and not _plain_right(b, rb, rc)
    if swapped:
        a, b, lb, rb, lc, rc = b, a, rb, lb, rc, lc
    batch = [a.shape[d] for d in lb]
    m = [a.shape[d] for d in range(a.rank) if d not in lb and d not in lc]
    k = [b.shape[d] for d in range(b.rank) if d not in rb and d not in rc]
    if 0 in (*a.shape, *b.shape):
        raise n.unsupported("a product of empty tensors is not supported")
    left, trans_a = _matrix(n, a, lb, lc, True, bool(lb))
    right, trans_b = _matrix(n, b, rb, rc, False, True)
    out = n.op_("gemm", left, right, trans_a=trans_a, trans_b=trans_b)
    out = n.v.reshape(out, (*batch, *m, *k))
    if swapped:
        nb, nm = len(batch), len(m)
        out = n.v.transpose(out, [*range(nb), *range(nb + nm, out.rank), *range(nb, nb + nm)])
    return n.v.cast(out, n.dtype)


def _plain(t: Tensor, batch: list[int], contracted: list[int]) -> bool:
    """True if the contracted dimensions come last: the natural form of a left operand."""
    return contracted == list(range(t.rank - len(contracted), t.rank))


def _plain_right(t: Tensor, batch: list[int], contracted: list[int]) -> bool:
    """True if nothing but contracted dimensions follows the batch: swapping would gain nothing."""
    return len(batch) + len(contracted) == t.rank


# ---------------------------------------------------------------- convolution


def _convolution(n: Node) -> Tensor:
    numbers = n.numbers("ConvDimensionNumbers", "dimension_numbers")
    x, w = _operand_dtypes(n, n.full(0), n.full(1))
    spatial = x.rank - 2
    if n.int("batch_group_count", 1) != 1:
        raise n.unsupported("batch_group_count above 1 (a gradient of a convolution) is not supported")
    x = n.v.transpose(
        x, [numbers.input_batch_dimension, *numbers.input_spatial_dimensions, numbers.input_feature_dimension]
    )
    w = n.v.transpose(
        w,
        [
            *numbers.kernel_spatial_dimensions,
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
        ],
    )
    stride, gaps = n.ints("window_strides", [1] * spatial), n.ints("lhs_dilation", [1] * spatial)
    dilation = n.ints("rhs_dilation", [1] * spatial)
    pads = n.pairs("padding", spatial)
    flipped = [bool(f) for f in n.ints("window_reversal", [0] * spatial)]
    if any(f and s > 1 for f, s in zip(flipped, w.shape)):
        turn = [f and s > 1 for f, s in zip(flipped, w.shape)] + [False, False]
        w = n.v.slice(w, [s - 1 if t else 0 for t, s in zip(turn, w.shape)], w.shape, [-1 if t else 1 for t in turn])
    x = spaced(n, x, [0, *[g - 1 for g in gaps], 0], 0.0)
    cut = [(min(a, 0), min(b, 0)) for a, b in pads]
    x = edged(n, x, [0, *[a for a, _ in cut], 0], [0, *[b for _, b in cut], 0], 0.0)
    lo, hi = [max(a, 0) for a, _ in pads], [max(b, 0) for _, b in pads]
    if spatial == 1:  # a plane of width 1, whose rows tiles divide
        x, w = n.v.reshape(x, (*x.shape[:2], 1, x.shape[2])), n.v.reshape(w, (w.shape[0], 1, *w.shape[1:]))
        stride, dilation, lo, hi = [*stride, 1], [*dilation, 1], [*lo, 0], [*hi, 0]
    if spatial == 0:
        raise n.unsupported("a convolution without spatial dimensions is a product; use dot_general")
    groups = n.int("feature_group_count", 1)
    out = n.op_(
        "conv" if spatial <= 2 else "conv_nd",
        x,
        w,
        groups=groups,
        stride=tuple(stride),
        dilation=tuple(dilation),
        pad_lo=tuple(lo),
        pad_hi=tuple(hi),
    )
    if spatial == 1:
        out = n.v.reshape(out, (*out.shape[:2], out.shape[3]))
    places = [numbers.output_batch_dimension, *numbers.output_spatial_dimensions, numbers.output_feature_dimension]
    out = n.v.transpose(out, [places.index(d) for d in range(out.rank)])
    return n.v.cast(out, n.dtype)


HANDLERS: dict[str, Handler] = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.convolution": _convolution,
}
