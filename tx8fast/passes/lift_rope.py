"""Recognises rotary embedding spelt out as slices, and moves it before the split into heads.

May import: ir, passes.base, passes.canonicalize, passes.lift_match. Must not: change numbers; only the sign of the
sine table is multiplied in beforehand, which is exact.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from tx8fast.ir.attrs import DENSE_DTYPES, INLINE_LIMIT_BYTES, DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.base import PatternPass
from tx8fast.passes.lift_match import leaves, made_by, orders, reshaped, same, static, used_once
from tx8fast.records import dataclass

_FLOATS = ("bf16", "f16", "f32")


def _lanes(v: Value) -> tuple[Value, int, int, int] | None:
    """(x, start, size, step) if v takes lanes of the last dimension of x and everything of the others."""
    op = made_by(v, "slice")
    if op is None:
        return None
    x, a = op.operands[0], op.attrs
    if tuple(a["size"][:-1]) != x.shape[:-1]:
        return None
    return x, a["start"][-1], a["size"][-1], a["step"][-1]


def _partner(v: Value) -> tuple[Value, str] | None:
    """(x, style) if v holds the partner lane of every lane of x, those of even half negated."""
    op = made_by(v, "concat", "reshape")
    interleaved = op is not None and op.kind == "reshape"
    if op is not None and interleaved:
        op = made_by(op.operands[0], "concat")
    if op is None or len(op.operands) != 2 or op.attrs["axis"] % len(op.result.shape) != len(op.result.shape) - 1:
        return None
    first, second = op.operands
    if interleaved:
        if op.result.shape[:-1] != first.shape[:-1] or first.shape[-1] != 1 or v.shape[-1] != 2 * first.shape[-2]:
            return None
        parts = [made_by(p, "reshape") for p in (first, second)]
        if parts[0] is None or parts[1] is None:
            # the negation may stand outside the reshape
            outer = made_by(first, "neg")
            inner = None if outer is None else made_by(outer.operands[0], "reshape")
            if inner is None or parts[1] is None:
                return None
            negated, second = inner.operands[0], parts[1].operands[0]
        else:
            minus = made_by(parts[0].operands[0], "neg")
            if minus is None:
                return None
            negated, second = minus.operands[0], parts[1].operands[0]
    else:
        minus = made_by(first, "neg")
        if minus is None:
            return None
        negated = minus.operands[0]
    hi, lo = _lanes(negated), _lanes(second)
    if hi is None or lo is None or not same(hi[0], lo[0]):
        return None
    x, d = lo[0], lo[0].shape[-1]
    if d % 2:
        return None
    if interleaved:
        return (x, "interleaved") if hi[1:] == (1, d // 2, 2) and lo[1:] == (0, d // 2, 2) else None
    return (x, "half") if hi[1:] == (d // 2, d // 2, 1) and lo[1:] == (0, d // 2, 1) else None


def _table_places(table: tuple[int, ...], x: tuple[int, ...]) -> int | None:
    """Return how many dimensions lie between positions and lanes of x (-1: one row for all), None if it is no table."""
    wide = (1,) * (len(x) - len(table)) + table
    if len(table) > len(x) or len(x) < 2 or wide[-1] != x[-1]:
        return None
    own = [i for i, n in enumerate(wide[:-1]) if n != 1]
    if not own:
        return -1
    if len(own) > 1 or wide[own[0]] != x[own[0]]:
        return None
    return len(x) - 2 - own[0]


def _gap(x: tuple[int, ...], *tables: tuple[int, ...]) -> int | None:
    """Return how many dimensions lie between positions and lanes of x, none or one, and -1 for one row for all; None if tables do not fit."""
    gaps = {_table_places(t, x) for t in tables}
    if None in gaps or len(gaps - {-1}) > 1:
        return None
    gap: int = max(gaps)  # type: ignore[type-var, assignment]
    return gap if gap <= 1 else None


@pattern("add", benefit=2)
def _rope(op: Op, rw: Rewriter) -> bool:
    """x * cos + partner(x) * sin."""
    for a, b in orders(op):
        kept, turned = made_by(a, "mul"), made_by(b, "mul")
        if kept is None or turned is None or not static(op.result):
            continue
        for rotated, sin in orders(turned):
            found = _partner(rotated)
            if found is None:
                continue
            x, style = found
            cos = next((t for v, t in orders(kept) if same(v, x)), None)
            if cos is not None and _emit(op, rw, x, cos, sin, style):
                return True
    return False


def _multiplies(v: Value, a: Value, b: Value) -> bool:
    """True if v = a * b."""
    op = made_by(v, "mul")
    return op is not None and any(same(p, a) and same(q, b) for p, q in orders(op))


@pattern("concat", benefit=2)
def _halves(op: Op, rw: Rewriter) -> bool:
    """a * cos - b * sin beside b * cos + a * sin, of the halves a and b of all lanes; tables are half as wide."""
    if len(op.operands) != 2 or op.attrs["axis"] % len(op.result.shape) != len(op.result.shape) - 1:
        return False
    less, more = made_by(op.operands[0], "sub"), made_by(op.operands[1], "add")
    parts = [made_by(v, "mul") for v in less.operands] if less is not None else []
    if more is None or not parts or None in parts:
        return False
    for a, cos in orders(parts[0]):  # type: ignore[arg-type]
        for b, sin in orders(parts[1]):  # type: ignore[arg-type]
            lo, hi, d = _lanes(a), _lanes(b), op.result.shape[-1]
            if lo is None or hi is None or not same(lo[0], hi[0]) or not static(cos, sin):
                continue
            cuts = (lo[1:], hi[1:])
            if cuts not in (((0, d // 2, 1), (d // 2, d // 2, 1)), ((0, d // 2, 2), (1, d // 2, 2))):
                continue
            turned = any(_multiplies(p, b, cos) and _multiplies(q, a, sin) for p, q in orders(more))
            if not turned or any(t.shape[-1:] != (d // 2,) or t.dtype != a.dtype for t in (cos, sin)):
                continue
            if _gap(op.result.shape, *((*t.shape[:-1], d) for t in (cos, sin))) is None:
                continue
            # lanes that lie in pairs are put into halves first, as the result has them
            x = lo[0] if cuts[0][2] == 1 else rw.insert("concat", a, b, before=op, axis=len(a.shape) - 1).result
            wide = [rw.insert("concat", t, t, before=op, axis=len(t.shape) - 1).result for t in (cos, sin)]
            return _emit(op, rw, x, wide[0], wide[1], "half")
    return False


def _emit(op: Op, rw: Rewriter, x: Value, cos: Value, sin: Value, style: str) -> bool:
    if x.type is not op.result.type or x.dtype not in _FLOATS or not static(x, cos, sin):
        return False
    if cos.dtype != x.dtype or sin.dtype != x.dtype:
        return False
    if (gap := _gap(x.shape, cos.shape, sin.shape)) is None:
        return False
    d = x.shape[-1]
    sign = np.ones(d, np.float32)
    sign[slice(0, None, 2) if style == "interleaved" else slice(0, d // 2)] = -1.0
    signs = sign.astype(DENSE_DTYPES[x.dtype][1])
    if signs.nbytes > INLINE_LIMIT_BYTES:
        return False
    cos, sin = (reshaped(rw, t, (math.prod(t.shape) // d, d), op) for t in (cos, sin))
    minus = rw.insert("constant", before=op, value=DenseAttr(signs)).result
    sin = rw.insert("mul", sin, minus, before=op).result
    heads = x.shape[-2] if gap == 1 else 1
    flat = reshaped(rw, x, (*x.shape[:-2], heads * d), op) if gap == 1 else x
    y = rw.insert("rope", flat, cos, sin, before=op, heads=heads, style=style, rotary_dim=-1).result
    rw.replace(op, [reshaped(rw, y, op.result.shape, op)])
    return True


@pattern("concat", benefit=2)
def _partial(op: Op, rw: Rewriter) -> bool:
    """The first lanes are rotated, the others kept: tables of ones and zeros for those."""
    if len(op.operands) != 2 or op.attrs["axis"] % len(op.result.shape) != len(op.result.shape) - 1:
        return False
    turned, view = op.operands[0], made_by(op.operands[0], "reshape")
    if view is not None and used_once(turned):  # heads side by side
        turned = view.operands[0]
    rope, rest = made_by(turned, "rope"), _lanes(op.operands[1])
    if rope is None or rest is None or not used_once(turned):
        return False
    heads, lanes = rope.attrs["heads"], rope.operands[0]
    if heads != 1 and (side := made_by(lanes, "reshape")) is not None:
        lanes = side.operands[0]
    first = _lanes(lanes)
    if first is None or not same(first[0], rest[0]) or rope.attrs["rotary_dim"] not in (-1, first[2]):
        return False
    x, r = first[0], first[2]
    d = x.shape[-1]
    if first[1:] != (0, r, 1) or rest[1:] != (r, d - r, 1) or x.type is not op.result.type:
        return False
    if heads != 1 and (len(x.shape) < 3 or x.shape[-2] != heads or lanes.shape != (*x.shape[:-1], r)):
        return False
    tables = [
        rw.insert("pad", t, before=op, lo=(0, 0), hi=(0, d - r), value=value).result
        for t, value in zip(rope.operands[1:], (1.0, 0.0))
    ]
    flat = x if heads == 1 else reshaped(rw, x, (*x.shape[:-2], heads * d), op)
    y = rw.insert("rope", flat, *tables, before=op, heads=heads, style=rope.attrs["style"], rotary_dim=r).result
    rw.replace(op, [reshaped(rw, y, op.result.shape, op)])
    return True


def _before(op: Op, rw: Rewriter, x: Value, shape: tuple[int, ...], heads: int) -> Value:
    """The rotation of `op` applied to x seen as `shape`, with heads side by side in the last dimension."""
    flat = reshaped(rw, x, shape, op)
    attrs = {"heads": heads, "style": op.attrs["style"], "rotary_dim": op.attrs["rotary_dim"]}
    return rw.insert("rope", flat, *op.operands[1:], before=op, **attrs).result


@pattern("rope")
def _before_split(op: Op, rw: Rewriter) -> bool:
    """[B, S, H, D] -> [B, H, S, D] and rotation: rotate [B, S, H * D] first, so that the product gives it directly."""
    t = made_by(op.operands[0], "transpose")
    if t is None or op.attrs["heads"] != 1 or t.attrs["perm"] != (0, 2, 1, 3) or not used_once(t.result):
        return False
    x = t.operands[0]
    if not static(x) or x.shape[2] == 1 or leaves(op.result):
        return False
    b, s, h, d = x.shape
    y = reshaped(rw, _before(op, rw, x, (b, s, h * d), h), x.shape, op)
    rw.replace_with(op, "transpose", y, perm=(0, 2, 1, 3))
    return True


@pattern("rope")
def _one_position(op: Op, rw: Rewriter) -> bool:
    """With one row of tables for all, heads may as well lie side by side."""
    view = made_by(op.operands[0], "reshape")
    if view is None or op.attrs["heads"] != 1 or any(t.shape[0] != 1 for t in op.operands[1:]):
        return False
    x, d = view.operands[0], op.result.shape[-1]
    if (
        not static(x, op.result)
        or len(x.shape) < 2
        or x.shape[-1] == d
        or x.shape[-1] % d
        or not used_once(view.result)
    ):
        return False
    rw.replace(op, [reshaped(rw, _before(op, rw, x, x.shape, x.shape[-1] // d), op.result.shape, op)])
    return True


def _unseen(v: Value) -> Value:
    """Return what `v` is a view of, each of which is used once: another shape, or another place of dimensions of one."""
    while used_once(v) and (view := made_by(v, "reshape", "transpose")) is not None and static(*view.operands):
        x = view.operands[0]
        order = [d for d in view.attrs.get("perm", ()) if x.shape[d] != 1]
        if order != sorted(order):
            break
        v = x
    return v


@pattern("rope")
def _one_head(op: Op, rw: Rewriter) -> bool:
    """A view that only sets a dimension of one head comes after the rotation."""
    shape, x = op.result.shape, _unseen(op.operands[0])
    if op.attrs["heads"] != 1 or not 3 <= len(x.shape) < len(shape) or not static(x) or x.shape[-2:] != shape[-2:]:
        return False
    rw.replace(op, [reshaped(rw, _before(op, rw, x, x.shape, 1), shape, op)])
    return True


@pattern("rope")
def _before_repeat(op: Op, rw: Rewriter) -> bool:
    """Heads that several others share are rotated once: [B, S, G, 1, D], repeated to [B, S, G, R, D], as [B, S, G * R * D]."""
    repeat = made_by(_unseen(op.operands[0]), "broadcast")
    if repeat is None or not used_once(repeat.result) or not static(repeat.operands[0], repeat.result, op.result):
        return False
    x, wide, shape = repeat.operands[0], repeat.result.shape, op.result.shape
    if len(wide) != 5 or len(shape) != 3:
        return False
    b, s, g, r, d = wide
    if x.shape != (b, s, g, 1, d) or shape != (b, s, g * r * d) or op.attrs["heads"] != g * r:
        return False
    y = reshaped(rw, _before(op, rw, x, (b, s, g * d), g), x.shape, op)
    rw.replace(op, [reshaped(rw, rw.insert("broadcast", y, before=op, shape=wide).result, shape, op)])
    return True


#: the second round sees operands without the users that the first one made dead
ROUNDS: tuple[tuple[Pattern, ...], ...] = (
    (_rope, _halves, _partial),
    (_before_split, _one_position, _one_head, _before_repeat),
)


@dataclass(frozen=True)
class LiftRope(PatternPass):
    """Makes `rope` of its primitives, on tensors whose heads lie side by side where possible."""

    name: ClassVar[str] = "lift-rope"
    rounds: ClassVar[tuple[tuple[Pattern, ...], ...]] = ROUNDS
