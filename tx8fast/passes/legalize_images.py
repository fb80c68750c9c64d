"""Rewrites images that no engine takes as they lie into images that one takes: other rows and columns, bands of columns, one group at a time.

May import: ir, numerics.formats, passes.{lift_match, make}. Must not: round differently from the original.

Engines take bands of rows of an image, with all of its columns, of which there may be 4,096, and as many of a kernel as 255. Rows may be
more of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tx8fast.ir.core import Op, Value
from tx8fast.ir.ops.base import engine_of
from tx8fast.ir.rewrite import Pattern, Rewriter, pattern
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size
from tx8fast.numerics.windows import dense_groups, is_depthwise
from tx8fast.passes.lift_match import static
from tx8fast.passes.make import Make

FLOATS = ("bf16", "f16", "f32")
MOST_COLUMNS, MOST_KERNEL = 4096, 255  # field ranges of the engines' windows
#: bytes of the smallest slice of an image, or of the weight of groups with zeros between them, that tiles of 3 MiB have room for
MOST_BYTES = 11 << 18
MOST_TAPS = 25  # of a pool that becomes maxima of slices, each of which reads the image once more
_WINDOW = ("stride", "dilation", "pad_lo", "pad_hi")


def _floats(op: Op) -> bool:
    return (
        static(*op.operands, op.result)
        and op.result.dtype in FLOATS
        and 0 not in (*op.operands[0].shape, *op.result.shape)
    )


@pattern("conv", benefit=2)
def _columns_as_rows(op: Op, rw: Rewriter) -> bool:
    """A kernel of one row sees no neighbours above or below: every row of the image is one of its own, whose columns are its rows."""
    x, w = op.operands[:2]
    columns, kernel = max(x.shape[2], op.result.shape[2]), w.shape[1]
    attrs = {a: tuple(op.attrs[a]) for a in _WINDOW}
    one = w.shape[0] == attrs["stride"][0] == 1 and not attrs["pad_lo"][0] and not attrs["pad_hi"][0]
    if not _floats(op) or not one or (columns <= MOST_COLUMNS and kernel <= MOST_KERNEL):
        return False
    make = Make(rw, op)
    batch, rows, n, c = x.shape
    turned = {a: (v[1], v[0]) for a, v in attrs.items()} | {"dilation": (attrs["dilation"][1], 1)}
    x = make.reshape(x, batch * rows, n, 1, c)
    w = make.reshape(w, kernel, 1, *w.shape[2:])
    y = make("conv", x, w, *op.operands[2:], groups=op.attrs["groups"], act=op.attrs["act"], **turned)
    rw.replace(op, [make.reshape(y, *op.result.shape)])
    return True


@pattern("conv", benefit=2)
def _columns_as_channels(op: Op, rw: Rewriter) -> bool:
    """A kernel as wide as the image sums over all columns, as over channels."""
    x, w = op.operands[:2]
    batch, rows, n, c = x.shape
    lo, hi = op.attrs["pad_lo"][1], op.attrs["pad_hi"][1]
    wide = n == w.shape[1] and op.result.shape[2] == 1 and not lo and not hi and op.attrs["dilation"][1] == 1
    if not _floats(op) or not wide or op.attrs["groups"] != 1 or n <= MOST_KERNEL:
        return False
    make = Make(rw, op)
    w = make.reshape(make.transpose(w, 0, 2, 1, 3), w.shape[0], 1, w.shape[2], n * c)
    attrs = {a: (op.attrs[a][0], 1 if a in ("stride", "dilation") else 0) for a in _WINDOW}
    y = make("conv", make.reshape(x, batch, rows, 1, n * c), w, *op.operands[2:], act=op.attrs["act"], **attrs)
    rw.replace(op, [y])
    return True


@pattern("conv", "conv_nd", benefit=3)
def _windows_of_padding(op: Op, rw: Rewriter) -> bool:
    """Windows that see nothing of the image, most of them where pads and strides are long: they are the bias."""
    x, w, *bias = op.operands
    if not _floats(op) or op.attrs.get("act", "none") not in ("none", "relu"):
        return False
    rank, shape = len(x.shape) - 2, op.result.shape
    stride, step, lo = (tuple(op.attrs[a]) for a in ("stride", "dilation", "pad_lo"))
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape, step)]
    first = [max(0, -(-(a - r + 1) // s)) for a, r, s in zip(lo, reach, stride)]
    last = [min(m, (n - 1 + a) // s + 1) for m, n, a, s in zip(shape[1:-1], x.shape[1:-1], lo, stride)]
    many = [max(0, b - a) for a, b in zip(first, last)]
    if 2 * math.prod(many) > math.prod(shape[1:-1]):
        return False
    make = Make(rw, op)
    border = bias[0] if bias else make.scalar(0.0, op.result.dtype)
    if bias and op.attrs.get("act") == "relu":
        border = make("relu", border)
    border = make.convert(border, op.result.dtype)
    if 0 in many:
        rw.replace(op, [make("broadcast", border, shape=shape)])
        return True
    begin = [q * s - a for q, s, a in zip(first, stride, lo)]
    end = [a + (m - 1) * s + r for a, m, s, r in zip(begin, many, stride, reach)]
    start, stop = [max(0, a) for a in begin], [min(n, b) for n, b in zip(x.shape[1:-1], end)]
    seen = make.slice(x, (0, *start, 0), (x.shape[0], *(b - a for a, b in zip(start, stop)), x.shape[-1]))
    pads = {
        "pad_lo": tuple(max(0, -a) for a in begin),
        "pad_hi": tuple(max(0, b - n) for n, b in zip(x.shape[1:-1], end)),
    }
    y = make(op.kind, seen, w, *bias, **{k: v for k, v in op.attrs.items() if k not in pads}, **pads)
    for axis in range(1, rank + 1):
        before, behind = first[axis - 1], shape[axis] - last[axis - 1]
        around = [(*y.shape[:axis], n, *y.shape[axis + 1 :]) for n in (before, behind)]
        left, right = ([make("broadcast", border, shape=p)] if p[axis] else [] for p in around)
        y = make("concat", *left, y, *right, axis=axis) if left or right else y
    rw.replace(op, [y])
    return True


@pattern("max_pool")
def _largest_of_slices(op: Op, rw: Rewriter) -> bool:
    """A pool whose window has gaps: each of its taps is a slice of the image."""
    x, out, kernel = op.operands[0], op.result.shape, op.attrs["kernel"]
    stride, step, lo = (tuple(op.attrs[a]) for a in ("stride", "dilation", "pad_lo"))
    gaps = any(d > 1 and k > 1 for d, k in zip(step, kernel, strict=True))
    if not _floats(op) or not gaps or math.prod(kernel) > MOST_TAPS or min(lo) < 0:
        return False
    reach = [(m - 1) * s + (k - 1) * d + 1 for m, s, k, d in zip(out[1:3], stride, kernel, step, strict=True)]
    hi = [max(0, r - n - a) for r, n, a in zip(reach, x.shape[1:3], lo, strict=True)]
    make = Make(rw, op)
    if any((*lo, *hi)):
        x = make("pad", x, lo=(0, *lo, 0), hi=(0, *hi, 0), value=-math.inf)
    size = (x.shape[0], *out[1:3], x.shape[3])
    taps = [(i * step[0], j * step[1]) for i in range(kernel[0]) for j in range(kernel[1])]
    y, *others = (make.slice(x, (0, *at, 0), size, (1, *stride, 1)) for at in taps)
    for other in others:
        y = make("max", y, other)
    rw.replace(op, [y])
    return True


EARLY: tuple[Pattern, ...] = (_windows_of_padding, _columns_as_rows, _columns_as_channels, _largest_of_slices)


# ---------------------------------------------------------------- what has no room, by the bytes of its format


@pattern("conv", "max_pool", "avg_pool")
def _bands_of_columns(op: Op, rw: Rewriter) -> bool:
    """Where one row of windows has no room, or more columns than a field holds: bands of columns beside each other, each with the columns
    of its neighbours that it sees."""
    if not _floats(op) or op.operands[0].dtype != op.result.dtype:
        return False
    x, out = op.operands[0], op.result.shape
    kernel = op.operands[1].shape[:2] if op.kind == "conv" else op.attrs["kernel"]
    block, e = block_size(x.dtype), ITEM_BYTES[x.dtype]
    lanes = [min(block, -(-c // 4) * 4) for c in (x.shape[3], out[3])]
    image, result = kernel[0] * x.shape[2] * lanes[0], out[2] * lanes[1]
    needed = image * e + result * (e if op.kind == "max_pool" else 4)
    if op.kind == "avg_pool" and any((*op.attrs["pad_lo"], *op.attrs["pad_hi"])) and not op.attrs["count_pad"]:
        needed += image * 4 + result * (4 + e)  # what counts in a window is a pool of ones in f32
    if needed <= MOST_BYTES and max(x.shape[2], out[2]) <= MOST_COLUMNS:
        return False
    parts = max(-(-2 * needed // MOST_BYTES), -(-max(x.shape[2], out[2]) // MOST_COLUMNS))
    if op.attrs.get("count_pad") and op.attrs["ceil_mode"]:
        return False  # windows beyond the padding, which does not count, would reach into padding that does
    if parts >= out[2] or op.kind == "conv" and engine_of(op) != "kcore" and needed <= MOST_BYTES:
        return False
    pieces = list(_bands(op, kernel[1], parts))
    if any(last <= first for first, last, _, _ in pieces):
        return False  # a band of padding alone
    make, found = Make(rw, op), []
    for first, last, left, right in pieces:
        part = make.slice(x, (0, 0, first, 0), (*x.shape[:2], last - first, x.shape[3]))
        attrs = {k: v for k, v in op.attrs.items() if k not in ("pad_lo", "pad_hi", "ceil_mode")}
        pads = {"pad_lo": (op.attrs["pad_lo"][0], left), "pad_hi": (_behind(op, kernel[0]), right)}
        found.append(make(op.kind, part, *op.operands[1:], **attrs, **pads))
    rw.replace(op, [make("concat", *found, axis=2)])
    return True


def _behind(op: Op, kernel: int) -> int:
    """Return the padding rows behind the image that the last window reaches: of a pool that rounds up, more than it names."""
    reach = (op.result.shape[1] - 1) * op.attrs["stride"][0] + (kernel - 1) * op.attrs["dilation"][0] + 1
    return max(0, reach - op.attrs["pad_lo"][0] - op.operands[0].shape[1])


def _bands(op: Op, kernel: int, parts: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield per band (first, last column, padding before, behind)."""
    n, m = op.operands[0].shape[2], op.result.shape[2]
    stride, step, lo = op.attrs["stride"][1], op.attrs["dilation"][1], op.attrs["pad_lo"][1]
    for i in range(parts):
        a, b = i * m // parts, (i + 1) * m // parts
        first, last = a * stride - lo, (b - 1) * stride - lo + (kernel - 1) * step + 1
        yield max(0, first), min(n, last), max(0, -first), max(0, last - n)


@pattern("conv")
def _one_group_at_a_time(op: Op, rw: Rewriter) -> bool:
    """Groups that end at no block of channels share a weight with zeros between them; where that has no room, each is a convolution."""
    x, w = op.operands[:2]
    groups = op.attrs["groups"]
    outs, ins = w.shape[2] // groups, w.shape[3]
    if not _floats(op) or groups == 1 or is_depthwise(groups, ins, outs, op.attrs["dilation"]):
        return False
    together = dense_groups(groups, ins, outs, block_size(x.dtype))
    # of one row of the kernel, in two slices that have two copies each; half of the room is for images
    dense_bytes = together**2 * ins * outs * w.shape[1] * ITEM_BYTES[x.dtype]
    if together == 1 or 4 * dense_bytes <= MOST_BYTES // 2:
        return False
    make, found = Make(rw, op), []
    attrs = {a: op.attrs[a] for a in (*_WINDOW, "act")}
    for g in range(groups):
        own = _channels(make, x, g * ins, ins), make.slice(w, (0, 0, g * outs, 0), (*w.shape[:2], outs, ins))
        found.append(make("conv", *own, *(make.slice(b, (g * outs,), (outs,)) for b in op.operands[2:]), **attrs))
    rw.replace(op, [make("concat", *found, axis=3)])
    return True


def _channels(make: Make, x: Value, first: int, count: int) -> Value:
    return make.slice(x, (0, 0, 0, first), (*x.shape[:3], count))


LATE: tuple[Pattern, ...] = (_bands_of_columns, _one_group_at_a_time)
