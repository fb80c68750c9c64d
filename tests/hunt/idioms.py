"""Pieces of networks as exporters write them, and the same with one thing changed: what a compiler may take for known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hunt.draft import Draft, Value
from hunt.formats import F16, F32, I64

Idiom = Callable[[Draft], None]
IDIOMS: dict[str, Idiom] = {}
UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Gelu",
    "HardSwish",
    "Softplus",
    "Mish",
    "Elu",
    "LeakyRelu",
    "Neg",
    "Abs",
    "Exp",
    "Erf",
    "Sign",
)
ROWS = (1, 3, 8, 31, 32, 33, 63, 64, 65, 127, 129)
CHANNELS = (16, 32, 63, 64, 65, 96, 127, 128, 129, 192)


def idiom(function: Idiom) -> Idiom:
    IDIOMS[function.__name__] = function
    return function


def rows_of(d: Draft, channels: int | None = None) -> Value:
    """[rows, channels] or [batch, rows, channels]."""
    c = channels or d.pick(CHANNELS)
    lead = (d.pick(ROWS),) if d.chance(0.4) else (d.pick([1, 2, 3, 4]), d.pick([1, 8, 31, 64, 65]))
    return d.input(d.draw((*lead, c)))


def linear(d: Draft, x: Value, n: int, bias: bool | None = None, w: Value | None = None) -> Value:
    w = w or d.floats(x, (x.shape[-1], n), scale=x.shape[-1] ** -0.5)
    y = d.op("MatMul", x, w)
    return d.op("Add", y, d.floats(x, (n,))) if (d.chance(0.5) if bias is None else bias) else y


def some(d: Draft, x: Value) -> Value:
    """x, or something between it and its reader."""
    way = d.int(0, 11)
    if way == 0:
        return d.op("Relu", x)
    if way == 1:
        return d.op("Mul", x, d.floats(x, x.shape[-1:], "positive"))
    if way == 2 and x.rank > 1:
        return d.op("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    if way == 3:
        return d.op("Cast", d.op("Cast", x, to=F32), to=x.code)
    return x


@idiom
def scores(d: Draft) -> None:
    """Attention, or almost: no scale, mask elsewhere, another axis, another second operand, an extra reader."""
    b, h, s, t, w = (
        d.pick([1, 1, 2, 3]),
        d.pick([1, 2, 4]),
        d.pick([1, 8, 33, 64, 65]),
        d.pick([8, 33, 64, 65, 129]),
        d.pick([8, 16, 32, 64]),
    )
    lead = d.pick([(b, h), (b,), ()])
    q, k = d.input(d.draw((*lead, s, w))), d.input(d.draw((*lead, t, w)))
    perm = [*range(len(lead)), len(lead) + 1, len(lead)]
    y = d.op("MatMul", q, d.op("Transpose", k, perm=perm))
    steps = ["scale", "cap", "mask", "softmax"]
    if d.chance(0.7):
        steps.remove("cap")
    if d.chance(0.4):
        steps.remove("scale")
    if d.chance(0.5):
        steps.remove("mask")
    if d.chance(0.3):
        d.rng.shuffle(steps)
    for step in steps:
        if step == "scale":
            y = d.op(d.pick(["Mul", "Div"]), y, d.weight(np.asarray(d.pick([0.125, 4.0, 0.5]), np.float32), y.code))
        elif step == "cap":
            y = d.op(d.pick(["Tanh", "Tanh", "Sigmoid", "Gelu"]), y)
            y = (
                d.op("Mul", y, d.weight(np.asarray(d.pick([0.5, 3.0, 50.0]), np.float32), y.code))
                if d.chance(0.7)
                else y
            )
        elif step == "mask" and d.chance(0.6):
            y = d.op("Add", y, d.floats(y, d.pick([(s, t), (t,), (s, 1), y.shape])))
        elif step == "mask":
            band = np.tril(np.ones((s, t), bool), max(0, t - s))
            low = d.pick([-6.5e4, -1e4, -8.0] if y.code == F16 else [-1e30, -1e9, -1e4, -8.0])
            if d.chance(0.3):
                y = d.op("Add", y, d.weight(np.where(band, 0, low).astype(np.float32), y.code))
            else:
                if d.chance(0.3):
                    band[d.int(0, s - 1)] = False  # a row that sees nothing
                y = d.op("Where", d.weight(band), y, d.weight(np.asarray(low, np.float32), y.code))
        else:
            y = d.op("Softmax", y, axis=d.pick([-1, -1, -1, y.rank - 2 if y.rank > 1 else 0]))
    p = y
    way = d.int(0, 9)
    if way < 4:
        y = d.op("MatMul", p, d.input(d.draw((*lead, t, d.pick([w, 16, 65])))))
    elif way == 4:
        y = d.op("MatMul", p, d.floats(p, (t, d.pick([16, 64])), scale=t**-0.5))  # a weight is no value
    elif way == 5:
        y = d.op("MatMul", d.like(p, (*lead, 16, s)), p)  # as second operand
    elif way == 6:
        y = d.op(d.pick(UNARY), p)
    elif way == 7:
        y = d.op("ReduceSum", p, d.ints(-1), keepdims=d.int(0, 1))
    elif way == 8:
        y = d.op("Softmax", d.op("Mul", p, d.like(p)), axis=-1)
    if d.chance(0.4):
        some(d, p)
    if d.chance(0.4) and y is not p:
        z = some(d, y)
        if z.rank == 4 and d.chance(0.5):
            z = d.op("Reshape", d.op("Transpose", z, perm=[0, 2, 1, 3]), d.ints(z.shape[0], z.shape[2], -1))
        linear(d, z, d.pick([64, 96]))


@idiom
def gated(d: Draft) -> None:
    """A gated feed-forward layer with some activation, or almost: gates shared, swapped, without the second half."""
    x = rows_of(d)
    n = d.pick(CHANNELS)
    gate, up = linear(d, x, n), linear(d, x, n)
    act = d.pick(["silu", "gelu", "sigmoid", "relu", "tanh", "erf", "none"])
    if act == "silu":
        y = d.op("Mul", gate, d.op("Sigmoid", gate))
    elif act == "erf":
        inner = d.op("Erf", d.op("Div", gate, d.weight(np.asarray(d.pick([2**0.5, 2**0.5, 1.5]), np.float32), x.code)))
        inner = d.op("Add", inner, d.weight(np.asarray(1.0, np.float32), x.code))
        y = d.op("Mul", d.op("Mul", gate, inner), d.weight(np.asarray(0.5, np.float32), x.code))
    elif act == "gelu":
        y = d.op("Gelu", gate, approximate=d.pick(["none", "tanh"]))
    else:
        y = gate if act == "none" else d.op(act.capitalize(), gate)
    y = d.op(d.pick(["Mul", "Mul", "Mul", "Add", "Sub", "Max"]), *d.pick([(y, up), (up, y), (y, gate)]))
    y = some(d, y)
    if d.chance(0.7):
        y = linear(d, y, d.pick([x.shape[-1], 64]))
        if y.shape == x.shape and d.chance(0.5):
            d.op("Add", *d.pick([(x, y), (y, x)]))
    if d.chance(0.3):
        some(d, up)


@idiom
def norm(d: Draft) -> None:
    """A norm spelt out, or almost: other axis, no epsilon's place, squares by Mul or Pow, in f32 between casts."""
    x = rows_of(d)
    axis = d.pick([-1, -1, -1, x.rank - 2])
    wide = d.op("Cast", x, to=F32) if d.chance(0.4) else x
    y = wide
    if d.chance(0.5):
        y = d.op("Sub", wide, d.op("ReduceMean", wide, d.ints(axis), keepdims=1))
    if d.chance(0.5):
        square = d.op("Mul", y, y)
    else:
        square = d.op("Pow", y, d.weight(np.asarray(2.0, np.float32), y.code))
    mean = d.op(d.pick(["ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax"]), square, d.ints(axis), keepdims=1)
    spread = d.op("Add", mean, d.weight(np.asarray(2.0**-10, np.float32), y.code)) if d.chance(0.9) else mean
    root = d.op("Sqrt", spread)
    y = d.op("Div", y, root) if d.chance(0.5) else d.op("Mul", y, d.op("Reciprocal", root))
    if wide.code != x.code:
        y = d.op("Cast", y, to=x.code)
    if d.chance(0.8):
        y = d.op("Mul", y, d.floats(y, (y.shape[-1],), "positive"))
    if d.chance(0.4):
        y = d.op("Add", y, d.floats(y, (y.shape[-1],)))
    if d.chance(0.6):
        linear(d, some(d, y), d.pick(CHANNELS))


@idiom
def residual_stack(d: Draft) -> None:
    """The same layer two to four times, sometimes one of them a little different, sometimes with the same weights."""
    x = rows_of(d, d.pick([32, 64, 65, 128]))
    c, act, shared = x.shape[-1], d.pick(UNARY[:9]), d.chance(0.3)
    hidden, first = d.pick([64, 96, 129]), None
    normed, repeats = d.chance(0.6), d.int(2, 4)
    for k in range(repeats):
        odd = d.chance(0.1)
        y = x
        if normed:
            y = d.op("LayerNormalization", x, d.floats(x, (c,), "positive"), d.floats(x, (c,)), axis=-1)
        if first is None or not shared:
            first = d.floats(x, (c, hidden), scale=c**-0.5), d.floats(x, (hidden, c), scale=hidden**-0.5)
        y = d.op("MatMul", d.op(d.pick(UNARY[:9]) if odd else act, d.op("MatMul", y, first[0])), first[1])
        x = d.op("Add", x, y)
        if odd and k + 1 < repeats:
            d.op("ReduceMax", x, d.ints(-1), keepdims=0)


@idiom
def views_and_writes(d: Draft) -> None:
    """An update in place of a value that views made before and after it, inputs or outputs still show."""
    x = d.input(d.draw(d.shape(d.int(1, 3), 3000)))
    x = d.pick([lambda v: v, lambda v: d.op("Relu", v), lambda v: linear(d, v, 65, False)])(x)
    values = [x]
    for _ in range(d.int(2, 5)):
        v = d.pick(values)
        way = d.int(0, 6)
        if way == 0:
            values.append(d.op("Identity", v))
        elif way == 1:
            values.append(d.op("Reshape", v, d.ints(-1)))
        elif way == 2 and v.rank < 4:
            values.append(d.op("Unsqueeze", v, d.ints(0)))
        elif way == 3 and v.shape[0] > 1:
            values.append(d.op("Slice", v, d.ints(0), d.ints(v.shape[0] - 1), d.ints(0)))
        elif way == 4:
            axis = d.int(0, v.rank - 1)
            values.append(d.op("Concat", v, d.like(v), axis=axis))
        else:
            n = v.shape[0]
            at = d.rng.choice(n, min(n, d.int(1, 3)), replace=False).astype(np.int64)[:, None]
            where = d.weight(at) if d.chance(0.5) else d.input(at, I64)
            values.append(d.op("ScatterND", v, where, d.like(v, (len(at), *v.shape[1:]))))
    if d.chance(0.7):
        d.op(d.pick(UNARY), d.pick(values))


@idiom
def cache(d: Draft) -> None:
    """A step of decoding: rows written into a cache that attention then reads."""
    b, h, t, w = d.pick([1, 2]), d.pick([1, 2]), d.pick([8, 33, 64]), d.pick([8, 16, 64])
    past, new = d.input(d.draw((b, h, t, w))), d.input(d.draw((b, h, 1, w)))
    if d.chance(0.5):
        k = d.op("Concat", *d.pick([(past, new), (new, past)]), axis=2)
    else:
        at = d.input(d.rng.integers(0, t, (b,)).astype(np.int64), I64)
        k = d.op("TensorScatter", past, some(d, new), at)
    k = d.pick([lambda v: v, lambda v: d.op("Identity", v)])(k)
    y = d.op("MatMul", d.input(d.draw((b, h, d.pick([1, 4]), w))), d.op("Transpose", k, perm=[0, 1, 3, 2]))
    y = d.op("Softmax", y, axis=-1)
    d.op("MatMul", y, k if d.chance(0.5) else d.like(k))
    if d.chance(0.3):
        d.op("Relu", past)


def image_of(d: Draft) -> Value:
    n, c = d.pick([1, 1, 2, 3, 12, 20]), d.pick([1, 3, 8, 16, 63, 64, 65, 128])
    side = d.pick([5, 7, 8, 12, 16] if n * c < 400 else [4, 5])
    return d.input(d.draw((n, c, side, d.pick([side, side + 3]))))


def conv(d: Draft, x: Value, n: int, kernel: int, stride: int = 1, groups: int = 1) -> Value:
    c = x.shape[1] // groups
    w = d.floats(x, (n, c, kernel, kernel), scale=(c * kernel * kernel) ** -0.5)
    b = d.floats(x, (n,)) if d.chance(0.6) else None
    return d.op("Conv", x, w, b, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)


def pool(d: Draft, x: Value) -> Value:
    if min(x.shape[2:]) < 3:
        return x
    k = d.pick([2, 3])
    pads = d.pick([[0] * 4, [k // 2] * 4])
    return d.op(d.pick(["MaxPool", "AveragePool"]), x, kernel_shape=[k, k], strides=[d.pick([1, 2])] * 2, pads=pads)


@idiom
def conv_chain(d: Draft) -> None:
    """Convolutions, activations, norms and pools in a row, with readers of the middle."""
    x = image_of(d)
    middle = []
    for _ in range(d.int(1, 3)):
        depthwise = d.chance(0.2)
        n = x.shape[1] if depthwise else d.pick([3, 16, 63, 64, 65, 96])
        x = conv(d, x, n, d.pick([1, 3, 3, 5]), d.pick([1, 1, 2]), n if depthwise else 1)
        if d.chance(0.3):
            p = [d.floats(x, (n,), how) for how in ("positive", "normal", "normal", "positive")]
            x = d.op("BatchNormalization", x, *p)
        if d.chance(0.6):
            x = d.op(d.pick(["Relu", "Relu", "HardSwish", "Clip", "LeakyRelu", "Sigmoid"]), x)
        if d.chance(0.4):
            x = pool(d, x)
        middle.append(x)
    if d.chance(0.3):
        some(d, middle[0])
    way = d.int(0, 4)
    if way == 0:
        d.op("GlobalAveragePool", x)
    elif way == 1:
        linear(d, d.op("Flatten", d.op("GlobalAveragePool", x)), d.pick([10, 65]))
    elif way == 2:
        d.op("Softmax", x, axis=1)


@idiom
def squeeze_excite(d: Draft) -> None:
    """A convolution whose channels are weighted by what a small network makes of their means; a shortcut."""
    x = image_of(d)
    y = d.op("Relu", conv(d, x, x.shape[1], d.pick([1, 3])))
    gap = d.op("GlobalAveragePool", y) if d.chance(0.5) else d.op("ReduceMean", y, d.ints(2, 3), keepdims=1)
    s = d.op(d.pick(["Sigmoid", "HardSigmoid"]), conv(d, d.op("Relu", conv(d, gap, d.pick([8, 16]), 1)), x.shape[1], 1))
    y = d.op(d.pick(["Mul", "Mul", "Add"]), *d.pick([(y, s), (s, y)]))
    if d.chance(0.6):
        y = d.op("Add", y, x)
    if d.chance(0.5):
        conv(d, y, d.pick([16, 64]), 1)


@idiom
def compared(d: Draft) -> None:
    """Comparisons and masks behind a product: results of other element sizes in between."""
    x = rows_of(d)
    y = linear(d, x, d.pick(CHANNELS))
    test = d.op(
        d.pick(["Greater", "Less", "GreaterOrEqual", "LessOrEqual"]), y, d.floats(y, d.pick([y.shape[-1:], ()]))
    )
    way = d.int(0, 4)
    if way == 0:
        d.op("Where", test, y, d.like(y, y.shape[-1:]))
    elif way == 1:
        test = d.op(d.pick(["And", "Or", "Xor"]), test, d.op("Not", test))
    elif way == 2:
        y = d.op("Mul", d.op("Cast", test, to=y.code), y)
    elif way == 3:
        test = d.op("Not", test)
    if d.chance(0.5):
        linear(d, y, 64)


@idiom
def branches(d: Draft) -> None:
    """One value read by several, joined again in some way."""
    x = rows_of(d)
    y = linear(d, x, d.pick(CHANNELS)) if d.chance(0.6) else x
    arms = [some(d, d.op(d.pick(UNARY), y)) for _ in range(d.int(2, 4))]
    if d.chance(0.4):
        arms = [linear(d, a, 64, False) for a in arms]
    arms = [a for a in arms if a.shape == arms[0].shape]
    if d.chance(0.5) and len(arms) > 1:
        joined = d.op("Concat", *arms, axis=d.pick([-1, 0]))
    else:
        joined = arms[0]
        for a in arms[1:]:
            joined = d.op(d.pick(["Add", "Mul", "Max"]), joined, a)
    if d.chance(0.5):
        linear(d, joined, d.pick(CHANNELS))
