"""Matrix-engine kinds: gemm, contract, conv, conv_transpose.

May import: ir.ops.base, ir.factors, ir.equation. Must not: know lowering.
Conv tensors are NHWC [N, H, W, C]; weights HWOI [Kh, Kw, O, C / groups].
"""

from __future__ import annotations

import math

from tx8fast.ir import equation, factors
from tx8fast.ir.core import REQUIRED, Op
from tx8fast.ir.ops.base import (
    OpDef,
    broadcast_dims,
    broadcast_into,
    fail,
    is_num,
    match,
    optional,
    pair_attr,
    tensor,
)
from tx8fast.ir.types import FLOAT_DTYPES
from tx8fast.numerics.windows import is_depthwise

ACTS = ("none", "relu", "leaky_relu")
_BYTES = frozenset({"i8", "u8"})


def result_dtype(op: Op) -> str:
    a, b = op.operands[0].type.dtype, op.operands[1].type.dtype  # type: ignore[attr-defined]
    if a in _BYTES and b in _BYTES:
        return "i32"
    if a != b:
        raise fail(op, 1, f"element type {b}", f"{a} as operand '{op.info.ins[0]}'")
    return a


def _check_act(op: Op) -> None:
    if op.attrs["act"] not in ACTS:
        raise fail(op, "act", repr(op.attrs["act"]), " or ".join(ACTS))


def _gemm(op: Op):
    a, b = tensor(op, 0, min_rank=2).shape, tensor(op, 1, min_rank=2).shape
    m, k = (a[-1], a[-2]) if op.attrs["trans_a"] else (a[-2], a[-1])
    k2, n = (b[-1], b[-2]) if op.attrs["trans_b"] else (b[-2], b[-1])
    match(op, 1, "K", k2, k)
    _check_act(op)
    out = (*broadcast_dims(op, 1, a[:-2], b[:-2]), m, n)
    if optional(op, 2) is not None:
        broadcast_into(op, 2, out)
    return [(out, result_dtype(op))]


def _contract(op: Op):
    a, b = tensor(op, 0).shape, tensor(op, 1).shape
    if not is_num(*a, *b):
        raise fail(
            op,
            0 if not is_num(*a) else 1,
            f"shape {list(a if not is_num(*a) else b)}",
            "known dimensions",
        )
    eq = equation.bind(op.attrs["equation"], (a, b), op.attrs["sizes"], op)
    return [(eq.out_shape, result_dtype(op))]


#: the longest stride, dilation, window or padding, elements: of the engines' instructions, and of the kernel core's routines,
#: where the window of a pool has at most so many elements
MAX_STEP, MAX_SIZE, MAX_TAPS = (1 << 25) - 1, (1 << 31) - 1, 10**9


def check_window(op: Op, i: int, kernel: int) -> None:
    """Raise VerifyError for a window of no elements, which covers nothing of operand `i`."""
    if kernel < 1:
        raise fail(op, i, f"a window of {kernel} elements along an axis", "at least 1")


def window_out(op: Op, i: int, size, kernel, stride: int, dilation: int, lo: int, hi: int, ceil: bool = False):
    """Return the output length of a window along one axis, or -1 if `size` is unknown."""
    if not is_num(size, kernel):
        return -1
    check_window(op, i, kernel)
    span = size + lo + hi - dilation * (kernel - 1) - 1
    if span < 0 and not (ceil and span > -stride):  # rounded up, one window that reaches over the end is left
        raise fail(
            op,
            i,
            f"length {size} with padding ({lo}, {hi})",
            f"at least the window {dilation * (kernel - 1) + 1}",
        )
    out = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (out - 1) * stride >= size + lo:
        out -= 1  # the last window must start inside the input or its leading padding
    return out


def window_attrs(op: Op, rank: int = 2) -> list[tuple[int, ...]]:
    """Return checked (stride, dilation, pad_lo, pad_hi), `rank` entries each."""
    lows = {"stride": 1, "dilation": 1, "pad_lo": 0, "pad_hi": 0}
    return [pair_attr(op, name, rank, low, MAX_SIZE) for name, low in lows.items()]


def pool_kernel(op: Op, rank: int = 2) -> tuple[int, ...]:
    """Return the checked window of a pool, `rank` entries."""
    kernel = pair_attr(op, "kernel", rank, 1, MAX_SIZE)
    if math.prod(kernel) > MAX_TAPS:
        raise fail(op, "kernel", kernel, f"a window of at most {MAX_TAPS} elements")
    return kernel


def _conv(op: Op):
    x, w = tensor(op, 0, rank=4).shape, tensor(op, 1, rank=4).shape
    s, d, lo, hi = window_attrs(op)
    g = op.attrs["groups"]
    _check_act(op)
    if g < 1 or (is_num(x[3]) and x[3] % g) or (is_num(w[2]) and w[2] % g):
        raise fail(op, "groups", g, f"a divisor of the channel counts {x[3]} and {w[2]}")
    if is_num(x[3], w[3]):
        match(op, 1, "channels per group", w[3], x[3] // g)
    if optional(op, 2) is not None:
        match(op, 2, "channels", tensor(op, 2, rank=1).shape[0], w[2])
    hw = [window_out(op, 0, x[1 + i], w[i], s[i], d[i], lo[i], hi[i]) for i in (0, 1)]
    return [((x[0], hw[0], hw[1], w[2]), result_dtype(op))]


def _conv_transpose(op: Op):
    x = tensor(op, 0, rank=4, dtypes=FLOAT_DTYPES).shape
    w = tensor(op, 1, rank=4).shape
    s, d, lo, hi = window_attrs(op)
    extra, g = pair_attr(op, "out_pad", 2, 0), op.attrs["groups"]
    if g < 1 or (is_num(x[3]) and x[3] % g):
        raise fail(op, "groups", g, f"a divisor of the channel count {x[3]}")
    match(op, 1, "input channels", w[3], x[3])
    hw = []
    for i in (0, 1):
        n, k = x[1 + i], w[i]
        if is_num(k):
            check_window(op, 1, k)
        hw.append(s[i] * (n - 1) + extra[i] + d[i] * (k - 1) + 1 - lo[i] - hi[i] if is_num(n, k) else -1)
        if hw[i] < 1 and is_num(n, k):
            raise fail(op, "pad_lo", lo, f"padding that leaves an output, found length {hw[i]}")
    o = w[2] * g if is_num(w[2]) else -1
    if optional(op, 2) is not None:
        match(op, 2, "channels", tensor(op, 2, rank=1).shape[0], o)
    return [((x[0], hw[0], hw[1], o), result_dtype(op))]


def _conv_engine(op: Op) -> str:
    """The matrix engine's, unless its fields are too small. Images are cut into bands of rows if they are higher than an
    instruction takes, and one window then has to fit."""
    x, w = op.operands[0].type.shape, op.operands[1].type.shape  # type: ignore[attr-defined]
    if not is_num(*x, *w):
        return "ne" if op.attrs["groups"] == 1 else "kcore"
    s, d, lo, hi = window_attrs(op)
    out = op.result.type.shape  # type: ignore[attr-defined]
    low = max(x[1], out[1]) <= 4096 or (w[0] - 1) * d[0] + 1 <= 4096
    columns = w[1] if not is_depthwise(op.attrs["groups"], w[3], w[2] // op.attrs["groups"], d) else max(w[:2])
    fits = low and columns <= 255 and max(x[2], out[2]) <= 4096 and max(x[3], w[2]) <= 16384
    fits = fits and max(*s, *d, *lo, *hi) <= MAX_STEP
    return "ne" if fits and min(*lo, *hi) >= 0 and op.attrs["act"] in ("none", "relu") else "kcore"


_TWO_ONES = (tuple, (1, 1))
_TWO_ZEROS = (tuple, (0, 0))
WINDOW = {"stride": _TWO_ONES, "dilation": _TWO_ONES, "pad_lo": _TWO_ZEROS, "pad_hi": _TWO_ZEROS}

OPS: tuple[OpDef, ...] = (
    OpDef("gemm", ("lhs", "rhs", "bias?"), infer=_gemm, rule_of=factors.gemm, engine="ne", align="align",
          attrs={"trans_a": (bool, False), "trans_b": (bool, False), "act": (str, "none"), "useful_macs": (int, -1)}),
    OpDef("contract", ("lhs", "rhs"), infer=_contract, rule_of=equation.rule, engine="ne", align="align",
          attrs={"equation": (str, REQUIRED), "sizes": (tuple, ()), "useful_macs": (int, -1)}),
    OpDef("conv", ("x", "w", "bias?"), infer=_conv, rule_of=factors.conv, engine=_conv_engine, align="align", need_preset=True,
          attrs={**WINDOW, "groups": (int, 1), "act": (str, "none")}),
    OpDef("conv_transpose", ("x", "w", "bias?"), infer=_conv_transpose, rule_of=factors.conv_transpose, engine="kcore",
          align="nalign", attrs={**WINDOW, "out_pad": _TWO_ZEROS, "groups": (int, 1)}),
)  # fmt: skip
