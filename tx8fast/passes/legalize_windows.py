"""Rewrites windows that no engine slides into those of a convolution or pool over rows and columns.

May import: ir, passes.{lift_match, make}. Must not: round differently from the original, but for means over three dimensions,
which are means of means: every other sum stays one sum of one op.
"""

from __future__ import annotations

import math

from tx8fast.ir.core import Op
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.passes.lift_match import static
from tx8fast.passes.make import Make

FLOATS = ("bf16", "f16", "f32")
MAX_CHANNELS = 16384  # of a convolution's fields


@pattern("conv_transpose", "conv_transpose_nd")
def _by_phases(op: Op, rw: Rewriter) -> bool:
    """y[s q + r - lo] = sum over t of x[q - t] w[s t + r]: with stride s every remainder r has taps of its own. They are channels of one
    convolution with stride 1, whose results are then put between each other. A kernel that the stride does not divide gets taps of zeros."""
    x, w, *bias = op.operands
    if not static(*op.operands, op.result) or x.dtype not in FLOATS or w.dtype != x.dtype:
        return False
    rank, groups = len(x.shape) - 2, op.attrs["groups"]
    axes, (outs, ins), n, out = range(rank), w.shape[rank:], x.shape[1:-1], op.result.shape[1:-1]
    stride, dilation, lo = (tuple(op.attrs[a]) for a in ("stride", "dilation", "pad_lo"))
    if any(d > 1 and k > 1 and s > 1 for d, k, s in zip(dilation, w.shape, stride)) or min(lo) < 0 or 0 in (*n, *out):
        return False
    if math.prod(stride) * outs * groups > MAX_CHANNELS:
        return _fewer_channels(op, rw)
    taps = [-(-k // s) for k, s in zip(w.shape, stride)]
    gap = [d if s == 1 else 1 for d, s in zip(dilation, stride)]
    first = [p // s for p, s in zip(lo, stride)]  # values of q
    last = [(p + o - 1) // s for p, o, s in zip(lo, out, stride)]
    before = [(t - 1) * d - q for t, d, q in zip(taps, gap, first)]
    behind = [q - m + 1 for q, m in zip(last, n)]
    size = [m + min(a, 0) + min(b, 0) for m, a, b in zip(n, before, behind)]
    if min(size) < 1:
        return False
    make = Make(rw, op)
    x = make.slice(x, (0, *(max(0, -a) for a in before), 0), (x.shape[0], *size, x.shape[-1]))

    # groups first, so that no step has more than eight dimensions
    w = make.reshape(w, *w.shape[:rank], outs, groups, ins // groups)
    w = make.transpose(w, *axes, rank + 1, rank, rank + 2)
    w = make.reshape(w, *w.shape[:rank], groups, outs * (ins // groups))
    w = make.pad(w, [0] * (rank + 2), [*(t * s - k for t, s, k in zip(taps, stride, w.shape)), 0, 0])
    w = make.reshape(w, *(m for pair in zip(taps, stride) for m in pair), *w.shape[rank:])
    turned = [i < 2 * rank and i % 2 == 0 and m > 1 for i, m in enumerate(w.shape)]
    start = [m - 1 if t else 0 for m, t in zip(w.shape, turned)]
    w = make.slice(w, start, w.shape, [-1 if t else 1 for t in turned])
    w = make.transpose(w, *(2 * i for i in axes), 2 * rank, *(2 * i + 1 for i in axes), 2 * rank + 1)
    phases, channels = math.prod(stride), outs * groups
    w = make.reshape(w, *taps, phases * channels, ins // groups)
    for i, b in enumerate(bias):
        b = make.reshape(b, groups, *[1] * rank, outs)
        bias[i] = make.reshape(make("broadcast", b, shape=(groups, *stride, outs)), phases * channels)

    pads = {"pad_lo": tuple(max(0, a) for a in before), "pad_hi": tuple(max(0, b) for b in behind)}
    kind = "conv" if rank == 2 else "conv_nd"
    y = make(kind, x, w, *bias, groups=groups, stride=(1,) * rank, dilation=tuple(gap), **pads)
    many = [b - a + 1 for a, b in zip(first, last)]
    y = make.reshape(y, x.shape[0] * many[0], *many[1:], groups, *stride, outs)
    y = make.transpose(y, *(p for i in axes for p in (i, rank + 1 + i)), rank, 2 * rank + 1)
    y = make.reshape(y, x.shape[0], *(m * s for m, s in zip(many, stride)), channels)
    begin = [p - s * q for p, s, q in zip(lo, stride, first)]
    rw.replace(op, [make.slice(y, (0, *begin, 0), op.result.shape)])
    return True


def _fewer_channels(op: Op, rw: Rewriter) -> bool:
    """Parts of a transposed convolution whose phases have more channels than an instruction takes: groups, or channels of one."""
    x, w, *bias = op.operands
    rank, groups = len(x.shape) - 2, op.attrs["groups"]
    outs, ins = w.shape[rank], w.shape[rank + 1] // groups
    most = MAX_CHANNELS // math.prod(op.attrs["stride"])  # channels of a part
    if most < 1 or (most < outs and groups > 1):
        return False
    step = most if groups == 1 else most // outs
    make, parts = Make(rw, op), []
    corner = (0,) * rank
    for a in range(0, outs if groups == 1 else groups, step):
        n = min(step, (outs if groups == 1 else groups) - a)
        if groups == 1:
            own = x, make.slice(w, (*corner, a, 0), (*w.shape[:rank], n, ins))
        else:
            own = (make.slice(x, (0, *corner, a * ins), (*x.shape[:-1], n * ins)),
                   make.slice(w, (*corner, 0, a * ins), (*w.shape[:rank], outs, n * ins)))  # fmt: skip
        first, count = (a, n) if groups == 1 else (a * outs, n * outs)
        given = [make.slice(b, (first,), (count,)) for b in bias]
        parts.append(make(op.kind, *own, *given, **{**op.attrs, "groups": 1 if groups == 1 else n}))
    rw.replace(op, [make("concat", *parts, axis=rank + 1)])
    return True


@pattern("conv_nd")
def _depth_as_channels(op: Op, rw: Rewriter) -> bool:
    """The taps along the first of three dimensions become channels: every place has beside its own channels those of the places that its
    taps see."""
    x, w = op.operands[:2]
    if not static(*op.operands, op.result) or len(x.shape) != 5 or x.dtype not in FLOATS or w.dtype != x.dtype:
        return False
    groups, (deep, *kernel, outs, ins) = op.attrs["groups"], w.shape
    batch, depth, out = x.shape[0], op.result.shape[1], op.result.shape
    if (
        0 in (*x.shape, *out)
        or deep * x.shape[-1] > MAX_CHANNELS
        or min(op.attrs["pad_lo"][0], op.attrs["pad_hi"][0]) < 0
    ):
        return False
    make = Make(rw, op)
    x = make.pad(x, (0, op.attrs["pad_lo"][0], 0, 0, 0), (0, op.attrs["pad_hi"][0], 0, 0, 0))
    image = x.shape[2:4]
    step = op.attrs["stride"][0]
    seen = []
    for tap in range(deep):
        at = make.slice(
            x, (0, tap * op.attrs["dilation"][0], 0, 0, 0), (batch, depth, *x.shape[2:]), (1, step, 1, 1, 1)
        )
        seen.append(make.reshape(at, batch * depth, *image, groups, ins))
    y = seen[0] if deep == 1 else make("concat", *seen, axis=4)
    y = make.reshape(y, batch * depth, *image, groups * deep * ins)
    w = make.reshape(make.transpose(w, 1, 2, 3, 0, 4), *kernel, outs, deep * ins)
    rest = {a: tuple(op.attrs[a][1:]) for a in ("stride", "dilation", "pad_lo", "pad_hi")}
    y = make("conv", y, w, *op.operands[2:], groups=groups, **rest)
    rw.replace(op, [make.reshape(y, *out)])
    return True


@pattern("max_pool_nd", "avg_pool_nd")
def _one_after_the_other(op: Op, rw: Rewriter) -> bool:
    """The largest of three dimensions is the largest along the first one of the largest along the others; so is the mean, as the elements of
    a window are the product of those along each dimension, with padding counted or without."""
    x, out = op.operands[0], op.result.shape
    if not static(x, op.result) or len(x.shape) != 5 or 0 in (*x.shape, *out):
        return False
    make = Make(rw, op)
    (batch, depth, *image, channels), kind = x.shape, op.kind.removesuffix("_nd")
    same = {a: op.attrs[a] for a in ("ceil_mode", "count_pad") if a in op.attrs}
    names = ("kernel", "stride", "dilation", "pad_lo", "pad_hi")
    y = make.reshape(x, batch * depth, *image, channels)
    y = make(kind, y, **same, **{a: tuple(op.attrs[a][1:]) for a in names})
    y = make.reshape(y, batch, depth, math.prod(out[2:4]), channels)
    neutral = {"kernel": 1, "stride": 1, "dilation": 1, "pad_lo": 0, "pad_hi": 0}
    y = make(kind, y, **same, **{a: (op.attrs[a][0], neutral[a]) for a in names})
    rw.replace(op, [make.reshape(y, *out)])
    return True


WINDOWS: tuple[Pattern, ...] = (_by_phases, _depth_as_channels, _one_after_the_other)
