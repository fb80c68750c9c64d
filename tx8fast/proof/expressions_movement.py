"""Expressions of kinds that move elements: shapes, slices, padding, gathers, scatters, caches.

May import: numpy, graph_table, proof.expression, proof.cells. Must not: know layouts: these are logical elements.

Numbers and concrete values move by the same code. Indices are concrete; where they come from data that is drawn (top-k),
the drawn order decides.
"""

from __future__ import annotations

import numpy as np

from tx8fast.graph_table import OpRecord
from tx8fast.proof.cells import Elements, choose, join
from tx8fast.proof.expression import (
    CONCRETE,
    Drawn,
    NotExpressed,
    Operands,
    Scope,
    Value,
    concrete,
    elements,
    expression,
    filled,
    moved,
    need,
    wrapped,
)


@expression("reshape", "channel_norm", "load_var", "store_var", "to_tensor", "to_vtensor", "reshape_view")
def reshape(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The same elements in row-major order."""
    shape = op.results[0].shape
    return [moved(need(operands, 0), lambda a: a.reshape(shape))]


@expression("transpose")
def transpose(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Result axis i is operand axis perm[i]."""
    return [moved(need(operands, 0), lambda a: a.transpose(op.attr("perm")))]


@expression("broadcast")
def broadcast(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """New and unit axes repeat."""
    return [moved(need(operands, 0), lambda a: np.broadcast_to(a, op.results[0].shape))]


@expression("concat")
def concat(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Operands one after the other along `axis`."""
    return [joined(scope, [need(operands, i) for i in range(len(operands))], op.attr("axis"))]


def joined(scope: Scope, parts: list[Value], axis: int) -> Value:
    """Return values joined along an axis."""
    if all(isinstance(v, np.ndarray) for v in parts):
        return np.concatenate(parts, axis=axis)  # type: ignore[arg-type]
    return join([elements(scope, v) for v in parts], axis)


@expression("slice")
def slice_(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """size[i] elements of axis i from start[i] on, step[i] apart."""
    at = [
        first + by * np.arange(n)
        for first, n, by in zip(op.attr("start"), op.attr("size"), op.attr("step"), strict=True)
    ]
    return [moved(need(operands, 0), lambda a: a[np.ix_(*at)] if at else a)]


@expression("pad")
def pad(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Every axis grows by lo[i] and hi[i] elements."""
    x, mode = need(operands, 0), op.attr("mode")
    at = []
    for n, lo, hi in zip(x.shape, op.attr("lo"), op.attr("hi"), strict=True):
        own = np.arange(n)
        at.append(np.pad(own, (lo, hi), constant_values=-1) if mode == "constant" else np.pad(own, (lo, hi), mode=mode))
    made = moved(
        x, lambda a: a[np.ix_(*[np.maximum(i, 0) for i in at])] if a.size else np.zeros([len(i) for i in at], a.dtype)
    )
    if mode != "constant":
        return [made]
    outside = np.zeros(made.shape, bool)
    for d, i in enumerate(at):
        outside |= (i < 0).reshape([-1 if e == d else 1 for e in range(len(at))])
    fill = filled(scope, x, op.attr("value"), made.shape)
    if isinstance(made, Elements) and isinstance(fill, Elements):
        return [choose(outside, fill, made)]
    return [np.where(outside, fill, made)]  # type: ignore[arg-type]


@expression("trilu")
def trilu(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """One triangle of the last two axes; the rest is zero."""
    x, k = need(operands, 0), op.attr("k")
    far = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None] - k
    keep = np.broadcast_to(far >= 0 if op.attr("upper") else far <= 0, x.shape)
    if isinstance(x, Elements):
        return [choose(keep, x, elements(scope, np.zeros(x.shape, np.int64)))]
    return [np.where(keep, x, np.zeros((), x.dtype))]


@expression("iota")
def iota(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The position along `axis`."""
    shape, axis = op.results[0].shape, op.attr("axis")
    line = np.arange(shape[axis]).reshape([-1 if d == axis % len(shape) else 1 for d in range(len(shape))])
    made = np.broadcast_to(line, shape)
    return [made if op.results[0].dtype in CONCRETE else elements(scope, made)]


# --- gathers -------------------------------------------------------------------------------------------------------


@expression("gather", "embedding")
def gather(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Slices of the table along an axis, whose place the axes of the indices take."""
    table = need(operands, 0)
    axis = op.attr("axis") % len(table.shape) if op.kind == "gather" else 0
    at = wrapped(operands[1], table.shape[axis], op.kind)
    if isinstance(table, Drawn):
        found, where = np.unique(at, return_inverse=True)
        rows = join([table.part(int(i), int(i) + 1) for i in found], axis=0)
        return [moved(rows, lambda a: a[where.reshape(at.shape)])]
    return [moved(table, lambda a: np.take(a, at, axis))]


def _along_axis(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Return index arrays: every element at its own place, except along `axis`."""
    grid = np.indices(indices.shape, sparse=True)
    return tuple(indices if d == axis else own for d, own in enumerate(grid))


@expression("gather_elements")
def gather_elements(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """x at its own place, except along `axis`: where the index says."""
    x = need(operands, 0)
    axis = op.attr("axis") % len(x.shape)
    at = _along_axis(wrapped(operands[1], x.shape[axis], op.kind), axis)
    return [moved(x, lambda a: a[at])]


def _tuples(indices: Value | None, shape: tuple[int, ...], batch: int, what: str) -> tuple[np.ndarray, ...]:
    """Return index arrays for the index tuples in the last axis, behind `batch` axes that go along."""
    found = concrete(indices, what)
    own = list(np.indices(found.shape[:-1], sparse=True))[:batch]
    return (*own, *(wrapped(found[..., i], shape[batch + i], what) for i in range(found.shape[-1])))


@expression("gather_nd")
def gather_nd(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """Slices of x at index tuples."""
    x = need(operands, 0)
    at = _tuples(operands[1], x.shape, op.attr("batch_dims"), op.kind)
    return [moved(x, lambda a: a[at])]


# --- scatters ------------------------------------------------------------------------------------------------------


@expression("scatter", "scatter_nd")
def scatter(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The operand with updates put at, or combined with what is at, the places that the indices say; in order."""
    x, updates = need(operands, 0), need(operands, 2)
    places = np.arange(int(np.prod(x.shape))).reshape(x.shape)
    if op.kind == "scatter":
        axis = op.attr("axis") % len(x.shape)
        at = places[_along_axis(wrapped(operands[1], x.shape[axis], op.kind), axis)]
    else:
        at = places[_tuples(operands[1], x.shape, 0, op.kind)]
    at = at.reshape(-1)
    order = np.argsort(at, kind="stable")
    first = np.flatnonzero(np.r_[True, np.diff(at[order]) != 0]) if at.size else np.zeros(0, np.int64)
    turn = np.empty(at.size, np.int64)  # the how manieth update of its place
    turn[order] = np.arange(at.size) - np.repeat(first, np.diff(np.r_[first, at.size]))
    made, flat = moved(x, lambda a: a.reshape(-1).copy()), moved(updates, lambda a: a.reshape(-1))
    for k in range(int(turn.max()) + 1 if at.size else 0):
        mine = np.flatnonzero(turn == k)
        made = _put(scope, op.attr("combine"), made, at[mine], moved(flat, lambda a, mine=mine: a[mine]))
    return [moved(made, lambda a: a.reshape(x.shape))]


def _put(scope: Scope, combine: str, x: Value, at: np.ndarray, updates: Value) -> Value:
    """Return x with updates combined into distinct places."""
    if isinstance(x, np.ndarray) and isinstance(updates, np.ndarray):
        function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(combine)
        x[at] = updates if function is None else function(x[at], updates)
        return x
    x, updates = elements(scope, x), elements(scope, updates)
    f = scope.field
    function = {"add": f.add, "mul": f.mul, "max": f.maximum, "min": f.minimum}.get(combine)
    if function is not None:
        updates = function(x.at(at), updates)
    elif combine != "set":
        raise NotExpressed(f"scatter with '{combine}'")
    both = join([x, updates], axis=0)
    source = np.arange(x.shape[0])
    source[at] = x.shape[0] + np.arange(len(at))
    return both.at(source)


@expression("kv_update")
def kv_update(scope: Scope, op: OpRecord, operands: Operands) -> list[Value]:
    """The cache with `new` from element `position` of an axis on."""
    cache, new = need(operands, 0), need(operands, 1)
    axis = op.attr("axis") % len(cache.shape)
    begin = int(concrete(operands[2], "the position of a cache update").reshape(-1)[0])
    end = begin + new.shape[axis]
    if not 0 <= begin <= end <= cache.shape[axis]:
        raise NotExpressed(f"kv_update: [{begin}, {end}) lies outside a cache of {cache.shape[axis]}")
    lead = (slice(None),) * axis
    parts = [
        moved(cache, lambda a: a[(*lead, slice(0, begin))]),
        new,
        moved(cache, lambda a: a[(*lead, slice(end, None))]),
    ]
    return [joined(scope, parts, axis)]
