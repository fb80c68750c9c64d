"""Recipes: moves of data, casts, and everything that is about shapes."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Unfit, Value
from hunt.formats import BOOL, F32, FLOATS, I8, I32, I64, U8, tensor
from hunt.recipes import recipe


@recipe("Cast")
def cast(d: Draft, x: Value, op: str) -> Value:
    if x.is_float:
        to = d.pick([F32, d.code, BOOL, I32, I64, F32, d.code])
    else:
        to = d.pick([d.code, d.code, I32, I64, BOOL])
    return d.op(op, x, to=to)


@recipe("CastLike")
def cast_like(d: Draft, x: Value, op: str) -> Value:
    other = d.pick([v for v in d.values if v.code in (*FLOATS, I32, I64, BOOL)])
    return d.op(op, x, other)


@recipe("BitCast")
def bit_cast(d: Draft, x: Value, op: str) -> Value:
    same: dict[int, int] = {U8: I8, I8: U8}
    if x.code not in same:
        raise Unfit("the bits of a rounded number are anything")
    return d.op(op, x, to=same[x.code])


@recipe("Transpose")
def transpose(d: Draft, x: Value, op: str) -> Value:
    if not x.rank:
        raise Unfit("scalar")
    perm = list(range(x.rank))
    if x.rank > 1 and d.chance(0.5):  # the common one: the last two
        perm[-1], perm[-2] = perm[-2], perm[-1]
    else:
        perm = [int(p) for p in d.rng.permutation(x.rank)]
    return d.op(op, x, perm=perm)


@recipe("Reshape")
def reshape(d: Draft, x: Value, op: str) -> Value:
    dims = list(x.shape)
    way = d.int(0, 4)
    if way == 0 and len(dims) > 1:  # join two neighbours
        k = d.int(0, len(dims) - 2)
        dims[k : k + 2] = [dims[k] * dims[k + 1]]
    elif way < 3:  # cut one
        cuts = [(k, f) for k, s in enumerate(dims) for f in (2, 3, 4, 8, 64) if s % f == 0 and s > f]
        if cuts:
            k, f = d.pick(cuts)
            dims[k : k + 1] = d.pick([[f, dims[k] // f], [dims[k] // f, f]])
    elif way == 3:
        dims = [-1]
    else:
        dims.insert(d.int(0, len(dims)), 1)
    if len(dims) > 5:
        raise Unfit("too many dimensions")
    return d.op(op, x, d.ints(*dims))


@recipe("Flatten")
def flatten(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, axis=d.int(0, x.rank))


@recipe("Squeeze")
def squeeze(d: Draft, x: Value, op: str) -> Value:
    ones = [k for k, s in enumerate(x.shape) if s == 1]
    if not ones:
        raise Unfit("no dimension of 1")
    return d.op(op, x, d.ints(d.pick(ones))) if d.chance(0.7) else d.op(op, x)


@recipe("Unsqueeze")
def unsqueeze(d: Draft, x: Value, op: str) -> Value:
    if x.rank > 4:
        raise Unfit("too many dimensions")
    return d.op(op, x, d.ints(d.pick([0, -1, d.int(0, x.rank)])))


@recipe("Concat")
def concat(d: Draft, x: Value, op: str) -> Value:
    axis = d.axis(x)
    parts = []
    for _ in range(d.int(1, 3)):
        shape = list(x.shape)
        shape[axis] = d.pick([shape[axis], 1, 3, 64])
        parts.append(d.like(x, shape))
    parts.insert(d.int(0, len(parts)), x)
    return d.op(op, *parts, axis=axis)


@recipe("Split")
def split(d: Draft, x: Value, op: str) -> Value:
    axes = [k for k, s in enumerate(x.shape) if s > 1]
    if not axes:
        raise Unfit("nothing to split")
    axis = d.pick(axes)
    n = d.int(2, min(4, x.shape[axis]))
    if d.chance(0.5):
        made = d.node(op, [x], n, axis=axis, num_outputs=n)
    else:
        cuts = sorted(int(c) for c in d.rng.choice(np.arange(1, x.shape[axis]), n - 1, replace=False))
        sizes = np.diff([0, *cuts, x.shape[axis]])
        made = d.node(op, [x, d.ints(*map(int, sizes))], n, axis=axis)
    return d.pick(made)


@recipe("Slice")
def slice_(d: Draft, x: Value, op: str) -> Value:
    axes = [k for k, s in enumerate(x.shape) if s > 1]
    if not axes:
        raise Unfit("nothing to cut")
    chosen = sorted(int(a) for a in d.rng.choice(axes, d.int(1, min(2, len(axes))), replace=False))
    starts, ends, steps = [], [], []
    for a in chosen:
        n = x.shape[a]
        lo = d.pick([0, 1, n // 2])
        hi = d.pick([n, n - 1, max(lo + 1, n // 2 + 1)])
        step = d.pick([1, 1, 1, 2, -1])
        if step < 0:
            lo, hi = hi - 1, lo - 1
            hi = hi if hi >= 0 else -n - 1
        starts.append(lo)
        ends.append(hi)
        steps.append(step)
    return d.op(op, x, d.ints(*starts), d.ints(*ends), d.ints(*chosen), d.ints(*steps))


@recipe("Expand")
def expand(d: Draft, x: Value, op: str) -> Value:
    dims = [s if s > 1 or d.chance(0.3) else d.pick([2, 3, 64]) for s in x.shape]
    if d.chance(0.3):
        dims.insert(0, d.pick([1, 2, 3]))
    if len(dims) > 5:
        raise Unfit("too many dimensions")
    return d.op(op, x, d.ints(*dims))


@recipe("Tile")
def tile(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, d.ints(*[d.pick([1, 1, 2, 3]) for _ in x.shape]))


@recipe("Pad")
def pad(d: Draft, x: Value, op: str) -> Value:
    mode = d.pick(["constant", "constant", "reflect", "edge", "wrap"])
    room = [min(2, s - 1) if mode in ("reflect", "wrap") else 2 for s in x.shape]
    if not x.rank or not x.is_float and mode != "constant":
        raise Unfit("mode of floats")
    pads = [d.int(0, r) for r in room] + [d.int(0, r) for r in room]
    if mode == "constant" and d.chance(0.3):  # a negative pad crops
        k = d.int(0, x.rank - 1)
        pads[k] = -1 if x.shape[k] > 2 else 0
    value = d.like(x, ()) if mode == "constant" and d.chance(0.5) else None
    if value is not None and value.kind != "weight":
        value = None
    return d.op(op, x, d.ints(*pads), value, mode=mode)


@recipe("CenterCropPad")
def center(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, d.ints(*[max(1, s + d.int(-2, 2)) for s in x.shape]))


@recipe("Shape")
def shape(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x)


@recipe("EyeLike")
def eye_like(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, k=d.int(-1, 1), dtype=d.code)


@recipe("ConstantOfShape")
def constant_of_shape(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 1 or x.code != I64 or x.array.size > 4 or (x.array < 0).any() or x.array.prod() > d.at_most:
        raise Unfit("no shape")
    return d.op(op, x, value=tensor("value", np.asarray([0.5], np.float32), d.code))


@recipe("Trilu")
def trilu(d: Draft, x: Value, op: str) -> Value:
    k = None if d.chance(0.4) else d.weight(np.asarray(d.int(-2, 2), np.int64))
    return d.op(op, x, k, upper=d.int(0, 1))


@recipe("DepthToSpace")
def depth_to_space(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, blocksize=2, mode=d.pick(["DCR", "CRD"]))


@recipe("SpaceToDepth")
def space_to_depth(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, blocksize=2)


@recipe("ReverseSequence")
def reverse_sequence(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2:
        raise Unfit("rank")
    batch, time = d.pick([(0, 1), (1, 0)])
    lengths = d.rng.integers(1, x.shape[time] + 1, x.shape[batch]).astype(np.int64)
    return d.op(op, x, d.weight(lengths), batch_axis=batch, time_axis=time)


@recipe("Dropout")
def dropout(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, d.weight(np.asarray(0.25, np.float32), F32))
