"""Attention as exporters spell it: heads of one product that go separate ways, rotations of all kinds, slopes and several masks; parts of
a tensor as a sequence."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Value
from hunt.formats import F16, I64, tensor
from hunt.idioms import idiom, linear
from onnx import NodeProto, helper


def lanes(d: Draft, x: Value, start: int, end: int, step: int = 1) -> Value:
    return d.op("Slice", x, d.ints(start), d.ints(end), d.ints(-1), d.ints(step))


def tables(d: Draft, x: Value, width: int, rows_at: int) -> list[Value]:
    """Cosines and sines for the rows of x, which dimension `rows_at` counts."""
    shape = [1] * x.rank
    shape[rows_at], shape[-1] = x.shape[rows_at], width
    angles = d.rng.uniform(0, 6, shape)
    made = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    return [d.weight(a, x.code) if d.chance(0.7) else d.input(a, x.code) for a in made]


def turned(d: Draft, x: Value, rows_at: int) -> Value:
    """x with the first lanes, or all, rotated: halves or pairs, as a sum with partners or half by half."""
    width = x.shape[-1]
    n = d.pick([width, width // 2, width // 4 * 2])
    if n < 2 or n % 2:
        return x
    part = x if n == width and d.chance(0.7) else lanes(d, x, 0, n)
    pairs = d.chance(0.4)
    a, b = (
        (lanes(d, part, 0, n, 2), lanes(d, part, 1, n, 2))
        if pairs
        else (lanes(d, part, 0, n // 2), lanes(d, part, n // 2, n))
    )
    if d.chance(0.4):
        cos, sin = tables(d, x, n // 2, rows_at)
        first = d.op("Sub", d.op("Mul", a, cos), d.op("Mul", b, sin))
        last = d.op("Add", d.op("Mul", b, cos), d.op("Mul", a, sin))
        y = d.op("Concat", first, last, axis=-1)
    else:
        cos, sin = tables(d, x, n, rows_at)
        partner = [d.op("Neg", b), a] if d.chance(0.8) else [b, d.op("Neg", a)]
        if pairs:
            partner = [d.op("Unsqueeze", v, d.ints(-1)) for v in partner]
        other = d.op("Concat", *partner, axis=-1)
        other = d.op("Reshape", other, d.ints(*part.shape)) if pairs else other
        y = d.op("Add", d.op("Mul", part, cos), d.op("Mul", other, sin))
    return y if n == width else d.op("Concat", y, lanes(d, x, n, width), axis=-1)


def slopes_and_masks(d: Draft, y: Value) -> Value:
    """Scores [b, h, s, t], perhaps seen as [b * h, s, t], with slopes, one mask or two."""
    b, h, s, t = y.shape
    if d.chance(0.6):
        flat = d.chance(0.5)
        y = d.op("Reshape", y, d.ints(b * h, s, t)) if flat else y
        if d.chance(0.6):
            y = d.op("Mul", y, d.weight(np.asarray(0.25, np.float32), y.code))
        if d.chance(0.7):
            y = d.op(
                "Add", y, d.floats(y, d.pick([(b * h, 1, t), (1, s, t)]) if flat else d.pick([(h, 1, t), (1, h, 1, t)]))
            )
        y = d.op("Reshape", y, d.ints(b, h, s, t)) if flat else y
    low = d.weight(np.asarray(-6e4 if y.code == F16 else d.pick([-3.4e38, -1e9, -np.inf]), np.float32), y.code)
    seen = np.tril(np.ones((s, t), bool), max(0, t - s))
    if d.chance(0.5):
        chosen = [d.weight(seen), y, low] if d.chance(0.5) else [d.weight(~seen), low, y]
        y = d.node("Where", chosen, hides=True)[0]
    if d.chance(0.6):
        near = seen & ~np.tril(np.ones((s, t), bool), -int(d.pick([2, 4, s + t])))
        mask = np.where(near | (np.arange(t) == 0), 0, np.float32(-6e4 if y.code == F16 else -3e38)).astype(np.float32)
        y = d.node("Add", [y, d.node("Identity", [d.weight(mask, y.code)], hides=True)[0]], hides=True)[0]
    if d.chance(0.2):
        greatest = d.node("ReduceMax", [y, d.ints(-1)], keepdims=1, hides=True)[0]
        y = d.node("Sub", [y, greatest], hides=True)[0]
    return y


def apart(d: Draft, x: Value, groups: int, each: int, width: int) -> list[Value]:
    """Queries, keys and values [b, s, heads, width] of one product, in one of the orders that models store."""
    b, s, _ = x.shape
    way = d.int(0, 3)
    if way == 0:  # in ranges of columns, perhaps clamped or behind a view
        y = linear(d, x, (each + 2) * groups * width)
        y = d.op("Clip", y, *(d.weight(np.asarray(v, np.float32), y.code) for v in (-2, 2))) if d.chance(0.4) else y
        y = d.op("Reshape", y, d.ints(1, b, s, -1)) if d.chance(0.3) else y
        cuts = [0, each * groups * width, (each + 1) * groups * width, (each + 2) * groups * width]
        parts = [lanes(d, y, p, q) for p, q in zip(cuts, cuts[1:])]
    else:
        y = d.op("Reshape", linear(d, x, (each + 2) * groups * width), d.ints(b, s, groups, each + 2, width))
        axis, front = 3, d.chance(0.5)
        cut = lambda v, p, q, a: d.op("Slice", v, d.ints(p), d.ints(q), d.ints(a))  # noqa: E731
        parts = [cut(y, 0, each, axis)]
        turn = d.op("Transpose", y, perm=[3, 0, 1, 2, 4]) if front else y
        for place in (-2, -1):
            if front and d.chance(0.7):
                parts.append(d.op("GatherND", turn, d.weight(np.array([[place]]))))
            else:
                parts.append(cut(turn, each + 2 + place, each + 3 + place, 0 if front else axis))
    return [d.op("Reshape", v, d.ints(b, s, -1, width)) for v in parts]


@idiom
def exported(d: Draft) -> None:
    """Queries, keys and values of one product, rotated before or behind their transposition, repeated, masked, and put together again."""
    b, s, width = d.pick([1, 1, 2, 3]), d.pick([1, 5, 8, 32, 33]), d.pick([8, 16, 24])
    groups, each = d.pick([1, 2]), d.pick([1, 2, 3])
    q, k, v = apart(d, d.input(d.draw((b, s, d.pick([16, 32])))), groups, each, width)
    early = d.chance(0.4)
    if early and d.chance(0.8):
        q, k = turned(d, q, 1), turned(d, k, 1)
    if each > 1:  # keys and values once for every query head
        wide = [d.op("Expand", d.op("Unsqueeze", x, d.ints(3)), d.ints(b, s, groups, each, width)) for x in (k, v)]
        k, v = (d.op("Reshape", x, d.ints(b, s, groups * each, width)) for x in wide)
    q, k, v = (d.op("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, k, v))
    if not early:
        q, k = turned(d, q, 2), turned(d, k, 2)
    y = slopes_and_masks(d, d.op("MatMul", q, d.op("Transpose", k, perm=[0, 1, 3, 2])))
    p = d.node("Softmax", [y], axis=-1, hides=True)[0]
    if d.chance(0.4) or not np.isfinite(p.array).all():
        p = d.op("Where", d.op("IsNaN", p), d.weight(np.asarray(0, np.float32), p.code), p)
    y = d.op("Reshape", d.op("Transpose", d.op("MatMul", p, v), perm=[0, 2, 1, 3]), d.ints(b, s, -1))
    linear(d, y, 32)


@idiom
def written(d: Draft) -> None:
    """Rows that are written one range after another, over all that was there or not."""
    n, rest = d.pick([4, 8, 33]), d.shape(d.int(1, 3))
    x, cut = d.input(d.draw((n, *rest))), d.int(1, n - 1)
    ranges = [np.arange(cut), np.arange(cut, n)]
    if d.chance(0.3):
        ranges[1] = ranges[1][: d.int(1, len(ranges[1]))]
    for places in ranges if d.chance(0.7) else ranges[::-1]:
        places = places - n if d.chance(0.3) else places
        x = d.op("ScatterND", x, d.weight(places[:, None].astype(np.int64)), d.like(x, (len(places), *rest)))
    if d.chance(0.6):
        x = d.op("Transpose", x, perm=[*range(1, x.rank), 0])
    linear(d, x, 16)


@idiom
def heads_and_gains(d: Draft) -> None:
    """Norms of heads with gains of their own, whose lanes join again, and a GELU with its argument factored."""
    b, s, heads, width = d.pick([1, 2]), d.pick([4, 33]), d.pick([2, 4]), d.pick([8, 16])
    y = d.op("Reshape", linear(d, d.input(d.draw((b, s, 16))), heads * width), d.ints(b, s, heads, width))
    mean = d.op("ReduceMean", y, d.ints(-1), keepdims=1)
    less = d.op("Sub", y, mean)
    spread = d.op("ReduceMean", d.op("Mul", less, less), d.ints(-1), keepdims=1)
    number = lambda a: d.weight(np.asarray(a, np.float32), y.code)  # noqa: E731
    y = d.op("Div", less, d.op("Sqrt", d.op("Add", spread, number(1e-3))))
    y = d.op("Mul", y, d.floats(y, d.pick([(heads, width), (width,), (heads, 1)]), "positive"))
    y = d.op("Reshape", y, d.ints(b, s, heads * width))
    if d.chance(0.6):
        square = d.op("Mul", d.op("Mul", y, number(0.044715)), y)
        inner = d.op("Mul", d.op("Mul", y, number(0.79788456)), d.op("Add", square, number(1)))
        y = d.op("Mul", d.op("Mul", y, number(0.5)), d.op("Add", d.op("Tanh", inner), number(1)))
    linear(d, y, 32)


@idiom
def chunked(d: Draft) -> None:
    """Parts of a tensor go through a sequence, in a branch, and come back in another order; or one of them is taken."""
    x = d.input(d.draw((d.pick([1, 3]), d.pick([4, 65, 130]), d.pick([6, 64, 192]))))
    y = linear(d, x, d.pick([6, 64, 96])) if d.chance(0.6) else x
    axis = d.int(1, 2)
    size = d.pick([1 if y.shape[axis] < 10 else 64, max(1, y.shape[axis] // 3), y.shape[axis]])
    whole = d.chance(0.6)
    shape = y.shape if whole else (*y.shape[:axis], min(size, y.shape[axis]), *y.shape[axis + 1 :])
    result = helper.make_tensor_value_info("r", y.code, shape)
    then = helper.make_graph(_parts(y, axis, size, whole), "then", [], [result])
    other = helper.make_graph([helper.make_node("Identity", [d.floats(y, shape).name], ["r"])], "other", [], [result])
    last = d.values[-1]
    true = d.chance(0.8)
    branches = (then, other) if true else (other, then)  # the parts are what is taken
    y = d.captured("If", [d.weight(np.asarray(true))], [y, last], then_branch=branches[0], else_branch=branches[1])
    d.op(d.pick(["Relu", "Neg", "Sigmoid"]), y)


def _parts(x: Value, axis: int, size: int, whole: bool) -> list[NodeProto]:
    """Parts of x as a sequence, the first of which becomes the last, or is all that is taken."""
    numbers = {"size": np.asarray(size, np.int64), "zero": np.asarray(0, np.int64)}
    made = [helper.make_node("Constant", [], [name], value=tensor(name, value, I64)) for name, value in numbers.items()]
    made += [
        helper.make_node("SplitToSequence", [x.name, "size"], ["parts"], axis=axis),
        helper.make_node("SequenceAt", ["parts", "zero"], ["first" if whole else "r"]),
    ]
    if whole:
        made += [
            helper.make_node("SequenceErase", ["parts", "zero"], ["others"]),
            helper.make_node("SequenceInsert", ["others", "first"], ["turned"]),
            helper.make_node("ConcatFromSequence", ["turned"], ["r"], axis=axis),
        ]
    return made
