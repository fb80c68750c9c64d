"""Cuts through factor rules: result parts to operand parts, slices, windows.

May import: ir.core, ir.ops.base, graph_table. Must not: know op kinds. `sharding` = parts over tiles,
`split` = parts one tile works through in time, one number per dimension. None means "not possible".
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.errors import VerifyError
from tx8fast.graph_table import Dim, Rule
from tx8fast.ir.core import Op
from tx8fast.ir.ops.base import ALL_ONES, where

Parts = tuple[int, ...]
Cut = tuple[Parts, Parts]  # (sharding, split)
Box = tuple[tuple[int, int], ...]


def align_base(dtype: str) -> int:
    """Channels per block: 128 for one-byte elements, else 64."""
    return 128 if dtype in ("i8", "u8", "pred", "f8e4m3fn", "f8e5m2") else 64


def _masks(op: Op, rule: Rule) -> tuple[int, int]:
    masks = op.info.decl.masks
    return (ALL_ONES, ALL_ONES) if masks is None else masks(rule)


def factor_cuts(rule: Rule, dims: Sequence[Dim], parts: Sequence[int], room: Sequence[int]) -> list[int] | None:
    """Return parts per factor for `parts` per dimension, major factors first; None if a dimension cannot be cut so.

    `room[f]` is what is left of factor f to cut.
    """
    cuts = [1] * len(rule.sizes)
    for dim, p in zip(dims, parts):
        if p == 1:
            continue
        if dim.full or not dim.terms or p < 1:
            return None
        if len(dim.terms) == 1:
            f = dim.terms[0][0]
            if p > room[f] or cuts[f] not in (1, p):
                return None
            cuts[f] = p
            continue
        for f, _ in dim.terms:
            n = room[f]
            take = p if n % p == 0 else n if p % n == 0 else 0
            if take == 0 or cuts[f] != 1:
                return None
            cuts[f], p = take, p // take
            if p == 1:
                break
        if p > 1:
            return None
    return cuts


def dim_parts(rule: Rule, dim: Dim, cuts: Sequence[int], room: Sequence[int]) -> int | None:
    """Return the parts of one dimension under factor cuts; None if the pieces are not contiguous."""
    if dim.full:
        return 1
    total, partial = 1, False
    for f, _ in dim.terms:
        if cuts[f] == 1:
            partial = partial or room[f] > 1
            continue
        if partial:
            return None  # a minor factor cut under a major one that is not used up
        total *= cuts[f]
        partial = cuts[f] < room[f]
    return total


def _reduce_factor(rule: Rule) -> int | None:
    found = [f for f, k in enumerate(rule.kinds) if k == "R"]
    return next((f for f in found if rule.sizes[f] > 1), found[0] if found else None)


def _op_cuts(
    op: Op, out_sharding: Parts, out_split: Parts, reduce_sharding: int, reduce_split: int, result: int
) -> tuple[Rule, list[int], list[int], list[int]] | None:
    rule = op.info.decl.rule(op) if op.info.decl is not None else None
    if rule is None:
        return None
    dims = rule.outs[result]
    if len(out_sharding) != len(dims) or len(out_split) != len(dims):
        raise VerifyError(
            f"{where(op)}: cutting result {result}: found {len(out_sharding)} sharding and {len(out_split)} split parts,"
            f" required {len(dims)} each"
        )
    shard = factor_cuts(rule, dims, out_sharding, rule.sizes)
    if shard is None:
        return None
    wanted = reduce_sharding > 1 or reduce_split > 1
    k = _reduce_factor(rule)
    if wanted and (k is None or reduce_sharding > rule.sizes[k]):
        return None
    if wanted and k is not None:
        shard[k] = reduce_sharding
    room = [-(-n // s) for n, s in zip(rule.sizes, shard)]
    split = factor_cuts(rule, dims, out_split, room)
    if split is None:
        return None
    if wanted and k is not None:
        if reduce_split > room[k]:
            return None
        split[k] = reduce_split
    shard_mask, split_mask = _masks(op, rule)
    for f, kind in enumerate(rule.kinds):
        if kind == "W" and (shard[f] > 1 or split[f] > 1):
            return None
        if (shard[f] > 1 and not shard_mask >> f & 1) or (split[f] > 1 and not split_mask >> f & 1):
            return None
    return rule, shard, split, room


def tile_sharding_split(
    op: Op, out_sharding: Parts, out_split: Parts, reduce_sharding: int = 1, reduce_split: int = 1, result: int = 0
) -> list[Cut | None] | None:
    """Return (sharding, split) per operand (None: absent) for cuts of one result; None if not possible.

    `reduce_sharding` and `reduce_split` cut the first reduction factor. Raises VerifyError if a vector's
    length is not the result's rank.
    """
    override = op.info.impl.get(("Sharding", "tile_sharding_split"))
    if override is not None:
        return override(op, out_sharding, out_split)
    made = _op_cuts(op, tuple(out_sharding), tuple(out_split), reduce_sharding, reduce_split, result)
    if made is None:
        return None
    rule, shard, split, room = made
    answer: list[Cut | None] = []
    for dims in rule.ins:
        if dims is None:
            answer.append(None)
            continue
        space = [dim_parts(rule, d, shard, rule.sizes) for d in dims]
        time = [dim_parts(rule, d, split, room) for d in dims]
        if None in space or None in time:
            return None
        answer.append((tuple(space), tuple(time)))  # type: ignore[arg-type]
    return answer


def temporal_slice(
    op: Op, out_sharding: Parts, out_split: Parts, reduce_sharding: int = 1, reduce_split: int = 1, result: int = 0
) -> tuple[list[Parts | None], list[Parts]] | None:
    """Return the nominal slice shapes (operands, results) one tile holds in one step; None if not possible.

    Lengths are ceil over sharding, then over split; where a last dimension is cut and the kind aligns
    channels, both are rounded up to the block (64, or 128 for one-byte elements). Never above the extent.
    """
    override = op.info.impl.get(("Sharding", "temporal_slice"))
    if override is not None:
        return override(op, out_sharding, out_split)
    made = _op_cuts(op, tuple(out_sharding), tuple(out_split), reduce_sharding, reduce_split, result)
    if made is None:
        return None
    rule, shard, split, _ = made
    base = [1] * len(rule.sizes)
    if op.info.decl.align_cx:
        values = [*op.operands, *op.results]
        for v, dims in zip(values, (*rule.ins, *rule.outs)):
            f = dims[-1].identity if dims else None
            if f is not None:
                base[f] = max(base[f], align_base(v.type.dtype))  # type: ignore[attr-defined]
    length = []
    for n, s, t, a in zip(rule.sizes, shard, split, base):
        piece = slice_length(n, s, t, a if s * t > 1 else 1)
        length.append(piece)

    def shape(dims: tuple[Dim, ...] | None) -> Parts | None:
        return None if dims is None else tuple(_extent(d, length) for d in dims)

    return [shape(d) for d in rule.ins], [shape(d) for d in rule.outs]  # type: ignore[misc]


def slice_length(size: int, sharding: int, split: int, base: int = 1) -> int:
    """Nominal slice of a dimension: blocks of `base` over shards, then over steps, at most `size`."""
    shard = -(-(-(-size // sharding)) // base) * base
    return min(size, -(-(-(-shard // split)) // base) * base)


def _extent(dim: Dim, length: Sequence[int]) -> int:
    if dim.full:
        return dim.size
    return min(dim.size, sum(abs(c) * (length[f] - 1) for f, c in dim.terms) // dim.den + 1)


def factor_box(rule: Rule, dims: Sequence[Dim], box: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the smallest factor box [lo, hi) that covers `box` of a result; other factors are whole."""
    lo, hi = [0] * len(rule.sizes), list(rule.sizes)
    for dim, (a, b) in zip(dims, box):
        for i, (f, c) in enumerate(dim.terms):
            lo[f], last = a // c, (b - 1) // c
            hi[f] = last + 1
            if lo[f] != last:  # the piece crosses a border of this factor: minor ones are needed whole
                for g, _ in dim.terms[i + 1 :]:
                    lo[g], hi[g] = 0, rule.sizes[g]
                break
            a, b = a - lo[f] * c, b - lo[f] * c
    for f, kind in enumerate(rule.kinds):
        if kind == "W":
            lo[f], hi[f] = 0, rule.sizes[f]
    return lo, hi


def back_window(op: Op, box: Sequence[tuple[int, int]], result: int = 0) -> list[Box | None] | None:
    """Return the half-open box each operand must supply for `box` of a result (halo included, padding clipped)."""
    override = op.info.impl.get(("Sharding", "back_window"))
    if override is not None:
        return override(op, box)
    rule = op.info.decl.rule(op) if op.info.decl is not None else None
    if rule is None:
        return None
    lo, hi = factor_box(rule, rule.outs[result], box)
    return [None if dims is None else tuple(d.box(lo, hi) for d in dims) for dims in rule.ins]
