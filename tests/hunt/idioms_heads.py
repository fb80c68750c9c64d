"""Products whose columns are heads of a result, told apart right behind them, and what comes after that."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Value
from hunt.idioms import UNARY, idiom, linear

ROWS = (1, 4, 16, 17, 33, 64, 65, 128)
WIDTHS = (4, 16, 48, 63, 64, 96, 128, 130)
HEADS = (1, 2, 2, 3, 4, 5, 8)
DEPTHS = (3, 4, 5, 8, 12, 16, 20, 24, 32, 48, 64, 72, 96, 128)


def to_heads(d: Draft, y: Value, heads: int) -> Value:
    """[b, s, heads depth] as [b, heads, s, depth], or in one of the other orders that graphs have."""
    b, s, n = y.shape
    y = d.op("Reshape", y, d.ints(b, s, heads, n // heads))
    way = d.int(0, 5)
    if way < 4:
        return d.op("Transpose", y, perm=[0, 2, 1, 3])
    return d.op("Transpose", y, perm=[2, 0, 1, 3]) if way == 4 else y


def behind(d: Draft, y: Value) -> Value:
    """What stands behind heads: a factor, a function, a value per head or channel, the other half of a rotation, sums of squares."""
    way = d.int(0, 7)
    if way == 0:
        return d.op("Mul", y, d.weight(np.asarray(y.shape[-1] ** -0.5, np.float32), y.code))
    if way < 3:
        return d.op(d.pick(UNARY), y)
    if way == 3:
        return d.op(d.pick(["Add", "Mul", "Sub"]), y, d.floats(y, (y.shape[1], 1, y.shape[-1])))
    if way == 4:
        return d.op("Add", y, d.floats(y, y.shape[-1:]))
    if way == 5:
        return d.op("Add", y, d.input(d.draw(y.shape)))
    if way == 6:
        return d.op("LayerNormalization", y, d.floats(y, y.shape[-1:], "positive"), axis=-1)
    return d.op("Mul", d.op("Sigmoid", y), y)


@idiom
def heads_behind_products(d: Draft) -> None:
    """[product, something between,] product, heads, and one or two things behind them."""
    heads = d.pick(HEADS)
    depth = d.pick(DEPTHS)
    b, s = d.pick([1, 1, 2, 3]), d.pick(ROWS)
    y = d.input(d.draw((b, s, d.pick(WIDTHS))))
    for _ in range(d.pick([0, 1, 1, 1, 2])):
        y = linear(d, y, d.pick(WIDTHS))
        if d.chance(0.5):
            y = d.op("Add", *([y, d.input(d.draw(y.shape))] if d.chance(0.5) else [d.input(d.draw(y.shape)), y]))
        if d.chance(0.3):
            y = d.op(d.pick(UNARY), y)
    y = to_heads(d, linear(d, y, heads * depth, bias=d.chance(0.3)), heads)
    for _ in range(d.pick([1, 1, 2])):
        y = behind(d, y)
    if d.chance(0.2):
        d.op("MatMul", y, d.floats(y, (depth, d.pick(WIDTHS)), scale=depth**-0.5))
