"""Products of the matrix engine in the specified order, with what is done to their sums: the oracle of the core's.

May import: numpy, errors, isa, simulator.exact_tensor. Must not: use a matrix library.
Source: TX8 hardware manual 6.4, 12. Operands are loaded whole; sums are added in the order of `exact_tensor.ordered_product`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.blocked import load, store
from tx8fast.isa.ne import F32, I16, Conv, Gemm
from tx8fast.isa.quant import Quant, unpack_quant
from tx8fast.numerics.formats import CODE_TO_DTYPE, FORMAT_CODES, np_dtype
from tx8fast.simulator.exact_tensor import ordered_product

I32, INT8_FORMATS = FORMAT_CODES["i32"], (FORMAT_CODES["i8"], FORMAT_CODES["u8"])
RELU, LEAKY_RELU = 1, 2
_LEAK, _NAN = np.float32(0.01), np.float32(np.nan)


def quantised(acc: np.ndarray, scale: np.ndarray | None, q: Quant) -> np.ndarray:
    """Return int8 results of int32 sums `acc` (..., c) with per-channel 16-bit factors `scale` (c,)."""
    o16 = np.clip(acc.astype(np.int64) >> q.q1, -32768, 32767)
    factor = 1 if scale is None else scale.astype(np.int64)
    o9 = np.clip((o16 * factor) >> q.q0, -256, 255)
    return np.clip(o9 + q.zp_out, -128, 127).astype(np.int8)


def postprocess(acc, bias, scale_p, scale_n, act: int) -> np.ndarray:
    """Return bias, scale by sign and activation applied to `acc` (..., c); int32 stays exact if nothing applies."""
    plain = bias is None and scale_p is None and scale_n is None and not act
    if plain:
        return acc
    z = acc.astype(np.float32)
    if bias is not None:
        z = z + bias
    if scale_p is not None or scale_n is not None:
        one = np.float32(1)
        z = z * np.where(z >= 0, one if scale_p is None else scale_p, one if scale_n is None else scale_n)
    if act == RELU:
        z = np.where(z < 0, np.float32(0), z)
    elif act == LEAKY_RELU:
        z = np.where(z < 0, z * _LEAK, z)
    return z


def _load_input(state, addr, n, pos, c, fmt, zero_point):
    """Return an input operand as floats in which every product sum is exact for 8-bit formats."""
    if fmt not in INT8_FORMATS:
        return load(state.spm, addr, n, pos, c, fmt)
    return load(state.spm, addr, n, pos, c, fmt, np.float64) - zero_point


def _finish(state, acc, spm, fmt, p_post, rnd):
    """Add psum, post-process and write; `acc` is (n, pos, c); p_post: fields by name."""
    n, pos, c = acc.shape
    f = p_post
    integer = fmt in INT8_FORMATS
    if integer:
        acc = acc.astype(np.int64).astype(np.int32)  # wraps like the 32-bit accumulator
    if f["psum_en"]:
        if integer and f["psum_fmt"] == I32:
            acc = acc + load(state.spm, spm[3], n, pos, c, I32, np.int32)
        else:
            psum = load(state.spm, spm[3], n, pos, c, f["psum_fmt"])
            if integer:
                acc, integer = acc.astype(np.float32), False
            # never in place: the accumulator may be a view of an operand
            acc = acc + psum

    def vector(addr, vfmt):
        return load(state.spm, addr, 1, 1, c, vfmt)[0, 0] if addr else None

    q = unpack_quant(f["quant"])
    if q.enabled and integer:
        scale = vector(spm[5], I16)
        out = quantised(acc, scale, q)
    else:
        bias = vector(spm[4], f["bias_fmt"]) if f["bias_en"] else None
        pos_scale, neg_scale = vector(spm[5], F32), vector(f["scale_n"], F32)
        out = postprocess(acc, bias, pos_scale, neg_scale, f["act"])
    if np_dtype(CODE_TO_DTYPE[f["out_fmt"]]).kind not in "iu":
        out = out.astype(np.float32)
        out = np.where(np.isnan(out), _NAN, out)
    store(state.spm, spm[2], out, f["out_fmt"], rnd, state.seed())


def _gemm(state, fmt, rnd, spm, p, ddr):
    m, k, n, batch_l, batch_r, l_trs, r_trs = p[:7]
    q = unpack_quant(p[14])
    left = _load_input(state, spm[0], batch_l, *((k, m) if l_trs else (m, k)), fmt, q.zp_left)
    right = _load_input(state, spm[1], batch_r, *((k, n) if r_trs else (n, k)), fmt, q.zp_right)
    if l_trs:
        left = left.transpose(0, 2, 1)
    if not r_trs:
        right = right.transpose(0, 2, 1)
    if batch_l == 1 and batch_r == 1:
        acc = ordered_product(left[0], right[0], fmt)[None]
    else:
        if batch_l != batch_r and 1 not in (batch_l, batch_r):
            raise SimulationError(f"gemm: found batches {batch_l} and {batch_r}, required equal ones or one of them 1")
        batches = range(max(batch_l, batch_r))
        acc = np.stack([ordered_product(left[i % batch_l], right[i % batch_r], fmt) for i in batches])
    _finish(state, acc, spm, fmt, dict(zip(Gemm.FIELDS_P[7:], p[7:15])), rnd)


def _conv_inputs(state, fmt, spm, p, weight_shape):
    n, h, w, c = p[:4]
    q = unpack_quant(p[23])
    x = _load_input(state, spm[0], n, h * w, c, fmt, q.zp_left).reshape(n, h, w, c)
    *lead, last = weight_shape
    wt = _load_input(state, spm[1], 1, int(np.prod(lead)), last, fmt, q.zp_right)
    return x, wt.reshape(weight_shape)


def _conv_done(state, acc, fmt, rnd, spm, p):
    fields = dict(zip(Conv.FIELDS_P[17:], p[17:24]), bias_fmt=F32)
    _finish(state, acc.reshape(acc.shape[0], -1, acc.shape[3]), spm, fmt, fields, rnd)


def _padded_input(x, p):
    """Return `x` (n, h, w, c) with its border, extended where the last window reaches further."""
    n, h, w, c = x.shape
    oh, ow, (top, _, left, _), (kx, ky, sx, sy, dx, dy) = p[4], p[5], p[7:11], p[11:17]
    need_h = (oh - 1) * sy + (ky - 1) * dy + 1
    need_w = (ow - 1) * sx + (kx - 1) * dx + 1
    out = np.zeros((n, max(need_h, h + top), max(need_w, w + left), c), x.dtype)
    out[:, top : top + h, left : left + w] = x
    return out


def _windows(p):
    """Yield (ky, kx, row slice, column slice) of every kernel tap over the padded plane of the larger map."""
    kx, ky, sx, sy, dx, dy = p[11:17]
    for y in range(ky):
        for z in range(kx):
            yield y, z, y * dy, z * dx, sy, sx


def _run_conv(state, fmt, rnd, spm, p, ddr):
    oh, ow, oc, kx, ky = p[4], p[5], p[6], p[11], p[12]
    x, wt = _conv_inputs(state, fmt, spm, p, (ky, kx, oc, p[3]))
    x = _padded_input(x, p)
    acc = np.zeros((p[0], oh, ow, oc), x.dtype)
    for y, z, y0, z0, sy, sx in _windows(p):
        part = x[:, y0 : y0 + (oh - 1) * sy + 1 : sy, z0 : z0 + (ow - 1) * sx + 1 : sx]
        acc = ordered_product(part.reshape(-1, p[3]), wt[y, z].T, fmt, acc.reshape(-1, oc)).reshape(acc.shape)
    _conv_done(state, acc, fmt, rnd, spm, p)


def _run_depthwise(state, fmt, rnd, spm, p, ddr):
    oh, ow, c, kx, ky = p[4], p[5], p[3], p[11], p[12]
    p = [*p[:15], 1, 1, *p[17:]]  # this form ignores dilation
    x, wt = _conv_inputs(state, fmt, spm, p, (ky, kx, c))
    x = _padded_input(x, p)
    acc = np.zeros((p[0], oh, ow, c), x.dtype)
    for y, z, y0, z0, sy, sx in _windows(p):
        acc += x[:, y0 : y0 + (oh - 1) * sy + 1 : sy, z0 : z0 + (ow - 1) * sx + 1 : sx] * wt[y, z]
    _conv_done(state, acc, fmt, rnd, spm, p)


def _run_backward(state, fmt, rnd, spm, p, ddr):
    n, h, w, c, oh, ow, oc, top, _, left, _, kx, ky, sx, sy, dx, dy = p[:17]
    x, wt = _conv_inputs(state, fmt, spm, p, (ky, kx, c, oc))
    full = np.zeros(
        (
            n,
            max(oh + top, (h - 1) * sy + (ky - 1) * dy + 1),
            max(ow + left, (w - 1) * sx + (kx - 1) * dx + 1),
            oc,
        ),
        x.dtype,
    )
    flat = x.reshape(-1, c)
    for y, z, y0, z0, step_y, step_x in _windows(p):
        window = full[:, y0 : y0 + (h - 1) * step_y + 1 : step_y, z0 : z0 + (w - 1) * step_x + 1 : step_x]
        window[...] = ordered_product(flat, wt[y, z], fmt, window.reshape(-1, oc)).reshape(n, h, w, oc)
    _conv_done(state, full[:, top : top + oh, left : left + ow], fmt, rnd, spm, p)


def meanings() -> dict[str, Callable[..., None]]:
    """Return the meaning of every instruction of the matrix engine by name."""
    return {"gemm": _gemm, "conv": _run_conv, "depthwise": _run_depthwise, "backward_conv": _run_backward}
