"""Recognises parts of values: gathers whose places are known and lie in order, and products whose columns go separate ways by heads.

May import: ir, passes.base, passes.canonical_form (weights), passes.lift_match. Must not: read an index that the model computes, or drop
an error of a place that is not there. Runs before what heads are for is recognised.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tx8fast.ir.core import Op, Value
from tx8fast.ir.program import IRProgram
from tx8fast.ir.rewrite import Pattern, Rewriter, rewrite_greedily
from tx8fast.passes.base import CompilerPass, PassResult
from tx8fast.passes.canonical_form import PART_PREFIX, Weights
from tx8fast.passes.lift_match import Constants, made_by, orders, reshaped, sole_user, static
from tx8fast.records import dataclass


def _known_places(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """A gather of all combinations of some places of each axis, in order, repeated along others of its dimensions or not."""
        x, indices = op.operands
        known = constants.array(indices) if static(x, indices) else None
        if known is None or not known.size or op.attrs.get("batch_dims"):
            return False
        first = op.attrs["axis"] % len(x.shape) if op.kind == "gather" else 0
        places = known.astype(np.int64)[..., None] if op.kind == "gather" else known.astype(np.int64)
        sizes = np.array(x.shape[first : first + places.shape[-1]])
        places = np.where(places < 0, places + sizes, places)
        if (places < 0).any() or (places >= sizes).any():
            return False
        for axis in range(places.ndim - 1):
            once = places.take([0], axis)
            places = once if (places == once).all() else places
        columns = [np.unique(column) for column in places.reshape(-1, len(sizes)).T]
        steps = [int(c[1] - c[0]) if len(c) > 1 else 1 for c in columns]
        if any((np.diff(c) != step).any() for c, step in zip(columns, steps, strict=True)):
            return False
        grid = np.stack(np.meshgrid(*columns, indexing="ij"), -1)
        if grid.size != places.size or (grid.reshape(-1) != places.reshape(-1)).any():
            return False
        start, size, step = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        for d, (c, n) in enumerate(zip(columns, steps, strict=True), first):
            start[d], size[d], step[d] = int(c[0]), len(c), n
        part = rw.insert("slice", x, before=op, start=start, size=size, step=step).result
        shape = (*x.shape[:first], *places.shape[:-1], *x.shape[first + len(sizes) :])
        part = reshaped(rw, part, shape, op)
        if shape != op.result.shape:
            part = rw.insert("broadcast", part, before=op, shape=op.result.shape).result
        rw.replace(op, [part])
        return True

    return Pattern("known-places", ("tx8be.gather", "tx8be.gather_nd"), apply)


def _all_written(constants: Constants) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """Ranges of rows that are written one after another over all that was there are put together."""
        parts: list[tuple[int, int, Value]] = []
        last: Op | None = op
        while last is not None:
            rows, places, new = last.operands
            known = constants.array(places) if static(rows, places, new) else None
            plain = last.attrs["combine"] == "set" and places.shape[-1:] == (1,) and len(places.shape) == 2
            if known is None or not known.size or not plain or new.shape != (places.shape[0], *rows.shape[1:]):
                return False
            start = int(known[0, 0]) + (rows.shape[0] if known[0, 0] < 0 else 0)
            if not (np.diff(known[:, 0]) == 1).all() or start + len(known) > rows.shape[0]:
                return False
            parts.append((start, start + len(known), new))
            last = made_by(rows, "scatter_nd") if sole_user(rows) is last else None
        ends = 0
        for start, end, _ in sorted(parts, key=lambda p: p[:2]):
            if start != ends:
                return False
            ends = end
        if ends != op.result.shape[0] or len(parts) < 2:
            return False
        rw.replace_with(op, "concat", *(v for *_, v in sorted(parts, key=lambda p: p[:2])), axis=0)
        return True

    return Pattern("all-written", ("tx8be.scatter_nd",), apply)


def _heads_apart(weights: Weights) -> Pattern:
    def apply(op: Op, rw: Rewriter) -> bool:
        """Of a product whose columns are seen as heads of several parts, queries, keys and values in turn, one product for each part."""
        product, bias = _product(op.operands[0])
        if product is None or not static(op.result, *product.operands):
            return False
        x, w = product.operands[:2]
        lead, inner = x.shape[:-1], op.result.shape[len(x.shape) - 1 :]
        if product.attrs["trans_a"] or len(w.shape) != 2 or op.result.shape[: len(lead)] != lead:
            return False
        if len(inner) < 2 or 1 in inner:  # columns of one head are ranges of columns, which later passes know
            return False
        plain = list(range(len(op.result.shape)))
        users: list[tuple[Op, list[int]]] = []  # with the order of dimensions that they see
        for user in op.result.users:
            turned = [(u, list(user.attrs["perm"])) for u in user.result.users] if user.kind == "transpose" else []
            users += turned or [(user, plain)]
        cuts = [_cut(user, perm, len(lead)) for user, perm in users]
        if len(users) < 2 or None in cuts or len({cut[0] for cut in cuts if cut}) != 1 or not _disjoint(cuts):
            return False
        alone = [weights.only_used(w, lambda user, i: user is product)]
        alone += [weights.only_used(bias, lambda user, i: True)] if bias is not None else []
        if None in alone:
            return False
        for (user, perm), cut in zip(users, cuts, strict=True):
            assert cut is not None
            across = 0 if product.attrs["trans_b"] else 1
            part = rw.insert(
                "gemm",
                x,
                _rows(weights, rw, w, inner, cut, across),
                before=product if bias is None else op,
                trans_b=product.attrs["trans_b"],
            ).result
            if bias is not None:
                part = rw.insert("add", part, _rows(weights, rw, bias, inner, cut, 0), before=op).result
            axis, _, size = cut
            own = [size if i == axis else n for i, n in enumerate(inner)]
            part = reshaped(rw, part, (*lead, *own), op)
            if perm != plain:
                part = rw.insert("transpose", part, before=op, perm=perm).result
            rw.replace(user, [part])
        return True

    return Pattern("heads-apart", ("tx8be.reshape",), apply)


def _parts_first(op: Op, rw: Rewriter) -> bool:
    """Ranges of columns of f(a product) are f of ranges of columns, for an f that works on each number alone and views that keep columns."""
    users = list(op.result.users)
    if len(users) < 2 or len(op.operands) != 1 or not static(op.result, op.operands[0]):
        return False
    x, lead = op.operands[0], len(op.result.shape) - 1
    if x.shape[-1:] != op.result.shape[-1:] or sole_user(x) is not op or not _of_product(x):
        return False
    if op.kind == "reshape" and len(x.shape) < 3:
        return False  # rows of a batch: the view itself moves up
    cuts = [_cut(user, list(range(lead + 1)), lead) for user in users]
    if None in cuts or not _disjoint(cuts):
        return False
    attrs = {n: op.attrs[n] for n in op.info.attrs if n in op.attrs}
    for user, cut in zip(users, cuts, strict=True):
        assert cut is not None
        start, size = [0] * (len(x.shape) - 1) + [cut[1]], [*x.shape[:-1], cut[2]]
        part = rw.insert("slice", x, before=op, start=start, size=size, step=[1] * len(size)).result
        own = {**attrs, "shape": (*op.result.shape[:-1], cut[2])} if "shape" in attrs else attrs
        rw.replace(user, [rw.insert(op.kind, part, before=op, **own).result])
    return True


def _of_product(v: Value) -> bool:
    while (op := made_by(v, "reshape", "clamp")) is not None:
        v = op.operands[0]
    return _product(v)[0] is not None


def _product(v: Value) -> tuple[Op | None, Value | None]:
    """Return the product that `v` is, and the vector that is added to it; both used by nobody else."""
    op, bias = v.op, None
    if op is not None and op.kind == "add" and sole_user(v) is not None:
        for made, vector in orders(op):
            if made_by(made, "gemm") is not None and made_by(vector, "get_param") is not None and made.type is v.type:
                op, v, bias = made.op, made, vector
                break
    plain = op is not None and op.kind == "gemm" and len(op.operands) == 2 and op.attrs["act"] == "none"
    fits = bias is None or (static(bias, v) and bias.shape == v.shape[-1:])
    return (op if plain and fits and sole_user(v) is not None else None), bias


def _cut(op: Op, perm: list[int], lead: int) -> tuple[int, int, int] | None:
    """Return (axis among those of a product's columns, start, size) of what a slice takes of one of them and all of the others."""
    if op.kind != "slice" or any(s != 1 for s in op.attrs["step"]) or not static(op.operands[0]):
        return None
    whole, start, size = op.operands[0].shape, op.attrs["start"], op.attrs["size"]
    taken = [d for d, n in enumerate(whole) if size[d] != n]
    if len(taken) != 1 or perm[taken[0]] < lead:
        return None
    if any(user.kind == "concat" and user.attrs["axis"] % len(whole) == taken[0] for user in op.result.users):
        return None  # lanes that are turned and lanes that are not meet again
    if (
        size[taken[0]] * 2 == whole[-1]
        and taken[0] == len(whole) - 1
        and [u.kind for u in op.result.users] == ["mul"] * 2
    ):
        return None  # halves that turn each other
    return perm[taken[0]] - lead, start[taken[0]], size[taken[0]]


def _disjoint(cuts: list[tuple[int, int, int] | None]) -> bool:
    ranges = sorted((cut[1], cut[1] + cut[2]) for cut in cuts if cut is not None)
    return all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:], strict=False))


def _rows(
    weights: Weights, rw: Rewriter, v: Value, inner: tuple[int, ...], cut: tuple[int, int, int], across: int
) -> Value:
    """Read the columns of a part: of a weight seen as `inner` along dimension `across`."""
    axis, start, size = cut
    before, behind = v.shape[:across], v.shape[across + 1 :]
    own = [size if i == axis else n for i, n in enumerate(inner)]
    begin = [0] * across + [start if i == axis else 0 for i in range(len(inner))] + [0] * len(behind)
    shape = (*before, math.prod(own), *behind)
    steps = [
        ["reshape", [*before, *inner, *behind]],
        ["slice", begin, [*before, *own, *behind]],
        ["reshape", list(shape)],
    ]
    sizes = "x".join(map(str, inner))
    key = f"{PART_PREFIX}{sizes}/{axis}/{start}:{start + size}/{v.op.attrs['key']}"  # type: ignore[union-attr]
    return weights.derived(rw, v, key, "view", {"steps": steps}, shape)


@dataclass(frozen=True)
class LiftViews(CompilerPass):
    """Makes slices of gathers at known places up to `limit_bytes` (two of every pair of 2048 tokens), and products of parts of one."""

    name: ClassVar[str] = "lift-views"
    limit_bytes: int = 1 << 26

    def run(self, program: IRProgram) -> PassResult:
        parts = Pattern("parts-first", ("tx8be.reshape", "tx8be.clamp"), _parts_first)
        # parts are seen behind views, so all of them come first
        constants = Constants(program, self.limit_bytes)
        rounds = ((_known_places(constants), _all_written(constants)), (_heads_apart(Weights(program)), parts))
        results = [rewrite_greedily(program.ctx, program.module, patterns) for patterns in rounds]
        applied = {name: n for result in results for name, n in result.applied.items()}
        return PassResult(any(r.changed for r in results), {**applied, "dead": sum(r.dead for r in results)})
