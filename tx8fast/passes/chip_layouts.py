"""How a value lies over the chips that share a model, and what an op makes of values that lie so: by its factor rule.

May import: graph_table, ir. Must not: choose.

A value is whole on every chip, cut (each chip has a part of one dimension), or a sum (what the chips have adds up to it). An op is cut by
digits, (factor, parts) each, the most significant one first: of n chips, chip c has number c * parts // n of all parts, written in these
digits. What an operand or result then is follows from its dimensions: those that have the leading digits are cut into as many parts, which
several chips share if there are more digits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tx8fast.errors import VerifyError
from tx8fast.graph_table import Dim, Rule
from tx8fast.ir.core import Context, Op, Value
from tx8fast.ir.ops.base import CT_FLOATS
from tx8fast.ir.types import TensorType

Digits = tuple[tuple[int, int], ...]


class Layout(NamedTuple):
    """kind: "whole", "cut", "sum", or "free": an argument nobody has asked for yet. A cut dimension consists of blocks, and of each one a
    chip has one of `parts` parts."""

    kind: str
    parts: int = 1
    dim: int = 0
    block: int = 0

    def local(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of what one chip has."""
        if self.kind != "cut":
            return shape
        return tuple(n // self.parts if i == self.dim else n for i, n in enumerate(shape))


WHOLE, FREE = Layout("whole"), Layout("free")


class Way(NamedTuple):
    """An op that is cut. late: its bias is added behind the sum over the chips."""

    needs: tuple[Layout, ...]
    outs: tuple[Layout, ...]
    attrs: dict[str, Any]
    late: bool


def rule_of(op: Op) -> Rule | None:
    return op.info.decl.rule(op) if op.info.decl is not None and not op.regions else None


def multiplies(op: Op) -> bool:
    """Say whether the op is a product of matrices, or of windows."""
    rule = rule_of(op)
    return rule is not None and any(engine == "ne" for engine, *_ in rule.work)


def digits_of(rule: Rule, dims: tuple[Dim, ...] | None, layout: Layout) -> Digits | None:
    """Return the digits by which an op is cut if an operand or result lies so; None if its rule does not allow that."""
    if dims is None or layout.kind != "cut" or not _nests(rule, dims[layout.dim]):
        return None
    left, found = layout.parts, []
    terms = [(f, c) for f, c in dims[layout.dim].terms if rule.sizes[f] > 1]
    first = next((i for i, (f, c) in enumerate(terms) if c * rule.sizes[f] == layout.block), len(terms))
    for f, _ in terms[first:]:
        size = rule.sizes[f]
        take = left if size % left == 0 else size
        if left % take:
            return None
        found.append((f, take))
        left //= take
        if left == 1:
            return tuple(found)
    return None


def way(ctx: Context, op: Op, digits: Digits) -> Way | None:
    """Return what an op that is cut by `digits` needs and gives; None if parts of its operands do not give parts of its results, or
    summands of them."""
    rule = rule_of(op)
    kinds = {rule.kinds[f] for f, _ in digits} if rule is not None else set()
    given = [isinstance(v.type, TensorType) for v in op.operands]
    if rule is None or kinds not in ({"P"}, {"R"}) or not given or not all(given):
        return None
    summed = kinds == {"R"}
    parts = math.prod(p for _, p in digits)
    if summed and not _adds_up(op):
        return None
    needs, late = [], False
    for i, dims in enumerate(rule.ins):
        lies = _layout(rule, dims or (), digits)
        if lies is None or (summed and lies.parts not in (1, parts)):
            return None
        if summed and lies is WHOLE:
            if op.info.ins[min(i, len(op.info.ins) - 1)] != "bias?":
                return None
            late = True
        needs.append(lies)
    outs = []
    for dims in rule.outs:
        lies = _layout(rule, dims, digits)
        if lies is None or lies.parts != (1 if summed else parts):
            return None
        outs.append(Layout("sum", parts) if summed else lies)
    place = op.info.decl.places
    if place is not None and any(lies.dim in place(op) for lies in outs):
        return None
    made = Way(tuple(needs), tuple(outs), _attrs(op, rule, digits, outs[0]), late)
    return made if _fits(ctx, op, made) else None


def _nests(rule: Rule, dim: Dim) -> bool:
    """Say whether the dimension is its factors one inside the other, without gaps or shifts."""
    size = 1
    for f, c in reversed(dim.terms):
        if c != size:
            return False
        size *= rule.sizes[f]
    return not (dim.full or dim.c0 or dim.reach) and dim.den == 1 and size == dim.size


def _layout(rule: Rule, dims: tuple[Dim, ...], digits: Digits) -> Layout | None:
    """Return how a tensor lies if the op is cut by `digits`, None if in no way that we have words for."""
    at = {f: (d, c) for d, dim in enumerate(dims) for f, c in dim.terms if any(f == g for g, _ in digits)}
    there = [(f, p) for f, p in digits if f in at]
    if not there:
        return WHOLE
    dim, coefficient = at[there[0][0]]
    if there != list(digits[: len(there)]) or not _nests(rule, dims[dim]):
        return None
    block = coefficient * rule.sizes[there[0][0]]
    for (f, p), (g, _) in zip(there, there[1:]):
        inner, c = at[g]
        if inner != dim or p != rule.sizes[f] or c * rule.sizes[g] != at[f][1]:
            return None
    return Layout("cut", math.prod(p for _, p in there), dim, block)


def _adds_up(op: Op) -> bool:
    """Say whether what chips find of parts of a reduction adds up to it."""
    if op.attrs.get("act", "none") != "none" or any(r.dtype not in CT_FLOATS for r in op.results):
        return False
    return multiplies(op) or (op.kind == "reduce" and op.attrs["op"] in ("add", "l1", "sumsq"))


def _attrs(op: Op, rule: Rule, digits: Digits, first: Layout) -> dict[str, Any]:
    """Return the attributes of a chip's part: those that repeat sizes say the chip's."""
    attrs = dict(op.attrs)
    names = [n.rpartition(".")[2] for n in rule.names]  # of an equation: behind the role
    sizes = dict(zip(names, rule.sizes)) | {names[f]: rule.sizes[f] // p for f, p in digits}
    for name in ("shape", "size"):
        if name in attrs:
            attrs[name] = first.local(op.results[0].shape)
    if "equation" in attrs and "sizes" in attrs:
        attrs["sizes"] = tuple(x for n, size in zip(*[iter(attrs["sizes"])] * 2) for x in (n, sizes.get(n, size)))
    for name, factor in (("heads", "h"), ("groups", "g")):
        if name in attrs and factor in sizes:
            attrs[name] = sizes[factor]
    if attrs.get("useful_macs", -1) > 0:
        attrs["useful_macs"] //= math.prod(p for _, p in digits)
    return attrs


def _fits(ctx: Context, op: Op, made: Way) -> bool:
    """Say whether the op takes operands of a chip's sizes and gives results of a chip's sizes."""
    types = [ctx.tensor(lies.local(v.shape), v.dtype) for v, lies in zip(op.operands, made.needs)]
    given: Any = [Value(t, None, i) for i, t in enumerate(types)]  # type: ignore[arg-type]
    try:
        part = ctx.create(op.kind, given, loc=op.loc, **made.attrs)
    except VerifyError:
        return False
    return [r.shape for r in part.results] == [lies.local(r.shape) for r, lies in zip(op.results, made.outs)]
