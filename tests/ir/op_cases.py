"""Random instances of every op kind that has a factor rule and a reference routine, for generated tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tx8fast.ir import Block, Builder, Context, Op
from tx8fast.ir.ops import elementwise

F32, I64, PRED = "f32", "i64", "pred"


@dataclass
class Case:
    """Operands: (shape, dtype) or (shape, dtype, upper bound of integer values) or None."""

    kind: str
    operands: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)


def _dims(rng, n, low=1, high=5):
    return tuple(int(d) for d in rng.integers(low, high + 1, n))


def _broadcastable(rng, shape):
    cut = int(rng.integers(0, len(shape) + 1))
    return tuple(1 if rng.random() < 0.4 else d for d in shape[cut:])


def _elementwise(rng, kind, d):
    shape = _dims(rng, int(rng.integers(1, 4)))
    dtype = {"and": "i32", "or": PRED, "xor": "i32", "shl": "i32", "shr": "i32", "not": PRED}.get(kind, F32)
    spec = (lambda s: (s, dtype, 8)) if dtype == "i32" else (lambda s: (s, dtype))
    if kind == "select":
        return Case(kind, [(shape, PRED), (_broadcastable(rng, shape), F32), (shape, F32)])
    if kind == "map":
        steps = "sub 1.0 %1; max %2 %0; gt %3 0.25; select %4 %3 -2.0"
        return Case(kind, [(shape, F32), (_broadcastable(rng, shape), F32)], {"steps": steps})
    if kind == "convert":
        return Case(kind, [(shape, F32)], {"dtype": "bf16"})
    if kind == "clamp":
        return Case(kind, [(shape, F32)], {"lo": 0.4, "hi": 1.2})
    if len(d.ins) == 2:
        return Case(kind, [spec(shape), spec(_broadcastable(rng, shape))])
    return Case(kind, [spec(shape)])


def _gemm(rng):
    m, k, n = _dims(rng, 3)
    ta, tb = bool(rng.integers(2)), bool(rng.integers(2))
    lead = _dims(rng, int(rng.integers(0, 3)))
    lhs = (*lead, k, m) if ta else (*lead, m, k)
    rhs = (*_broadcastable(rng, lead), *((n, k) if tb else (k, n)))
    bias = [None, ((n,), F32), ((m, 1), F32)][int(rng.integers(3))]
    return Case("gemm", [(lhs, F32), (rhs, F32), *([bias] if bias else [])], {"trans_a": ta, "trans_b": tb})


def _contract(rng):
    b, s, t, h, g, d = _dims(rng, 6)
    if rng.random() < 0.5:
        shapes = [(b, s, h * g * d), (b, t, h * d)]
        return Case("contract", [(x, F32) for x in shapes],
                    {"equation": "b s (h g d), b t (h d) -> b (h g) s t", "sizes": ("h", h, "d", d)})  # fmt: skip
    shapes = [(b, h * g, s, t), (b, t, h * d)]
    return Case("contract", [(x, F32) for x in shapes],
                {"equation": "b (h g) s t, b t (h d) -> b s (h g d)", "sizes": ("h", h)})  # fmt: skip


def _window(rng):
    return {
        "stride": _dims(rng, 2, 1, 3), "dilation": _dims(rng, 2, 1, 2),
        "pad_lo": _dims(rng, 2, 0, 1), "pad_hi": _dims(rng, 2, 0, 1),
    }  # fmt: skip


def _conv(rng):
    g, o, c = _dims(rng, 3, 1, 3)
    kernel = _dims(rng, 2, 1, 3)
    n, h, w = _dims(rng, 1)[0], *_dims(rng, 2, 6, 9)
    bias = [((g * o,), F32)] if rng.random() < 0.5 else []
    return Case(
        "conv",
        [((n, h, w, g * c), F32), ((*kernel, o * g, c), F32), *bias],
        {**_window(rng), "groups": g},
    )


def _conv_transpose(rng):
    g, o, c = _dims(rng, 3, 1, 2)
    kernel, (h, w) = _dims(rng, 2, 2, 3), _dims(rng, 2, 3, 5)
    attrs = {**_window(rng), "groups": g}
    return Case("conv_transpose", [((1, h, w, g * c), F32), ((*kernel, o, g * c), F32)], attrs)


def _pool(rng, kind):
    kernel, shape = _dims(rng, 2, 2, 3), (*_dims(rng, 1), *_dims(rng, 2, 6, 9), *_dims(rng, 1))
    extra = {"count_pad": bool(rng.integers(2))} if kind == "avg_pool" else {}
    return Case(kind, [(shape, F32)], {"kernel": kernel, **_window(rng), **extra})


def _axis_kind(rng, kind):
    x = _dims(rng, 3)
    axis = int(rng.integers(-3, 3))
    if kind == "softmax":
        mask = [(_broadcastable(rng, x), F32)] if rng.random() < 0.5 else []
        return Case(kind, [(x, F32), *mask], {"axis": axis, "log": bool(rng.integers(2))})
    if kind == "arg_reduce":
        return Case(kind, [(x, F32)], {"axis": axis, "keepdims": bool(rng.integers(2))})
    if kind == "topk":
        return Case(kind, [(x, F32)], {"axis": axis, "k": int(rng.integers(1, x[axis] + 1))})
    if kind == "cumsum":
        return Case(kind, [(x, F32)], {"axis": axis, "reverse": bool(rng.integers(2))})
    if kind == "reduce":
        axes = tuple(int(a) for a in rng.permutation(3)[: int(rng.integers(1, 4))])
        what = ("add", "max", "min", "mul", "mean", "l1", "l2", "sumsq", "logsum", "logsumexp")[int(rng.integers(10))]
        return Case(kind, [(x, F32)], {"op": what, "axes": axes, "keepdims": bool(rng.integers(2))})
    if rng.random() < 0.25:
        heads, own = _dims(rng, 2)
        more = [((own,), F32)] * (2 if kind == "layernorm" else 1)
        return Case(kind, [((*x[:2], heads * own), F32), *more], {"axes": (-1,), "heads": heads})
    axes = ((-1,), (1, 2), (-2, -1))[int(rng.integers(3))]
    norm = tuple(x[len(x) - len(axes) :])
    more = [(norm, F32)] * (2 if kind == "layernorm" else 1)
    return Case(kind, [(x, F32), *more], {"axes": axes})


def _movement(rng, kind):
    x = _dims(rng, 3)
    if kind == "transpose":
        return Case(kind, [(x, F32)], {"perm": tuple(int(p) for p in rng.permutation(3))})
    if kind == "reshape":
        shapes = [
            (4, 6),
            (6, 4),
            (2, 2, 6),
            (24,),
            (3, 8),
            (2, 3, 4),
            (1, 24, 1),
            (4, 3, 2),
            (12, 2),
        ]
        i, j = rng.integers(0, len(shapes), 2)
        return Case(kind, [(shapes[i], F32)], {"shape": shapes[j]})
    if kind == "broadcast":
        return Case(kind, [(_broadcastable(rng, x), F32)], {"shape": x})
    if kind == "concat":
        axis = int(rng.integers(-3, 3))
        parts = [tuple(int(rng.integers(1, 4)) if i == axis % 3 else d for i, d in enumerate(x)) for _ in range(3)]
        return Case(kind, [(p, F32) for p in parts], {"axis": axis})
    if kind == "slice":
        start, size, step = [], [], []
        for n in x:
            a, b = sorted(int(v) for v in rng.integers(0, n, 2))
            s = int(rng.integers(1, 3)) * (1 if rng.random() < 0.7 else -1)
            start.append(a if s > 0 else b)
            size.append((b - a) // abs(s) + 1)
            step.append(s)
        return Case(kind, [(x, F32)], {"start": tuple(start), "size": tuple(size), "step": tuple(step)})
    if kind == "pad":
        mode = ("constant", "edge", "constant", "reflect", "wrap")[int(rng.integers(5))]
        x = _dims(rng, 3, 2, 5)
        return Case(kind, [(x, F32)], {"lo": _dims(rng, 3, 0, 1), "hi": _dims(rng, 3, 0, 1), "mode": mode})
    if kind == "channel_norm":
        return Case(kind, [(x, F32)], {"to": "align"})
    return Case(kind, [(x, F32)], {"k": int(rng.integers(-1, 2)), "upper": bool(rng.integers(2))})


def _indexing(rng, kind):
    x = _dims(rng, 3, 2, 5)
    axis = int(rng.integers(-3, 3))
    if kind == "gather":
        return Case(kind, [(x, F32), (_dims(rng, int(rng.integers(0, 3))), I64, x[axis])], {"axis": axis})
    if kind == "embedding":
        return Case(kind, [(x[:2], F32), (_dims(rng, 2), I64, x[0])])
    if kind == "gather_elements":
        i = tuple(int(rng.integers(1, d + 1)) for d in x)
        return Case(kind, [(x, F32), (i, I64, x[axis])], {"axis": axis})
    if kind == "gather_nd":
        b = int(rng.integers(0, 2))
        depth = int(rng.integers(1, 3))
        return Case(
            kind,
            [(x, F32), ((*x[:b], *_dims(rng, 1), depth), I64, min(x[b : b + depth]))],
            {"batch_dims": b},
        )
    if kind == "scatter":
        i = tuple(1 if j == axis % 3 else int(rng.integers(1, d + 1)) for j, d in enumerate(x))
        return Case(kind, [(x, F32), (i, I64, x[axis]), (i, F32)], {"axis": axis})
    if kind == "scatter_nd":
        depth = int(rng.integers(1, 3))
        j = _dims(rng, 1)
        return Case(
            kind,
            [(x, F32), ((*j, depth), I64, min(x[:depth])), ((*j, *x[depth:]), F32)],
            {"combine": "add"},
        )
    if kind.startswith("kv_update"):
        t = int(rng.integers(1, x[1] + 1))
        return Case(kind, [(x, F32), ((x[0], t, x[2]), F32), ((1,), I64, x[1] - t + 1)])
    scale = ((), (x[1],), (x[0], 1, x[2]), (1,))[int(rng.integers(4))]
    if kind == "quantize":
        return Case(kind, [(x, F32), (scale, F32)], {"dtype": "i8"})
    return Case(kind, [(x, "i8", 9), (scale, F32)], {"dtype": F32})


def _rope(rng):
    s, h, half = _dims(rng, 3)
    d = 2 * half + 2 * int(rng.integers(0, 2))
    rotary = -1 if rng.random() < 0.5 else 2 * int(rng.integers(1, d // 2 + 1))
    style = ("half", "interleaved")[int(rng.integers(2))]
    table = ((1 if rng.random() < 0.3 else s, d), F32)
    return Case(
        "rope",
        [((2, s, h * d), F32), table, table],
        {"heads": h, "style": style, "rotary_dim": rotary},
    )


def make_case(kind: str, rng: np.random.Generator) -> Case | None:
    """Return a random instance, or None if this table does not know the kind."""
    for d in elementwise.OPS:
        if d.name == kind and kind != "rope":
            return _elementwise(rng, kind, d)
    simple = {
        "gemm": _gemm,
        "contract": _contract,
        "conv": _conv,
        "conv_transpose": _conv_transpose,
        "rope": _rope,
    }
    if kind in simple:
        return simple[kind](rng)
    if kind in ("max_pool", "avg_pool"):
        return _pool(rng, kind)
    if kind in ("softmax", "layernorm", "rmsnorm", "reduce", "arg_reduce", "topk", "cumsum"):
        return _axis_kind(rng, kind)
    if kind in (
        "transpose",
        "reshape",
        "broadcast",
        "concat",
        "slice",
        "pad",
        "trilu",
        "channel_norm",
    ):
        return _movement(rng, kind)
    if kind in ("gather", "embedding", "gather_elements", "gather_nd", "scatter", "scatter_nd", "kv_update",
                "kv_update_", "quantize", "dequantize"):  # fmt: skip
        return _indexing(rng, kind)
    if kind == "batchnorm_inference":
        x = _dims(rng, int(rng.integers(2, 5)))
        return Case(kind, [(x, F32), *[((x[-1],), F32)] * 4])
    if kind == "iota":
        return Case(kind, [], {"shape": _dims(rng, 2), "dtype": "i64", "axis": int(rng.integers(0, 2))})
    return None


def build(ctx: Context, case: Case) -> Op:
    block = Block()
    values = [block.add_arg(ctx.tensor(o[0], o[1], "tensor" if case.kind.endswith("_") and i == 0 else "vtensor"))
              for i, o in enumerate(case.operands)]  # fmt: skip
    return Builder(ctx, block).op(case.kind, *values, **case.attrs)


def data(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """Random operand values: floats in [0.2, 1.8), integers below their bound."""
    arrays = []
    for shape, dtype, *bound in case.operands:
        if dtype == F32:
            arrays.append(rng.uniform(0.2, 1.8, shape).astype(np.float32))
        elif dtype == PRED:
            arrays.append(rng.random(shape) < 0.5)
        else:
            arrays.append(np.asarray(rng.integers(0, max(bound[0], 1), shape)).astype(
                {"i64": np.int64, "i32": np.int32, "i8": np.int8}[dtype]))  # fmt: skip
    return arrays


def spoil(array: np.ndarray, box, case_operand, rng: np.random.Generator) -> np.ndarray:
    """Return `array` with everything outside `box` replaced: NaN, the opposite truth value, or another legal integer."""
    keep = np.zeros(array.shape, bool)
    keep[tuple(slice(a, b) for a, b in box)] = True
    if array.dtype.kind == "f":
        other = np.full_like(array, np.nan)
    elif array.dtype.kind == "b":
        other = ~array
    else:
        other = np.asarray(rng.integers(0, max(case_operand[2], 1), array.shape)).astype(array.dtype)
    return np.where(keep, array, other)
