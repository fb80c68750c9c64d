"""Reduction kinds: reduce, arg_reduce, topk, cumsum, max_pool, avg_pool.

May import: ir.ops.base, ir.factors, ir.ops.contraction (window arithmetic). Must not: know lowering.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.ir import factors
from tx8fast.ir.core import REQUIRED, Op
from tx8fast.ir.ops.base import MAX_REDUCED, OpDef, fail, is_num, norm_axis, on_rows, tensor
from tx8fast.ir.ops.contraction import MAX_STEP, WINDOW, pool_kernel, window_attrs, window_out
from tx8fast.numerics.windows import window_counts

REDUCE_OPS = ("add", "max", "min", "mul", "mean", "l1", "l2", "sumsq", "logsum", "logsumexp")


def _reduce(op: Op):
    x = tensor(op, 0)
    if op.attrs["op"] not in REDUCE_OPS:
        raise fail(op, "op", repr(op.attrs["op"]), f"one of {', '.join(REDUCE_OPS)}")
    axes = {norm_axis(op, "axes", a, len(x.shape)) for a in op.attrs["axes"]}
    if len(axes) != len(op.attrs["axes"]):
        raise fail(op, "axes", op.attrs["axes"], "distinct axes")
    if op.attrs["keepdims"]:
        return [(tuple(1 if i in axes else d for i, d in enumerate(x.shape)), x.dtype)]
    return [(tuple(d for i, d in enumerate(x.shape) if i not in axes), x.dtype)]


def _arg_reduce(op: Op):
    x = tensor(op, 0, min_rank=1).shape
    if op.attrs["op"] not in ("max", "min"):
        raise fail(op, "op", repr(op.attrs["op"]), "max or min")
    a = norm_axis(op, "axis", op.attrs["axis"], len(x))
    return [(x[:a] + ((1,) if op.attrs["keepdims"] else ()) + x[a + 1 :], "i64")]


def _topk(op: Op):
    x = tensor(op, 0, min_rank=1)
    a, k = norm_axis(op, "axis", op.attrs["axis"], len(x.shape)), op.attrs["k"]
    if k < 0 or (type(x.shape[a]) is int and 0 <= x.shape[a] < k):
        raise fail(op, "k", k, f"a value in [0, {x.shape[a]}]")
    out = x.shape[:a] + (k,) + x.shape[a + 1 :]
    return [(out, x.dtype), (out, "i64")]


def _cumsum(op: Op):
    x = tensor(op, 0, min_rank=1)
    norm_axis(op, "axis", op.attrs["axis"], len(x.shape))
    return [(x.shape, x.dtype)]


def _pool(op: Op):
    x = tensor(op, 0, rank=4)
    k = pool_kernel(op)
    s, d, lo, hi = window_attrs(op)
    ceil = op.attrs["ceil_mode"]
    hw = [window_out(op, 0, x.shape[1 + i], k[i], s[i], d[i], lo[i], hi[i], ceil) for i in (0, 1)]
    return [((x.shape[0], hw[0], hw[1], x.shape[3]), x.dtype)]


def _reduce_engine(op: Op) -> str:
    """The vector engine sums, averages and compares along channels or positions, which it keeps as extent 1."""
    simple = op.attrs["keepdims"] and op.attrs["op"] in ("add", "mean", "max", "min")
    return "ct" if simple and (on_rows(op, op.attrs["axes"], MAX_REDUCED) or _over_positions(op)) else "kcore"


#: elements per tile that a reduction over positions holds: one channel block, twice, of 4 bytes in 3 MiB
_MAX_HELD = 5000
_MAX_EXTENT, _MAX_CHANNELS = 4096, 16384
#: blocks of channels of all images together from which on few tiles have nothing to do: of 4, 2 and 1 a sum in parts that lie anywhere takes
#: 0.9 to 0.5 times as long, of 9 and 16 1.7 and 1.6 times (means of 4,690 to 40,000 positions in bf16)
_LANES, _ENOUGH = 64, 8


def _over_positions(op: Op) -> bool:
    """True for axes between image and channel: all of them, or those of one image at a time within scratchpad."""
    shape = op.operands[0].type.shape  # type: ignore[attr-defined]
    rank = len(shape)
    axes = sorted({a % rank for a in op.attrs["axes"]}) if rank else []
    if rank < 3 or not is_num(*shape) or not axes or axes[0] < 1 or axes[-1] > rank - 2:
        return False
    inner = axes[-1] == rank - 2
    adjacent = axes == list(range(axes[0], axes[-1] + 1)) and (axes[0] == 1 or inner)
    summed = math.prod(shape[a] for a in axes)
    rows = math.prod(shape[1:-1]) // max(1, summed)
    if rows == 1 and summed > _MAX_EXTENT:  # slice by slice, of an image's block on one tile
        return adjacent and shape[-1] <= _MAX_CHANNELS and shape[0] * -(-shape[-1] // _LANES) >= _ENOUGH
    held = (1 if inner else rows) * (summed + 1)
    return adjacent and 0 < held <= _MAX_HELD and max(rows, summed) <= _MAX_EXTENT and shape[-1] <= _MAX_CHANNELS


def _pool_engine(op: Op) -> str:
    """The vector engine's pools have no dilation and no window that lies in the padding altogether."""
    x = op.operands[0].type.shape  # type: ignore[attr-defined]
    k = pool_kernel(op)
    s, d, lo, hi = window_attrs(op)
    plain = all(n == 1 or m == 1 for n, m in zip(k, d)) and min(*lo, *hi) >= 0
    padding = all(p < n for p, n in zip((*lo, *hi), (*k, *k)))
    out = op.result.type.shape  # type: ignore[attr-defined]
    if not (plain and padding and is_num(*x)) or max(x[2], out[2], k[0]) > _MAX_EXTENT or max(*k, *s) > MAX_STEP:
        return "kcore"
    full = [window_counts(x[1 + i], out[1 + i], k[i], s[i], lo[i], hi[i], False).all() for i in (0, 1)]
    return "ct" if all(full) else "kcore"


_POOL = {"kernel": (tuple, REQUIRED), **WINDOW, "ceil_mode": (bool, False)}
_KCORE: dict[str, Any] = {"engine": "kcore", "align": "nalign"}

OPS: tuple[OpDef, ...] = (
    OpDef("reduce", ("x",), infer=_reduce, rule_of=factors.reduce, engine=_reduce_engine, align="align",
          attrs={"op": (str, REQUIRED), "axes": (tuple, REQUIRED), "keepdims": (bool, True)}),
    OpDef("arg_reduce", ("x",), ("indices",), infer=_arg_reduce, rule_of=factors.along_axis, **_KCORE,
          attrs={"op": (str, "max"), "axis": (int, 0), "keepdims": (bool, True), "select_last": (bool, False)}),
    OpDef("topk", ("x",), ("values", "indices"), infer=_topk, rule_of=factors.along_axis, **_KCORE,
          attrs={"k": (int, REQUIRED), "axis": (int, -1), "largest": (bool, True)}),
    OpDef("cumsum", ("x",), infer=_cumsum, rule_of=factors.along_axis, **_KCORE,
          attrs={"axis": (int, REQUIRED), "exclusive": (bool, False), "reverse": (bool, False)}),
    OpDef("max_pool", ("x",), infer=_pool, rule_of=factors.pool_max, engine=_pool_engine, align="align", need_preset=True, attrs=dict(_POOL)),
    OpDef("avg_pool", ("x",), infer=_pool, rule_of=factors.pool_avg, engine=_pool_engine, align="align", need_preset=True,
          attrs={**_POOL, "count_pad": (bool, False)}),
)  # fmt: skip
