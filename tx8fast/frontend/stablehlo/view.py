"""Values of a StableHLO function as views of smaller tensors: broadcasts and unit dimensions that need no data yet.

May import: frontend.common. Must not: know MLIR.

StableHLO spells out every broadcast; most feed element-wise ops, which broadcast by themselves. A `Val` therefore
keeps the tensor before the broadcast (its core) and, per logical dimension, the core dimension it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tx8fast.frontend.common import Emitter, Tensor

Shape = tuple[int, ...]


class Val:
    """`dims[i]` is the core dimension behind logical dimension i, or -1: repeated, or of size 1.

    Core dimensions that no entry names have size 1; the named ones come in rising order.
    """

    __slots__ = ("shape", "core", "dims")

    def __init__(self, shape: Shape, core: Tensor, dims: Shape) -> None:
        self.shape, self.core, self.dims = shape, core, dims

    @property
    def dtype(self) -> str:
        return self.core.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.core.is_float

    @property
    def splat(self) -> Any:
        """The one number that all elements are, or None."""
        a = self.core.array
        return a.reshape(-1)[0] if a is not None and a.size == 1 else None

    @property
    def array(self) -> np.ndarray | None:
        """The constant's value in logical shape, or None."""
        a = self.core.array
        if a is None:
            return None
        return np.broadcast_to(a.reshape([a.shape[d] if d >= 0 else 1 for d in self.dims]), self.shape)

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} of {list(self.core.shape)} by {list(self.dims)}>"


def whole(t: Tensor) -> Val:
    return Val(t.shape, t, tuple(range(t.rank)))


def fitted(t: Tensor, shape: Shape) -> Val:
    """View `t`, which broadcasts to `shape` by numpy's rule, as `shape`."""
    skip = len(shape) - t.rank
    return Val(shape, t, tuple(i - skip if i >= skip and t.shape[i - skip] == n else -1 for i, n in enumerate(shape)))


class Views:
    """Emission of ops on views."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    # ---- leaving the view

    def aligned(self, v: Val) -> Tensor:
        """Return a tensor that broadcasts to the view's shape by numpy's rule."""
        core, dims = v.core, v.dims
        if core.shape == v.shape:
            return core
        shape = tuple([core.shape[d] if d >= 0 else 1 for d in dims])
        short = shape[next((i for i, n in enumerate(shape) if n != 1), len(shape)) :]
        return (
            core
            if core.shape in (shape, short)
            else self.reshape(core, short if not short or core.rank == len(short) else shape)
        )

    def full(self, v: Val) -> Tensor:
        """Return the tensor with every element in place."""
        if v.core.shape == v.shape:
            return v.core
        if math.prod(v.core.shape) == math.prod(v.shape):
            return self.reshape(v.core, v.shape)
        return self.emitter.op("broadcast", self.aligned(v), shape=v.shape)

    # ---- ops on tensors

    def reshape(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        shape = tuple(shape)
        if t.shape == shape:
            return t
        if t.array is not None:
            return Tensor(shape, t.dtype, array=t.array.reshape(shape))
        return self.emitter.op("reshape", t, shape=shape)

    def transpose(self, t: Tensor, perm: Sequence[int]) -> Tensor:
        """Transposing dimensions of size 1 alone is a change of view."""
        perm = tuple(perm)
        shape = tuple(t.shape[p] for p in perm)
        moved = [p for p in perm if t.shape[p] != 1]
        if moved == sorted(moved):
            return self.reshape(t, shape)
        return self.emitter.op("transpose", t, perm=perm)

    def slice(self, t: Tensor, start: Sequence[int], size: Sequence[int], step: Sequence[int] | None = None) -> Tensor:
        """Take `size` elements per dimension; a constant of any size is cut at once, without a copy."""
        start, size, step = tuple(start), tuple(size), tuple(step or (1,) * t.rank)
        if size == t.shape and all(s > 0 or n == 1 for s, n in zip(step, size)):
            return t
        if t.array is not None and all(s > 0 for s in step):
            cut = tuple(slice(a, a + (n - 1) * s + 1 if n else a, s) for a, n, s in zip(start, size, step))
            return Tensor(size, t.dtype, array=t.array[cut])
        return self.emitter.op("slice", t, start=start, size=size, step=step)

    def cut(self, t: Tensor, axis: int, start: int, size: int) -> Tensor:
        """Take `size` elements of one dimension."""
        starts, sizes = [0] * t.rank, list(t.shape)
        starts[axis], sizes[axis] = start, size
        return self.slice(t, starts, sizes)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
        return parts[0] if len(parts) == 1 else self.emitter.op("concat", *parts, axis=axis)

    def cast(self, t: Tensor, dtype: str) -> Tensor:
        if t.dtype == dtype:
            return t
        if dtype == "pred":
            return self.emitter.op("ne", t, self.emitter.const(0, t.dtype))
        return self.emitter.op("convert", t, dtype=dtype)

    # ---- ops on views

    def elementwise(self, kind: str, *vals: Val, **attrs: Any) -> Val:
        """Emit an element-wise op over views of one shape, on their cores where these agree."""
        first: Val | None = None
        for v in vals:
            if v.core.shape == ():
                continue
            if first is None:
                first = v
            elif v.dims != first.dims or v.core.shape != first.core.shape:
                out = self.emitter.op(kind, *[self.aligned(x) for x in vals], **attrs)
                return fitted(out, vals[0].shape)
        out = self.emitter.op(kind, *[v.core for v in vals], **attrs)
        like = first or vals[0]
        return Val(like.shape, out, like.dims)

    def splat(self, value: float | int | bool, like: Val, dtype: str | None = None) -> Val:
        """A constant of the shape of `like`."""
        return Val(like.shape, self.emitter.const(value, dtype or like.dtype), (-1,) * like.rank)

    def converted(self, v: Val, dtype: str) -> Val:
        if v.dtype == dtype:
            return v
        if dtype == "pred":
            return self.elementwise("ne", v, self.splat(0, v))
        return self.elementwise("convert", v, dtype=dtype)

    def viewed(self, v: Val, shape: Shape) -> Val:
        """Reshape; inserting and dropping dimensions of size 1 costs nothing."""
        if v.core.shape == () or (v.core.array is not None and v.core.array.size == 1):
            return Val(shape, self.reshape(v.core, ()), (-1,) * len(shape))
        old = [(n, d) for n, d in zip(v.shape, v.dims) if n != 1]
        if [n for n, _ in old] == [n for n in shape if n != 1]:
            rest = iter(old)
            return Val(shape, v.core, tuple([next(rest)[1] if n != 1 else -1 for n in shape]))
        return whole(self.reshape(self.full(v), shape))

    def spread(self, v: Val, places: Sequence[int], shape: Shape) -> Val:
        """broadcast_in_dim: logical dimension i becomes dimension places[i] of `shape`."""
        if v.core.shape == ():
            return Val(shape, v.core, (-1,) * len(shape))
        order = sorted(range(v.rank), key=lambda i: places[i])
        if order != list(range(v.rank)):
            v = self.permuted(v, order)
            places = sorted(places)
        dims = [-1] * len(shape)
        for i, at in enumerate(places):
            if v.shape[i] != 1:
                dims[at] = v.dims[i]
        return Val(shape, v.core, tuple(dims))

    def permuted(self, v: Val, perm: Sequence[int]) -> Val:
        shape = tuple(v.shape[p] for p in perm)
        dims = tuple(v.dims[p] for p in perm)
        named = [d for d in dims if d >= 0]
        if named == sorted(named):
            return Val(shape, v.core, dims)
        if v.core.shape == v.shape:
            return whole(self.transpose(v.core, perm))
        rising = sorted(named)
        compact = self.reshape(v.core, [v.core.shape[d] for d in rising])
        moved = self.transpose(compact, [rising.index(d) for d in named])
        order = iter(range(len(named)))
        return Val(shape, moved, tuple(next(order) if d >= 0 else -1 for d in dims))

    def sliced(self, v: Val, start: Sequence[int], size: Shape, step: Sequence[int] | None = None) -> Val:
        """Slice; repeated dimensions just become shorter."""
        core = v.core
        starts, sizes, steps = [0] * core.rank, list(core.shape), [1] * core.rank
        for i, d in enumerate(v.dims):
            if d >= 0:
                starts[d], sizes[d], steps[d] = start[i], size[i], 1 if step is None else step[i]
        return Val(size, self.slice(core, starts, sizes, steps), v.dims)
