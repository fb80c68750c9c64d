"""Routines over images and sequences: pools, columns, sampling, regions, recurrent layers, determinants.

May import: math, isa.routines.base. Must not: execute one.
"""

from __future__ import annotations

import math

from tx8fast.isa.routines.base import Call, choice, declare, real, whole, wholes
from tx8fast.isa.work import Work

SAMPLE_MODES = ("nearest", "linear", "cubic")
SAMPLE_PADDINGS = ("zeros", "border", "reflection")
NETS = ("rnn", "gru", "lstm")
CELL_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu")
_PRODUCT = Work(loads=2, ops=2)


def _taps(call: Call) -> int:
    rank = len(call.out.shape) - 2
    kernel = call.attrs.get("kernel") or (1,) * rank
    return kernel**rank if isinstance(kernel, int) else math.prod(kernel) ** (rank if len(kernel) == 1 else 1)


def _pooled(divides: int, ops: int):
    return lambda call: (Work(loads=1, ops=ops) * _taps(call) + Work(stores=1, divides=divides)) * call.out.n


def _columns(call: Call) -> Work:
    return Work(loads=2, stores=1, ops=1) * call.given(0).n + Work(stores=1) * call.out.n


def _sampled(call: Call) -> Work:
    x, grid, out = call.given(0), call.given(1), call.out
    rank = len(x.shape) - 2
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[str(call.attrs.get("mode", "linear"))] ** rank
    points = grid.n // rank
    return (
        Work(loads=1) * grid.n
        + Work(ops=6 * rank + 2 * rank * taps) * points
        + (_PRODUCT * taps + Work(stores=1)) * out.n
    )


def _regions(call: Call) -> Work:
    """Where every sample of a bin lies in a region of the whole image, when their number is not given: a bin's share of the image."""
    x, out, ratio = call.given(0), call.out, int(call.attrs.get("ratio", 0))
    scale_y, scale_x = (max(1, math.ceil(n / m)) if m else 0 for n, m in zip(x.shape[2:], out.shape[2:], strict=True))
    samples = ratio * ratio if ratio > 0 else scale_y * scale_x
    read = Work(loads=1) * (call.given(1).n + call.given(2).n)
    return read + (Work(loads=4, ops=24) * samples + Work(stores=1, divides=1)) * out.n


def _pooled_regions(call: Call) -> Work:
    """A region is the whole image, the most it can be: bins meet at rows and columns that both read."""
    x, out = call.given(0), call.out
    size = math.prod(n // m + 2 if m else 0 for n, m in zip(x.shape[2:], out.shape[2:], strict=True))
    read = Work(loads=1) * call.given(1).n + Work(divides=2) * out.shape[0]
    return read + (Work(loads=1, ops=1) * size + Work(stores=1, ops=8)) * out.n


def _deformed(call: Call) -> Work:
    x, w, offset, out = call.given(0), call.given(1), call.given(2), call.out
    taps, places = math.prod(w.shape[2:]), out.shape[0] * math.prod(out.shape[2:])
    per, channels = int(call.attrs.get("offset_groups", 1)), x.shape[1]
    read = Work(loads=1) * (offset.n + call.given(3).n + call.given(4).n)
    each = Work(ops=22 * per * taps + channels * taps) + _PRODUCT * (
        channels * taps * 4 + math.prod(w.shape[:2]) * taps
    )
    return read + each * places + Work(stores=1, ops=1) * out.n


#: per element of the hidden state and step: operations and functions besides the products
_CELLS = {"rnn": Work(ops=3, functions=1), "gru": Work(ops=14, functions=3), "lstm": Work(ops=22, functions=5)}


def _stepped(call: Call) -> Work:
    """Every step multiplies the whole weights: sequences are taken to be as long as the longest can be."""
    x, r = call.given(0), call.given(2)
    directions, rows, hidden = r.shape
    steps, batch, inputs = x.shape
    each = _PRODUCT * (rows * (inputs + hidden)) + _CELLS[str(call.attrs["net"])] * hidden
    read = sum(call.given(i).n for i in (3, 4, 5, 6, 7))
    return each * (steps * batch * directions) + Work(loads=read, stores=sum(o.n for o in call.outs))


def _net_words(call: Call) -> list[int]:
    names = [CELL_ACTIVATIONS.index(str(a)) for a in call.attrs["activations"]]
    return [NETS.index(str(call.attrs["net"])), call.attrs.get("direction", "forward") == "reverse", len(names), *names]


def _determinant(call: Call) -> Work:
    x, n = call.given(0), call.given(0).shape[-1]
    rows = sum((n - 1 - k) * (n - k) for k in range(n))
    each = Work(loads=2, stores=1, ops=2) * rows + Work(divides=n * (n - 1) // 2, ops=n * (n + 1) // 2)
    return Work(loads=1) * x.n + (each + Work(stores=1)) * call.out.n


_WINDOW = (wholes("kernel"), wholes("stride"), wholes("dilation"), wholes("pad_lo"), wholes("pad_hi"))
declare("max_pool", "routine_pool", *_WINDOW, work=_pooled(0, 1))
declare("avg_pool", "routine_pool", *_WINDOW, whole("count_pad", 0), work=_pooled(1, 1))
declare("max_pool_indices", "routine_max_pool_indices", *_WINDOW, whole("column_major", 0), work=_pooled(0, 2))
declare("col2im", "routine_col2im", *_WINDOW, work=_columns)
declare(
    "grid_sample",
    "routine_grid_sample",
    choice("mode", SAMPLE_MODES, "linear"),
    choice("padding", SAMPLE_PADDINGS, "zeros"),
    whole("align", 0),
    work=_sampled,
)
declare(
    "roi_align",
    "routine_roi_align",
    choice("mode", ("avg", "max"), "avg"),
    whole("half_pixel", 1),
    whole("ratio", 0),
    real("scale", 1.0),
    work=_regions,
)
declare("max_roi_pool", "routine_max_roi_pool", real("scale", 1.0), work=_pooled_regions)
declare(
    "deform_conv",
    "routine_deform_conv",
    whole("groups", 1),
    whole("offset_groups", 1),
    wholes("stride"),
    wholes("dilation"),
    wholes("pad_lo"),
    work=_deformed,
)
declare(
    "recurrent",
    "routine_recurrent",
    _net_words,
    real("clip", 0.0),
    whole("linear_before_reset", 0),
    whole("input_forget", 0),
    work=_stepped,
)
declare("det", "routine_det", work=_determinant)
