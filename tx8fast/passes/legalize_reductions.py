"""Rewrites reductions and normalisations that the vector engine does not do into those that it does; scattered sums are kept in f32.

May import: ir, passes.{lift_match, make}. Must not: sum in 16 bits what was one sum: where several ops take its place, they work in f32.

The engine reduces the last dimension, or one between image and channel, of a limited length. Other dimensions are put into one of these two
places, longer ones are reduced in parts, and functions of sums are written out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.ir.core import Op, Value
from tx8fast.ir.ops.base import MAX_REDUCED, MAX_ROW, engine_of
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.ir.types import NoneType
from tx8fast.passes.lift_match import static
from tx8fast.passes.make import Make

WIDE = "f32"
FLOATS = ("bf16", "f16", WIDE)
MAX_BETWEEN = 4096  # extent of a dimension between image and channel, field range of the pooling instructions
JOINS = {"add": "add", "mean": "add", "max": "max", "min": "min"}
#: function of a reduction -> functions before and behind a sum
SUMS = {"l1": ("abs", ""), "l2": ("square", "sqrt"), "sumsq": ("square", ""), "logsum": ("", "log")}
_FINITE = 3e38  # about the largest number of f32


def _ours(op: Op) -> bool:
    x = op.operands[0]
    return static(*[v for v in op.operands if type(v.type) is not NoneType], op.result) and x.dtype in FLOATS and 0 not in x.shape and engine_of(op) == "kcore"  # fmt: skip


class _Reduction:
    """One function over dimensions that lie anywhere."""

    def __init__(self, make: Make, fn: str) -> None:
        self.make, self.fn, self.join = make, fn, JOINS[fn]

    def __call__(self, x: Value, axes: Sequence[int]) -> Value:
        """Return the reduction of x over these axes, as elements in the order of the others; in f32 if it takes several steps of sums."""
        sizes, dtype = _runs(x.shape, axes), x.dtype
        total = math.prod(n for n, reduced in sizes if reduced)
        places = [i for i, (_, reduced) in enumerate(sizes) if reduced]
        if self.join == "add" and (len(places) > 1 or total > self._most(sizes, places[-1])):
            x = self.make.convert(x, WIDE)
        elif self.fn == "mean":
            return self._one(x, sizes, places[-1], "mean")
        for i in reversed(places):
            x = self._one(x, sizes, i, self.join)
            sizes = [*sizes[:i], (1, False), *sizes[i + 1 :]]
        if self.fn == "mean":
            x = self.make("mul", x, self.make.scalar(1.0 / total, x.dtype))
        return self.make.convert(x, dtype)

    @staticmethod
    def _most(sizes: Sequence[tuple[int, bool]], i: int) -> int:
        behind = math.prod(n for n, _ in sizes[i + 1 :])
        return MAX_BETWEEN if 1 < behind <= MAX_REDUCED else MAX_REDUCED

    def _one(self, x: Value, sizes: Sequence[tuple[int, bool]], i: int, fn: str) -> Value:
        """Reduce the dimension at place i."""
        before, n, behind = math.prod(m for m, _ in sizes[:i]), sizes[i][0], math.prod(m for m, _ in sizes[i + 1 :])
        x = self.make.reshape(x, before, n, behind)
        if behind > MAX_REDUCED:
            y = self._parts(self.make.transpose(x, 0, 2, 1), before * behind, n, 1, fn)
        else:
            y = self._parts(x, before, n, behind, fn)
        return self.make.reshape(y, before, behind)

    def _parts(self, x: Value, before: int, n: int, behind: int, fn: str) -> Value:
        """Reduce `n` of [before, n, behind], parts of equal length first."""
        most = MAX_BETWEEN if behind > 1 else MAX_REDUCED
        if n <= most:
            x = self.make.reshape(x, before, n, behind) if behind > 1 else self.make.reshape(x, before, n)
            return self.make("reduce", x, op=fn, axes=(1,), keepdims=True)
        parts = -(-n // min(most, MAX_BETWEEN))  # short ones, as sums of long ones lose digits
        length, rest = n // parts, n % parts
        x = self.make.reshape(x, before, n, behind)
        whole = self.make.slice(x, (0, 0, 0), (before, parts * length, behind))
        y = self._parts(self._parts(whole, before * parts, length, behind, fn), before, parts, behind, fn)
        if not rest:
            return y
        left = self.make.slice(x, (0, parts * length, 0), (before, rest, behind))
        left = self._parts(left, before, rest, behind, fn)
        return self.make(self.join, self.make.reshape(y, before, behind), self.make.reshape(left, before, behind))


def _runs(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, bool]]:
    """Return neighbours of one kind as one dimension: (size, whether it is reduced). Dimensions of 1 belong to any."""
    found: list[tuple[int, bool]] = []
    reduced = {a % len(shape) for a in axes}
    for i, n in enumerate(shape):
        if n == 1:
            continue
        if found and found[-1][1] == (i in reduced):
            found[-1] = (found[-1][0] * n, i in reduced)
        else:
            found.append((n, i in reduced))
    return found if any(r for _, r in found) else [*found, (1, True)]


@pattern("reduce")
def _anywhere(op: Op, rw: Rewriter) -> bool:
    """Dimensions that lie elsewhere, or are too long."""
    x, axes = op.operands[0], op.attrs["axes"]
    if not _ours(op) or op.attrs["op"] not in JOINS or not axes:
        return False
    make = Make(rw, op)
    rw.replace(op, [make.reshape(_Reduction(make, op.attrs["op"])(x, axes), *op.result.shape)])
    return True


@pattern("reduce")
def _function_of_a_sum(op: Op, rw: Rewriter) -> bool:
    x, axes, fn = op.operands[0], op.attrs["axes"], op.attrs["op"]
    if not _ours(op) or fn not in SUMS or not axes:
        return False
    make = Make(rw, op)
    before, behind = SUMS[fn]
    y = make.convert(x, WIDE)
    y = _Reduction(make, "add")(make(before, y) if before else y, axes)
    y = make(behind, y) if behind else y
    rw.replace(op, [make.reshape(make.convert(y, x.dtype), *op.result.shape)])
    return True


@pattern("reduce")
def _sum_of_exponentials(op: Op, rw: Rewriter) -> bool:
    """log(sum(e^x)) = m + log(sum(e^(x - m))) with the largest x as m; infinite ones change nothing there."""
    x, axes = op.operands[0], op.attrs["axes"]
    if not _ours(op) or op.attrs["op"] != "logsumexp" or not axes:
        return False
    make = Make(rw, op)
    kept = tuple(1 if i in {a % len(x.shape) for a in axes} else n for i, n in enumerate(x.shape))
    wide = make.convert(x, WIDE)
    most = make("clamp", make.reshape(_Reduction(make, "max")(wide, axes), *kept), lo=-_FINITE, hi=_FINITE)
    total = make.reshape(_Reduction(make, "add")(make("exp", make("sub", wide, most)), axes), *kept)
    y = make("add", make("log", total), most)
    rw.replace(op, [make.reshape(make.convert(y, x.dtype), *op.result.shape)])
    return True


@pattern("softmax")
def _softmax_elsewhere(op: Op, rw: Rewriter) -> bool:
    """Along another dimension than the last one; rows that are too long are written out."""
    x = op.operands[0]
    if not _ours(op) or len(op.operands) > 1 and type(op.operands[1].type) is not NoneType or op.attrs["visible"]:
        return False
    make, rank = Make(rw, op), len(x.shape)
    axis = op.attrs["axis"] % rank
    if x.shape[axis] > MAX_ROW:
        kept = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
        y = make.convert(x, WIDE)
        y = y if op.attrs["scale"] == 1.0 else make("mul", y, make.scalar(op.attrs["scale"], WIDE))
        y = make("sub", y, make.reshape(_Reduction(make, "max")(y, [axis]), *kept))
        e = make("exp", y)
        total = make.reshape(_Reduction(make, "add")(e, [axis]), *kept)
        y = make("sub", y, make("log", total)) if op.attrs["log"] else make("mul", e, make("recip", total))
        rw.replace(op, [make.convert(y, x.dtype)])
        return True
    there, back = _moved(rank, axis)
    y = make("softmax", make.transpose(x, *there), axis=-1, scale=op.attrs["scale"], log=op.attrs["log"])
    rw.replace(op, [make.transpose(y, *back)])
    return True


def _moved(rank: int, axis: int) -> tuple[list[int], list[int]]:
    """Return the permutation that puts a dimension behind the others, and its inverse."""
    there = [*(i for i in range(rank) if i != axis), axis]
    return there, [there.index(i) for i in range(rank)]


@pattern("layernorm", "rmsnorm")
def _norm_elsewhere(op: Op, rw: Rewriter) -> bool:
    """Norms of several last dimensions are norms of one; others are written out: (x - mean) / sqrt(mean of squares + eps)."""
    x, axes = op.operands[0], op.attrs["axes"]
    if not _ours(op) or op.attrs["heads"] != 1:
        return False
    make, rank = Make(rw, op), len(x.shape)
    last = {a % rank for a in axes} == set(range(rank - len(axes), rank))
    lead, many = x.shape[: rank - len(axes)], math.prod(x.shape[a] for a in axes)
    given = [None if type(v.type) is NoneType else v for v in op.operands[1:]]
    if last and many <= MAX_ROW and len(axes) > 1:
        vectors = [
            op.operands[1 + i] if v is None else _as_vector(make, v, x.shape[rank - len(axes) :])
            for i, v in enumerate(given)
        ]
        y = make(op.kind, make.reshape(x, *lead, many), *vectors, axes=(-1,), eps=op.attrs["eps"])
        rw.replace(op, [make.reshape(y, *x.shape)])
        return True
    kept = tuple(1 if i in {a % rank for a in axes} else n for i, n in enumerate(x.shape))
    mean = _Reduction(make, "mean")
    y = make.convert(x, WIDE)
    if op.kind == "layernorm":
        y = make("sub", y, make.reshape(mean(y, axes), *kept))
    spread = make("add", make.reshape(mean(make("square", y), axes), *kept), make.scalar(op.attrs["eps"], WIDE))
    y = make("mul", y, make("rsqrt", spread))
    for v, fn in zip(given, ("mul", "add")):
        y = y if v is None else make(fn, y, make.convert(v, WIDE))
    rw.replace(op, [make.convert(y, x.dtype)])
    return True


def _as_vector(make: Make, v: Value, shape: tuple[int, ...]) -> Value:
    """Return a scale or shift over these dimensions as a vector."""
    own = v.shape[max(0, len(v.shape) - len(shape)) :]
    v = make.reshape(v, *own)
    return make.reshape(v if own == shape else make("broadcast", v, shape=shape), math.prod(shape))


@pattern("scatter", "scatter_nd")
def _scattered_sums(op: Op, rw: Rewriter) -> bool:
    """Of sums and products of what falls on one place, only the last is rounded."""
    x, ids, updates = op.operands
    places = ids.shape[op.attrs["axis"]] if op.kind == "scatter" else math.prod(ids.shape[:-1])
    if op.attrs["combine"] not in ("add", "mul") or not _ours(op) or x.dtype == WIDE or places < 2:
        return False
    make = Make(rw, op)
    y = make(op.kind, make.convert(x, WIDE), ids, make.convert(updates, WIDE), **dict(op.attrs))
    rw.replace(op, [make.convert(y, x.dtype)])
    return True


PATTERNS: tuple[Pattern, ...] = (
    _anywhere,
    _function_of_a_sum,
    _sum_of_exponentials,
    _softmax_elsewhere,
    _norm_elsewhere,
    _scattered_sums,
)
