"""Boxes of a fused op's members against a count of points: which elements a tile of the results really depends on."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.support.rule_groups import Group
from tx8fast.graph_table import GroupRecord
from tx8fast.ir import factors
from tx8fast.tile.compose import Composition, dim_range

Shape = tuple[int, ...]


def depends(record: GroupRecord, wanted: dict[int, set[Shape]]) -> dict[tuple[str, int], set[Shape]]:
    """Return the elements of every value on which the wanted elements of results depend, point by point of every rule."""
    need: dict[tuple[str, int], set[Shape]] = {("op", i): set(points) for i, points in wanted.items()}
    for i in reversed(range(len(record.ops))):
        rule = record.ops[i].rule
        assert rule is not None
        mine = need.get(("op", i), set())
        whole = [f for f, k in enumerate(rule.kinds) if k == "W"]
        for point in itertools.product(*map(range, rule.sizes)):
            made = coordinates(rule.outs[0], point)
            # a whole factor makes a result depend on all points along it
            hit = made in mine if not whole else any(
                coordinates(rule.outs[0], _with(point, whole, other)) in mine
                for other in itertools.product(*(range(rule.sizes[f]) for f in whole)))  # fmt: skip
            if not hit:
                continue
            for wire, dims in zip(record.wires[i], rule.ins, strict=False):
                if wire is None or dims is None:
                    continue
                at = coordinates(dims, point)
                if all(0 <= x < d.size for x, d in zip(at, dims, strict=True)):
                    need.setdefault(wire, set()).add(at)
    return need


def _with(point: Shape, which: list[int], values: Shape) -> Shape:
    out = list(point)
    for f, x in zip(which, values, strict=True):
        out[f] = x
    return tuple(out)


def coordinates(dims, point: Shape) -> Shape:
    return tuple((d.c0 + sum(c * point[f] for f, c in d.terms)) // d.den for d in dims)


def hull(points: set[Shape], shape: Shape, sizes: Shape) -> list[tuple[int, int]]:
    """Return the hull of points of a tensor of `shape`, seen with the dimensions `sizes` into which its own were merged."""
    flat = np.ravel_multi_index(np.array(sorted(points)).T, shape)
    where = np.unravel_index(flat, sizes)
    return [(int(x.min()), int(x.max()) + 1) for x in where]


def check(record: GroupRecord, rng: random.Random, tiles: int = 6, exact: bool = True) -> None:
    """Every operand's box holds what a tile depends on; exact: and no more than the hull of it."""
    comp = Composition(record)
    for _ in range(tiles):
        lo, hi = [], []
        for c, n in enumerate(comp.sizes):
            a = rng.randrange(n) if c in comp.result_classes else 0
            lo.append(a)
            hi.append(rng.randrange(a + 1, n + 1) if c in comp.result_classes else n)
        boxes = comp.boxes(lo, hi)
        wanted = {}
        for i in comp.outputs:
            out = [dim_range(d, boxes[i]) for d in comp.rules[i].outs[0]]
            mask = np.zeros([d.size for d in comp.rules[i].outs[0]], bool)
            mask[tuple(slice(int(a), int(b)) for a, b in out)] = True
            wanted[i] = {tuple(map(int, p)) for p in np.argwhere(mask.reshape(record.ops[i].results[0].shape))}
        need = depends(record, wanted)
        for i, rule in enumerate(comp.rules):
            for wire, dims in zip(comp.wires[i], rule.ins, strict=False):
                if wire is None or wire[0] != "in" or dims is None or wire not in need:
                    continue
                spec = record.operands[wire[1]]
                assert spec is not None
                sizes = tuple(d.size for d in dims)
                got = [(int(a), int(b)) for a, b in (dim_range(d, boxes[i]) for d in dims)]
                want = hull(need[wire], spec.shape, sizes)
                readers = sum(wire in own for own in record.wires)
                if exact and readers == 1 and len(comp.outputs) == 1:
                    assert got == want, (record.kind, wire, got, want, lo, hi)
                elif readers == 1:
                    assert all(a <= x and y <= b for (a, b), (x, y) in zip(got, want, strict=True))


def attention(heads: int = 2, rows: int = 5, keys: int = 6, depth: int = 4) -> GroupRecord:
    g = Group()
    q, k, v = g.operand(heads, rows, depth), g.operand(heads, keys, depth), g.operand(heads, keys, depth)
    attrs = {"trans_a": False, "trans_b": True}
    s = (heads, rows, keys)
    scores = g.op("gemm", factors.gemm((g.shape(q), g.shape(k)), (s,), attrs), s, q, k)
    out = (heads, rows, depth)
    p = g.softmax(scores)
    mix = factors.gemm((s, g.shape(v)), (out,), {"trans_a": False, "trans_b": False})
    return g.record(g.op("gemm", mix, out, p, v))


def feed_forward() -> GroupRecord:
    g = Group()
    x = g.operand(2, 3, 4)
    up = g.unary(g.gemm(x, 6))
    return g.record(g.add(g.gemm(up, 4), x))


def convolutions() -> GroupRecord:
    g = Group()
    x = g.operand(2, 6, 5, 3)
    return g.record(g.pool(g.unary(g.conv(g.conv(x, 4), 2))))


def residual() -> GroupRecord:
    """One value read through a window and as it is: its producer computes the hull of both."""
    g = Group()
    a = g.unary(g.operand(1, 6, 6, 2))
    return g.record(g.add(g.conv(a, 2), a))


def turned() -> GroupRecord:
    """A product of a value with itself, and a transpose: one class cannot stand for both of its sides."""
    g = Group()
    a = g.unary(g.operand(4, 6))
    s = (4, 4)
    rule = factors.gemm(((4, 6), (4, 6)), (s,), {"trans_a": False, "trans_b": True})
    return g.record(g.unary(g.transpose(g.op("gemm", rule, s, a, a), 1, 0)))


def heads_apart() -> GroupRecord:
    """A projection whose columns are taken apart into heads, then only halves of them merged again."""
    g = Group()
    p = g.gemm(g.operand(3, 4), 12)
    return g.record(g.unary(g.reshape(g.unary(g.reshape(p, 3, 4, 3)), 3, 2, 6)))


@pytest.mark.parametrize("make", [attention, feed_forward, convolutions, residual, turned, heads_apart])
def test_boxes_hold_what_a_tile_depends_on(make) -> None:
    check(make(), random.Random(7), exact=make not in (residual, turned))


@pytest.mark.parametrize("seed", range(24))
def test_random_groups(seed: int) -> None:
    """Any sequence of ops composes, whatever reads what."""
    rng = random.Random(seed)
    g = Group()
    images = rng.random() < 0.5
    values = [g.operand(*((rng.randint(1, 2), rng.randint(2, 5), rng.randint(2, 4), rng.randint(1, 3)) if images else
                          (rng.randint(1, 2), rng.randint(2, 4), rng.randint(2, 6))))]  # fmt: skip
    for _ in range(rng.randint(2, 4)):
        x = values[-1]
        makers = [g.unary, g.softmax]
        if len(g.shape(x)) == 4:
            makers += [lambda x: g.conv(x, rng.randint(1, 3)), g.pool]
        else:
            makers += [lambda x: g.gemm(x, rng.randint(1, 5), rng.random() < 0.5), lambda x: g.transpose(x, 1, 0, 2),
                       lambda x: g.reshape(x, g.shape(x)[0] * g.shape(x)[1], g.shape(x)[2])]  # fmt: skip
            makers = makers if len(g.shape(x)) == 3 else makers[:3]
        y = rng.choice(makers)(x)
        alike = [v for v in values if g.shape(v) == g.shape(y) and v != y]
        values.append(g.add(y, rng.choice(alike)) if alike and rng.random() < 0.5 else y)
    check(g.record(values[-1]), rng, tiles=3, exact=False)


def test_equal_dimensions_are_one_class() -> None:
    """Rows of a feed-forward are one class through all members, batch and sequence merged; the hidden columns are made by one
    member and summed by another."""
    assert sorted((c.size, c.kinds, c.members) for c in Composition(feed_forward()).classes) == [
        (4, "P", (2, 3)), (4, "R", (0,)), (6, "P", (0, 1, 2, 3)), (6, "PR", (0, 1, 2)),
    ]  # fmt: skip


def test_many_tiles_at_once() -> None:
    """Arrays of ranges give the boxes of every tile."""
    comp = Composition(convolutions())
    rng = np.random.default_rng(0)
    lo = [rng.integers(0, n, 10) if c in comp.result_classes else np.zeros(10, int) for c, n in enumerate(comp.sizes)]
    hi = [a + 1 + rng.integers(0, np.maximum(n - a, 1)) if c in comp.result_classes else np.full(10, n)
          for c, (n, a) in enumerate(zip(comp.sizes, lo, strict=True))]  # fmt: skip
    together = comp.boxes(lo, hi)
    for t in range(10):
        alone = comp.boxes([int(a[t]) for a in lo], [int(b[t]) for b in hi])
        for i, own in enumerate(alone):
            for f, (a, b) in enumerate(own):
                assert (np.broadcast_to(together[i][f][0], 10)[t], np.broadcast_to(together[i][f][1], 10)[t]) == (a, b)
