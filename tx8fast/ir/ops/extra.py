"""Kinds that run only as kernel-core routines: the long tail of importable operations.

May import: ir.ops.base, ir.factors, ir.ops.contraction (window arithmetic).
Must not: declare a kind that another family has. All tensors stay dense in DDR.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tx8fast.graph_table import Dim, Rule
from tx8fast.ir import factors
from tx8fast.ir.core import REQUIRED, Op
from tx8fast.ir.ops.base import OpDef, fail, is_num, match, norm_axis, pair_attr, tensor
from tx8fast.ir.ops.contraction import check_window, pool_kernel, result_dtype, window_attrs, window_out
from tx8fast.ir.types import DTYPE_BITS, FLOAT_DTYPES


def _whole(ins, outs, attrs) -> Rule:
    """Nothing may be cut: every operand and result is needed in one piece."""
    full = tuple(tuple(Dim(n, full=True) for n in s) if s is not None else None for s in ins)
    r = factors.RuleBuilder()
    dims = [r.factors(s, "W") for s in outs]
    return r.build(full, dims, [("kcore", 1, tuple(range(len(r.sizes))))])


def _products(count: Callable[..., int]):
    """The rule of an op in one piece that multiplies: `count` of (ins, outs, attrs) are the products that the result needs. They
    count as useful ones, which the matrix engine could do in its time."""

    def rule_of(ins, outs, attrs) -> Rule:
        whole = _whole(ins, outs, attrs)
        return replace(whole, work=(*whole.work, ("ne", count(ins, outs, attrs), ())))

    return rule_of


def _conv_products(ins, outs, attrs) -> int:
    w = ins[1]
    return math.prod(outs[0]) * math.prod(w[:-2]) * w[-1]


def _conv_transpose_products(ins, outs, attrs) -> int:
    x, w = ins[:2]
    return math.prod(x) * math.prod(w[:-1])


def _deform_products(ins, outs, attrs) -> int:
    return math.prod(outs[0]) * math.prod(ins[1][1:])


def _einsum_products(ins, outs, attrs) -> int:
    """All combinations of letters, once per factor behind the first; a plain sum multiplies nothing."""
    terms = attrs["equation"].partition("->")[0].replace(" ", "").split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, ins, strict=True):
        for letter, n in zip(term, shape, strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    return math.prod(sizes.values()) * (len(terms) - 1)


def _recurrent_products(ins, outs, attrs) -> int:
    (steps, batch, inputs), (directions, rows, hidden) = ins[0], ins[2]
    return steps * batch * directions * rows * (inputs + hidden)


def _same(op: Op):
    t = tensor(op, 0)
    return [(t.shape, t.dtype)]


def _cumulative(op: Op):
    x = tensor(op, 0, min_rank=1)
    norm_axis(op, "axis", op.attrs["axis"], len(x.shape))
    return [(x.shape, x.dtype)]


def _bitcast(op: Op):
    x, dtype = tensor(op, 0), op.attrs["dtype"]
    if dtype not in DTYPE_BITS or DTYPE_BITS[dtype] != DTYPE_BITS[x.dtype]:
        raise fail(op, "dtype", repr(dtype), f"an element type of {DTYPE_BITS[x.dtype]} bits as {x.dtype}")
    return [(x.shape, dtype)]


def _conv_nd(op: Op):
    x, w = tensor(op, 0, min_rank=3), tensor(op, 1)
    rank = len(x.shape) - 2
    w = tensor(op, 1, rank=rank + 2)
    s, d, lo, hi = window_attrs(op, rank)
    g = op.attrs["groups"]
    if g < 1 or x.shape[-1] % g or w.shape[-2] % g:
        raise fail(op, "groups", g, f"a divisor of the channel counts {x.shape[-1]} and {w.shape[-2]}")
    match(op, 1, "channels per group", w.shape[-1], x.shape[-1] // g)
    out = [window_out(op, 0, x.shape[1 + i], w.shape[i], s[i], d[i], lo[i], hi[i]) for i in range(rank)]
    return [((x.shape[0], *out, w.shape[-2]), result_dtype(op))]


def _conv_transpose_nd(op: Op):
    x = tensor(op, 0, min_rank=3)
    rank = len(x.shape) - 2
    w = tensor(op, 1, rank=rank + 2)
    s, d, lo, hi = window_attrs(op, rank)
    extra = pair_attr(op, "out_pad", rank, 0)
    for k in w.shape[:rank]:
        check_window(op, 1, k)
    match(op, 1, "input channels", w.shape[-1], x.shape[-1])
    out = [s[i] * (x.shape[1 + i] - 1) + extra[i] + d[i] * (w.shape[i] - 1) + 1 - lo[i] - hi[i] for i in range(rank)]
    if any(n < 1 for n in out):
        raise fail(op, "pad_lo", lo, f"padding that leaves an output, found {out}")
    return [((x.shape[0], *out, w.shape[-2] * op.attrs["groups"]), result_dtype(op))]


def _pool_shape(op: Op):
    x = tensor(op, 0, min_rank=3)
    rank = len(x.shape) - 2
    k = pool_kernel(op, rank)
    s, d, lo, hi = window_attrs(op, rank)
    ceil = op.attrs["ceil_mode"]
    out = [window_out(op, 0, x.shape[1 + i], k[i], s[i], d[i], lo[i], hi[i], ceil) for i in range(rank)]
    return (x.shape[0], *out, x.shape[-1]), x.dtype


def _pool_nd(op: Op):
    return [_pool_shape(op)]


def _pool_indices(op: Op):
    return [(_pool_shape(op)[0], "i64")]


def _deform_conv(op: Op):
    x, w, offset = tensor(op, 0, rank=4), tensor(op, 1, rank=4), tensor(op, 2, rank=4)
    s, d, lo, hi = window_attrs(op)
    out = [window_out(op, 0, x.shape[2 + i], w.shape[2 + i], s[i], d[i], lo[i], hi[i]) for i in (0, 1)]
    wanted = (x.shape[0], 2 * op.attrs["offset_groups"] * w.shape[2] * w.shape[3], *out)
    if offset.shape != wanted:
        raise fail(op, 2, f"shape {list(offset.shape)}", f"{list(wanted)}")
    return [((x.shape[0], w.shape[0], *out), x.dtype)]


def _einsum(op: Op):
    left, arrow, out = op.attrs["equation"].partition("->")
    terms = left.split(",")
    sizes: dict[str, int] = {}
    if not arrow or len(terms) != len(op.operands):
        raise fail(op, "equation", repr(op.attrs["equation"]), f"{len(op.operands)} terms and '->'")
    for i, term in enumerate(terms):
        shape = tensor(op, i, rank=len(term)).shape
        for c, n in zip(term, shape):
            if sizes.get(c, 1) == 1:
                sizes[c] = n
            elif n != 1:
                match(op, i, f"dimension '{c}'", n, sizes[c])
    if any(c not in sizes for c in out):
        raise fail(op, "equation", repr(op.attrs["equation"]), "result letters that an operand has")
    return [(tuple(sizes[c] for c in out), tensor(op, 0).dtype)]


def _det(op: Op):
    x = tensor(op, 0, min_rank=2, dtypes=FLOAT_DTYPES)
    match(op, 0, "columns", x.shape[-1], x.shape[-2])
    return [(x.shape[:-2], x.dtype)]


def _grid_sample(op: Op):
    x, grid = tensor(op, 0, min_rank=3), tensor(op, 1)
    rank = len(x.shape) - 2
    grid = tensor(op, 1, rank=rank + 2)
    match(op, 1, "coordinates", grid.shape[-1], rank)
    match(op, 1, "batch", grid.shape[0], x.shape[0])
    if op.attrs["mode"] not in ("linear", "nearest", "cubic"):
        raise fail(op, "mode", repr(op.attrs["mode"]), "linear, nearest or cubic")
    if op.attrs["padding"] not in ("zeros", "border", "reflection"):
        raise fail(op, "padding", repr(op.attrs["padding"]), "zeros, border or reflection")
    return [((*x.shape[:2], *grid.shape[1:-1]), x.dtype)]


def _regions(op: Op):
    x, rois = tensor(op, 0, rank=4), tensor(op, 1, rank=2)
    return [((rois.shape[0], x.shape[1], *pair_attr(op, "out", 2, 1)), x.dtype)]


def _col2im(op: Op):
    x, image = tensor(op, 0, rank=3), op.attrs["image"]
    rank = len(image)
    k = pool_kernel(op, rank)
    s, d, lo, hi = window_attrs(op, rank)
    taps = math.prod(k)
    if is_num(x.shape[1]) and x.shape[1] % taps:
        raise fail(op, 0, f"{x.shape[1]} rows", f"a multiple of the block's {taps} elements")
    blocks = math.prod(window_out(op, 0, image[i], k[i], s[i], d[i], lo[i], hi[i]) for i in range(rank))
    match(op, 0, "blocks", x.shape[2], blocks)
    return [((x.shape[0], x.shape[1] // taps, *image), x.dtype)]


def _recurrent(op: Op):
    x, r = tensor(op, 0, rank=3), tensor(op, 2, rank=3)
    steps, batch, _ = x.shape
    directions, hidden = r.shape[0], r.shape[2]
    gates = {"rnn": 1, "gru": 3, "lstm": 4}.get(op.attrs["net"])
    if gates is None:
        raise fail(op, "net", repr(op.attrs["net"]), "rnn, gru or lstm")
    match(op, 1, "gate rows", tensor(op, 1, rank=3).shape[1], gates * hidden)
    if directions != (2 if op.attrs["direction"] == "bidirectional" else 1):
        raise fail(op, "direction", repr(op.attrs["direction"]), f"the {directions} directions of operand 'r'")
    state = (directions, batch, hidden)
    return [((steps, directions, batch, hidden), x.dtype), (state, x.dtype), (state, x.dtype)]


_KCORE = {"engine": "kcore", "align": "nalign", "need_load": 0, "need_store": 0}
_T = (tuple, REQUIRED)
_WINDOW = {"stride": _T, "dilation": _T, "pad_lo": _T, "pad_hi": _T}
_POOL = {"kernel": _T, **_WINDOW, "ceil_mode": (bool, False)}

OPS: tuple[OpDef, ...] = (
    OpDef("cumprod", ("x",), infer=_cumulative, rule_of=factors.along_axis, **_KCORE,
          attrs={"axis": (int, REQUIRED), "exclusive": (bool, False), "reverse": (bool, False)}),
    OpDef("bitcast", ("x",), infer=_bitcast, rule_of=lambda i, o, a: factors.elementwise(i, o, 1, "kcore"), **_KCORE,
          attrs={"dtype": (str, REQUIRED)}),
    OpDef("conv_nd", ("x", "w", "bias?"), infer=_conv_nd, rule_of=_products(_conv_products), routine="conv", **_KCORE,
          attrs={**_WINDOW, "groups": (int, 1)}),
    OpDef("conv_transpose_nd", ("x", "w", "bias?"), infer=_conv_transpose_nd,
          rule_of=_products(_conv_transpose_products), routine="conv_transpose",
          attrs={**_WINDOW, "out_pad": _T, "groups": (int, 1)}, **_KCORE),
    OpDef("max_pool_nd", ("x",), infer=_pool_nd, rule_of=_whole, routine="max_pool", attrs=dict(_POOL), **_KCORE),
    OpDef("avg_pool_nd", ("x",), infer=_pool_nd, rule_of=_whole, routine="avg_pool",
          attrs={**_POOL, "count_pad": (bool, False)}, **_KCORE),
    OpDef("max_pool_indices", ("x",), infer=_pool_indices, rule_of=_whole,
          attrs={**_POOL, "column_major": (bool, False)}, **_KCORE),
    OpDef("deform_conv", ("x", "w", "offset", "bias", "mask"), infer=_deform_conv,
          rule_of=_products(_deform_products),
          attrs={**_WINDOW, "groups": (int, 1), "offset_groups": (int, 1)}, **_KCORE),
    OpDef("einsum", ("x*",), infer=_einsum, rule_of=_products(_einsum_products), attrs={"equation": (str, REQUIRED)}, **_KCORE),
    OpDef("det", ("x",), infer=_det, rule_of=_whole, **_KCORE),
    OpDef("grid_sample", ("x", "grid"), infer=_grid_sample, rule_of=_whole, **_KCORE,
          attrs={"mode": (str, "linear"), "padding": (str, "zeros"), "align": (bool, False)}),
    OpDef("roi_align", ("x", "rois", "batch"), infer=_regions, rule_of=_whole, **_KCORE,
          attrs={"mode": (str, "avg"), "half_pixel": (bool, True), "out": _T, "ratio": (int, 0), "scale": (float, 1.0)}),
    OpDef("max_roi_pool", ("x", "rois"), infer=_regions, rule_of=_whole, attrs={"out": _T, "scale": (float, 1.0)},
          **_KCORE),
    OpDef("col2im", ("x",), infer=_col2im, rule_of=_whole, attrs={"image": _T, "kernel": _T, **_WINDOW}, **_KCORE),
    OpDef("recurrent", ("x", "w", "r", "bias", "lengths", "h0", "c0", "peephole"), ("y", "y_h", "y_c"),
          infer=_recurrent, rule_of=_products(_recurrent_products), **_KCORE,
          attrs={"net": (str, REQUIRED), "direction": (str, "forward"), "activations": (tuple, ()),
                 "clip": (float, 0.0), "linear_before_reset": (bool, False), "input_forget": (bool, False)}),
)  # fmt: skip
