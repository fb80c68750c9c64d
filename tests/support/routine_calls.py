"""Random calls of kernel-core routines: operands and attributes that are legal, shapes small and uneven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from support import routine_calls_rows as rows
from support.random_steps import random_steps
from support.routine_drawn import FLOAT, WHOLE, Drawn, numbers, pick, shape_of, spread

from tx8fast.isa.routines import ROUTINES
from tx8fast.numerics.formats import SIGNED, int_limits
from tx8fast.numerics.steps import STEPS


def _unary(name, rng):
    exact = name in ("neg", "abs", "square", "sign", "floor", "ceil", "round", "isnan", "isinf")
    dtype = pick(rng, ("pred", *WHOLE) if name == "not" else FLOAT + WHOLE if exact else FLOAT)
    shape = shape_of(rng, 0)
    return Drawn(name, [numbers(rng, shape, dtype)], [(shape, "pred" if name.startswith("is") else dtype)])


def _activation(name, rng):
    dtype, shape = pick(rng, FLOAT), shape_of(rng)
    attrs = {} if rng.random() < 0.5 else {"alpha": float(rng.uniform(0.05, 1.5))}
    return Drawn(name, [numbers(rng, shape, dtype)], [(shape, dtype)], attrs)


def _binary(name, rng):
    logic = name in ("and", "or", "xor")
    kinds = ("pred", *WHOLE) if logic else WHOLE if name in ("shl", "shr") else FLOAT + WHOLE
    dtype, out = pick(rng, kinds), shape_of(rng)
    shapes = [out, spread(rng, out)] if rng.random() < 0.5 else [spread(rng, out), out]
    arrays: list[Any] = [numbers(rng, s, dtype) for s in shapes]
    if name in ("shl", "shr"):
        arrays[1] = (np.abs(arrays[1].astype(np.float64)) % 80 - (3 if dtype in SIGNED else 0)).astype(arrays[0].dtype)
    if name == "pow" and dtype in WHOLE:
        arrays[1] = np.abs(numbers(rng, shapes[1], dtype, False)) % 6
        if rng.random() < 0.3 and dtype in SIGNED:
            arrays[0], arrays[1] = arrays[0] % 7, (arrays[1] - 2).astype(arrays[1].dtype)
    result = "pred" if name in ("eq", "ne", "lt", "le", "gt", "ge") else dtype
    attrs = {"fmod": bool(rng.random() < 0.5)} if name == "mod" else {}
    return Drawn(name, arrays, [(out, result)], attrs)


def _prelu(name, rng):
    dtype, out = pick(rng, FLOAT), shape_of(rng)
    return Drawn(name, [numbers(rng, out, dtype), numbers(rng, spread(rng, out), dtype)], [(out, dtype)])


def _clamp(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng)
    attrs = {k: float(rng.normal(0, 3)) for k in ("lo", "hi") if rng.random() < 0.8}
    return Drawn(name, [numbers(rng, shape, dtype)], [(shape, dtype)], attrs)


def _swiglu(name, rng):
    dtype, shape = pick(rng, FLOAT), shape_of(rng)
    attrs = {"act": pick(rng, ("silu", "gelu", "gelu_tanh", "relu", "sigmoid"))}
    return Drawn(name, [numbers(rng, shape, dtype), numbers(rng, shape, dtype)], [(shape, dtype)], attrs)


def _select(name, rng):
    dtype, out = pick(rng, (*FLOAT, *WHOLE, "pred")), shape_of(rng)
    parts: list[Any] = [numbers(rng, spread(rng, out), dtype) for _ in range(2)]
    return Drawn(name, [numbers(rng, out, "pred"), *parts], [(out, dtype)])


def _map(name, rng):
    dtype, out, n = pick(rng, FLOAT), shape_of(rng), int(rng.integers(1, 4))
    arrays: list[Any] = [numbers(rng, out, dtype), *(numbers(rng, spread(rng, out), dtype) for _ in range(n - 1))]
    return Drawn(name, arrays, [(out, dtype)], {"steps": random_steps(rng, n, tuple(STEPS), int(rng.integers(1, 9)))})


def _convert(name, rng):
    kinds = (*FLOAT, *WHOLE, "pred", "tf32", "f8e4m3fn", "f8e5m2", "i4", "u4")
    src, dst, shape = pick(rng, kinds), pick(rng, kinds), shape_of(rng)
    x = numbers(rng, shape, src, src not in ("f8e4m3fn", "f8e5m2", "tf32", "i4", "u4"))
    if src == "tf32":
        x = (x.view(np.uint32) & 0xFFFFE000).view(np.float32)
    x = np.clip(x, *int_limits(src)).astype(x.dtype) if src in ("i4", "u4") else x
    return Drawn(name, [x], [(shape, dst)], dtypes={0: src})


def _quantize(name, rng):
    shape = shape_of(rng, 2, 4)
    axis = int(rng.integers(len(shape)))
    one = pick(rng, ((), (shape[axis],), tuple(-(-n // 2) if d == axis else n for d, n in enumerate(shape))))
    whole = pick(rng, ("i8", "u8", "i16", "u16"))
    scale = rng.uniform(0.1, 2, one).astype(np.float32)
    zero = numbers(rng, one, whole, False) if rng.random() < 0.6 else None
    if name == "quantize":
        x = numbers(rng, shape, pick(rng, ("f32", "i32", "f16", "bf16")), False)
        return Drawn(name, [x, scale, zero], [(shape, whole)], {"axis": axis})
    return Drawn(name, [numbers(rng, shape, whole), scale, zero], [(shape, pick(rng, ("f32", "bf16")))], {"axis": axis})


ANY = (*FLOAT, *WHOLE, "pred")


def _identity(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng, 0)
    return Drawn(name, [numbers(rng, shape, dtype)], [(shape, dtype)])


def _reshape(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng)
    out = tuple(int(n) for n in rng.permutation(shape)) if rng.random() < 0.7 else (int(np.prod(shape)),)
    return Drawn(name, [numbers(rng, shape, dtype)], [(out, dtype)])


def _bitcast(name, rng):
    src, dst = pick(rng, (("f32", "i32"), ("i16", "bf16"), ("f64", "u64"), ("u8", "i8"), ("f16", "u16")))
    shape = shape_of(rng)
    return Drawn(name, [numbers(rng, shape, src)], [(shape, dst)], {"dtype": dst})


def _transpose(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng, 1, 5)
    perm = tuple(int(p) for p in rng.permutation(len(shape)))
    return Drawn(name, [numbers(rng, shape, dtype)], [(tuple(shape[p] for p in perm), dtype)], {"perm": perm})


def _broadcast(name, rng):
    dtype, out = pick(rng, ANY), shape_of(rng)
    return Drawn(name, [numbers(rng, spread(rng, out), dtype)], [(out, dtype)])


def _concat(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng)
    axis = int(rng.integers(len(shape)))
    sizes = rng.integers(1, 4, rng.integers(1, 5)).tolist()
    shapes = [(*shape[:axis], n, *shape[axis + 1 :]) for n in sizes]
    arrays: list[Any] = [numbers(rng, s, dtype) for s in shapes]
    return Drawn(name, arrays, [((*shape[:axis], sum(sizes), *shape[axis + 1 :]), dtype)], {"axis": axis})


def _slice(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng)
    start, size, step = [], [], []
    for n in shape:
        by = int(pick(rng, (1, 1, 2, -1, -2)))
        first = int(rng.integers(n))
        room = (n - 1 - first) // by + 1 if by > 0 else first // -by + 1
        start, step, size = [*start, first], [*step, by], [*size, int(rng.integers(1, room + 1))]
    return Drawn(name, [numbers(rng, shape, dtype)], [(tuple(size), dtype)],
                 {"start": tuple(start), "size": tuple(size), "step": tuple(step)})  # fmt: skip


def _pad(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng)
    mode = pick(rng, ("constant", "edge", "reflect", "wrap"))
    lo = tuple(int(rng.integers(-min(n - 1, 1), 4)) for n in shape)
    hi = tuple(int(rng.integers(-1 if n > 2 else 0, 4)) for n in shape)
    out = tuple(a + n + b for a, n, b in zip(lo, shape, hi, strict=True))
    attrs = {"lo": lo, "hi": hi, "mode": mode, "value": float(rng.integers(0, 3))}
    return Drawn(name, [numbers(rng, shape, dtype)], [(out, dtype)], attrs)


def _trilu(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng, 2, 4)
    return Drawn(name, [numbers(rng, shape, dtype)], [(shape, dtype)],
                 {"k": int(rng.integers(-3, 4)), "upper": bool(rng.integers(2))})  # fmt: skip


def _iota(name, rng):
    dtype, shape = pick(rng, FLOAT + WHOLE), shape_of(rng)
    return Drawn(name, [], [(shape, dtype)], {"axis": int(rng.integers(len(shape)))})


def indices(rng, shape, size: int) -> np.ndarray:
    return rng.integers(-size, size, shape).astype(pick(rng, (np.int32, np.int64)))


def _gather(name, rng):
    dtype, shape, at = pick(rng, ANY), shape_of(rng), shape_of(rng, 0, 2)
    axis = 0 if name == "embedding" else int(rng.integers(len(shape)))
    out = (*shape[:axis], *at, *shape[axis + 1 :])
    return Drawn(name, [numbers(rng, shape, dtype), indices(rng, at, shape[axis])], [(out, dtype)],
                 {} if name == "embedding" else {"axis": axis})  # fmt: skip


def _gather_elements(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng)
    axis = int(rng.integers(len(shape)))
    out = tuple(int(rng.integers(1, 5)) if d == axis else int(rng.integers(1, n + 1)) for d, n in enumerate(shape))
    return Drawn(name, [numbers(rng, shape, dtype), indices(rng, out, shape[axis])], [(out, dtype)], {"axis": axis})


def _tuples(rng, shape, lead, depth, batch=0) -> np.ndarray:
    columns = [indices(rng, (*lead, 1), shape[batch + d]).astype(np.int64) for d in range(depth)]
    return np.concatenate(columns, axis=-1)


def _gather_nd(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng, 2, 4)
    batch = int(rng.integers(0, 2))
    depth = int(rng.integers(1, len(shape) - batch + 1))
    lead = (*shape[:batch], *shape_of(rng, 1 - batch, 2, 3))
    return Drawn(name, [numbers(rng, shape, dtype), _tuples(rng, shape, lead, depth, batch)],
                 [((*lead, *shape[batch + depth :]), dtype)], {"batch_dims": batch})  # fmt: skip


def _combine(rng, dtype: str) -> str:
    return pick(rng, ("set", "add", "mul", "max", "min") if dtype != "pred" else ("set",))


def _scatter(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng)
    axis = int(rng.integers(len(shape)))
    at = tuple(int(rng.integers(1, 4)) if d == axis else int(rng.integers(1, n + 1)) for d, n in enumerate(shape))
    arrays: list[Any] = [numbers(rng, shape, dtype), indices(rng, at, shape[axis]), numbers(rng, at, dtype)]
    return Drawn(name, arrays, [(shape, dtype)], {"axis": axis, "combine": _combine(rng, dtype)})


def _scatter_nd(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng, 1, 4)
    depth, lead = int(rng.integers(1, len(shape) + 1)), shape_of(rng, 1, 2, 3)
    arrays: list[Any] = [
        numbers(rng, shape, dtype),
        _tuples(rng, shape, lead, depth),
        numbers(rng, (*lead, *shape[depth:]), dtype),
    ]
    return Drawn(name, arrays, [(shape, dtype)], {"combine": _combine(rng, dtype)})


def _kv_update(name, rng):
    dtype, shape = pick(rng, ANY), shape_of(rng, 2, 4)
    axis = int(rng.integers(len(shape)))
    n = int(rng.integers(1, shape[axis] + 1))
    new = (*shape[:axis], n, *shape[axis + 1 :])
    first = np.array([rng.integers(0, shape[axis] - n + 1)], np.int64)
    return Drawn(name, [numbers(rng, shape, dtype), numbers(rng, new, dtype), first], [(shape, dtype)], {"axis": axis})


_OWN: dict[str, Callable[..., Drawn]] = {
    "routine_unary": _unary, "routine_activation": _activation, "routine_binary": _binary, "routine_prelu": _prelu,
    "routine_clamp": _clamp, "routine_swiglu": _swiglu, "routine_select": _select, "routine_map": _map,
    "routine_quantize": _quantize,
    "routine_dequantize": _quantize, "routine_reshape": _reshape, "routine_bitcast": _bitcast, "routine_transpose": _transpose,
    "routine_broadcast": _broadcast, "routine_concat": _concat, "routine_slice": _slice, "routine_pad": _pad,
    "routine_trilu": _trilu, "routine_iota": _iota, "routine_gather": _gather, "routine_gather_elements": _gather_elements,
    "routine_gather_nd": _gather_nd, "routine_scatter": _scatter, "routine_scatter_nd": _scatter_nd,
    "routine_kv_update": _kv_update, "routine_reduce": rows.reduce, "routine_arg_reduce": rows.arg_reduce, "routine_topk": rows.topk,
    "routine_scan": rows.scan, "routine_norm": rows.norm, "routine_softmax": rows.softmax, "routine_batchnorm": rows.batchnorm,
    "routine_rope": rows.rope, "routine_conv": rows.conv, "routine_pool": rows.pool, "routine_max_pool_indices": rows.pool,
    "routine_col2im": rows.col2im, "routine_grid_sample": rows.grid_sample, "routine_roi_align": rows.roi,
    "routine_max_roi_pool": rows.roi, "routine_deform_conv": rows.deform, "routine_recurrent": rows.recurrent, "routine_det": rows.det,
}  # fmt: skip
_BY_NAME = {"convert": _convert, "gemm": rows.gemm, "contract": rows.contract, "einsum": rows.einsum}


def draw(name: str, rng: np.random.Generator) -> Drawn:
    """Return a random call of routine `name`."""
    own = _BY_NAME.get(name) or _OWN.get(ROUTINES[name].function, _identity)
    return own(name, rng)
