"""Rewrites choices among many elements of few rows: parts of a row choose first, then what they chose.

May import: ir, passes.{lift_match, make}. Must not: choose otherwise where elements are equal, or undefined.

A kernel core looks at a row's elements one after the other, and a row is on one tile. Of equal elements the first one counts; parts stand in
the order of their elements, so what they chose has the order that all elements have.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.ir.attrs import DenseAttr
from tx8fast.ir.core import Op, Value
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.lift_match import static
from tx8fast.passes.make import Make

TILES = 16  # of a chip: more parts than that take no less time
#: elements of a row that are worth it: a core looks at one in two cycles, and the launches of the second choice take some ten thousand
LEAST = 1 << 14
#: the same where k are sorted out, which takes some fourteen cycles an element
LEAST_SORTED = 1 << 11
FEWER = 4  # times as many elements as parts choose together
FLOATS = ("bf16", "f16", "f32")


def _cut(make: Make, x: Value, behind: float) -> tuple[Value, int, int] | None:
    """Return x [.., n] as [rows, parts, length] with the two, None where parts would not be equal. behind: what stands behind the last
    element."""
    rows, n = math.prod(x.shape[:-1]), x.shape[-1]
    parts = TILES // rows if rows else 0
    if parts < 2 or n % parts and x.dtype not in FLOATS:
        return None
    length = -(-n // parts)
    x = make.reshape(x, rows, n)
    if length * parts > n:
        rest = make("broadcast", make.scalar(behind, x.dtype), shape=(rows, length * parts - n))
        x = make("concat", x, rest, axis=1)
    return make.reshape(x, rows, parts, length), parts, length


def _on_last(op: Op, least: int) -> bool:
    x = op.operands[0]
    if not static(x) or not x.shape or op.attrs["axis"] % len(x.shape) != len(x.shape) - 1:
        return False
    return x.shape[-1] >= least


def _from(make: Make, places: Value, parts: int, length: int) -> Value:
    """Return places within parts [rows, parts, n] as places in the row."""
    begins = DenseAttr((np.arange(parts, dtype=np.int64) * length).reshape(1, parts, 1))
    return make("add", places, make("constant", value=begins))


@pattern("arg_reduce")
def _extreme_of_extremes(op: Op, rw: Rewriter) -> bool:
    fn, last = op.attrs["op"], op.attrs["select_last"]
    if not _on_last(op, LEAST) or last and op.operands[0].shape[-1] % TILES:  # what is filled up would be the last one
        return False
    make = Make(rw, op)
    cut = _cut(make, op.operands[0], -math.inf if fn == "max" else math.inf)
    if cut is None:
        return False
    x, parts, length = cut
    rows = x.shape[0]
    choose = {"op": fn, "axis": 2, "keepdims": True, "select_last": last}
    own = make("arg_reduce", x, **choose)
    best = make.reshape(make("gather_elements", x, own, axis=2), rows, 1, parts)
    part = make("arg_reduce", best, **choose)
    places = make.reshape(_from(make, own, parts, length), rows, 1, parts)
    rw.replace(op, [make.reshape(make("gather_elements", places, part, axis=2), *op.result.shape)])
    return True


@pattern("topk")
def _first_of_first(op: Op, rw: Rewriter) -> bool:
    k, largest = op.attrs["k"], op.attrs["largest"]
    x = op.operands[0]
    if not _on_last(op, LEAST_SORTED) or not k or FEWER * TILES * k >= x.shape[-1]:
        return False
    make = Make(rw, op)
    # an undefined number is above all others
    cut = _cut(make, x, -math.inf if largest else math.nan)
    if cut is None:
        return False
    x, parts, length = cut
    rows, choose = x.shape[0], {"k": k, "axis": 2, "largest": largest}
    best, own = rw.insert("topk", x, before=op, **choose).results
    values, chosen = rw.insert("topk", make.reshape(best, rows, 1, parts * k), before=op, **choose).results
    places = make.reshape(_from(make, own, parts, length), rows, 1, parts * k)
    found = make("gather_elements", places, chosen, axis=2)
    rw.replace(op, [make.reshape(v, *r.shape) for v, r in zip((values, found), op.results, strict=True)])
    return True


PATTERNS: tuple[Pattern, ...] = (_extreme_of_extremes, _first_of_first)
