"""Pieces of networks with windows along one dimension or three, and of those that make images and signals larger."""

from __future__ import annotations

import numpy as np
from hunt.draft import Draft, Value
from hunt.formats import F32
from hunt.idioms import idiom


@idiom
def signal(d: Draft) -> None:
    """Groups that fill no whole channel blocks, kernels of more taps than scratchpad has room for, more rows than an instruction takes."""
    way = d.int(0, 2)
    groups, each, length, taps = (
        (d.pick([2, 3, 5, 7]), d.pick([3, 8, 20, 48]), d.pick([17, 60]), d.pick([3, 9])),
        (d.pick([1, 2, 4]), d.pick([48, 64, 96]), d.pick([20, 70]), d.pick([96, 127, 128])),
        (1, d.pick([1, 3]), d.pick([4500, 9000]), d.pick([3, 10])),
    )[way]
    outs = groups * d.pick([each, 2 * each])
    x = d.input(d.draw((d.pick([1, 1, 2]), groups * each, length)))
    w = d.floats(x, (outs, each, taps), scale=(each * taps) ** -0.5)
    pads = [taps // 2 - d.int(0, 1), taps // 2] if way == 1 else d.pick([[0, 0], [taps // 2] * 2, [taps - 1, 0]])
    own = {
        "kernel_shape": [taps],
        "strides": [d.pick([1, 1, 2, 5])],
        "dilations": [d.pick([1, 1, 2]) if taps < 20 else 1],
    }
    y = d.op("Conv", x, w, d.floats(x, (outs,)) if d.chance(0.6) else None, group=groups, pads=pads, **own)
    if d.chance(0.6):
        y = d.op(d.pick(["Relu", "Gelu", "LeakyRelu"]), y)
    for _ in range(d.pick([0, 0, 1, 2])):
        c, k = y.shape[1], d.pick([1, 3, 97]) if y.shape[1] < 130 and y.shape[2] < 100 else 3
        w = d.floats(y, (c, c, k), scale=(c * k) ** -0.5)
        y = d.op(d.pick(["Relu", "Neg"]), d.op("Conv", y, w, kernel_shape=[k], pads=[k // 2] * 2))
    if d.chance(0.3):
        y = d.op("Add", y, d.op("Neg", x) if x.shape == y.shape else d.like(y))
    if d.chance(0.3) and y.shape[2] > 3:
        y = d.op(d.pick(["MaxPool", "AveragePool"]), y, kernel_shape=[3], strides=[d.pick([1, 2])])
    if d.chance(0.3):
        d.op("Transpose", y, perm=[0, 2, 1])


@idiom
def upscaled(d: Draft) -> None:
    """Transposed convolutions: strides that divide their kernels and do not, padding, groups, a place more behind."""
    rank, groups = d.pick([1, 2, 2, 3]), d.pick([1, 1, 1, 2, 3])
    size = [d.int(1, 12 if rank < 3 else 4) for _ in range(rank)]
    kernel, stride = ([d.int(1, most) for _ in range(rank)] for most in (5, 4))
    lo, hi = ([d.int(0, k // 2) for k in kernel] for _ in range(2))
    extra = [d.int(0, s - 1) if d.chance(0.3) else 0 for s in stride]
    out = [s * (n - 1) + e + k - a - b for n, k, s, a, b, e in zip(size, kernel, stride, lo, hi, extra, strict=True)]
    if min(out) < 1:
        lo = hi = [0] * rank
    each, outs = d.pick([1, 3, 16, 33, 64]), d.pick([1, 5, 16, 64])
    x = d.input(d.draw((d.pick([1, 1, 2]), groups * each, *size)))
    w = d.floats(x, (groups * each, outs, *kernel), scale=(each * float(np.prod(kernel))) ** -0.5)
    b = d.floats(x, (groups * outs,)) if d.chance(0.6) else None
    own = {"kernel_shape": kernel, "strides": stride, "pads": lo + hi, "output_padding": extra, "group": groups}
    y = d.op("ConvTranspose", x, w, b, **own)
    if d.chance(0.5):
        y = d.op(d.pick(["Relu", "LeakyRelu", "Tanh"]), y)
    if d.chance(0.4):
        y = d.op("Concat", y, d.like(y), axis=1)
    if d.chance(0.4):
        w = d.floats(y, (d.pick([3, 16]), y.shape[1], *[3] * rank), scale=(y.shape[1] * 3.0**rank) ** -0.5)
        d.op("Conv", y, w, kernel_shape=[3] * rank, pads=[1] * 2 * rank)


@idiom
def volume(d: Draft) -> None:
    """Windows over three dimensions, one after the other."""
    x = d.input(d.draw((d.pick([1, 2]), d.pick([1, 3, 8, 40]), d.int(1, 6), d.pick([4, 7, 9]), d.pick([5, 8]))))
    for _ in range(d.int(1, 3)):
        kernel = [d.pick([k for k in (1, 2, 3) if k <= n]) for n in x.shape[2:]]
        own = {"kernel_shape": kernel, "strides": [d.pick([1, 1, 2]) for _ in kernel]}
        if d.chance(0.6):
            own["pads"] = [k // 2 for k in kernel] * 2
        if d.chance(0.3):
            x = d.op(d.pick(["MaxPool", "MaxPool", "AveragePool"]), x, ceil_mode=d.int(0, 1), **own)
            continue
        groups = d.pick([1, 1, 2]) if x.shape[1] % 2 == 0 else 1
        n = groups * d.pick([2, 8, 33])
        each = x.shape[1] // groups
        w = d.floats(x, (n, each, *kernel), scale=(each * float(np.prod(kernel))) ** -0.5)
        x = d.op("Conv", x, w, d.floats(x, (n,)) if d.chance(0.6) else None, group=groups, **own)
        if d.chance(0.5):
            x = d.op("Relu", x)
    if d.chance(0.3):
        d.op("GlobalAveragePool", x)


@idiom
def long_rows(d: Draft) -> None:
    """Rows that no instruction takes whole, and that are summed in pieces."""
    n = d.pick([4096, 4097, 8200, 16384, 16385, 16449, 20480, 24577])
    x = d.input(d.draw((d.pick([1, 2, 3]) if n < 17000 else 1, n)))
    if d.chance(0.5):
        x = d.op(d.pick(["Mul", "Add"]), x, d.floats(x, (n,)))
    for _ in range(d.pick([1, 1, 2])):
        way = d.int(0, 4)
        if way == 0:
            x = d.op(d.pick(["Softmax", "Softmax", "LogSoftmax"]), x, axis=-1)
        elif way == 1:
            x = d.op("LayerNormalization", x, d.floats(x, (n,)), d.floats(x, (n,)) if d.chance(0.5) else None)
        elif way == 2:
            more = d.op(d.pick(["ReduceMax", "ReduceMean", "ReduceL2"]), x, d.ints(-1), keepdims=1)
            x = d.op("Sub", x, more)
        elif way == 3:
            x = d.op("LpNormalization", x, axis=-1, p=2)
        else:
            x = d.op(d.pick(["Relu", "Tanh", "Neg"]), x)


@idiom
def gated(d: Draft) -> None:
    """Channels times what is made of their means or largest values: squeeze-and-excite, by convolutions or matrix products, with several
    readers of what is gated, and in either order of dimensions."""
    c, size = d.pick([3, 16, 24, 64, 100, 130]), d.pick([(1, 1), (3, 5), (8, 8), (9, 4), (66, 65)])
    x = d.input(d.draw((d.pick([1, 1, 2, 3, 5]), c, *size)))
    last = d.chance(0.2)
    if d.chance(0.7):
        n = d.pick([c, 24, 64, 80])
        x = d.op("Conv", x, d.floats(x, (n, c, 1, 1), scale=c**-0.5), d.floats(x, (n,)))
        x = d.op(d.pick(["Relu", "Sigmoid", "HardSwish"]), x)
    for _ in range(d.pick([1, 1, 2])):
        batch, c = x.shape[:2]
        axes = d.ints(2, 3)
        y = d.op("Transpose", x, perm=[0, 2, 3, 1]) if last else x
        if last:
            axes = d.ints(1, 2)
        means = [d.op("ReduceMean", y, axes, keepdims=1), d.op(d.pick(["ReduceMax", "ReduceMin"]), y, axes, keepdims=1)]
        z = means[0] if d.chance(0.7) else d.op("Add", *means)
        if last:
            z = d.op("Transpose", z, perm=[0, 3, 1, 2])
        mid = d.pick([1, 6, 33])
        flat = d.chance(0.4)
        z = d.op("Reshape", z, d.ints(batch, c)) if flat else z
        for a, b in ((c, mid), (mid, c)):
            w = d.floats(x, (b, a) if flat else (b, a, 1, 1), scale=a**-0.5)
            z = d.op("Gemm", z, w, d.floats(x, (b,)), transB=1) if flat else d.op("Conv", z, w, d.floats(x, (b,)))
            z = d.op("Relu" if b == mid else d.pick(["Sigmoid", "HardSigmoid", "Tanh"]), z)
        z = d.op("Reshape", z, d.ints(batch, c, 1, 1)) if flat else z
        gated = d.op(d.pick(["Mul", "Mul", "Mul", "Add", "Sub", "Max"]), *((x, z) if d.chance(0.5) else (z, x)))
        if d.chance(0.4):
            gated = d.op("Add", gated, x)
        n = d.pick([c, 8, 70])
        x = d.op("Conv", gated, d.floats(x, (n, c, 1, 1), scale=c**-0.5), d.floats(x, (n,)) if d.chance(0.5) else None)
        if n == c and d.chance(0.5):
            x = d.op("Add", x, gated)


def positions(d: Draft, y: Value) -> Value:
    """Images that are enlarged, rolled, framed, cropped, or put below each other: positions go elsewhere with all their channels."""
    axis, way = d.pick([2, 3]), d.int(0, 4)
    n = y.shape[axis]
    if way == 0:
        more = d.weight(np.asarray([1, 1, d.pick([1, 2, 3]), d.pick([1, 2])], np.float32), F32)
        return d.op(
            "Resize", y, None, more, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    if way == 1:
        at = d.int(1, n - 1) if n > 1 else 0
        parts = [d.op("Slice", y, d.ints(a), d.ints(b), d.ints(axis)) for a, b in ((at, n), (0, at)) if a < b]
        return d.op("Concat", *parts, axis=axis)
    if way == 2:
        frame = [d.int(0, 2) for _ in range(4)]
        return d.op("Pad", y, d.ints(0, 0, *frame[:2], 0, 0, *frame[2:]))
    if way == 3:
        return d.op("Slice", y, d.ints(d.int(0, n - 1)), d.ints(n), d.ints(axis), d.ints(d.pick([1, 2])))
    return d.op("Concat", y, d.op("Relu", y), axis=axis)


@idiom
def branched(d: Draft) -> None:
    """Images whose channels grow, are split, go different ways and meet again: channels that begin within a block of others."""
    c, size = d.pick([3, 16, 24, 64, 70]), d.pick([(3, 5), (6, 6), (9, 4), (17, 3)])
    x = d.input(d.draw((d.pick([1, 2, 3, 4, 6]), c, *size)))

    def conv(y: Value, n: int) -> Value:
        k = d.pick([1, 1, 3])
        c = y.shape[1]
        w = d.floats(y, (n, c, k, k), scale=(c * k * k) ** -0.5)
        y = d.op("Conv", y, w, d.floats(y, (n,)) if d.chance(0.6) else None, pads=[k // 2] * 4)
        return d.op(d.pick(["Relu", "HardSwish", "Sigmoid"]), y) if d.chance(0.6) else y

    y = conv(x, d.pick([8, 32, 64, 96]))
    for _ in range(d.int(1, 4)):
        c, way = y.shape[1], d.int(0, 5)
        if way == 0:
            more = [conv(y, d.pick([4, 16, 32, 64])) for _ in range(d.pick([1, 1, 2]))]
            y = d.op("Concat", *((y, *more) if d.chance(0.5) else (*more, y)), axis=1)
        elif way == 1 and c > 1:
            n = d.int(1, c - 1)
            left, right = d.node("Split", [y, d.ints(n, c - n)], n_outputs=2, axis=1)
            y = d.op("Concat", *d.pick([(conv(left, n), right), (right, left), (left, right, conv(right, 8))]), axis=1)
        elif way == 2:
            y = d.op("Slice", y, d.ints(d.int(0, c - 1)), d.ints(c), d.ints(1), d.ints(d.pick([1, 1, 2])))
        elif way == 3:
            y = positions(d, y)
        else:
            y = d.op("Add", y, conv(y, c))
        if d.chance(0.3):
            y = conv(y, d.pick([8, 40, 64]))
