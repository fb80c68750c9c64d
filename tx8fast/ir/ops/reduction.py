"""Reduction kinds: reduce, arg_reduce, topk, cumsum, max_pool, avg_pool.

May import: ir.ops.base, ir.factors, ir.ops.contraction (window arithmetic). Must not: know lowering.
"""

from __future__ import annotations

from typing import Any

from tx8fast.ir import factors
from tx8fast.ir.core import REQUIRED, Op
from tx8fast.ir.ops.base import OpDef, fail, norm_axis, on_rows, pair_attr, tensor
from tx8fast.ir.ops.contraction import WINDOW, window_attrs, window_out

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
    k = pair_attr(op, "kernel", 2, 1)
    s, d, lo, hi = window_attrs(op)
    ceil = op.attrs["ceil_mode"]
    hw = [window_out(op, 0, x.shape[1 + i], k[i], s[i], d[i], lo[i], hi[i], ceil) for i in (0, 1)]
    return [((x.shape[0], hw[0], hw[1], x.shape[3]), x.dtype)]


def _reduce_engine(op: Op) -> str:
    """The vector engine sums, averages and compares along the last dimension, which it keeps as extent 1."""
    simple = op.attrs["keepdims"] and op.attrs["op"] in ("add", "mean", "max", "min")
    return "ct" if simple and on_rows(op, op.attrs["axes"]) else "kcore"


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
    OpDef("max_pool", ("x",), infer=_pool, rule_of=factors.pool_max, align="align", need_preset=True, attrs=dict(_POOL)),
    OpDef("avg_pool", ("x",), infer=_pool, rule_of=factors.pool_avg, align="align", need_preset=True,
          attrs={**_POOL, "count_pad": (bool, False)}),
)  # fmt: skip
