"""Mixtures of experts as exporters write them, and the same with one thing changed."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Value
from hunt.idioms import UNARY, idiom


def _view(d: Draft, x: Value, *shape: int) -> Value:
    return d.op("Reshape", x, d.ints(*shape))


def _chosen(d: Draft, tokens: int, experts: int, k: int) -> tuple[Value, Value, Value]:
    """Scores without near ties, the best of them and where they are; or numbers from elsewhere."""
    order = np.argsort(d.rng.random((tokens, experts)), axis=1).astype(np.float32)
    scores = d.input(order * np.float32(0.5))
    best, chosen = d.node("TopK", [scores, d.ints(k)], 2, axis=1, largest=d.int(0, 1))
    if d.chance(0.15):
        chosen = d.input(d.rng.integers(0, experts, (tokens, k)).astype(np.int64))
    elif d.chance(0.15):  # one expert twice
        first = d.op("ArgMax", scores, axis=1, keepdims=1)
        chosen = d.op("Concat", *[first] * k, axis=1)
    return scores, d.op("Softmax", best, axis=1), chosen


@idiom
def experts(d: Draft) -> None:
    """Matrices gathered for every token's experts, or almost: other numbers, sums, shares, readers, an order of another kind."""
    tokens, n, k = d.pick([1, 2, 3, 8, 17]), d.pick([2, 3, 5, 8]), d.pick([1, 2, 2])
    hidden, units = d.pick([8, 16, 33, 64]), d.pick([3, 8, 32])
    rows, lead = tokens * k, d.pick([(tokens,), (1, tokens)])
    x = _view(d, d.input(d.draw((*lead, hidden))), tokens, hidden)
    _, share, chosen = _chosen(d, tokens, n, k)
    share = _view(d, share, rows, 1)
    where, columns, bias, pairs = (
        d.pick(["after", "after", "units", "inputs", "none"]),
        d.chance(0.5),
        d.chance(0.5),
        d.chance(0.3),
    )

    def product(v: Value, out: int, into: int, ids: Value) -> Value:
        stack = d.floats(x, (n, into, out) if columns else (n, out, into), scale=into**-0.5)
        w = (
            d.op("Gather", stack, _view(d, ids, rows), axis=0)
            if d.chance(0.5)
            else d.op("GatherND", stack, _view(d, ids, rows, 1))
        )
        y = d.op("MatMul", _view(d, v, rows, 1, into), w) if columns else d.op("MatMul", w, _view(d, v, rows, into, 1))
        y = _view(d, y, rows, out)
        return d.op("Add", y, d.op("Gather", d.floats(x, (n, out)), _view(d, ids, rows), axis=0)) if bias else y

    if d.chance(0.15):
        v = d.op("Expand", _view(d, x, 1, tokens, hidden), d.ints(k, tokens, hidden))
    else:
        v = d.op("Expand", _view(d, x, tokens, 1, hidden), d.ints(tokens, k, hidden))
    v = _view(d, v, rows, hidden)
    both = product(d.op("Mul", v, share) if where == "inputs" else v, 2 * units, hidden, chosen)
    parts = [(0, 2 * units, 2), (1, 2 * units, 2)] if pairs else [(0, units, 1), (units, 2 * units, 1)]
    gate, up = (d.op("Slice", both, d.ints(a), d.ints(b), d.ints(1), d.ints(s)) for a, b, s in parts)
    made = d.op("Mul", d.op(d.pick(UNARY) if d.chance(0.8) else "Softmax", gate), up)
    made = d.op("Mul", made, share) if where == "units" else made
    if d.chance(0.1):
        d.op("Neg", made)
    y = product(made, hidden, units, _chosen(d, tokens, n, k)[2] if d.chance(0.1) else chosen)
    y = _view(d, d.op("Mul", y, share) if where == "after" else y, tokens, k, hidden)
    d.op("ReduceMax" if d.chance(0.1) else "ReduceSum", y, d.ints(d.pick([1] * 8 + [0, 2])), keepdims=d.int(0, 1))


@idiom
def experts_for_all(d: Draft) -> None:
    """A stack of products in which every expert sees every token, or almost."""
    tokens, n = d.pick([1, 2, 5, 17]), d.pick([2, 3, 5])
    hidden, units = d.pick([8, 16, 33, 64]), d.pick([3, 8, 32])
    x = d.input(d.draw((tokens, hidden)))
    share = (
        d.floats(x, (n, tokens), "positive")
        if d.chance(0.3)
        else d.op("Transpose", d.input(d.draw((tokens, n))), perm=[1, 0])
    )
    share = _view(d, share, n, tokens, 1)
    where, bias = d.pick(["after", "after", "inputs", "none"]), d.chance(0.5)

    def product(v: Value, out: int, into: int) -> Value:
        y = d.op("MatMul", v, d.floats(x, (n, into, out), scale=into**-0.5))
        return d.op("Add", y, d.floats(x, d.pick([(n, 1, out), (n, 1, out), (out,)]))) if bias else y

    v = d.op("Expand", _view(d, x, 1, tokens, hidden), d.ints(n, tokens, hidden))
    made = d.op(d.pick(UNARY), product(d.op("Mul", v, share) if where == "inputs" else v, units, hidden))
    made = d.op("Mul", made, product(v, units, hidden)) if d.chance(0.5) else made
    y = product(made, hidden, units)
    y = d.op("Mul", y, share) if where == "after" else y
    d.op("ReduceSum", y, d.ints(d.pick([0] * 8 + [1, 2])), keepdims=d.int(0, 1))
