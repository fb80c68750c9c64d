"""Movement kinds: transpose, reshape, broadcast, concat, slice, pad, trilu.

May import: ir.ops.base, ir.factors. Must not: know lowering.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.ir import factors
from tx8fast.ir.core import REQUIRED, Op
from tx8fast.ir.ops.base import (
    OpDef,
    broadcast_dims,
    fail,
    is_num,
    match,
    norm_axis,
    pair_attr,
    tensor,
)
from tx8fast.ir.types import TensorType


def _transpose(op: Op):
    x, perm = tensor(op, 0), op.attrs["perm"]
    if sorted(perm) != list(range(len(x.shape))):
        raise fail(op, "perm", perm, f"a permutation of 0..{len(x.shape) - 1}")
    return [(tuple(x.shape[p] for p in perm), x.dtype)]


def infer_reshape(op: Op):
    x, want = tensor(op, 0), op.attrs["shape"]
    if any(not (type(d) is str or (type(d) is int and d >= -1)) for d in want) or list(want).count(-1) > 1:
        raise fail(op, "shape", want, "sizes, at most one of them -1")
    if not is_num(*x.shape) or any(type(d) is str for d in want):
        return [(want, x.dtype)]
    n, rest = math.prod(x.shape), math.prod(d for d in want if d != -1)
    if -1 in want and rest and n % rest == 0:
        want = tuple(n // rest if d == -1 else d for d in want)
    if -1 in want or math.prod(want) != n:
        raise fail(op, "shape", op.attrs["shape"], f"{n} elements as in shape {list(x.shape)}")
    return [(want, x.dtype)]


def _broadcast(op: Op):
    x, want = tensor(op, 0), op.attrs["shape"]
    if len(want) < len(x.shape) or broadcast_dims(op, 0, want, x.shape) != want:
        raise fail(op, 0, f"shape {list(x.shape)}", f"a shape that broadcasts to {list(want)}")
    return [(want, x.dtype)]


def _concat(op: Op):
    if not op.operands:
        raise fail(op, 0, "no operands", "one or more")
    x = tensor(op, 0, min_rank=1)
    a = norm_axis(op, "axis", op.attrs["axis"], len(x.shape))
    shape, total = list(x.shape), 0
    for i in range(len(op.operands)):
        t = tensor(op, i, rank=len(x.shape))
        if t.dtype != x.dtype:
            raise fail(op, i, f"element type {t.dtype}", f"{x.dtype} as the first operand")
        for j, d in enumerate(t.shape):
            if j != a:
                match(op, i, f"dimension {j}", d, shape[j])
                if is_num(d):
                    shape[j] = d
        total = total + t.shape[a] if is_num(t.shape[a]) and total != -1 else -1
    shape[a] = total
    return [(tuple(shape), x.dtype)]


def _slice(op: Op):
    x = tensor(op, 0)
    rank = len(x.shape)
    start, size = pair_attr(op, "start", rank, 0), pair_attr(op, "size", rank, 0)
    step = pair_attr(op, "step", rank)
    if 0 in step:
        raise fail(op, "step", step, "steps other than 0")
    for i, d in enumerate(x.shape):
        last = start[i] + step[i] * (size[i] - 1)
        if size[i] and is_num(d) and not (0 <= last < d and start[i] < d):
            raise fail(
                op,
                "size",
                size,
                f"dimension {i} to stay in [0, {d}), it reaches from {start[i]} to {last}",
            )
    return [(size, x.dtype)]


def _pad(op: Op):
    x = tensor(op, 0)
    lo, hi = pair_attr(op, "lo", len(x.shape), 0), pair_attr(op, "hi", len(x.shape), 0)
    mode = op.attrs["mode"]
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise fail(op, "mode", repr(mode), "constant, reflect, edge or wrap")
    for d, a, b in zip(x.shape, lo, hi):
        if mode == "reflect" and is_num(d) and max(a, b) >= max(d, 1):
            raise fail(op, "lo", (lo, hi), f"reflected padding below the extent {d}")
    return [
        (
            tuple(d + a + b if is_num(d) else (d if a == b == 0 else -1) for d, a, b in zip(x.shape, lo, hi)),
            x.dtype,
        )
    ]


def _trilu(op: Op):
    x = tensor(op, 0, min_rank=2)
    return [(x.shape, x.dtype)]


def _pad_engine(op: Op) -> str:
    return "dma" if op.attrs["mode"] == "constant" else "kcore"


def _slice_engine(op: Op) -> str:
    x = op.operands[0].type
    if isinstance(x, TensorType) and any(s < 0 for s in op.attrs["step"]):
        return "kcore"  # a transfer's strides never run backwards
    return "dma"


#: channels of one tensor; they come whole, in two copies and from as many operands
_MAX_MOVED = 32768
_FLOATS = frozenset({"bf16", "f16", "f32"})


def _align(op: Op) -> str:
    """Return "both" for images of which whole positions are moved, or channels put one behind the other or taken out in one piece. What has
    fewer dimensions stays dense: a recurrent step takes its gates out of a row, and dense rows share loop nests with what follows (23 % of
    an LSTM's cycles). Transpositions, too: those that move channels turn dense matrices."""
    x, y = op.operands[0].type, op.results[0].type
    if not (isinstance(x, TensorType) and isinstance(y, TensorType) and x.is_static and y.is_static):
        return "nalign"
    own: Any = x.shape
    its: Any = y.shape
    nothing = any(0 in v.type.shape for v in op.operands) or 0 in its  # type: ignore[attr-defined]
    if len(its) < 4 or len(own) != len(its) or nothing or y.dtype not in _FLOATS or max(own[-1], its[-1]) > _MAX_MOVED:
        return "nalign"
    return "both" if _in_blocks(op, own, its) else "nalign"


def _in_blocks(op: Op, own: tuple[int, ...], its: tuple[int, ...]) -> bool:
    """True if an op moves positions, whatever their channels are, or channels, wherever they are."""
    a, last = op.attrs, len(its) - 1
    if op.kind == "pad":
        return a["mode"] == "constant" and min((*a["lo"], *a["hi"])) >= 0 and a["lo"][last] == a["hi"][last] == 0
    if op.kind == "slice":
        return min(a["step"]) > 0 and (own[-1] == its[-1] or own[:-1] == its[:-1] and a["step"][last] == 1)
    return op.kind == "concat" or own[-1] == its[-1]


_DMA: dict[str, Any] = {"engine": "dma", "align": _align}

OPS: tuple[OpDef, ...] = (
    OpDef("transpose", ("x",), attrs={"perm": (tuple, REQUIRED)}, infer=_transpose, rule_of=factors.transpose, engine="dma", align="nalign"),
    OpDef("reshape", ("x",), attrs={"shape": (tuple, REQUIRED)}, infer=infer_reshape, rule_of=factors.reshape,
          engine="none", align="nalign", need_load=0, need_store=0, inplace=0),
    OpDef("broadcast", ("x",), attrs={"shape": (tuple, REQUIRED)}, infer=_broadcast, rule_of=factors.broadcast, **_DMA),
    OpDef("concat", ("x*",), attrs={"axis": (int, REQUIRED)}, infer=_concat, rule_of=factors.concat, engine="dma", align=_align),
    OpDef("slice", ("x",), infer=_slice, rule_of=factors.slice_, engine=_slice_engine, align=_align,
          attrs={"start": (tuple, REQUIRED), "size": (tuple, REQUIRED), "step": (tuple, REQUIRED)}),
    OpDef("pad", ("x",), infer=_pad, rule_of=factors.pad, engine=_pad_engine, align=_align,
          attrs={"lo": (tuple, REQUIRED), "hi": (tuple, REQUIRED), "value": (float, 0.0), "mode": (str, "constant")}),
    OpDef("trilu", ("x",), infer=_trilu, rule_of=factors.trilu, engine="kcore", align="nalign",
          places=lambda op: range(len(op.operands[0].shape))[-2:], attrs={"k": (int, 0), "upper": (bool, True)}),
)  # fmt: skip
