"""Scores that several things hide, each in its own way and not equally deep, with what guards the rows that see nothing."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Value
from hunt.idioms import idiom, linear
from hunt.idioms_padded import LOWS, OTHER_LOWS


def hide(d: Draft, y: Value, low: float) -> Value:
    """Hide some of the scores `y` of [b, heads, s, t] by `low`."""
    b, h, s, t = y.shape

    def step(op: str, *given: Value, **attrs) -> Value:
        return d.node(op, given, hides=True, **attrs)[0]

    def number(a: float) -> Value:
        return d.weight(np.asarray(a, np.float32), y.code)

    def either(a: np.ndarray) -> Value:
        return d.input(a) if d.chance(0.6) else d.weight(a)

    shape = d.pick([(b, 1, 1, t), (1, 1, s, t), (b, 1, s, t), (b, h, s, t), (t,), (s, 1), (b, 1, 1, 1)])
    seen = d.rng.random(shape) < d.pick([0.3, 0.6, 0.9])
    if d.chance(0.2):
        seen = np.tril(np.ones((s, t), bool), max(0, t - s))
    way = d.int(0, 7)
    if way == 0:
        return step("Where", either(seen), y, number(low))
    if way == 1:
        return step("Where", step("Not", either(seen)), number(low), y)
    if way == 2:
        mask = step("Where", either(seen), number(0), number(low))
        return step("Add", y, step("Expand", mask, d.ints(b, h, s, t)) if d.chance(0.3) else mask)
    if way == 3:
        known = np.where(seen, 0, low).astype(np.float32)
        mask = d.input(known, y.code) if d.chance(0.5) else d.weight(known, y.code)
        return step("Add", *((y, mask) if d.chance(0.5) else (mask, y)))
    if way == 4:
        return step("Sub", y, step("Where", either(seen), number(0), number(-low)))
    if way == 5:
        return step("Min", y, step("Where", either(seen), number(100), number(low)))
    if way == 6:
        hidden = step("Sub", number(1), step("Cast", either(seen), to=y.code))
        return step("Add", y, step("Mul", hidden, number(low if np.isfinite(low) else -1e4)))
    return step("Add", y, step("Log", step("Cast", either(seen), to=y.code)))


def guard(d: Draft, p: Value) -> Value:
    """Give rows of no number one, by one of the ways to see them."""
    zero = d.weight(np.asarray(d.pick([0, 0, 0, 0.5]), np.float32), p.code)
    way = d.int(0, 3)
    if way == 0:
        return d.op("Where", d.op("IsNaN", p), zero, p)
    if way == 1:
        return d.op("Where", d.op("Not", d.op("IsNaN", p)), p, zero)
    if way == 2:
        rows = d.node("ReduceSum", [p, d.ints(-1)], keepdims=1, hides=True)[0]
        return d.op("Where", d.op("IsNaN", rows), zero, p)
    d.op("Where", d.op("IsNaN", p), d.weight(np.asarray(1, np.float32), p.code), zero)
    return d.op("Where", d.op("IsNaN", p), zero, p)


@idiom
def hidden_twice(d: Draft) -> None:
    """softmax(q k) v of scores that one to three things hide, before and after one another, guarded or not."""
    b, h, s = d.pick([1, 2, 3]), d.pick([1, 2, 3]), d.pick([1, 3, 8, 33])
    t, w = d.pick([s, 2, 8, 33, 65]), d.pick([8, 16, 64])
    y = d.op("MatMul", d.input(d.draw((b, h, s, w))), d.input(d.draw((b, h, w, t))))
    if d.chance(0.5):
        y = d.op("Mul", y, d.weight(np.asarray(w**-0.5, np.float32), y.code))
    lows = LOWS.get(y.code, OTHER_LOWS)
    low = d.pick(lows)
    for _ in range(d.pick([1, 2, 2, 2, 3])):
        low = d.pick(lows) if d.chance(0.3) else low
        y = hide(d, y, low)
        if d.chance(0.2):
            y = d.node("Add", [y, d.floats(y, d.pick([(h, s, t), (1, h, 1, t), (s, t)]))], hides=True)[0]
    p = d.node("Softmax", [y], axis=-1, hides=True)[0]
    if d.chance(0.5) or not np.isfinite(p.array).all():
        p = guard(d, p)
    if d.chance(0.8):
        p = d.op("MatMul", p, d.input(d.draw((b, h, t, d.pick([w, 16])))))
    if d.chance(0.3):
        linear(d, d.op("Reshape", d.op("Transpose", p, perm=[0, 2, 1, 3]), d.ints(b, s, -1)), 64)
