"""Routines along dimensions: reductions, extremes, sorting, scans, norms, softmax, rotary positions.

May import: math, isa.routines.base. Must not: execute one.
"""

from __future__ import annotations

import math

from tx8fast.isa.routines.base import Call, axes, axis, axis_of, choice, declare, real, whole
from tx8fast.isa.work import Work

_ONE, _DIVIDE, _FUNCTION = Work(ops=1), Work(divides=1), Work(functions=1)
#: reductions: the work of an element, beside its load, and of a row, beside its store
REDUCTIONS: dict[str, tuple[Work, Work]] = {
    "add": (_ONE, Work()),
    "max": (_ONE, Work()),
    "min": (_ONE, Work()),
    "mul": (_ONE, Work()),
    "mean": (_ONE, _DIVIDE),
    "l1": (_ONE * 2, Work()),
    "l2": (_ONE * 2, _DIVIDE),
    "sumsq": (_ONE * 2, Work()),
    "logsum": (_ONE, _FUNCTION),
    "logsumexp": (_ONE * 3 + _FUNCTION + Work(loads=1), _FUNCTION + _ONE),
}


def _reduced(call: Call) -> Work:
    x, (each, row) = call.given(0), REDUCTIONS[str(call.attrs.get("op", "add"))]
    return (each + Work(loads=1)) * x.n + (row + Work(stores=1)) * call.out.n


def _sorted(call: Call) -> Work:
    """The most it can be, for rows that get better to their end: a heap of the best k, each of whose changes sinks to its floor.

    A heap of k is as deep as k has binary digits, less one; a level is two comparisons. The k best come out one by one."""
    x, k = call.given(0), int(call.attrs["k"])
    m = x.shape[axis_of(call, -1)]
    rows = x.n // m if m else 0
    depth = max(0, k.bit_length() - 1)
    return (
        Work(loads=1) * x.n
        + Work(stores=2) * (rows * k)
        + _ONE * (rows * (max(0, m - k) + 2 * depth * (m + k // 2)) if k else 0)
    )


def _heads(call: Call) -> tuple[int, tuple[int, ...]]:
    """The heads of a norm, and the dimensions that it works along, channels of a head as a dimension of their own."""
    heads = int(call.attrs.get("heads", 1))
    rank = len(call.given(0).shape) + (heads > 1)
    found = tuple(call.attrs.get("axes", (-1,)))
    return heads, tuple(sorted({int(a) % rank for a in found})) if found else tuple(range(rank))


def _norm_words(call: Call) -> list[int]:
    heads, along = _heads(call)
    return [heads, len(along), *along]


def _normed(centred: bool):
    def work(call: Call) -> Work:
        x, (heads, along) = call.given(0), _heads(call)
        shape = x.shape if heads == 1 else (*x.shape[:-1], heads, x.shape[-1] // heads)
        m = math.prod(shape[a] for a in along)
        rows = x.n // m if m else 0
        each = Work(loads=1, stores=1, ops=4 if centred else 2, divides=1)
        each += Work(loads=1, ops=1) * sum(call.has(k) for k in ((1, 2) if centred else (1,)))
        return each * x.n + Work(divides=3 if centred else 2, ops=1) * rows

    return work


def _softmaxed(call: Call) -> Work:
    x, log = call.given(0), bool(call.attrs.get("log"))
    if not x.n:
        return Work()
    each = Work(loads=1, stores=1, ops=5 if log else 4, functions=1, divides=0 if log else 1)
    each += Work(loads=1, ops=1) if call.has(1) else Work()
    return each * x.n + (_FUNCTION * (x.n // x.shape[axis_of(call, -1)]) if log else Work())


def _batchnormed(call: Call) -> Work:
    x = call.given(0)
    return Work(loads=1, stores=1, ops=3) * x.n + Work(loads=4, ops=1, divides=2) * (x.shape[-1] if x.shape else 1)


def _turned(call: Call) -> Work:
    return (Work(loads=1, stores=1) + Work(loads=3, ops=3)) * call.given(0).n  # the partner and two tables


declare("reduce", "routine_reduce", choice("op", tuple(REDUCTIONS), "add"), axes(), work=_reduced)
declare(
    "arg_reduce",
    "routine_arg_reduce",
    choice("op", ("max", "min"), "max"),
    whole("select_last", 0),
    axis(0),
    work=lambda call: Work(loads=1, ops=1) * call.given(0).n + Work(stores=1) * call.out.n,
)
declare("topk", "routine_topk", axis(-1), whole("k"), whole("largest", 1), work=_sorted)
for _name in ("cumsum", "cumprod"):
    declare(
        _name,
        "routine_scan",
        axis(0 if _name == "cumsum" else -1),
        whole("exclusive", 0),
        whole("reverse", 0),
        work=lambda call: Work(1, 1, 1) * call.out.n,
    )
declare("layernorm", "routine_norm", _norm_words, real("eps", 1e-5), work=_normed(True))
declare("rmsnorm", "routine_norm", _norm_words, real("eps", 1e-5), work=_normed(False))
declare("softmax", "routine_softmax", axis(-1), real("scale", 1.0), whole("log", 0), work=_softmaxed)
declare("batchnorm_inference", "routine_batchnorm", real("eps", 1e-6), work=_batchnormed)
declare(
    "rope",
    "routine_rope",
    whole("heads", 1),
    whole("rotary_dim", -1),
    choice("style", ("half", "interleaved"), "half"),
    work=_turned,
)
