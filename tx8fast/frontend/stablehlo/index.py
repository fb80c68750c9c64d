"""Handlers of dynamic slices, gather and scatter.

May import: frontend.stablehlo.node. Must not: know lowering.
StableHLO moves windows that would leave the operand back inside when it reads, and drops them when it writes;
our indexing kinds reject such places, so they are moved or masked here.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.stablehlo.node import Handler, Node
from tx8fast.frontend.stablehlo.view import Val, whole

_COMBINE = {"": "set", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}
_NEUTRAL = {"add": 0.0, "mul": 1.0}


def _bounded(n: Node, t: Tensor, high: int) -> Tensor:
    """Move indices into [0, high]."""
    t = t if t.dtype in ("i32", "i64") else n.v.cast(t, "i64")
    if t.array is not None:
        return n.const(np.clip(t.array, 0, high), t.dtype)
    return n.op_("clamp", t, lo=0.0, hi=float(high))


def _starts(n: Node, first: int, shape: tuple[int, ...], size: tuple[int, ...]) -> list[int | Tensor]:
    """The first element per dimension: a number where it is known, else a scalar inside the bounds."""
    out: list[int | Tensor] = []
    for d, (whole_size, part) in enumerate(zip(shape, size)):
        known = n[first + d].splat
        if part == whole_size:
            out.append(0)
        elif known is not None:
            out.append(min(max(int(known), 0), whole_size - part))
        else:
            out.append(_bounded(n, n.full(first + d), whole_size - part))
    return out


def _run(n: Node, start: Tensor, count: int) -> Tensor:
    """start, start + 1, ... as a vector."""
    start = n.v.reshape(start, (1,))
    return start if count == 1 else n.op_("add", start, n.const(np.arange(count), start.dtype))


def _dynamic_slice(n: Node) -> Val:
    x, size = n[0], n.shape
    starts = _starts(n, 1, x.shape, size)
    fixed = [s if isinstance(s, int) else 0 for s in starts]
    out = n.v.sliced(x, fixed, tuple(m if isinstance(s, int) else d for s, m, d in zip(starts, size, x.shape)))
    for d, s in enumerate(starts):
        if not isinstance(s, int):
            out = whole(n.op_("gather", n.v.full(out), _run(n, s, size[d]), axis=d))
    return out


def _dynamic_update_slice(n: Node) -> Tensor:
    x, new = n.full(0), n.full(1)
    return _written(n, x, new, _starts(n, 2, x.shape, new.shape), 0)


def _written(n: Node, x: Tensor, new: Tensor, starts: list[int | Tensor], axis: int) -> Tensor:
    """Put `new` into `x`: known places by cutting and joining, one unknown place by a cache update, more by scatter."""
    if x.shape == new.shape:
        return new
    for d in range(axis, x.rank):
        at = starts[d]
        if isinstance(at, int) and new.shape[d] != x.shape[d]:
            end = at + new.shape[d]
            inner = _written(
                n, n.v.cut(x, d, at, new.shape[d]), new, [0 if i == d else s for i, s in enumerate(starts)], d + 1
            )
            return n.v.concat([n.v.cut(x, d, 0, at), inner, n.v.cut(x, d, end, x.shape[d] - end)], d)
    moving = [d for d in range(x.rank) if not isinstance(starts[d], int)]
    if len(moving) == 1:
        return _update(n, x, new, starts[moving[0]], moving[0])  # type: ignore[arg-type]
    depth = moving[-1] + 1
    columns = []
    for d in range(depth):
        at = starts[d]
        line = (
            n.const(np.arange(new.shape[d]), "i64")
            if isinstance(at, int)
            else n.v.cast(_run(n, at, new.shape[d]), "i64")
        )
        line = n.v.reshape(line, [new.shape[d] if i == d else 1 for i in range(depth + 1)])
        columns.append(n.op_("broadcast", line, shape=(*new.shape[:depth], 1)))
    return n.op_("scatter_nd", x, n.v.concat(columns, depth), new)


def _update(n: Node, x: Tensor, new: Tensor, at: Tensor, axis: int) -> Tensor:
    """Write a run of positions, in place if the operand is not used again."""
    at = n.v.reshape(at, (1,))
    if x.rank == 1:
        wide = n.op_("kv_update", n.v.reshape(x, (1, *x.shape)), n.v.reshape(new, (1, *new.shape)), at, axis=1)
        return n.v.reshape(wide, x.shape)
    return n.op_("kv_update", x, new, at, axis=axis)


# ---------------------------------------------------------------- gather


def _index_columns(n: Node, t: Tensor, vector_dim: int) -> Tensor:
    """Bring the dimension of index tuples to the end, adding one of size 1 if there is none."""
    t = t if t.dtype in ("i32", "i64") else n.v.cast(t, "i64")
    if vector_dim == t.rank:
        return n.v.reshape(t, (*t.shape, 1))
    return n.v.transpose(t, [*[d for d in range(t.rank) if d != vector_dim], vector_dim])


def _column(n: Node, t: Tensor, i: int) -> Tensor:
    return n.v.reshape(n.v.cut(t, t.rank - 1, i, 1), t.shape[:-1])


def _grid(n: Node, columns: list[Tensor], windows: list[int]) -> Tensor:
    """Index tuples [batch..., windows..., k] of columns [batch...], counting on through each window of column i."""
    lead = columns[0].rank
    rank = lead + len(windows)
    out = []
    for i, (c, w) in enumerate(zip(columns, windows)):
        c = n.v.reshape(c, (*c.shape, *[1] * len(windows)))
        if w > 1:
            c = n.op_(
                "add", c, n.const(np.arange(w).reshape([w if d == lead + i else 1 for d in range(rank)]), c.dtype)
            )
        wide = (*columns[0].shape, *windows)
        c = c if c.shape == wide else n.op_("broadcast", c, shape=wide)
        out.append(n.v.reshape(c, (*wide, 1)))
    return n.v.concat(out, rank)


def _batch_column(n: Node, shape: tuple[int, ...], dim: int, dtype: str) -> Tensor:
    """The batch index itself, repeated over the other index dimensions."""
    line = n.const(np.arange(shape[dim]).reshape([shape[dim] if d == dim else 1 for d in range(len(shape))]), dtype)
    return line if line.shape == shape else n.op_("broadcast", line, shape=shape)


def _gather(n: Node) -> Tensor:
    numbers, sizes = n.numbers("GatherDimensionNumbers", "dimension_numbers"), n.ints("slice_sizes")
    x, indices = n.full(0), _index_columns(n, n.full(1), numbers.index_vector_dim)
    lead = indices.shape[:-1]
    columns: dict[int, Tensor] = {}
    start_map = list(numbers.start_index_map)
    for i, d in enumerate(start_map):
        if sizes[d] < x.shape[d]:
            columns[d] = _bounded(n, _column(n, indices, i), x.shape[d] - sizes[d])
    pairs = zip(list(numbers.operand_batching_dims), list(numbers.start_indices_batching_dims))
    for d, b in pairs:
        at = b if b < numbers.index_vector_dim else b - 1
        columns[d] = _batch_column(n, lead, at, indices.dtype)
    for d, size in enumerate(sizes):  # dimensions without an index start at 0
        if d not in columns and size < x.shape[d]:
            x = n.v.cut(x, d, 0, size)
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    dims = sorted(columns)
    rest = [d for d in range(x.rank) if d not in columns]
    windows = [sizes[d] for d in dims]
    if not dims:
        out = n.v.reshape(x, [x.shape[d] for d in rest])
        out = n.op_("broadcast", n.v.reshape(out, (*[1] * len(lead), *out.shape)), shape=(*lead, *out.shape))
        order = rest
    elif len(dims) == 1:
        d = dims[0]
        at = columns[d]
        if windows[0] > 1:
            steps = n.const(np.arange(windows[0]), at.dtype)
            at = n.op_("add", n.v.reshape(at, (*at.shape, 1)), steps)
        out = n.op_("gather", x, at, axis=d)
        extra = windows[0] > 1
        spans = [*range(d, d + len(lead)), *([d + len(lead)] if extra else []), *range(d)]
        out = n.v.transpose(out, [*spans, *range(d + len(lead) + extra, out.rank)])
        out = out if extra else n.v.reshape(out, (*lead, 1, *out.shape[len(lead) :]))
        order = [d, *rest]
    else:
        at = _grid(n, [columns[d] for d in dims], windows)
        out = n.op_("gather_nd", n.v.transpose(x, [*dims, *rest]), at)
        order = [*dims, *rest]
    return _placed(n, out, lead, order, dropped, list(numbers.offset_dims))


def _placed(
    n: Node, out: Tensor, lead: tuple[int, ...], order: list[int], dropped: set[int], offsets: list[int]
) -> Tensor:
    """Arrange [index dims..., operand dims in `order`...] as the result: windows at `offsets`, index dims between."""
    kept = [d for d in order if d not in dropped]
    nl = len(lead)
    out = n.v.reshape(out, (*lead, *[out.shape[nl + i] for i, d in enumerate(order) if d not in dropped]))
    source = {o: nl + kept.index(d) for o, d in zip(offsets, sorted(kept))}
    batch = iter(range(nl))
    return n.v.transpose(out, [source[i] if i in source else next(batch) for i in range(out.rank)])


# ---------------------------------------------------------------- scatter


def _scatter(n: Node) -> Tensor:
    if len(n) != 3:
        raise n.unsupported("a scatter into several operands at once is not supported")
    name = n.combiner()
    combine = _COMBINE.get("?" if name is None else name)
    if combine is None:
        raise n.unsupported(
            f"a scatter that combines by '{name or 'several ops'}' is not supported, only replacing, add, multiply, "
            "maximum, minimum"
        )
    numbers = n.numbers("ScatterDimensionNumbers", "scatter_dimension_numbers")
    x, updates = n.full(0), n.full(2)
    indices = _index_columns(n, n.full(1), numbers.index_vector_dim)
    lead = indices.shape[:-1]
    inserted, batching = list(numbers.inserted_window_dims), list(numbers.input_batching_dims)
    window_places = list(numbers.update_window_dims)
    kept = [d for d in range(x.rank) if d not in inserted and d not in batching]
    sizes = [1] * x.rank
    for place, d in zip(window_places, kept):
        sizes[d] = updates.shape[place]
    batch_places = [i for i in range(updates.rank) if i not in window_places]
    columns: dict[int, Tensor] = {}
    valid: Tensor | None = None
    for i, d in enumerate(numbers.scattered_dims_to_operand_dims):
        raw, high = _column(n, indices, i), x.shape[d] - sizes[d]
        columns[d] = _bounded(n, raw, high)
        inside = n.op_("eq", raw, columns[d])
        if inside.array is None or not inside.array.all():
            valid = inside if valid is None else n.op_("and", valid, inside)
    for d, b in zip(batching, list(numbers.scatter_indices_batching_dims)):
        columns[d] = _batch_column(n, lead, b if b < numbers.index_vector_dim else b - 1, indices.dtype)
    for d in range(x.rank):
        if d not in columns and sizes[d] < x.shape[d]:
            columns[d] = n.const(np.zeros(lead, np.int64), indices.dtype)
    dims = sorted(columns)
    rest = [d for d in range(x.rank) if d not in columns]
    order = [*dims, *rest]
    # updates as [index dims..., windows of every operand dimension in `order`]
    wide = n.v.transpose(updates, [*batch_places, *window_places])
    wide = n.v.reshape(wide, (*lead, *sizes))
    wide = n.v.transpose(wide, [*range(len(lead)), *[len(lead) + d for d in order]])
    if math.prod(lead) == 1 and combine == "set" and len(dims) == 1:
        new = n.v.transpose(n.v.reshape(wide, [sizes[d] for d in order]), [order.index(d) for d in range(x.rank)])
        if valid is not None:  # a window outside leaves everything as it is
            old = n.op_("gather", x, _run(n, columns[dims[0]], sizes[dims[0]]), axis=dims[0])
            new = n.op_("select", n.v.reshape(valid, ()), new, old)
        return _update(n, x, new, columns[dims[0]], dims[0])
    if not dims:
        raise n.unsupported("a scatter without index dimensions is not supported")
    return _scattered(n, x, wide, columns, dims, rest, sizes, valid, combine)


def _scattered(
    n: Node,
    x: Tensor,
    wide: Tensor,
    columns: dict[int, Tensor],
    dims: list[int],
    rest: list[int],
    sizes: list[int],
    valid: Tensor | None,
    combine: str,
) -> Tensor:
    """Scatter by index tuples; updates outside are made neutral, or go to one more row that is cut off again."""
    order = [*dims, *rest]
    moved = n.v.transpose(x, order)
    spare = False
    if valid is not None:
        mask = n.v.reshape(valid, (*valid.shape, *[1] * len(order)))
        if combine in _NEUTRAL:
            wide = n.op_("select", mask, wide, n.const(_NEUTRAL[combine], x.dtype))
        else:
            spare = True
            moved = n.op_("pad", moved, lo=(0,) * x.rank, hi=(1, *[0] * (x.rank - 1)))
    at = _grid(n, [columns[d] for d in dims], [sizes[d] for d in dims])
    if spare:
        first = n.v.cut(at, at.rank - 1, 0, 1)
        keep = n.v.reshape(valid, (*valid.shape, *[1] * (at.rank - valid.rank)))  # type: ignore[union-attr,arg-type]
        first = n.op_("select", keep, first, n.const(x.shape[dims[0]], at.dtype))
        at = n.v.concat([first, n.v.cut(at, at.rank - 1, 1, at.shape[-1] - 1)], at.rank - 1)
    out = n.op_("scatter_nd", moved, at, wide, combine=combine)
    if spare:
        out = n.v.cut(out, 0, 0, x.shape[dims[0]])
    return n.v.transpose(out, [order.index(d) for d in range(x.rank)])


HANDLERS: dict[str, Handler] = {
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
}
