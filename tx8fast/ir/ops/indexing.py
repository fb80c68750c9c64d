"""Indexing kinds: gather, embedding, gather_elements, gather_nd, scatter, scatter_nd, kv_update, quantize, dequantize.

May import: ir.ops.base, ir.factors_index. Must not: know lowering. All of them run on the kernel core,
with operands in DDR: nothing is loaded to or stored from SPM around them.
"""

from __future__ import annotations

from typing import Any

from tx8fast.ir import factors_index
from tx8fast.ir.core import INPLACE, REAL, REQUIRED, Op
from tx8fast.ir.ops.base import (
    INT_DTYPES,
    OpDef,
    fail,
    is_num,
    match,
    norm_axis,
    optional,
    same_dtype,
    tensor,
)
from tx8fast.ir.types import FLOAT_DTYPES

COMBINES = ("set", "add", "mul", "max", "min")
#: element types that index: 64 and 32 bit
INDEX_DTYPES = frozenset({"i64", "i32", "u32", "u64"})


def _gather(op: Op):
    x, i = tensor(op, 0, min_rank=1), tensor(op, 1, dtypes=INDEX_DTYPES)
    a = norm_axis(op, "axis", op.attrs["axis"], len(x.shape))
    return [(x.shape[:a] + i.shape + x.shape[a + 1 :], x.dtype)]


def _embedding(op: Op):
    x, i = tensor(op, 0, rank=2), tensor(op, 1, dtypes=INDEX_DTYPES)
    return [(i.shape + x.shape[1:], x.dtype)]


def _gather_elements(op: Op):
    x, i = tensor(op, 0, min_rank=1), tensor(op, 1, dtypes=INDEX_DTYPES)
    a = norm_axis(op, "axis", op.attrs["axis"], len(x.shape))
    _fits(op, 1, i.shape, x.shape, a)
    return [(i.shape, x.dtype)]


def _fits(op: Op, i: int, shape, whole, axis: int) -> None:
    if len(shape) != len(whole):
        raise fail(op, i, f"rank {len(shape)}", f"rank {len(whole)} as operand 0")
    for j, (d, full) in enumerate(zip(shape, whole)):
        if j != axis and is_num(d, full) and d > full:
            raise fail(op, i, f"dimension {j} = {d}", f"at most {full}")


def _gather_nd(op: Op):
    x, i = tensor(op, 0, min_rank=1), tensor(op, 1, min_rank=1, dtypes=INDEX_DTYPES)
    b, r = op.attrs["batch_dims"], i.shape[-1]
    if not 0 <= b < min(len(x.shape), len(i.shape)):
        raise fail(op, "batch_dims", b, f"a value in [0, {min(len(x.shape), len(i.shape))})")
    if not is_num(r) or not 1 <= r <= len(x.shape) - b:
        raise fail(op, 1, f"index length {r}", f"a value in [1, {len(x.shape) - b}]")
    for j in range(b):
        match(op, 1, f"batch dimension {j}", i.shape[j], x.shape[j])
    return [(i.shape[:-1] + x.shape[b + r :], x.dtype)]


def _combine(op: Op) -> None:
    if op.attrs["combine"] not in COMBINES:
        raise fail(op, "combine", repr(op.attrs["combine"]), f"one of {', '.join(COMBINES)}")


def _scatter(op: Op):
    x, i, u = tensor(op, 0, min_rank=1), tensor(op, 1, dtypes=INDEX_DTYPES), tensor(op, 2)
    _combine(op)
    _fits(op, 1, i.shape, x.shape, norm_axis(op, "axis", op.attrs["axis"], len(x.shape)))
    same_dtype(op, 2, x.dtype)
    if is_num(*i.shape, *u.shape) and u.shape != i.shape:
        raise fail(op, 2, f"shape {list(u.shape)}", f"{list(i.shape)} as operand 'indices'")
    return [(x.shape, x.dtype)]


def _scatter_nd(op: Op):
    x, i, u = (
        tensor(op, 0, min_rank=1),
        tensor(op, 1, min_rank=1, dtypes=INDEX_DTYPES),
        tensor(op, 2),
    )
    _combine(op)
    r = i.shape[-1]
    if not is_num(r) or not 1 <= r <= len(x.shape):
        raise fail(op, 1, f"index length {r}", f"a value in [1, {len(x.shape)}]")
    same_dtype(op, 2, x.dtype)
    want = i.shape[:-1] + x.shape[r:]
    if is_num(*want, *u.shape) and u.shape != want:
        raise fail(op, 2, f"shape {list(u.shape)}", f"{list(want)}")
    return [(x.shape, x.dtype)]


def _kv_update(op: Op):
    cache, new, pos = tensor(op, 0, min_rank=2), tensor(op, 1), tensor(op, 2, dtypes=INDEX_DTYPES)
    rank = len(cache.shape)
    a = norm_axis(op, "axis", op.attrs["axis"], rank)
    same_dtype(op, 1, cache.dtype)
    if len(new.shape) != rank:
        raise fail(op, 1, f"rank {len(new.shape)}", f"rank {rank} as operand 'cache'")
    for j, (d, full) in enumerate(zip(new.shape, cache.shape)):
        if j != a:
            match(op, 1, f"dimension {j}", d, full)
        elif is_num(d, full) and d > full:
            raise fail(op, 1, f"{d} positions", f"at most the cache's {full}")
    if pos.shape != (1,):
        raise fail(op, 2, f"shape {list(pos.shape)}", "[1]")
    return [(cache.shape, cache.dtype)]


def _scales(op: Op, x) -> None:
    """Scale and zero point: one value, one per channel of `axis`, or one per block of x's dimensions."""
    for i in range(1, len(op.operands)):
        t = optional(op, i)
        if t is None:
            continue
        s = t.shape
        if s in ((), (1,)) or not is_num(*s, *x.shape):
            continue
        if len(s) == 1:
            match(
                op,
                i,
                "channels",
                s[0],
                x.shape[norm_axis(op, "axis", op.attrs["axis"], len(x.shape))],
            )
        elif len(s) != len(x.shape) or any(b == 0 or a % b for a, b in zip(x.shape, s)):
            raise fail(
                op,
                i,
                f"shape {list(s)}",
                f"divisors of {list(x.shape)}, one channel vector, or one value",
            )


def _quantize(op: Op):
    x = tensor(op, 0, dtypes=FLOAT_DTYPES)
    tensor(op, 1, dtypes=FLOAT_DTYPES)
    if op.attrs["dtype"] not in INT_DTYPES:
        raise fail(op, "dtype", repr(op.attrs["dtype"]), "an integer type")
    _scales(op, x)
    return [(x.shape, op.attrs["dtype"])]


def _dequantize(op: Op):
    x = tensor(op, 0, dtypes=INT_DTYPES)
    tensor(op, 1, dtypes=FLOAT_DTYPES)
    if op.attrs["dtype"] not in FLOAT_DTYPES:
        raise fail(op, "dtype", repr(op.attrs["dtype"]), "a float type")
    _scales(op, x)
    return [(x.shape, op.attrs["dtype"])]


_DDR: dict[str, Any] = {"engine": "kcore", "align": "nalign", "need_load": 0, "need_store": 0}


def _along(op: Op):
    return (op.attrs["axis"] % len(op.operands[0].shape),)


_AXIS0 = (int, 0)
_KV_INS, _KV_ATTRS = ("cache", "new", "position"), {"axis": (int, -2)}

OPS: tuple[OpDef, ...] = (
    OpDef("gather", ("table", "indices"), attrs={"axis": _AXIS0}, infer=_gather, rule_of=factors_index.gather, **_DDR),
    OpDef("embedding", ("table", "indices"), infer=_embedding, rule_of=factors_index.gather, **_DDR),
    OpDef("gather_elements", ("x", "indices"), attrs={"axis": _AXIS0}, infer=_gather_elements,
          rule_of=factors_index.gather_elements, **_DDR),
    OpDef("gather_nd", ("x", "indices"), attrs={"batch_dims": _AXIS0}, infer=_gather_nd, rule_of=factors_index.gather_nd, **_DDR),
    OpDef("scatter", ("operand", "indices", "updates"), attrs={"axis": _AXIS0, "combine": (str, "set")}, infer=_scatter,
          rule_of=factors_index.scatter, places=_along, inplace=0, **_DDR),
    OpDef("scatter_nd", ("operand", "indices", "updates"), attrs={"combine": (str, "set")}, infer=_scatter_nd,
          rule_of=factors_index.scatter_nd, places=lambda op: range(op.operands[1].shape[-1]), inplace=0, **_DDR),
    OpDef("kv_update", _KV_INS, attrs=_KV_ATTRS, infer=_kv_update, rule_of=factors_index.kv_update, places=_along, inplace=0,
          **_DDR),
    OpDef("kv_update_", _KV_INS, attrs=_KV_ATTRS, infer=_kv_update, rule_of=factors_index.kv_update, places=_along, inplace=0,
          traits=INPLACE | REAL, routine="kv_update", **_DDR),
    OpDef("quantize", ("x", "scale", "zero?"), attrs={"axis": (int, 1), "dtype": (str, REQUIRED)}, infer=_quantize,
          rule_of=factors_index.quantise, **_DDR),
    OpDef("dequantize", ("x", "scale", "zero?"), attrs={"axis": (int, 1), "dtype": (str, REQUIRED)}, infer=_dequantize,
          rule_of=factors_index.quantise, **_DDR),
)  # fmt: skip
