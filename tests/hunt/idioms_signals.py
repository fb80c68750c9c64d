"""Pieces of networks that work on signals: windows along one dimension."""

from __future__ import annotations

from hunt.draft import Draft
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
    if d.chance(0.3):
        y = d.op("Add", y, d.op("Neg", x) if x.shape == y.shape else d.like(y))
    if d.chance(0.3) and y.shape[2] > 3:
        y = d.op(d.pick(["MaxPool", "AveragePool"]), y, kernel_shape=[3], strides=[d.pick([1, 2])])
    if d.chance(0.3):
        d.op("Transpose", y, perm=[0, 2, 1])
