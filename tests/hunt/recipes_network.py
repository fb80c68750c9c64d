"""Recipes: products, convolutions, pools, norms, activations with parameters, recurrent layers, attention."""

from __future__ import annotations

from typing import Any

import numpy as np
from hunt.draft import MICROSOFT, Draft, Unfit, Value
from hunt.formats import I32, I64
from hunt.recipes import recipe

WIDTHS = (1, 3, 16, 32, 63, 64, 65, 96, 127, 128, 129, 192)


@recipe("MatMul")
def matmul(d: Draft, x: Value, op: str) -> Value:
    if not x.is_float or not x.rank:
        raise Unfit("no matrix of floats")
    if d.chance(0.3) and x.rank > 1:  # x is the second operand
        shape = (*(x.shape[:-2] if d.chance(0.7) else ()), d.pick(WIDTHS), x.shape[-2])
        return d.op(op, d.floats(x, shape, scale=shape[-1] ** -0.5) if d.chance(0.4) else d.like(x, shape), x)
    if x.rank > 2 and d.chance(0.4):  # both run over batches
        shape = (*x.shape[:-2], x.shape[-1], d.pick(WIDTHS))
        return d.op(op, x, d.like(x, shape))
    return d.op(op, x, d.floats(x, (x.shape[-1], d.pick(WIDTHS)), scale=x.shape[-1] ** -0.5))


@recipe("Gemm")
def gemm(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 2:
        raise Unfit("rank")
    ta, tb, n = d.int(0, 1), d.int(0, 1), d.pick(WIDTHS)
    m, k = x.shape[::-1] if ta else x.shape
    w = d.floats(x, (n, k) if tb else (k, n), scale=k**-0.5)
    c = d.floats(x, d.pick([(n,), (m, n), (m, 1), ()])) if d.chance(0.7) else None
    return d.op(op, x, w, c, transA=ta, transB=tb, alpha=d.pick([1.0, 0.5]), beta=d.pick([1.0, 2.0]))


@recipe("Einsum")
def einsum(d: Draft, x: Value, op: str) -> Value:
    letters = "abcdefgh"[: x.rank]
    if not 2 <= x.rank <= 8 or not x.is_float:
        raise Unfit("rank")
    way = d.int(0, 3)
    if way == 0:
        return d.op(op, x, equation=f"{letters}->{letters[::-1]}")
    k, n = d.int(0, x.rank - 1), d.pick(WIDTHS)
    w = d.floats(x, (x.shape[k], n), scale=x.shape[k] ** -0.5)
    out = letters.replace(letters[k], "")
    if way == 1:
        return d.op(op, x, w, equation=f"{letters},{letters[k]}z->{out}z")
    return d.op(op, w, x, equation=f"{letters[k]}z,{letters}->{'z' + out if way == 2 else out + 'z'}")


@recipe("Det")
def det(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] > 4:
        raise Unfit("no small square matrix")
    return d.op(op, x)


def _window(d: Draft, x: Value, most: int = 3) -> dict:
    """Attributes of a window over the trailing dimensions."""
    space = x.shape[2:]
    if x.rank < 3 or x.rank > 4:
        raise Unfit("rank")
    kernel = [d.pick([k for k in (1, 2, most) if k <= s]) for s in space]
    found = {"kernel_shape": kernel, "strides": [d.pick([1, 1, 2]) for _ in space]}
    if d.chance(0.5):
        pads = [k // 2 for k in kernel]
        found["pads"] = pads + pads
    elif d.chance(0.2):
        found["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER"])
    return found


@recipe("Conv")
def conv(d: Draft, x: Value, op: str) -> Value:
    attrs = _window(d, x, d.pick([3, 3, 5, 7]))
    c = x.shape[1]
    groups = d.pick([1, 1, 1, c, 2 if c % 2 == 0 else 1])
    out = groups * d.pick([1, 2]) if groups > 1 else d.pick(WIDTHS)
    if "auto_pad" not in attrs and d.chance(0.1):  # also windows that see padding alone
        attrs["pads"] = [d.int(0, k + 1) for k in (*attrs["kernel_shape"], *attrs["kernel_shape"])]
    if "auto_pad" not in attrs and d.chance(0.15):
        attrs["dilations"] = [2 if (k - 1) * 2 < s else 1 for k, s in zip(attrs["kernel_shape"], x.shape[2:])]
    n = c // groups * int(np.prod(attrs["kernel_shape"]))
    w = d.floats(x, (out, c // groups, *attrs["kernel_shape"]), scale=n**-0.5)
    return d.op(op, x, w, d.floats(x, (out,)) if d.chance(0.6) else None, group=groups, **attrs)


@recipe("ConvTranspose")
def conv_transpose(d: Draft, x: Value, op: str) -> Value:
    attrs = _window(d, x)
    c, out = x.shape[1], d.pick([1, 3, 64])
    if "auto_pad" in attrs and any(k < s for k, s in zip(attrs["kernel_shape"], attrs["strides"])):
        raise Unfit("padding of less than nothing, which the reference leaves out")
    w = d.floats(x, (c, out, *attrs["kernel_shape"]), scale=c**-0.5)
    return d.op(op, x, w, d.floats(x, (out,)) if d.chance(0.5) else None, **attrs)


@recipe("DeformConv")
def deform_conv(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4 or min(x.shape[2:]) < 3 or x.array.size > 4000:
        raise Unfit("no small image")
    n, c, h, w = x.shape
    weight = d.floats(x, (3, c, 3, 3), scale=(9 * c) ** -0.5)
    return d.op(op, x, weight, d.floats(x, (n, 18, h, w), "unit"), kernel_shape=[3, 3], pads=[1, 1, 1, 1])


@recipe("AveragePool", "MaxPool", "LpPool")
def pool(d: Draft, x: Value, op: str) -> Value:
    attrs = _window(d, x)
    if op == "AveragePool":
        attrs["count_include_pad"] = d.int(0, 1)
    if op == "LpPool":
        attrs["p"] = d.pick([1, 2])
    if op == "MaxPool" and d.chance(0.2):
        return d.pick(d.node(op, [x], 2, **attrs))
    if d.chance(0.2) and "auto_pad" not in attrs and op != "LpPool":
        attrs["ceil_mode"] = 1
    return d.op(op, x, **attrs)


@recipe("MaxUnpool")
def max_unpool(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4:
        raise Unfit("rank")
    n, c, h, w = x.shape
    corner = 4 * w * np.arange(h)[:, None] + 2 * np.arange(w)[None, :]
    places = corner + 4 * h * w * np.arange(n * c).reshape(n, c, 1, 1)
    return d.op(op, x, d.weight(places.astype(np.int64)), kernel_shape=[2, 2], strides=[2, 2])


@recipe("MaxRoiPool", "RoiAlign")
def roi(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4:
        raise Unfit("rank")
    n, _, h, w = x.shape
    boxes = np.asarray([[0, 0, w - 1, h - 1], [0, 0, w // 2, h // 2]], np.float32)
    if op == "MaxRoiPool":
        rows = np.concatenate([np.zeros((2, 1), np.float32), boxes], 1)
        return d.op(op, x, d.weight(short(rows), x.code), pooled_shape=[2, 2])
    return d.op(op, x, d.weight(short(boxes), x.code), d.weight(np.asarray([0, n - 1], np.int64)), output_height=2,
                output_width=2, sampling_ratio=2)  # fmt: skip


def short(a: np.ndarray) -> np.ndarray:
    from hunt import formats

    return formats.short(a)


@recipe("GlobalLpPool")
def global_lp(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, p=d.pick([1, 2]))


@recipe("BatchNormalization")
def batch_norm(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2:
        raise Unfit("rank")
    c = (x.shape[1],)
    return d.op(op, x, d.floats(x, c, "positive"), d.floats(x, c), d.floats(x, c), d.floats(x, c, "positive"))


@recipe("InstanceNormalization")
def instance_norm(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 3:
        raise Unfit("rank")
    return d.op(op, _spread(x), d.floats(x, (x.shape[1],), "positive"), d.floats(x, (x.shape[1],)))


def _spread(x: Value) -> Value:
    """Values that are all equal have no variance to divide by."""
    if not x.is_float or x.array.size < 2 or x.array.std() < 1e-3 * (np.abs(x.array).max() + 1e-6):
        raise Unfit("no variance")
    return x


@recipe("GroupNormalization")
def group_norm(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 3:
        raise Unfit("rank")
    c = x.shape[1]
    groups = d.pick([g for g in (1, 2, 4, 8) if c % g == 0])
    return d.op(op, _spread(x), d.floats(x, (c,), "positive"), d.floats(x, (c,)), num_groups=groups)


@recipe("LayerNormalization", "RMSNormalization")
def layer_norm(d: Draft, x: Value, op: str) -> Value:
    axis = d.pick([-1, -1, d.axis(x)])
    shape = x.shape[axis:]
    scale = d.floats(x, shape, "positive")
    if op == "RMSNormalization":
        return d.op(op, x, scale, axis=axis)
    return d.op(op, _spread(x), scale, d.floats(x, shape) if d.chance(0.6) else None, axis=axis)


@recipe("SimplifiedLayerNormalization")
def simplified_norm(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, d.floats(x, x.shape[-1:], "positive"), axis=-1, epsilon=1e-5, stash_type=1)


@recipe("LpNormalization")
def lp_norm(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, axis=d.axis(x), p=d.pick([1, 2]))


@recipe("MeanVarianceNormalization")
def mvn(d: Draft, x: Value, op: str) -> Value:
    axes = [0, 2, 3] if x.rank == 4 else [d.int(0, x.rank - 1)]
    if (
        np.prod([x.shape[a] for a in axes]) < 16
    ):  # the mean of a few is near each of them: roundings are all that is left
        raise Unfit("too few numbers for a variance")
    return d.op(op, _spread(x), axes=axes)


@recipe("LRN")
def lrn(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, size=d.pick([1, 3, 5]), alpha=0.1)


@recipe("Softmax", "LogSoftmax", "Hardmax")
def softmax(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, axis=d.pick([-1, -1, d.axis(x)]))


@recipe("Gelu")
def gelu(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, approximate=d.pick(["none", "tanh"]))


@recipe("Clip")
def clip(d: Draft, x: Value, op: str) -> Value:
    dtype = x.array.dtype
    low, high = (
        d.weight(np.asarray(v, dtype), x.code) if d.chance(0.8) else None for v in (-0.5 if x.is_float else 1, 2)
    )
    return d.op(op, x, low, high)


@recipe("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")
def alpha(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, alpha=d.pick([0.125, 0.5, 1.0]))


@recipe("Shrink")
def shrink(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, lambd=0.5, bias=d.pick([0.0, 0.5]))


@recipe("PRelu")
def prelu(d: Draft, x: Value, op: str) -> Value:
    shape = d.pick([(1,) if x.rank else (), x.shape, (x.shape[1], *(1,) * (x.rank - 2)) if x.rank > 1 else x.shape])
    return d.op(op, x, d.floats(x, shape, "unit"))


@recipe("RNN", "GRU", "LSTM")
def recurrent(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3 or x.shape[0] > 8:
        raise Unfit("no short sequence")
    gates, hidden = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], d.pick([3, 16, 64])
    way = d.pick(["forward", "reverse", "bidirectional"])
    n = 2 if way == "bidirectional" else 1
    w = d.floats(x, (n, gates * hidden, x.shape[2]), scale=x.shape[2] ** -0.5)
    r = d.floats(x, (n, gates * hidden, hidden), scale=hidden**-0.5)
    b = d.floats(x, (n, 2 * gates * hidden)) if d.chance(0.6) else None
    more: dict[str, Any] = {"linear_before_reset": d.int(0, 1)} if op == "GRU" else {}
    return d.pick(d.node(op, [x, w, r, b], 3 if op == "LSTM" else 2, hidden_size=hidden, direction=way, **more))


@recipe("Attention")
def attention(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4:
        raise Unfit("rank")
    keys = d.pick([1, x.shape[2], 65])
    k, v = d.like(x, (*x.shape[:2], keys, x.shape[3])), d.like(x, (*x.shape[:2], keys, d.pick([x.shape[3], 32])))
    mask = d.floats(x, d.pick([(x.shape[2], keys), (1, 1, x.shape[2], keys)])) if d.chance(0.4) else None
    more: dict[str, Any] = {"scale": 0.25} if d.chance(0.3) else {}
    return d.op(op, x, k, v, mask, is_causal=d.int(0, 1) if keys == x.shape[2] else 0, **more)


@recipe("RotaryEmbedding")
def rotary(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4 or x.shape[-1] % 2:
        raise Unfit("no heads of even width")
    table = [d.floats(x, (x.shape[2] + 3, x.shape[-1] // 2), "unit") for _ in range(2)]
    places = d.rng.integers(0, x.shape[2] + 3, (x.shape[0], x.shape[2])).astype(np.int64)
    return d.op(op, x, *table, d.input(places, I64), interleaved=d.int(0, 1))


# ---- contributed operators


@recipe("Gelu", "FastGelu", "QuickGelu", domain=MICROSOFT)
def contributed_gelu(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, domain=MICROSOFT)


@recipe("BiasGelu", domain=MICROSOFT)
def bias_gelu(d: Draft, x: Value, op: str) -> Value:
    return d.op(op, x, d.floats(x, x.shape[-1:]), domain=MICROSOFT)


@recipe("FusedMatMul", domain=MICROSOFT)
def fused_matmul(d: Draft, x: Value, op: str) -> Value:
    if x.rank < 2 or not x.is_float:
        raise Unfit("rank")
    ta, tb, n = d.int(0, 1), d.int(0, 1), d.pick(WIDTHS)
    k = x.shape[-2] if ta else x.shape[-1]
    shape = (*x.shape[:-2], n, k) if tb else (*x.shape[:-2], k, n)
    return d.op(op, x, d.like(x, shape), domain=MICROSOFT, alpha=0.125, transA=ta, transB=tb)


@recipe("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_norm(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3:
        raise Unfit("rank")
    return d.op(op, _spread(x), d.like(x), d.floats(x, x.shape[-1:], "positive"), domain=MICROSOFT)


@recipe("MultiHeadAttention", domain=MICROSOFT)
def multi_head(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3:
        raise Unfit("rank")
    heads = d.pick([h for h in (1, 2, 4) if x.shape[2] % h == 0])
    keys = (x.shape[0], d.pick([x.shape[1], 65]), x.shape[2])
    k, v = d.like(x, keys), d.like(x, keys)
    ins = d.pick([(x, k, v), (d.like(x), x, d.like(x)), (d.like(x), d.like(x), x)])
    return d.op(op, *ins, domain=MICROSOFT, num_heads=heads)


@recipe("Attention", domain=MICROSOFT)
def packed_attention(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3:
        raise Unfit("rank")
    hidden, heads = d.pick([(16, 2), (64, 1), (128, 2)])
    w = d.floats(x, (x.shape[2], 3 * hidden), scale=x.shape[2] ** -0.5)
    return d.op(op, x, w, d.floats(x, (3 * hidden,)), domain=MICROSOFT, num_heads=heads, unidirectional=d.int(0, 1))


@recipe("GroupQueryAttention", domain=MICROSOFT)
def group_query(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 3 or x.shape[2] % 16:
        raise Unfit("no rows of heads")
    b, s, width = x.shape
    heads = width // 16
    kv = d.pick([k for k in (1, 2, heads) if heads % k == 0])
    k, v = d.like(x, (b, s, 16 * kv)), d.like(x, (b, s, 16 * kv))
    lengths = d.weight(np.full((b,), s - 1, np.int32), I32)
    total = d.weight(np.asarray(s, np.int32), I32)
    ins = [x, k, v, None, None, lengths, total]
    return d.node(op, ins, 3, domain=MICROSOFT, num_heads=heads, kv_num_heads=kv)[0]


@recipe("RotaryEmbedding", domain=MICROSOFT)
def contributed_rotary(d: Draft, x: Value, op: str) -> Value:
    if x.rank != 4 or x.shape[-1] % 2:
        raise Unfit("no heads of even width")
    table = [d.floats(x, (x.shape[2] + 3, x.shape[-1] // 2), "unit") for _ in range(2)]
    places = d.rng.integers(0, x.shape[2] + 3, (x.shape[0], x.shape[2])).astype(np.int64)
    return d.op(op, x, d.input(places, I64), *table, domain=MICROSOFT, interleaved=d.int(0, 1))


@recipe("EmbedLayerNormalization", domain=MICROSOFT)
def embed_norm(d: Draft, x: Value, op: str) -> Value:
    if x.code != I32 or x.rank != 2 or x.array.min() < 0 or x.array.max() > 4000:
        raise Unfit("no token ids")
    width = 64
    word = d.weight(d.draw((int(x.array.max()) + 1, width)))
    place = d.weight(d.draw((x.shape[1], width)))
    gamma, beta = d.weight(d.draw((width,), "positive")), d.weight(d.draw((width,)))
    return d.node(op, [x, None, word, place, None, gamma, beta], 2, domain=MICROSOFT)[0]
