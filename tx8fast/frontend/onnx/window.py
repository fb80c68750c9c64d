"""Handlers of convolutions and pooling: channel-first ONNX tensors become channel-last ones and back.

May import: frontend.onnx.node. Must not: touch protobufs beyond a node's attributes.
One spatial dimension is carried as a plane of width 1, whose rows tiles divide; three or more use the `_nd` kinds.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast.frontend.common import Tensor
from tx8fast.frontend.onnx.node import Handler, Node
from tx8fast.records import dataclass


@dataclass
class Window:
    """Geometry over the spatial axes, one entry each, in elements."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    lo: list[int]
    hi: list[int]

    def lifted(self) -> Window:
        """The same window over a plane of width 1 when there is one spatial axis."""
        if len(self.kernel) != 1:
            return self
        return Window([*self.kernel, 1], [*self.stride, 1], [*self.dilation, 1], [*self.lo, 0], [*self.hi, 0])

    def attrs(self, with_kernel: bool) -> dict:
        found = {"stride": self.stride, "dilation": self.dilation, "pad_lo": self.lo, "pad_hi": self.hi}
        if with_kernel:
            found["kernel"] = self.kernel
        return {k: tuple(v) for k, v in found.items()}


def geometry(n: Node, sizes: list[int], kernel: list[int]) -> Window:
    """Read strides, dilations and pads, resolving `auto_pad`."""
    rank = len(sizes)
    if len(kernel) != rank:
        raise n.bad(f"the kernel has {len(kernel)} spatial dimensions, the input {rank}")
    stride = list(n.attr("strides", [1] * rank))
    dilation = list(n.attr("dilations", [1] * rank))
    pads = list(n.attr("pads", [0] * 2 * rank))
    if len(stride) != rank or len(dilation) != rank or len(pads) != 2 * rank:
        raise n.bad(f"strides {stride}, dilations {dilation} and pads {pads} do not fit {rank} spatial dimensions")
    if any(s < 1 for s in stride + dilation):
        raise n.bad(f"strides {stride} and dilations {dilation} must be at least 1")
    lo, hi = pads[:rank], pads[rank:]
    mode = n.attr("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(rank):
            span = dilation[i] * (kernel[i] - 1) + 1
            total = max((-(-sizes[i] // stride[i]) - 1) * stride[i] + span - sizes[i], 0)
            less, more = total // 2, total - total // 2
            lo[i], hi[i] = (less, more) if mode == "SAME_UPPER" else (more, less)
    elif mode == "VALID":
        lo, hi = [0] * rank, [0] * rank
    elif mode != "NOTSET":
        raise n.unsupported(f"auto_pad '{mode}' is not supported")
    return Window(list(kernel), stride, dilation, lo, hi)


def _channel_last(n: Node, x: Tensor) -> Tensor:
    if x.rank == 3:
        x = n.reshape(x, (*x.shape, 1))
    return n.swap_to_last(x)


def _channel_first(n: Node, y: Tensor, spatial: int) -> Tensor:
    y = n.swap_to_first(y)
    return n.reshape(y, y.shape[:3]) if spatial == 1 else y


def _kind(name: str, spatial: int) -> str:
    return name if spatial <= 2 else name + "_nd"


def convolve(n: Node, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve [N, C, ...] with [O, C/g, ...] by the node's attributes."""
    spatial = x.rank - 2
    if spatial < 1 or w.rank != x.rank:
        raise n.bad(f"input rank {x.rank} and weight rank {w.rank} do not fit a convolution")
    kernel = list(w.shape[2:])
    if list(n.attr("kernel_shape", kernel)) != kernel:
        raise n.bad(f"kernel_shape {n.attr('kernel_shape')} differs from the weight's {kernel}")
    window = geometry(n, list(x.shape[2:]), kernel).lifted()
    if spatial == 1:
        w = n.reshape(w, (*w.shape, 1))
    w = n.transpose(w, (*range(2, w.rank), 0, 1))
    groups = n.attr("group", 1)
    y = n.op(_kind("conv", spatial), _channel_last(n, x), w, bias, groups=groups, **window.attrs(False))
    return _channel_first(n, y, spatial)


def _conv(n: Node) -> Tensor:
    return convolve(n, n[0], n[1], n[2])


def _conv_transpose(n: Node) -> Tensor:
    x, w, bias = n[0], n[1], n[2]
    spatial = x.rank - 2
    kernel, sizes = list(w.shape[2:]), list(x.shape[2:])
    window = geometry(n, sizes, kernel)
    extra = list(n.attr("output_padding", [0] * spatial))
    wanted = n.attr("output_shape")
    mode = n.attr("auto_pad", "NOTSET")
    if wanted is not None or mode.startswith("SAME"):
        wanted = list(wanted)[-spatial:] if wanted is not None else [s * t for s, t in zip(sizes, window.stride)]
        for i in range(spatial):
            full = window.stride[i] * (sizes[i] - 1) + extra[i] + window.dilation[i] * (kernel[i] - 1) + 1
            total = full - wanted[i]
            if total < 0:  # ask for more than there is: the rest is zero
                extra[i], total = extra[i] - total, 0
            less, more = total // 2, total - total // 2
            window.lo[i], window.hi[i] = (less, more) if mode == "SAME_UPPER" else (more, less)
    window = window.lifted()
    if spatial == 1:
        w, extra = n.reshape(w, (*w.shape, 1)), [*extra, 0]
    w = n.transpose(w, (*range(2, w.rank), 1, 0))
    kind, groups = _kind("conv_transpose", spatial), n.attr("group", 1)
    y = n.op(kind, _channel_last(n, x), w, bias, groups=groups, out_pad=tuple(extra), **window.attrs(False))
    return _channel_first(n, y, spatial)


def _pool(n: Node, kind: str, x: Tensor, window: Window, **attrs) -> Tensor:
    spatial = x.rank - 2
    attrs["ceil_mode"] = bool(n.attr("ceil_mode", 0))
    y = n.op(_kind(kind, spatial), _channel_last(n, x), **window.lifted().attrs(True), **attrs)
    return _channel_first(n, y, spatial)


def _max_pool(n: Node):
    x = n[0]
    window = geometry(n, list(x.shape[2:]), list(n.required("kernel_shape")))
    y = _pool(n, "max_pool", x, window)
    if not n.wants(1):
        return [y]
    places = n.op(
        "max_pool_indices",
        _channel_last(n, x),
        **window.lifted().attrs(True),
        ceil_mode=bool(n.attr("ceil_mode", 0)),
        column_major=bool(n.attr("storage_order", 0)),
    )
    return [y, _channel_first(n, places, x.rank - 2)]


def _average_pool(n: Node) -> Tensor:
    x = n[0]
    window = geometry(n, list(x.shape[2:]), list(n.required("kernel_shape")))
    return _pool(n, "avg_pool", x, window, count_pad=bool(n.attr("count_include_pad", 0)))


def _lp_pool(n: Node) -> Tensor:
    """The p-norm of each window is the average of |x|^p over the whole window, times its size, to the 1/p."""
    x, p = n[0], float(n.attr("p", 2))
    window = geometry(n, list(x.shape[2:]), list(n.required("kernel_shape")))
    if n.attr("ceil_mode", 0):  # an overhanging window counts as padded, so that the divisor stays its size
        for i, size in enumerate(x.shape[2:]):
            span = window.dilation[i] * (window.kernel[i] - 1) + 1
            room = size + window.lo[i] + window.hi[i] - span
            count = -(-room // window.stride[i]) + 1
            count -= (count - 1) * window.stride[i] >= size + window.lo[i]
            window.hi[i] = max(window.hi[i], (count - 1) * window.stride[i] + span - size - window.lo[i])
    powered = n.op("square", x) if p == 2 else n.op("abs", x) if p == 1 else n.op("pow", n.op("abs", x), p)
    mean = _pool(n, "avg_pool", powered, window, count_pad=True)
    total = n.op("mul", mean, float(math.prod(window.kernel)))
    return n.op("sqrt", total) if p == 2 else total if p == 1 else n.op("pow", total, 1.0 / p)


def _global_pool(op: str):
    return lambda n: n.reduce(n[0], op, range(2, n[0].rank))


def _global_lp_pool(n: Node) -> Tensor:
    x, p = n[0], float(n.attr("p", 2))
    axes = range(2, x.rank)
    if p in (1, 2):
        return n.reduce(x, f"l{int(p)}", axes)
    return n.op("pow", n.reduce(n.op("pow", n.op("abs", x), p), "add", axes), 1.0 / p)


def _max_unpool(n: Node) -> Tensor:
    """Values go back to the flat places that pooling took them from; the rest is zero."""
    x, places = n[0], n[1]
    kernel = list(n.required("kernel_shape"))
    stride, pads = n.attr("strides", [1] * len(kernel)), n.attr("pads", [0] * 2 * len(kernel))
    pooled = list(x.shape[:2])  # what the places refer to
    for i, k in enumerate(kernel):
        pooled.append((x.shape[2 + i] - 1) * stride[i] - pads[i] - pads[i + len(kernel)] + k)
    out = n.listed(2, "output_shape") if n.has(2) else pooled
    if any(a > b for a, b in zip(pooled, out)):
        pooled = out
    flat = n.broadcast(n.const(0.0, x.dtype), (math.prod(pooled),))
    size = math.prod(x.shape)
    filled = n.op("scatter", flat, n.reshape(places, (size,)), n.reshape(x, (size,)), axis=0)
    filled = n.reshape(filled, pooled)
    if pooled == out:
        return filled
    return n.op("pad", filled, lo=(0,) * len(out), hi=tuple(o - i for o, i in zip(out, pooled)))


def _lrn(n: Node) -> Tensor:
    """Channels slide as the height of an image: an average over `size` neighbours, padding counted."""
    x, size = n[0], n.required("size")
    batch, c = x.shape[:2]
    lo = (size - 1) // 2
    square = n.reshape(n.op("square", x), (batch, c, math.prod(x.shape[2:]), 1))
    mean = n.op(
        "avg_pool",
        square,
        kernel=(size, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pad_lo=(lo, 0),
        pad_hi=(size - 1 - lo, 0),
        count_pad=True,
    )
    scaled = n.op("add", n.op("mul", mean, float(n.attr("alpha", 1e-4))), float(n.attr("bias", 1.0)))
    return n.op("div", x, n.reshape(n.op("pow", scaled, float(n.attr("beta", 0.75))), x.shape))


def _conv_integer(n: Node) -> Tensor:
    """Both operands as 32-bit integers, zero points removed; the products add up exactly."""
    x, w = n.cast(n[0], "i32"), n.cast(n[1], "i32")
    if n.has(2):
        x = n.op("sub", x, n.cast(n[2], "i32"))
    if n.has(3):
        zero = n.cast(n[3], "i32")
        w = n.op("sub", w, n.reshape(zero, (zero.shape[0], *[1] * (w.rank - 1))) if zero.rank else zero)
    return convolve(n, x, w, None)


def _deform_conv(n: Node) -> Tensor:
    x, w, offset = n[0], n[1], n[2]
    if x.rank != 4:
        raise n.unsupported("deformable convolution is supported over two spatial dimensions only")
    window = geometry(n, list(x.shape[2:]), list(w.shape[2:]))
    bias = n[3] if n.has(3) else n.const(np.zeros(w.shape[0]), x.dtype)
    mask = (
        n[4]
        if n.has(4)
        else n.broadcast(n.const(1.0, x.dtype), (offset.shape[0], offset.shape[1] // 2, *offset.shape[2:]))
    )
    groups, per_offset = n.attr("group", 1), n.attr("offset_group", 1)
    return n.op("deform_conv", x, w, offset, bias, mask, groups=groups, offset_groups=per_offset, **window.attrs(False))


HANDLERS: tuple[Handler, ...] = (
    Handler("Conv", _conv, 7),
    Handler("ConvTranspose", _conv_transpose),
    Handler("ConvInteger", _conv_integer, 10),
    Handler("DeformConv", _deform_conv, 19),
    Handler("MaxPool", _max_pool),
    Handler("AveragePool", _average_pool),
    Handler("LpPool", _lp_pool),
    Handler("GlobalAveragePool", _global_pool("mean")),
    Handler("GlobalMaxPool", _global_pool("max")),
    Handler("GlobalLpPool", _global_lp_pool),
    Handler("MaxUnpool", _max_unpool, 9),
    Handler("LRN", _lrn),
)
