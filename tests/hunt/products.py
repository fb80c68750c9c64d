"""Chains of matrix products as large as it takes for tiles to have rows of their own and blocks of columns to hand to each other."""

from __future__ import annotations

from hunt.draft import Draft, Value

#: elements of the largest value: 260 rows of 1,024 columns
ELEMENTS = 260 * 1024
ROWS = (16, 31, 32, 33, 48, 64, 65, 77, 96, 100, 128, 129, 160, 200, 256, 260)
#: columns: those of a value that comes in or goes out, and of what is between two products
OUTER, INNER = (256, 320, 384, 512), (256, 320, 512, 640, 768, 1024)
LONG = (640, 1000, 1024)  # columns that a product sums over
BETWEEN = ("Relu", "Sigmoid", "Tanh", "Gelu", "HardSwish", "Abs", "Neg")


def products(d: Draft) -> None:
    """Two or three products with something between them; what comes in may be added to what goes out, and every value have one more
    reader."""
    rows = d.pick(ROWS) if d.chance(0.7) else d.int(16, 260)
    x = d.input(d.draw((rows, d.pick(OUTER))))
    y = _norm(d, x) if d.chance(0.5) else x
    if d.chance(0.4):
        y = _joined(d, _product(d, y, d.pick([x.shape[-1], d.pick(OUTER)])), x)
        y = _joined(d, _pair(d, _norm(d, y)), y) if d.chance(0.5) else _norm(d, y)
    y = _pair(d, y)
    _joined(d, _product(d, y, x.shape[-1] if d.chance(0.6) else d.pick(OUTER)), x)
    if d.chance(0.15):
        d.op("Neg", d.pick([v for v in d.values if v.kind == "node"]))


def long_sums(d: Draft) -> None:
    """A product of more columns than a small scratchpad holds, something after it, and rows added that another one made."""
    rows, columns = d.int(16, 260), d.pick(OUTER)
    beside = _norm(d, _product(d, d.input(d.draw((rows, d.pick(OUTER)))), columns))
    y = _product(d, d.input(d.draw((rows, d.pick(LONG)))), columns)
    y = d.op(d.pick(BETWEEN), y) if d.chance(0.4) else y
    d.op(d.pick(["Add", "Add", "Mul", "Sub"]), *([y, beside] if d.chance(0.5) else [beside, y]))


def _product(d: Draft, x: Value, columns: int) -> Value:
    """x times a weight; a bias is added, or a row of factors multiplied, now and then."""
    y = d.op("MatMul", x, d.floats(x, (x.shape[-1], columns), scale=x.shape[-1] ** -0.5))
    return d.op(d.pick(["Add", "Mul"]), y, d.floats(y, (columns,), "positive")) if d.chance(0.3) else y


def _pair(d: Draft, x: Value) -> Value:
    """A product and what follows it elementwise: a function, or another product of the same rows."""
    columns = d.pick(INNER)
    y = _product(d, x, columns)
    z = d.op(d.pick(BETWEEN), y) if d.chance(0.8) else y
    if d.chance(0.5):
        z = d.op(d.pick(["Mul", "Mul", "Add", "Sub"]), d.op("Mul", z, y) if z is not y and d.chance(0.5) else z,
                 _product(d, x, columns))  # fmt: skip
    return z


def _norm(d: Draft, x: Value) -> Value:
    gain = d.floats(x, x.shape[-1:], "positive")
    kind = d.int(0, 3)
    if kind == 0:
        return d.op("LayerNormalization", x, gain, d.floats(x, x.shape[-1:]), axis=-1)
    return d.op("Softmax", x, axis=-1) if kind == 1 else d.op("RMSNormalization", x, gain, axis=-1)


def _joined(d: Draft, y: Value, x: Value) -> Value:
    """y, and x added to it where their sizes agree."""
    return d.op("Add", y, x) if y.shape == x.shape and d.chance(0.7) else y
