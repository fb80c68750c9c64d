"""Random calls of routines that work along dimensions, add products, or read images and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.routine_drawn import FLOAT, WHOLE, Drawn, numbers, pick, shape_of, spread

from tx8fast.numerics.formats import np_dtype


def reduce(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng)
    op = pick(rng, ("add", "max", "min", "mul", "mean", "l1", "l2", "sumsq", "logsum", "logsumexp"))
    axes = tuple(sorted(int(a) for a in rng.choice(len(shape), rng.integers(0, len(shape) + 1), replace=False)))
    keep = bool(rng.integers(2))
    over = axes or tuple(range(len(shape)))
    out = tuple(1 if d in over else n for d, n in enumerate(shape) if keep or d not in over)
    x = numbers(rng, shape, dtype, op not in ("logsum",), 0 if op.startswith("log") else -4)
    return Drawn(name, [x], [(out, dtype)], {"op": op, "axes": axes, "keepdims": keep})


def arg_reduce(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng)
    axis, keep = int(rng.integers(len(shape))), bool(rng.integers(2))
    out = tuple(1 if d == axis else n for d, n in enumerate(shape) if keep or d != axis)
    attrs = {"axis": axis, "keepdims": keep, "op": pick(rng, ("max", "min")), "select_last": bool(rng.integers(2))}
    return Drawn(name, [numbers(rng, shape, dtype)], [(out, "i64")], attrs)


def topk(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng, 1, 3, 20)
    axis = int(rng.integers(len(shape)))
    k = int(rng.integers(1, shape[axis] + 1))
    out = (*shape[:axis], k, *shape[axis + 1 :])
    return Drawn(name, [numbers(rng, shape, dtype)], [(out, dtype), (out, "i64")],
                 {"axis": axis, "k": k, "largest": bool(rng.integers(2))})  # fmt: skip


def scan(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng)
    attrs = {
        "axis": int(rng.integers(len(shape))),
        "exclusive": bool(rng.integers(2)),
        "reverse": bool(rng.integers(2)),
    }
    return Drawn(name, [numbers(rng, shape, dtype)], [(shape, dtype)], attrs)


def norm(name, rng):
    dtype, shape = pick(rng, FLOAT), shape_of(rng, 1, 4)
    heads, axes = 1, tuple(sorted({int(a) for a in rng.integers(0, len(shape), 2)}))
    if rng.random() < 0.3:
        heads, axes = 3, (-1,)
        shape = (*shape, 12)
    split = shape if heads == 1 else (*shape[:-1], heads, shape[-1] // heads)
    arrays: list[Any] = [numbers(rng, shape, dtype, False)]
    for _ in range(1 if name == "rmsnorm" else 2):
        arrays.append(numbers(rng, spread(rng, split), dtype, False) if rng.random() < 0.7 else None)
    return Drawn(name, arrays, [(shape, dtype)], {"axes": axes, "eps": 1e-5, "heads": heads})


def softmax(name, rng):
    dtype, shape = pick(rng, FLOAT), shape_of(rng)
    arrays: list[Any] = [numbers(rng, shape, dtype, rng.random() < 0.2)]
    if rng.random() < 0.5:
        arrays.append(numbers(rng, spread(rng, shape), pick(rng, ("pred", dtype)), False))
    attrs = {"axis": int(rng.integers(len(shape))), "scale": float(rng.uniform(0.1, 2)), "log": bool(rng.integers(2))}
    return Drawn(name, arrays, [(shape, dtype)], attrs)


def batchnorm(name, rng):
    dtype, shape = pick(rng, FLOAT), shape_of(rng)
    vectors = [numbers(rng, shape[-1:], dtype, False) for _ in range(3)]
    variance = numbers(rng, shape[-1:], dtype, False, 0.1, 3)
    return Drawn(name, [numbers(rng, shape, dtype), *vectors, variance], [(shape, dtype)], {"eps": 1e-5})


def rope(name, rng):
    dtype, heads, width = pick(rng, FLOAT), int(rng.integers(1, 4)), 2 * int(rng.integers(1, 5))
    lead = shape_of(rng, 1, 3)
    lanes = pick(rng, (-1, 2 * int(rng.integers(1, width // 2 + 1))))
    table = (1 if rng.random() < 0.3 else lead[-1], width)
    arrays: list[Any] = [
        numbers(rng, (*lead, heads * width), dtype),
        *(numbers(rng, table, dtype, False) for _ in range(2)),
    ]
    return Drawn(name, arrays, [((*lead, heads * width), dtype)],
                 {"heads": heads, "rotary_dim": lanes, "style": pick(rng, ("half", "interleaved"))})  # fmt: skip


def gemm(name, rng):
    dtype = pick(rng, FLOAT + WHOLE)
    m, k, n = (int(v) for v in rng.integers(1, 9, 3))
    batch = shape_of(rng, 0, 2, 3)
    ta, tb = bool(rng.integers(2)), bool(rng.integers(2))
    a = (*spread(rng, batch), *((k, m) if ta else (m, k)))
    b = (*batch, *((n, k) if tb else (k, n)))
    arrays: list[Any] = [numbers(rng, a, dtype), numbers(rng, b, dtype)]
    if rng.random() < 0.5:
        arrays.append(numbers(rng, (n,), dtype, False))
    attrs = {
        "trans_a": ta,
        "trans_b": tb,
        "act": pick(rng, ("none", "relu", "leaky_relu") if dtype in FLOAT else ("none", "relu")),
    }
    return Drawn(name, arrays, [((*batch, m, n), dtype)], attrs)


def contract(name, rng):
    dtype = pick(rng, FLOAT + WHOLE)
    s = dict(zip("bstdh", (int(v) for v in rng.integers(1, 6, 5)), strict=True))
    equation, shapes, out = pick(rng, (
        ("b s (h d), b t (h d) -> b h s t", (("b", "s", "hd"), ("b", "t", "hd")), ("b", "h", "s", "t")),
        ("s d, d t -> s t", (("s", "d"), ("d", "t")), ("s", "t")),
        ("b s d, d -> s b", (("b", "s", "d"), ("d",)), ("s", "b")),
        ("s d, s d -> s", (("s", "d"), ("s", "d")), ("s",)),
        ("b s, t -> b (s t)", (("b", "s"), ("t",)), ("b", "st")),
    ))  # fmt: skip
    size = lambda dims: tuple(int(np.prod([s[c] for c in d])) for d in dims)  # noqa: E731
    arrays: list[Any] = [numbers(rng, size(d), dtype) for d in shapes]
    sizes = tuple(v for pair in s.items() for v in pair)
    return Drawn(name, arrays, [(size(out), dtype)], {"equation": equation, "sizes": sizes})


def einsum(name, rng):
    dtype = pick(rng, ("f32", "f64", "bf16", "i32", "i64"))
    s = dict(zip("abcd", (int(v) for v in rng.integers(1, 5, 4)), strict=True))
    equation = pick(
        rng, ("ab,bc->ac", "abc,cd->abd", "aab->ab", "ab->ba", "ab,ab->", "ab,bc,cd->ad", "a,b->ab", "abc->b", "aa->a")
    )
    left, out = equation.split("->")
    arrays: list[Any] = [numbers(rng, tuple(s[c] for c in term), dtype, False) for term in left.split(",")]
    return Drawn(name, arrays, [(tuple(s[c] for c in out), dtype)], {"equation": equation})


def _geometry(rng, rank: int) -> dict[str, Any]:
    return {
        "stride": tuple(int(v) for v in rng.integers(1, 3, rank)), "dilation": tuple(int(v) for v in rng.integers(1, 3, rank)),
        "pad_lo": tuple(int(v) for v in rng.integers(0, 2, rank)), "pad_hi": tuple(int(v) for v in rng.integers(0, 2, rank)),
    }  # fmt: skip


def conv(name, rng):
    rank, dtype, groups = (
        int(rng.integers(1, 4)),
        pick(rng, ("f32", "bf16", "f64", "i8", "i32")),
        int(rng.integers(1, 3)),
    )
    kernel = tuple(int(v) for v in rng.integers(1, 4, rank))
    g = _geometry(rng, rank)
    size = tuple(int(rng.integers(d * (k - 1) + 1, 8)) for d, k in zip(g["dilation"], kernel, strict=True))
    each, made = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = numbers(rng, (int(rng.integers(1, 3)), *size, each * groups), dtype, False)
    bias = numbers(rng, (made * groups,), dtype, False) if rng.random() < 0.5 else None
    zipped = zip(size, g["pad_lo"], g["pad_hi"], g["dilation"], kernel, g["stride"], strict=True)
    if name == "conv":
        w = numbers(rng, (*kernel, made * groups, each), dtype, False)
        out = tuple((n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in zipped)
        act = pick(rng, ("none", "relu"))
        return Drawn(
            name, [x, w, bias], [((x.shape[0], *out, made * groups), dtype)], {**g, "groups": groups, "act": act}
        )
    w = numbers(rng, (*kernel, made, each * groups), dtype, False)
    extra = tuple(int(v) for v in rng.integers(0, 2, rank))
    out = tuple(
        max(1, s * (n - 1) + e + d * (k - 1) + 1 - a - b) for (n, a, b, d, k, s), e in zip(zipped, extra, strict=True)
    )
    if any(s * (n - 1) + e + d * (k - 1) + 1 - a - b < 1 for n, a, b, d, k, s, e in zip(
            size, g["pad_lo"], g["pad_hi"], g["dilation"], kernel, g["stride"], extra, strict=True)):  # fmt: skip
        return conv(name, rng)
    return Drawn(
        name, [x, w, bias], [((x.shape[0], *out, made * groups), dtype)], {**g, "groups": groups, "out_pad": extra}
    )


def pool(name, rng):
    rank, dtype = int(rng.integers(1, 4)), pick(rng, FLOAT + ("i8", "u8", "i32") if name != "avg_pool" else FLOAT)
    kernel = tuple(int(v) for v in rng.integers(1, 4, rank))
    g = _geometry(rng, rank)
    g["pad_lo"], g["pad_hi"] = (
        tuple(min(p, k - 1) for p, k in zip(g[key], kernel, strict=True)) for key in ("pad_lo", "pad_hi")
    )
    size = tuple(int(rng.integers(d * (k - 1) + 1, 8)) for d, k in zip(g["dilation"], kernel, strict=True))
    x = numbers(rng, (2, *size, int(rng.integers(1, 4))), dtype)
    attrs = {**g, "kernel": kernel, "ceil_mode": bool(rng.integers(2))}
    attrs |= {"count_pad": bool(rng.integers(2))} if name == "avg_pool" else {}
    attrs |= {"column_major": bool(rng.integers(2))} if name == "max_pool_indices" else {}
    from tx8fast.numerics.routines.convolution import _Windows

    out = _Windows(size, attrs).out
    return Drawn(name, [x], [((2, *out, x.shape[-1]), "i64" if name == "max_pool_indices" else dtype)], attrs)


def col2im(name, rng):
    rank, dtype = int(rng.integers(1, 4)), pick(rng, FLOAT + ("i32", "i8"))
    kernel = tuple(int(v) for v in rng.integers(1, 3, rank))
    g = _geometry(rng, rank)
    image = tuple(int(rng.integers(d * (k - 1) + 1, 6)) for d, k in zip(g["dilation"], kernel, strict=True))
    zipped = zip(image, g["pad_lo"], g["pad_hi"], g["dilation"], kernel, g["stride"], strict=True)
    out = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in zipped]
    x = numbers(rng, (2, 2 * int(np.prod(kernel)), int(np.prod(out))), dtype, False)
    return Drawn(name, [x], [((2, 2, *image), dtype)], {**g, "kernel": kernel, "image": image})


def grid_sample(name, rng):
    rank, dtype = int(rng.integers(1, 4)), pick(rng, ("f32", "f64", "bf16"))
    size, out = shape_of(rng, rank, rank, 5), shape_of(rng, rank, rank, 4)
    x = numbers(rng, (2, 2, *size), dtype, False)
    grid = rng.uniform(-1.6, 1.6, (2, *out, rank)).astype(np_dtype(dtype))
    attrs = {"mode": pick(rng, ("linear", "nearest", "cubic")), "padding": pick(rng, ("zeros", "border", "reflection"))}
    return Drawn(name, [x, grid], [((2, 2, *out), dtype)], {**attrs, "align": bool(rng.integers(2))})


def roi(name, rng):
    h, w, n = int(rng.integers(3, 9)), int(rng.integers(3, 9)), int(rng.integers(1, 4))
    out = tuple(int(v) for v in rng.integers(1, 4, 2))
    low = rng.uniform(0, 0.5, (n, 2)) * (w - 1, h - 1)
    regions = np.concatenate([low, low + rng.uniform(0.1, 0.5, (n, 2)) * (w - 1, h - 1)], axis=1).astype(np.float32)
    batch = rng.integers(0, 2, n)
    x = numbers(rng, (2, 2, h, w), "f32", False)
    if name == "max_roi_pool":
        regions = np.concatenate([batch[:, None], np.floor(regions)], axis=1).astype(np.float32)
        return Drawn(name, [x, regions], [((n, 2, *out), "f32")], {"out": out, "scale": 1.0})
    attrs = {
        "out": out,
        "ratio": int(rng.integers(0, 3)),
        "mode": pick(rng, ("avg", "max")),
        "half_pixel": bool(rng.integers(2)),
    }
    return Drawn(name, [x, regions, batch], [((n, 2, *out), "f32")], {**attrs, "scale": 1.0})


def deform(name, rng):
    groups, per = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    kernel, g = tuple(int(v) for v in rng.integers(1, 3, 2)), _geometry(rng, 2)
    size = tuple(int(rng.integers(d * (k - 1) + 1, 6)) for d, k in zip(g["dilation"], kernel, strict=True))
    zipped = zip(size, g["pad_lo"], g["pad_hi"], g["dilation"], kernel, g["stride"], strict=True)
    out = tuple((n + a + b - d * (k - 1) - 1) // s + 1 for n, a, b, d, k, s in zipped)
    channels, made, taps = 4, 2 * groups, int(np.prod(kernel))
    arrays: list[Any] = [
        numbers(rng, (2, channels, *size), "f32", False), numbers(rng, (made, channels // groups, *kernel), "f32", False),
        numbers(rng, (2, 2 * per * taps, *out), "f32", False), numbers(rng, (made,), "f32", False),
        numbers(rng, (2, per * taps, *out), "f32", False),
    ]  # fmt: skip
    return Drawn(name, arrays, [((2, made, *out), "f32")], {**g, "groups": groups, "offset_groups": per})


def recurrent(name, rng):
    net = pick(rng, ("rnn", "gru", "lstm"))
    gates, per = {"rnn": (1, 1), "gru": (3, 2), "lstm": (4, 3)}[net]
    direction = pick(rng, ("forward", "reverse", "bidirectional"))
    d = 2 if direction == "bidirectional" else 1
    t, b, i, h = (int(v) for v in rng.integers(1, 5, 4))
    f = lambda *shape: rng.normal(0, 0.5, shape).astype(np.float32)  # noqa: E731
    lengths = rng.integers(0, t + 1, b).astype(np.int64)
    arrays: list[Any] = [
        f(t, b, i),
        f(d, gates * h, i),
        f(d, gates * h, h),
        f(d, 2 * gates * h),
        lengths,
        f(d, b, h),
        f(d, b, h),
        f(d, 3 * h),
    ]
    attrs = {"net": net, "direction": direction, "clip": pick(rng, (0.0, 0.4)), "linear_before_reset": bool(rng.integers(2)),
             "input_forget": bool(rng.integers(2)), "activations": tuple(pick(rng, ("Sigmoid", "Tanh", "Relu")) for _ in range(per * d))}  # fmt: skip
    return Drawn(name, arrays, [((t, d, b, h), "f32"), ((d, b, h), "f32"), ((d, b, h), "f32")], attrs)


def det(name, rng):
    dtype, n = pick(rng, FLOAT), int(rng.integers(1, 6))
    lead = shape_of(rng, 0, 2, 3)
    return Drawn(name, [numbers(rng, (*lead, n, n), dtype, False)], [(lead, dtype)])
