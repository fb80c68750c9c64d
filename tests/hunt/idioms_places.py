"""Pieces in which many numbers fall on one place, and choices by comparisons with numbers that no other reaches."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft
from hunt.idioms import idiom


@idiom
def counted(d: Draft) -> None:
    """Histograms and sums of segments: more numbers on a place than a format of 16 bits counts one by one."""
    n, places, width = d.pick([3, 70, 600, 1500]), d.pick([1, 2, 5, 130]), d.pick([1, 3, 64])
    at = d.rng.integers(0, places, n)
    if d.chance(0.3):
        at = np.sort(at)
    given = np.abs(d.draw((n, width)))
    x = d.input(given) if d.chance(0.8) else d.weight(np.ones((n, width), np.float32))
    if d.chance(0.3):
        x = d.op(d.pick(["Relu", "Sqrt"]), x)
    start = d.floats(x, (places, width)) if d.chance(0.5) else d.weight(np.zeros((places, width), np.float32), x.code)
    how = d.pick(["add", "add", "add", "max", "min"])
    if d.chance(0.5):
        rows = d.weight(np.repeat(at[:, None], width, 1))
        y = d.op("ScatterElements", start, rows, x, axis=0, reduction=how)
    else:
        y = d.op("ScatterND", start, d.weight(at[:, None]), x, reduction=how)
    if d.chance(0.5):
        d.op("Mul", y, d.weight(np.asarray(1 / n, np.float32), y.code))


@idiom
def endless(d: Draft) -> None:
    """Where one of two numbers, the one a row's and the other a column's, is infinite, something else is taken."""
    rows, columns = d.pick([1, 5, 65]), d.pick([1, 9, 64, 130])
    x, y = d.input(d.draw((1, columns))), d.input(d.draw((rows, 1)))

    def far(v):
        if d.chance(0.4):
            return d.op("IsInf", v)
        end = d.pick([np.inf, np.inf, -np.inf, 1e30, 3.0])
        if not np.isinf(end) and v.code != 1:
            end = 3.0
        if d.chance(0.3):
            v = d.op("Abs", v)
        return d.op(d.pick(["Equal", "Equal", "Less", "Greater"]), v, d.weight(np.asarray(end, np.float32), v.code))

    either = d.op(d.pick(["Or", "And", "Xor"]), far(x), far(y))
    z = d.op(d.pick(["Mul", "Add", "Min"]), d.op("Min", x, y), d.op("Max", x, y))
    if d.chance(0.5):
        one = d.weight(np.asarray(1, np.float32), y.code)
        z = d.op("Add", z, d.op("Where", d.op("Equal", y, d.weight(np.asarray(0, np.float32), y.code)), one, y))
    z = d.op("Where", either, *([d.weight(np.asarray(7, np.float32), z.code), z][:: d.pick([1, -1])]))
    if d.chance(0.6):
        d.op(d.pick(["ReduceSum", "ReduceMax"]), z, d.ints(d.pick([0, 1])), keepdims=d.int(0, 1))
