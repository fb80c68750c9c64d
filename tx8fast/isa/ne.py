"""NE matrix instructions: GEMM and the three convolutions, with their post-processing.

May import: numpy, errors, isa.base, isa.blocked, isa.quant. Must not: touch DDR.
Source: TX8 hardware manual 12, 16.3. Operands are channel-blocked; an address 0 means "not used".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tx8fast.errors import SimulationError
from tx8fast.isa.base import N_FORMATS, OPERAND_BYTES, Instruction, ceil_div, declare
from tx8fast.isa.blocked import load, position_bytes, span_bytes, store, used_bytes
from tx8fast.isa.quant import postprocess, quantised, unpack_quant
from tx8fast.numerics.formats import FORMAT_CODES

F32, I32, I16 = FORMAT_CODES["f32"], FORMAT_CODES["i32"], FORMAT_CODES["i16"]
INT8_FORMATS = (FORMAT_CODES["i8"], FORMAT_CODES["u8"])
#: f32 holds sums of 8-bit products exactly up to this many terms
EXACT_F32_TERMS = 512

_LEGAL = ("i8", "u8", "f16", "bf16", "tf32", "f32")


@lru_cache(maxsize=4)
def _by_format(machine):
    """Return (columns per step, passes) by format code, read-only; formats the engine rejects count as f32."""
    step = np.full(N_FORMATS, machine.ne.pe_n * machine.ne_groups("f32"), np.int64)
    passes = np.full(N_FORMATS, machine.ne_passes("f32"), np.int64)
    for name in _LEGAL:
        step[FORMAT_CODES[name]] = machine.ne.pe_n * machine.ne_groups(name)
        passes[FORMAT_CODES[name]] = machine.ne_passes(name)
    for column in (step, passes):
        column.setflags(write=False)
    return step, passes


def _memory(machine, left, left_reads, right, right_reads, psum, out):
    """Return port cycles: two ports for the left operand, one each for right, psum and result."""
    port = machine.ne.port_bytes
    return np.maximum.reduce(
        [
            ceil_div(left * left_reads, 2 * port),
            ceil_div(right * right_reads, port),
            ceil_div(psum, port),
            ceil_div(out, port),
        ]
    )


def _extras(parts):
    """Return one (start, bytes) envelope of several optional operands (start, bytes columns)."""
    big = 1 << 62
    parts = [(np.asarray(start, np.int64), size) for start, size in parts]
    lo = np.minimum.reduce([np.where(size > 0, start, big) for start, size in parts])
    hi = np.maximum.reduce([np.where(size > 0, start + size, 0) for start, size in parts])
    return np.where(hi > 0, lo, 0), np.where(hi > 0, hi - lo, 0)


def _vectors(r, channels, bias_en, bias_fmt, scale_n, quant):
    """Return the envelope of bias and scale vectors of `channels` elements."""
    spm = r["spm"]
    if not (bias_en.any() or scale_n.any() or spm[:, 5].any()):  # nearly always
        return np.zeros(len(r), np.int64), np.zeros(len(r), np.int64)
    scale_fmt = np.where(quant & 1, I16, F32)
    size = span_bytes(1, 1, channels, scale_fmt)
    bias = np.where(bias_en != 0, span_bytes(1, 1, channels, bias_fmt), 0)
    parts = [(spm[:, 4], bias), (spm[:, 5], np.where(spm[:, 5] != 0, size, 0))]
    parts.append((scale_n, np.where(scale_n != 0, size, 0)))
    return _extras(parts)


def _load_input(state, addr, n, pos, c, fmt, zero_point, terms):
    """Return an input operand as floats in which every product sum is exact for 8-bit formats."""
    if fmt not in INT8_FORMATS:
        return load(state.spm, addr, n, pos, c, fmt)
    wide = np.float32 if terms <= EXACT_F32_TERMS else np.float64
    x = load(state.spm, addr, n, pos, c, fmt, wide)
    return x - wide(zero_point) if zero_point else x


def _finish(state, acc, spm, fmt, p_post, rnd):
    """Add psum, post-process and write; `acc` is (n, pos, c); p_post: fields by name."""
    n, pos, c = acc.shape
    f = p_post
    integer = fmt in INT8_FORMATS
    if integer:
        acc = acc.astype(np.int64)
    if f["psum_en"]:
        if integer and f["psum_fmt"] == I32:
            acc = acc + load(state.spm, spm[3], n, pos, c, I32, np.int64)
        else:
            psum = load(state.spm, spm[3], n, pos, c, f["psum_fmt"])
            if integer:
                acc, integer = acc.astype(np.float32), False
            # never in place: the accumulator may be a view of an operand
            acc = acc + psum
    if integer:
        acc = acc.astype(np.int32)  # wraps like the 32-bit accumulator

    def vector(addr, vfmt):
        return load(state.spm, addr, 1, 1, c, vfmt)[0, 0] if addr else None

    q = unpack_quant(f["quant"])
    if q.enabled and integer:
        scale = vector(spm[5], I16)
        out = quantised(acc, scale, q)
    else:
        bias = vector(spm[4], f["bias_fmt"]) if f["bias_en"] else None
        pos_scale, neg_scale = vector(spm[5], F32), vector(f["scale_n"], F32)
        out = postprocess(acc, bias, pos_scale, neg_scale, f["act"], state.float_postproc)
    store(state.spm, spm[2], out, f["out_fmt"], rnd, state.seed())


class Gemm(Instruction):
    """out[b] = L[b] x R[b] (+ psum), post-processed.

    r_trs 0: right stored [N, K]; 1: stored [K, N]. l_trs 0: left stored [M, K]; 1: [K, M]. Batches
    are equal or one of them is 1. act 0 none, 1 relu, 2 leaky relu. `quant`: see isa.quant.
    """

    UNIT = "ne"
    REGS = 16
    FIELDS_SPM = ("left", "right", "out", "psum", "bias", "scale_p")
    FIELDS_P = (
        "m", "k", "n", "batch_l", "batch_r", "l_trs", "r_trs", "out_fmt", "psum_fmt", "psum_en",
        "bias_en", "act", "bias_fmt", "scale_n", "quant",
    )  # fmt: skip
    DEFAULTS = {
        "psum": 0, "bias": 0, "scale_p": 0, "batch_l": 1, "batch_r": 1, "l_trs": 0, "r_trs": 0,
        "psum_fmt": F32, "psum_en": 0, "bias_en": 0, "act": 0, "bias_fmt": F32, "scale_n": 0, "quant": 0,
    }  # fmt: skip

    @staticmethod
    def _shapes(r):
        m, k, n, batch_l, batch_r, l_trs, r_trs = r["p"][:, :7].T
        left = (np.where(l_trs, k, m), np.where(l_trs, m, k))
        right = (np.where(r_trs, k, n), np.where(r_trs, n, k))
        return m, k, n, batch_l, batch_r, left, right

    @staticmethod
    def alignment(r):
        # parts of an operand in scratchpad begin at any of its positions: 256 bytes are preferred, not required
        m, k, n, _, _, l_trs, r_trs, out_fmt, psum_fmt = r["p"][:, :9].T
        left, right = (position_bytes(np.where(turned, a, k), r["fmt"]) for turned, a in ((l_trs, m), (r_trs, n)))
        out, psum, bias = (position_bytes(n, f) for f in (out_fmt, psum_fmt, r["p"][:, 12]))
        return np.stack([left, right, out, psum, bias, np.full(len(r), 2)], axis=1)

    @staticmethod
    def rules(r):
        left, right = r["p"][:, 3], r["p"][:, 4]
        yield (left != right) & (left != 1) & (right != 1), "a gemm of different batches, neither of which is 1"

    @staticmethod
    def cycles(machine, r):
        m, k, n, batch_l, batch_r, left, right = Gemm._shapes(r)
        fmt, p = r["fmt"], r["p"]
        blocks = ceil_div(n, _by_format(machine)[0][fmt])
        batch = np.maximum(batch_l, batch_r)
        psum = np.where(p[:, 9] != 0, used_bytes(batch, m, n, p[:, 8]), 0)
        mem = _memory(
            machine,
            used_bytes(batch, *left, fmt), blocks,
            used_bytes(batch, *right, fmt), ceil_div(m, 256),
            psum, used_bytes(batch, m, n, p[:, 7]),
        )  # fmt: skip
        return machine.ne.startup + np.maximum(Gemm.array_cycles(machine, r), mem)

    @staticmethod
    def rereads(machine, r):
        m, _, n = r["p"][:, :3].T
        one = np.ones(len(r), np.int64)
        return np.stack([ceil_div(n, _by_format(machine)[0][r["fmt"]]), ceil_div(m, 256), one, one], axis=1)

    @staticmethod
    def array_cycles(machine, r):
        """Return the cycles the multiplier arrays need, memory ports and startup left out."""
        m, k, n, batch_l, batch_r = r["p"][:, :5].T
        step, passes = _by_format(machine)
        tiles = ceil_div(m, machine.ne.pe_m) * ceil_div(n, step[r["fmt"]]) * ceil_div(k, machine.ne.pe_k)
        return np.maximum(batch_l, batch_r) * tiles * passes[r["fmt"]]

    @staticmethod
    def spans(r):
        m, k, n, batch_l, batch_r, left, right = Gemm._shapes(r)
        fmt, p, spm = r["fmt"], r["p"], r["spm"]
        batch = np.maximum(batch_l, batch_r)
        psum = np.where(p[:, 9] != 0, span_bytes(batch, m, n, p[:, 8]), 0)
        reads = [
            (spm[:, 0], span_bytes(batch_l, *left, fmt)),
            (spm[:, 1], span_bytes(batch_r, *right, fmt)),
            (spm[:, 3], psum),
            _vectors(r, n, p[:, 10], p[:, 12], p[:, 13], p[:, 14]),
        ]
        return reads, [(spm[:, 2], span_bytes(batch, m, n, p[:, 7]))]

    @staticmethod
    def run(state, fmt, rnd, spm, p, ddr):
        m, k, n, batch_l, batch_r, l_trs, r_trs = p[:7]
        q = unpack_quant(p[14])
        left = _load_input(state, spm[0], batch_l, *((k, m) if l_trs else (m, k)), fmt, q.zp_left, k)
        right = _load_input(state, spm[1], batch_r, *((k, n) if r_trs else (n, k)), fmt, q.zp_right, k)
        if l_trs:
            left = left.transpose(0, 2, 1)
        if not r_trs:
            right = right.transpose(0, 2, 1)
        if batch_l == 1 and batch_r == 1:
            acc = state.product(left[0], right[0], fmt)[None]
        else:
            if batch_l != batch_r and 1 not in (batch_l, batch_r):
                raise SimulationError(
                    f"gemm: found batches {batch_l} and {batch_r}, required equal ones or one of them 1"
                )
            batches = range(max(batch_l, batch_r))
            acc = np.stack([state.product(left[i % batch_l], right[i % batch_r], fmt) for i in batches])
        _finish(state, acc, spm, fmt, dict(zip(Gemm.FIELDS_P[7:], p[7:15])), rnd)


class Conv(Instruction):
    """Convolution of a blocked (n, h, w, c) feature into (n, oh, ow, oc); bias in f32.

    Weight volumes: conv [ky, kx, oc | c], depthwise [ky, kx | c], backward_conv [ky, kx, c | oc]; the
    axis after | is the channel axis. dx, dy: dilation. `quant` as in GEMM.
    """

    UNIT = "ne"
    REGS = 18
    FIELDS_SPM = ("src", "weight", "out", "psum", "bias", "scale_p")
    FIELDS_P = (
        "n", "h", "w", "c", "oh", "ow", "oc", "top", "bottom", "left", "right", "kx", "ky", "sx", "sy",
        "dx", "dy", "out_fmt", "psum_fmt", "psum_en", "bias_en", "act", "scale_n", "quant",
    )  # fmt: skip
    DEFAULTS = {
        "psum": 0, "bias": 0, "scale_p": 0, "top": 0, "bottom": 0, "left": 0, "right": 0, "sx": 1, "sy": 1,
        "dx": 1, "dy": 1, "psum_fmt": F32, "psum_en": 0, "bias_en": 0, "act": 0, "scale_n": 0, "quant": 0,
    }  # fmt: skip

    @staticmethod
    def _weight(r):
        """Return (positions, channels) of the weight volume."""
        kind, p = r["opcode"] - 0x200, r["p"]
        c, oc, taps = p[:, 3], p[:, 6], p[:, 11] * p[:, 12]
        pos = np.where(kind == 0, taps * oc, np.where(kind == 1, taps, taps * c))
        return pos, np.where(kind == 2, oc, c)

    @staticmethod
    def alignment(r):
        # bands of an image in scratchpad begin at any of its positions
        c, oc, out_fmt, psum_fmt = r["p"][:, [3, 6, 17, 18]].T
        whole = np.full(len(r), OPERAND_BYTES)
        out, psum = position_bytes(oc, out_fmt), position_bytes(oc, psum_fmt)
        return np.stack([position_bytes(c, r["fmt"]), whole, out, psum, whole, whole], axis=1)

    @staticmethod
    def rules(r):
        _, h, w, c, oh, ow, oc, top, bottom, left, right, kx, ky, sx, sy, dx, dy = r["p"][:, :17].T
        kind = r["opcode"] - 0x200
        for size, out, before, behind, kernel, step, dilation, what in (
            (h, oh, top, bottom, ky, sy, dy, "rows"),
            (w, ow, left, right, kx, sx, dx, "columns"),
        ):
            reach = (kernel - 1) * np.where(kind == 1, 1, dilation) + 1
            forward = (size + before + behind - reach) // step + 1
            back = (size - 1) * step + reach - before - behind
            yield (
                np.where(kind == 2, back, forward) != out,
                f"a convolution with other {what} than window, stride and pads give",
            )
        yield (kind == 1) & (c != oc), "a depthwise convolution with other channels in its result"

    @staticmethod
    def cycles(machine, r):
        n, h, w, c, oh, ow, oc = r["p"][:, :7].T
        fmt, p, ne = r["fmt"], r["p"], machine.ne
        kind = r["opcode"] - 0x200
        step, passes = _by_format(machine)
        taps = p[:, 11] * p[:, 12]
        # the backward form runs with input and output sizes exchanged
        pos = np.where(kind == 2, h * w, oh * ow)
        cols = ceil_div(np.where(kind == 2, c, oc), step[fmt])
        depth = ceil_div(np.where(kind == 2, oc, c), ne.pe_k)
        mac = n * ceil_div(pos, ne.pe_m) * cols * taps * depth * passes[fmt]
        deep = n * oh * ceil_div(ow, ne.pe_m) * ceil_div(c, step[fmt]) * taps
        psum = np.where(p[:, 19] != 0, used_bytes(n, oh * ow, oc, p[:, 18]), 0)
        weight = used_bytes(1, *Conv._weight(r), fmt)
        mem = _memory(
            machine,
            used_bytes(n, h * w, c, fmt), np.where(kind == 1, 1, cols),
            weight, n * ceil_div(pos, 256),
            psum, used_bytes(n, oh * ow, oc, p[:, 17]),
        )  # fmt: skip
        return ne.startup + np.maximum(np.where(kind == 1, deep, mac), mem)

    @staticmethod
    def rereads(machine, r):
        n, h, w, c, oh, ow, oc = r["p"][:, :7].T
        kind, one = r["opcode"] - 0x200, np.ones(len(r), np.int64)
        cols = ceil_div(np.where(kind == 2, c, oc), _by_format(machine)[0][r["fmt"]])
        pos = np.where(kind == 2, h * w, oh * ow)
        return np.stack([np.where(kind == 1, 1, cols), n * ceil_div(pos, 256), one, one], axis=1)

    @staticmethod
    def spans(r):
        n, h, w, c, oh, ow, oc = r["p"][:, :7].T
        fmt, p, spm = r["fmt"], r["p"], r["spm"]
        psum = np.where(p[:, 19] != 0, span_bytes(n, oh * ow, oc, p[:, 18]), 0)
        reads = [
            (spm[:, 0], span_bytes(n, h * w, c, fmt)),
            (spm[:, 1], span_bytes(1, *Conv._weight(r), fmt)),
            (spm[:, 3], psum),
            _vectors(r, oc, p[:, 20], np.full(len(r), F32), p[:, 22], p[:, 23]),
        ]
        return reads, [(spm[:, 2], span_bytes(n, oh * ow, oc, p[:, 17]))]


def _conv_inputs(state, fmt, spm, p, weight_shape, terms):
    n, h, w, c = p[:4]
    q = unpack_quant(p[23])
    x = _load_input(state, spm[0], n, h * w, c, fmt, q.zp_left, terms).reshape(n, h, w, c)
    *lead, last = weight_shape
    wt = _load_input(state, spm[1], 1, int(np.prod(lead)), last, fmt, q.zp_right, terms)
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
    x, wt = _conv_inputs(state, fmt, spm, p, (ky, kx, oc, p[3]), kx * ky * p[3])
    x = _padded_input(x, p)
    acc = np.zeros((p[0], oh, ow, oc), x.dtype)
    for y, z, y0, z0, sy, sx in _windows(p):
        part = x[:, y0 : y0 + (oh - 1) * sy + 1 : sy, z0 : z0 + (ow - 1) * sx + 1 : sx]
        acc = state.product(part.reshape(-1, p[3]), wt[y, z].T, fmt, acc.reshape(-1, oc)).reshape(acc.shape)
    _conv_done(state, acc, fmt, rnd, spm, p)


def _run_depthwise(state, fmt, rnd, spm, p, ddr):
    oh, ow, c, kx, ky = p[4], p[5], p[3], p[11], p[12]
    p = [*p[:15], 1, 1, *p[17:]]  # this form ignores dilation
    x, wt = _conv_inputs(state, fmt, spm, p, (ky, kx, c), kx * ky)
    x = _padded_input(x, p)
    acc = np.zeros((p[0], oh, ow, c), x.dtype)
    for y, z, y0, z0, sy, sx in _windows(p):
        acc += x[:, y0 : y0 + (oh - 1) * sy + 1 : sy, z0 : z0 + (ow - 1) * sx + 1 : sx] * wt[y, z]
    _conv_done(state, acc, fmt, rnd, spm, p)


def _run_backward(state, fmt, rnd, spm, p, ddr):
    n, h, w, c, oh, ow, oc, top, _, left, _, kx, ky, sx, sy, dx, dy = p[:17]
    x, wt = _conv_inputs(state, fmt, spm, p, (ky, kx, c, oc), kx * ky * c)
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
        window[...] = state.product(flat, wt[y, z], fmt, window.reshape(-1, oc)).reshape(n, h, w, oc)
    _conv_done(state, full[:, top : top + oh, left : left + ow], fmt, rnd, spm, p)


declare(Conv, 0x200, "conv", run=_run_conv)
declare(Conv, 0x201, "depthwise", run=_run_depthwise)
declare(Conv, 0x202, "backward_conv", run=_run_backward)
declare(Gemm, 0x203, "gemm")
