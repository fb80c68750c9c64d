"""Handlers of operators that only move or describe data: views, slices, padding, tiling, constants of shapes.

May import: frontend.onnx.node, frontend.onnx.reader. Must not: touch protobufs beyond a node's attributes.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor, np_type
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.frontend.onnx.reader import dtype_of

RANK_LIMIT = 8


def _reshape(n: Node) -> Tensor:
    x, want = n[0], n.listed(1, "shape")
    if not n.attr("allowzero", 0):
        if any(d == 0 and i >= x.rank for i, d in enumerate(want)):
            raise n.bad(f"shape {want} copies a dimension that input shape {list(x.shape)} does not have")
        want = [x.shape[i] if d == 0 else d for i, d in enumerate(want)]
    if want.count(-1) > 1 or any(d < -1 for d in want):
        raise n.bad(f"shape {want} needs sizes, at most one of them -1")
    if -1 in want:
        rest = math.prod(d for d in want if d != -1)
        total = math.prod(x.shape)
        if rest == 0 or total % rest:
            raise n.bad(f"cannot view shape {list(x.shape)} as {want}")
        want[want.index(-1)] = total // rest
    return n.reshape(x, want)


def _flatten(n: Node) -> Tensor:
    x, axis = n[0], n.attr("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise n.bad(f"axis {axis} is outside [{-x.rank}, {x.rank}]")
    axis = axis + x.rank if axis < 0 else axis
    return n.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _squeeze(n: Node) -> Tensor:
    x, axes = n[0], n.ints(1, "axes")
    if axes is None:
        axes = [i for i, d in enumerate(x.shape) if d == 1]
    gone = {n.norm_axis(a, x.rank) for a in axes}
    long = [a for a in sorted(gone) if x.shape[a] != 1]
    if long:
        raise n.bad(f"axes {long} of shape {list(x.shape)} are not 1 and cannot be squeezed")
    return n.reshape(x, [d for i, d in enumerate(x.shape) if i not in gone])


def _unsqueeze(n: Node) -> Tensor:
    x, axes = n[0], n.listed(1, "axes")
    rank = x.rank + len(axes)
    places = {n.norm_axis(a, rank) for a in axes}
    if len(places) != len(axes):
        raise n.bad(f"axes {axes} name an axis twice")
    dims = iter(x.shape)
    return n.reshape(x, [1 if i in places else next(dims) for i in range(rank)])


def _transpose(n: Node) -> Tensor:
    perm = n.attr("perm")
    return n.transpose(n[0], perm if perm is not None else range(n[0].rank - 1, -1, -1))


def _expand(n: Node) -> Tensor:
    x, want = n[0], n.listed(1, "shape")
    try:
        return n.broadcast(x, np.broadcast_shapes(x.shape, tuple(want)))
    except ValueError as e:
        raise n.bad(f"shape {list(x.shape)} does not broadcast with {want}") from e


def _tile(n: Node) -> Tensor:
    x, repeats = n[0], n.listed(1, "repeats")
    if len(repeats) != x.rank:
        raise n.bad(f"{len(repeats)} repeats for rank {x.rank}")
    return tile(n, x, repeats)


def tile(n: Node, x: Tensor, repeats: list[int]) -> Tensor:
    """Repeat whole axes; one broadcast if the rank allows it, else concatenation axis by axis."""
    out = [d * r for d, r in zip(x.shape, repeats)]
    if 0 in out:
        return n.const(np.zeros(out, np_type(x.dtype)), x.dtype)
    split = [(r, d) for d, r in zip(x.shape, repeats)]
    wide = [(1, d) if r == 1 else (r, d) for r, d in split]
    flat_in = [v for r, d in wide for v in ((d,) if r == 1 else (1, d))]
    flat_out = [v for r, d in wide for v in ((d,) if r == 1 else (r, d))]
    if len(flat_in) <= RANK_LIMIT:
        return n.reshape(n.broadcast(n.reshape(x, flat_in), flat_out), out)
    for axis, r in enumerate(repeats):
        x = n.concat([x] * r, axis)
    return x


def _concat(n: Node) -> Tensor:
    parts = [t for t in n.inputs if t is not None]
    axis = n.norm_axis(n.required("axis"), parts[0].rank)
    if all(t.array is not None for t in parts):
        return n.concat(parts, axis)
    full = [t for t in parts if t.shape[axis]]  # an empty cache adds nothing
    return n.concat(full or parts[:1], axis)


def _split(n: Node):
    x, axis = n[0], n.axis(0)
    sizes, count = n.ints(1, "split"), n.attr("num_outputs", len(n.outputs))
    length = x.shape[axis]
    if sizes is None:
        part = -(-length // count)
        sizes = [min(part, max(0, length - i * part)) for i in range(count)]
    if sum(sizes) != length or any(s < 0 for s in sizes):
        raise n.bad(f"split sizes {sizes} do not add up to {length}, the size of axis {axis}")
    starts = np.cumsum([0, *sizes])
    return [n.slice(x, axis, int(a), s) for a, s in zip(starts, sizes)]


def _slice(n: Node) -> Tensor:
    x = n[0]
    starts, ends = n.ints(1, "starts"), n.ints(2, "ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise n.bad("starts and ends are missing or of different lengths")
    axes = n.ints(3, "axes") or list(range(len(starts)))
    steps = n.ints(4, "steps") or [1] * len(starts)
    start, size, step = [0] * x.rank, list(x.shape), [1] * x.rank
    for a, lo, hi, by in zip(axes, starts, ends, steps):
        a = n.norm_axis(a, x.rank)
        if by == 0:
            raise n.bad(f"the step of axis {a} is 0")
        places = _places(lo, hi, by, x.shape[a])
        start[a], size[a], step[a] = (places[0] if len(places) else 0), len(places), by
    if start == [0] * x.rank and size == list(x.shape) and step == [1] * x.rank:
        return x
    if 0 in size:
        return n.const(np.zeros(size, np_type(x.dtype)), x.dtype)
    return n.op("slice", x, start=tuple(start), size=tuple(size), step=tuple(step))


def _places(start: int, end: int, step: int, length: int) -> range:
    """Return the places that a slice takes: a start before the first place is the first one whatever the step is, an end before it
    lies behind all on the way down."""
    start, end = (at + length if at < 0 else at for at in (start, end))
    last = length - (step < 0)
    return range(min(max(start, 0), last), min(max(end, -(step < 0)), last), step)


def _pad(n: Node) -> Tensor:
    x = n[0]
    pads = n.ints(1, "pads")
    if pads is None or len(pads) % 2:
        raise n.bad(f"pads {pads} are missing or not pairs")
    half = len(pads) // 2
    axes = [n.norm_axis(a, x.rank) for a in (n.ints(3, "axes") or range(half))]
    if len(axes) != half:
        raise n.bad(f"{len(pads)} pads for {len(axes)} axes")
    lo, hi = [0] * x.rank, [0] * x.rank
    for i, a in enumerate(axes):
        lo[a], hi[a] = pads[i], pads[i + half]
    for a in range(x.rank):  # negative padding removes elements
        if lo[a] < 0 or hi[a] < 0:
            cut_lo, cut_hi = max(-lo[a], 0), max(-hi[a], 0)
            x = n.slice(x, a, cut_lo, x.shape[a] - cut_lo - cut_hi)
            lo[a], hi[a] = max(lo[a], 0), max(hi[a], 0)
    mode = n.attr("mode", "constant")
    if not any(lo) and not any(hi):
        return x
    value = n[2] if n.has(2) else None
    known = None if value is None or value.array is None else n.single(value.array, "constant_value")
    number = float(n.attr("value", 0.0) if known is None else known)
    # an integer of more than 53 bits is no number of the attribute's
    if mode != "constant" or value is None or (known is not None and (x.is_float or int(number) == int(known))):
        return n.op("pad", x, lo=tuple(lo), hi=tuple(hi), value=number, mode=mode)
    inside = n.op("pad", n.const(np.ones(x.shape, bool)), lo=tuple(lo), hi=tuple(hi), value=0.0, mode=mode)
    padded = n.op("pad", x, lo=tuple(lo), hi=tuple(hi), value=0.0, mode=mode)
    return n.op("select", inside, padded, n.reshape(value, ()))


def _shape(n: Node) -> Tensor:
    return n.const(np.array(n[0].shape[slice(n.attr("start", 0), n.attr("end"))], np.int64))


def _size(n: Node) -> Tensor:
    return n.const(np.array(math.prod(n[0].shape), np.int64))


def _constant(n: Node) -> Tensor:
    if "value" in n.attrs:
        proto = n.attrs["value"]
        return n.const(n.importer.initializers.array(proto, n.where), dtype_of(proto.data_type, n.where))
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in n.attrs:
            return n.const(np.array(n.attrs[name], dtype))
    raise n.unsupported(f"constants given as {', '.join(n.attrs) or 'nothing'} are not supported")


def _constant_of_shape(n: Node) -> Tensor:
    shape = tuple(int(d) for d in n.static(0, "shape").reshape(-1))
    fill = n.const(np.zeros(1, np.float32))
    if "value" in n.attrs:
        proto = n.attrs["value"]
        fill = n.const(n.importer.initializers.array(proto, n.where), dtype_of(proto.data_type, n.where))
    if 0 in shape:
        return n.const(np.zeros(shape, np_type(fill.dtype)), fill.dtype)
    return n.broadcast(n.reshape(fill, ()), shape)


def _range(n: Node) -> Tensor:
    lo, hi, by = (n.number(i, name) for i, name in enumerate(("start", "limit", "delta")))
    if by == 0:
        raise n.bad("the step of the range is 0")
    span = (hi.astype(np.float64) - lo.astype(np.float64)) / by.astype(np.float64)
    if not math.isfinite(span):
        raise n.bad(f"the range from {lo} to {hi} in steps of {by} has no length")
    count = n.bounded(max(math.ceil(span), 0), "the range")
    wide = np.float32 if n[0].dtype in ("f16", "bf16") else lo.dtype
    values = lo.astype(wide) + np.arange(count).astype(wide) * by.astype(wide)
    return n.const(values.astype(lo.dtype), n[0].dtype)


def _eye_like(n: Node) -> Tensor:
    x = n[0]
    dtype = dtype_of(n.attrs["dtype"], n.where) if "dtype" in n.attrs else x.dtype
    if x.rank != 2:
        raise n.bad(f"the input has rank {x.rank}, required 2")
    n.bounded(math.prod(x.shape), "the identity")
    return n.const(np.eye(*x.shape, k=n.attr("k", 0)).astype(np_type(dtype)), dtype)


def _trilu(n: Node) -> Tensor:
    k = int(n.number(1, "k")) if n.has(1) else 0
    if 0 in n[0].shape:
        return n[0]
    return n.op("trilu", n[0], k=k, upper=bool(n.attr("upper", 1)))


def _depth_to_space(n: Node) -> Tensor:
    x, b = n[0], n.required("blocksize")
    batch, c, h, w = x.shape
    if b < 1 or c % (b * b):
        raise n.bad(f"{c} channels do not divide by the square of block size {b}")
    if n.attr("mode", "DCR") == "DCR":
        cut, perm = (batch, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        cut, perm = (batch, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    return n.reshape(n.transpose(n.reshape(x, cut), perm), (batch, c // b**2, h * b, w * b))


def _space_to_depth(n: Node) -> Tensor:
    x, b = n[0], n.required("blocksize")
    batch, c, h, w = x.shape
    if b < 1 or h % b or w % b:
        raise n.bad(f"{h} x {w} positions do not divide by block size {b}")
    cut = n.reshape(x, (batch, c, h // b, b, w // b, b))
    perm = (0, 3, 5, 1, 2, 4) if n.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return n.reshape(n.transpose(cut, perm), (batch, c * b * b, h // b, w // b))


def _center_crop_pad(n: Node) -> Tensor:
    x, want = n[0], n.listed(1, "shape")
    axes = [n.norm_axis(a, x.rank) for a in n.attr("axes", range(x.rank))]
    lo, hi = [0] * x.rank, [0] * x.rank
    for a, size in zip(axes, want):
        extra = size - x.shape[a]
        if extra < 0:
            x = n.slice(x, a, -extra // 2, size)
        lo[a], hi[a] = max(extra, 0) // 2, max(extra, 0) - max(extra, 0) // 2
    return n.op("pad", x, lo=tuple(lo), hi=tuple(hi)) if any(lo) or any(hi) else x


HANDLERS: tuple[Handler, ...] = (
    Handler("Reshape", _reshape),
    Handler("Flatten", _flatten),
    Handler("Squeeze", _squeeze),
    Handler("Unsqueeze", _unsqueeze),
    Handler("Transpose", _transpose),
    Handler("Expand", _expand, 8),
    Handler("Tile", _tile),
    Handler("Concat", _concat, 7),
    Handler("Split", _split),
    Handler("Slice", _slice),
    Handler("Pad", _pad, 7),
    Handler("Shape", _shape),
    Handler("Size", _size),
    Handler("Constant", _constant),
    Handler("ConstantOfShape", _constant_of_shape, 9),
    Handler("Range", _range, 11),
    Handler("EyeLike", _eye_like, 9),
    Handler("Trilu", _trilu, 14),
    Handler("DepthToSpace", _depth_to_space),
    Handler("SpaceToDepth", _space_to_depth),
    Handler("CenterCropPad", _center_crop_pad, 18),
)
