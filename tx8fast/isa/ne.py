"""NE matrix instructions: GEMM and the three convolutions, with their post-processing.

May import: numpy, isa.base, isa.blocked. Must not: execute anything.
Source: TX8 hardware manual 12, 16.3. Operands are channel-blocked; an address 0 means "not used".
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tx8fast.isa.base import N_FORMATS, OPERAND_BYTES, Instruction, ceil_div, declare
from tx8fast.isa.blocked import position_bytes, span_bytes, used_bytes
from tx8fast.numerics.formats import FORMAT_CODES

F32, I16 = FORMAT_CODES["f32"], FORMAT_CODES["i16"]

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
    read = np.maximum(ceil_div(left * left_reads, 2 * port), ceil_div(right * right_reads, port))
    return np.maximum(read, np.maximum(ceil_div(psum, port), ceil_div(out, port)))


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


class Gemm(Instruction):
    """out[b] = L[b] x R[b] (+ psum), post-processed.

    r_trs 0: right stored [N, K]; 1: stored [K, N]. l_trs 0: left stored [M, K]; 1: [K, M]. Batches
    are equal or one of them is 1. act 0 none, 1 relu, 2 leaky relu. `quant`: see isa.quant.
    """

    UNIT = "ne"
    FORMATS = _LEGAL
    REGS = 16
    FIELDS_SPM = ("left", "right", "out", "psum", "bias", "scale_p")
    FIELDS_P = (
        "m",
        "k",
        "n",
        "batch_l",
        "batch_r",
        "l_trs",
        "r_trs",
        "out_fmt",
        "psum_fmt",
        "psum_en",
        "bias_en",
        "act",
        "bias_fmt",
        "scale_n",
        "quant",
    )
    DEFAULTS = {
        "psum": 0,
        "bias": 0,
        "scale_p": 0,
        "batch_l": 1,
        "batch_r": 1,
        "l_trs": 0,
        "r_trs": 0,
        "psum_fmt": F32,
        "psum_en": 0,
        "bias_en": 0,
        "act": 0,
        "bias_fmt": F32,
        "scale_n": 0,
        "quant": 0,
    }

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
            used_bytes(batch, *left, fmt),
            blocks,
            used_bytes(batch, *right, fmt),
            ceil_div(m, 256),
            psum,
            used_bytes(batch, m, n, p[:, 7]),
        )
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


class Conv(Instruction):
    """Convolution of a blocked (n, h, w, c) feature into (n, oh, ow, oc); bias in f32.

    Weight volumes: conv [ky, kx, oc | c], depthwise [ky, kx | c], backward_conv [ky, kx, c | oc]; the
    axis after | is the channel axis. dx, dy: dilation. `quant` as in GEMM.
    """

    UNIT = "ne"
    FORMATS = _LEGAL
    REGS = 18
    FIELDS_SPM = ("src", "weight", "out", "psum", "bias", "scale_p")
    FIELDS_P = (
        "n",
        "h",
        "w",
        "c",
        "oh",
        "ow",
        "oc",
        "top",
        "bottom",
        "left",
        "right",
        "kx",
        "ky",
        "sx",
        "sy",
        "dx",
        "dy",
        "out_fmt",
        "psum_fmt",
        "psum_en",
        "bias_en",
        "act",
        "scale_n",
        "quant",
    )
    DEFAULTS = {
        "psum": 0,
        "bias": 0,
        "scale_p": 0,
        "top": 0,
        "bottom": 0,
        "left": 0,
        "right": 0,
        "sx": 1,
        "sy": 1,
        "dx": 1,
        "dy": 1,
        "psum_fmt": F32,
        "psum_en": 0,
        "bias_en": 0,
        "act": 0,
        "scale_n": 0,
        "quant": 0,
    }

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
            used_bytes(n, h * w, c, fmt),
            np.where(kind == 1, 1, cols),
            weight,
            n * ceil_div(pos, 256),
            psum,
            used_bytes(n, oh * ow, oc, p[:, 17]),
        )
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


declare(Conv, 0x200, "conv")
declare(Conv, 0x201, "depthwise")
declare(Conv, 0x202, "backward_conv")
declare(Gemm, 0x203, "gemm")
