"""Normalisation kinds: layernorm, rmsnorm, softmax, batchnorm_inference.

May import: ir.ops.base, ir.factors. Must not: know lowering.
"""

from __future__ import annotations

from tx8fast.graph_table import Rule
from tx8fast.ir import factors
from tx8fast.ir.core import Op
from tx8fast.ir.ops.base import MAX_ROW, OpDef, broadcast_into, fail, norm_axis, on_rows, optional, tensor
from tx8fast.ir.types import FLOAT_DTYPES


def _norm(op: Op):
    x = tensor(op, 0, min_rank=1, dtypes=FLOAT_DTYPES)
    rank = len(x.shape)
    axes = {norm_axis(op, "axes", a, rank) for a in op.attrs["axes"]}
    if not axes or len(axes) != len(op.attrs["axes"]):
        raise fail(op, "axes", op.attrs["axes"], "one or more distinct axes")
    heads = op.attrs["heads"]
    if heads != 1:
        _heads(op, x.shape, axes, heads)
        return [(x.shape, x.dtype)]
    first = min(axes)
    for i in range(1, len(op.operands)):
        p = optional(op, i)
        if p is None:
            continue
        broadcast_into(op, i, x.shape)
        lead = [d for d in p.shape[: max(0, len(p.shape) - (rank - first))] if d != 1]
        if lead:
            raise fail(op, i, f"shape {list(p.shape)}", f"extent 1 before axis {first} of {list(x.shape)}")
    return [(x.shape, x.dtype)]


def _heads(op: Op, shape, axes: set[int], heads: int) -> None:
    """Check a norm of every head's channels by themselves."""
    if axes != {len(shape) - 1} or heads < 1 or shape[-1] % heads:
        raise fail(op, "heads", heads, f"a divisor of the {shape[-1]} channels that are normalised alone")
    for i in range(1, len(op.operands)):
        p = optional(op, i)
        if p is not None and p.shape != (shape[-1] // heads,):
            raise fail(op, i, f"shape {list(p.shape)}", f"a vector of {shape[-1] // heads} channels")


def _softmax(op: Op):
    x = tensor(op, 0, min_rank=1, dtypes=FLOAT_DTYPES)
    norm_axis(op, "axis", op.attrs["axis"], len(x.shape))
    if optional(op, 1) is not None:
        broadcast_into(op, 1, x.shape)
    return [(x.shape, x.dtype)]


def _batchnorm(op: Op):
    x = tensor(op, 0, min_rank=2, dtypes=FLOAT_DTYPES)
    if len(x.shape) > 4:
        raise fail(op, 0, f"rank {len(x.shape)}", "rank 2, 3 or 4")
    channels = x.shape[len(x.shape) - 1]
    for i in range(1, 5):
        *lead, c = tensor(op, i, min_rank=1, dtypes=FLOAT_DTYPES).shape
        if any(d != 1 for d in lead) or (type(c) is type(channels) and c != channels):
            raise fail(op, i, f"shape {[*lead, c]}", f"a vector of {channels} channels")
    return [(x.shape, x.dtype)]


def _row_engine(op: Op) -> str:
    """The vector engine works along the last dimension; anything else is the kernel core's."""
    axes = op.attrs["axes"] if "axes" in op.attrs else (op.attrs["axis"],)
    return "ct" if on_rows(op, axes, MAX_ROW) else "kcore"


def _batchnorm_masks(rule: Rule) -> tuple[int, int]:
    """The library cuts C in space only and everything else in time only (back-end notes 5)."""
    c = 1 << (len(rule.sizes) - 1)
    return c, c - 1


OPS: tuple[OpDef, ...] = (
    OpDef("layernorm", ("x", "gamma?", "beta?"), infer=_norm, rule_of=factors.normalise, engine=_row_engine, align="align",
          reads_dense=True, attrs={"axes": (tuple, (-1,)), "eps": (float, 1e-5), "heads": (int, 1)}),
    OpDef("rmsnorm", ("x", "gamma?"), infer=_norm, rule_of=factors.normalise, engine=_row_engine, align="align",
          reads_dense=True, attrs={"axes": (tuple, (-1,)), "eps": (float, 1e-5), "heads": (int, 1)}),
    OpDef("softmax", ("x", "mask?"), infer=_softmax, rule_of=factors.softmax, engine=_row_engine, align="align",
          places=lambda op: (len(op.operands[0].shape) - 2,) if op.attrs["visible"] else (),
          attrs={"axis": (int, -1), "scale": (float, 1.0), "log": (bool, False), "visible": (tuple, ())}),
    OpDef("batchnorm_inference", ("input", "scale", "offset", "mean", "variance"), ("output",), infer=_batchnorm,
          rule_of=factors.batchnorm, align="align", need_preset=True, masks=_batchnorm_masks,
          attrs={"eps": (float, 1e-6)}),
)  # fmt: skip
