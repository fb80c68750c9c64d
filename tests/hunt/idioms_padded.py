"""Attention whose items have lengths of their own, as exporters write it: masks that are made of an input which says what is there."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Value
from hunt.formats import BOOL, F16
from hunt.idioms import idiom, linear

#: what hides, and how much of it is hidden by rounding alone
LOWS = {F16: [-np.inf, -6.5e4, -1e4, -8.0]}
OTHER_LOWS = [-np.inf, -3.4e38, -1e9, -1e4, -8.0]


def there_of(d: Draft, b: int, t: int) -> Value:
    """[b, t] of ones and zeros: lengths, or anything; an item may have nothing."""
    lengths = d.rng.integers(0 if d.chance(0.2) else 1, t + 1, b)
    a = np.arange(t) < lengths[:, None] if d.chance(0.7) else d.rng.random((b, t)) < 0.6
    return d.input(a.astype(np.int64)) if d.chance(0.7) else d.input(a)


def spread(d: Draft, there: Value, b: int, s: int, t: int) -> Value:
    """The same as truth values that scores [b, heads, s, t] can take."""
    if there.array.dtype != bool:
        there = (
            d.op("Cast", there, to=BOOL) if d.chance(0.5) else d.op("Not", d.op("Equal", there, d.weight(np.int64(0))))
        )
    way = d.int(0, 3)
    if way == 0:
        there = d.op("Unsqueeze", there, d.ints(1, 2))
    elif way == 1:
        there = d.op("Reshape", there, d.ints(b, 1, 1, t))
    else:
        rows = 1 if way == 2 else s
        places = np.stack(np.meshgrid(range(b), range(t), indexing="ij"), -1)[:, None, None]
        there = d.op("GatherND", there, d.weight(np.broadcast_to(places, (b, 1, rows, t, 2)).astype(np.int64)))
    if d.chance(0.3):
        there = d.op("Expand", there, d.ints(b, 1, s, t))
    if d.chance(0.5):
        known = np.tril(np.ones((s, t), bool), max(0, t - s)) if d.chance(0.5) else np.ones((1, 1, s, 1), bool)
        there = d.op("And", *((there, d.weight(known)) if d.chance(0.5) else (d.weight(known), there)))
    return there


@idiom
def padded(d: Draft) -> None:
    """softmax(q k + mask) v of padded items, with the mask chosen or computed, one or two of them, guarded or not."""
    b, h, s = d.pick([1, 2, 3, 5]), d.pick([1, 2, 4]), d.pick([1, 8, 33, 64])
    t, w = d.pick([s, s, 8, 65, 129]), d.pick([8, 16, 64])
    q, k = d.input(d.draw((b, h, s, w))), d.input(d.draw((b, h, t, w)))
    y = d.op("MatMul", q, d.op("Transpose", k, perm=[0, 1, 3, 2]))
    if d.chance(0.7):
        y = d.op("Mul", y, d.weight(np.asarray(w**-0.5, np.float32), y.code))
    seen = spread(d, there_of(d, b, t), b, s, t)
    low = d.weight(np.asarray(d.pick(LOWS.get(y.code, OTHER_LOWS)), np.float32), y.code)
    zero = d.weight(np.asarray(0, np.float32), y.code)
    way = d.int(0, 3)
    if d.chance(0.3):
        y = d.op("Add", y, d.floats(y, d.pick([(h, s, t), (1, h, 1, t), (s, t)])))
    if way == 0:
        y = d.node("Where", [seen, y, low], hides=True)[0]
    elif way == 1:
        hidden = d.op("Sub", d.weight(np.asarray(1, np.float32), y.code), d.op("Cast", seen, to=y.code))
        y = d.node("Add", [y, d.node("Mul", [hidden, low], hides=True)[0]], hides=True)[0]
    else:
        y = d.node("Add", [y, d.node("Where", [seen, zero, low], hides=True)[0]], hides=True)[0]
    p = d.node("Softmax", [y], axis=-1, hides=True)[0]
    if d.chance(0.5) or not np.isfinite(p.array).all():
        p = d.op("Where", d.op("IsNaN", p), zero, p)
    y = d.op("MatMul", p, d.input(d.draw((b, h, t, d.pick([w, 16])))))
    if d.chance(0.5):
        y = d.op("Reshape", d.op("Transpose", y, perm=[0, 2, 1, 3]), d.ints(b, s, -1))
        linear(d, y, 64)


@idiom
def known_places(d: Draft) -> None:
    """Gathers at places that are known, in order or nearly, between other ops."""
    x = d.input(d.draw((d.pick([2, 3, 5]), d.pick([8, 33, 64]), d.pick([16, 64, 65]))))
    x = linear(d, x, d.pick([16, 65])) if d.chance(0.5) else x
    axis = d.int(0, 2)
    n = x.shape[axis]
    start, step = d.int(0, n - 1), d.pick([1, 1, 2])
    places = np.arange(start, n, step)
    if d.chance(0.2):
        d.rng.shuffle(places)
    if d.chance(0.3):
        places = places - n
    if d.chance(0.4):
        y = d.op("Gather", x, d.weight(places if d.chance(0.7) else np.int64(places[0])), axis=axis)
    else:
        grid = np.stack(np.meshgrid(range(x.shape[0]), np.arange(d.int(0, 3), x.shape[1], step), indexing="ij"), -1)
        grid = (
            np.broadcast_to(grid[:, None], (grid.shape[0], d.pick([1, 3]), *grid.shape[1:])) if d.chance(0.5) else grid
        )
        y = d.op("GatherND", x, d.weight(np.ascontiguousarray(grid.astype(np.int64))))
    d.op("Relu", y) if d.chance(0.5) else linear(d, y, 16)


@idiom
def endless(d: Draft) -> None:
    """Infinite numbers that are moved, compared and computed with, until something ends them."""
    x = d.input(d.draw(d.shape(d.int(2, 4))))
    x = linear(d, x, d.pick([16, 65])) if d.chance(0.3) else x

    def step(op: str, *given: Value, **attrs) -> Value:
        return d.node(op, given, hides=True, **attrs)[0]

    def number(a: float) -> Value:
        return d.weight(np.asarray(a, np.float32), x.code)

    end = d.pick([-np.inf, -np.inf, np.inf])
    seen = d.input(d.rng.random(d.pick([x.shape, x.shape[-1:], (*x.shape[:-1], 1)])) < 0.7)
    pair = (x, number(end)) if d.chance(0.7) else (d.floats(x, x.shape[-1:]), number(end))
    y = step("Where", seen, *(pair if d.chance(0.5) else pair[::-1]))
    for _ in range(d.int(0, 4)):
        way = d.int(0, 9)
        if way == 0:
            y = step("Transpose", y, perm=[int(i) for i in d.rng.permutation(y.rank)])
        elif way == 1:
            y = step("Reshape", y, d.ints(y.shape[0], -1)) if y.rank > 2 else step("Unsqueeze", y, d.ints(d.int(0, 2)))
        elif way == 2:
            axis = d.int(0, y.rank - 1)
            y = step("Concat", *((y, d.like(y)) if d.chance(0.5) else (d.like(y), y)), axis=axis)
        elif way == 3:
            axis = d.int(0, y.rank - 1)
            y = step("Slice", y, d.ints(d.int(0, 1)), d.ints(y.shape[axis]), d.ints(axis))
        elif way == 4:
            y = step(d.pick(["Max", "Min", "Add", "Sub"]), y, d.floats(y, d.pick([y.shape[-1:], (1,), y.shape])))
        elif way == 5:
            y = step(d.pick(["Mul", "Div"]), y, d.floats(y, d.pick([y.shape[-1:], (1,)]), "positive"))
        elif way == 6:
            y = step(d.pick(["Neg", "Abs", "Ceil"]), y)
        elif way == 7:
            room = [d.int(0, 3) for _ in range(2 * y.rank)]
            y = step("Pad", y, d.ints(*room), d.pick([number(end), number(0)]))
        elif way == 8:
            y = step(d.pick(["Relu", "LeakyRelu", "HardSigmoid"]), y)
        else:
            y = step("Add", y, d.like(y))
    way = d.int(0, 7)
    if way == 0:
        y = d.op(d.pick(["ReduceMax", "ReduceMin"]), y, d.ints(d.int(0, y.rank - 1)), keepdims=d.int(0, 1))
    elif way == 1:
        y = d.op(d.pick(["Exp", "Sigmoid", "Tanh", "Erf", "Reciprocal", "Relu", "Sign", "Softplus"]), y)
    elif way == 2:
        y = d.op("Softmax", y, axis=d.int(0, y.rank - 1))
    elif way == 3:
        y = d.op("Clip", y, number(-3), number(3))
    elif way == 4:
        y = d.op("Where", d.op("Less", d.op("Abs", y) if d.chance(0.3) else y, number(4)), y, number(0.5))
        y = d.op("Max", y, number(-4))
    elif way == 5:
        y = d.op("Where", d.op(d.pick(["IsInf", "IsNaN"]), y), number(0.25), y)
    elif way == 6:
        y = d.op(d.pick(["Max", "Min"]), y, d.like(d.input(np.zeros(y.shape, np.float32)), profile="unit"))
    else:
        y = d.op("ReduceLogSumExp", y, d.ints(d.int(0, y.rank - 1)))
    if y.rank and d.chance(0.4):
        linear(d, y, 16)
