"""CT peripheral instructions: counting, extrema, tables, resampling, random numbers, compaction, concat.

May import: numpy, isa.base, isa.lanes, isa.vector (cost). Must not: know blocked layouts; operands are dense.
Source: TX8 hardware manual 10.4, 11.4, 16.2. Register results go to `state.wb` = (value pattern, index).
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import FORMAT_BYTES, N_OPCODES, Instruction, ceil_div, declare
from tx8fast.isa.lanes import load, load_bits, raw, scalar_pattern, store
from tx8fast.isa.vector import FACTOR_KINDS, ct_time, factors
from tx8fast.numerics.formats import FORMAT_CODES

_F32 = FORMAT_CODES["f32"]
_FACTOR = np.zeros(N_OPCODES, np.int64)
_MASK64 = (1 << 64) - 1

# per opcode: bytes per element of work; -1 = the format's, 0 = one bit
_WORK = np.full(N_OPCODES, -1, np.int64)
_WORK[[180, 183, 184, 185, 186]] = 4
_WORK[176] = 0


class Peripheral(Instruction):
    """Instructions whose operands are dense runs of `n` elements."""

    REGS = 9
    FIELDS_SPM = ("src0",)
    FIELDS_P = ("n",)

    @staticmethod
    def cycles(machine, r):
        op, n = r["opcode"], r["p"][:, 0]
        work = _WORK[op]
        size = np.where(work > 0, n * work, np.where(work == 0, ceil_div(n, 8), n * FORMAT_BYTES[r["fmt"]]))
        bases = np.bitwise_or.reduce(r["spm"], axis=1)
        return ct_time(machine, size * factors(machine)[_FACTOR[op]], bases % 128 != 0)

    @staticmethod
    def alignment(r):
        return 1  # bit vectors, tables and words stand side by side

    @staticmethod
    def spans(r):
        n, e, spm, op = r["p"][:, 0], FORMAT_BYTES[r["fmt"]], r["spm"], r["opcode"]
        size, bits = n * e, ceil_div(n, 8)
        table = r["p"][:, 1] * np.where(op == 183, 2, 4)
        # (first read, second read, first written, second written, address columns of the written)
        read0 = np.select([(op == 176) | (op == 181), op == 180, op == 183, op == 184, op == 185],
                          [bits, n * 4, n * 2, n * 4, 8], size)  # fmt: skip
        read1 = np.select([(op == 183) | (op == 184), op == 185, op == 186, op == 136, op == 137],
                          [table, 8, e, size, bits], 0)  # fmt: skip
        three = (op == 183) | (op == 184) | (op == 186) | (op == 136) | (op == 137)
        dst = np.where(three, spm[:, 2], np.where(op == 185, spm[:, 4], spm[:, 1]))
        out = np.select([(op >= 175) & (op <= 178), op == 180, op == 183, op == 184],
                        [0, 4 * n, n * 2, n * 4], size)  # fmt: skip
        second = np.where(
            op == 180,
            np.maximum(spm[:, 2], spm[:, 3]) - np.minimum(spm[:, 2], spm[:, 3]) + 4 * n,
            0,
        )
        start = np.minimum(spm[:, 2], spm[:, 3])
        state = np.maximum(spm[:, 2], spm[:, 3]) - start + 8
        second = np.where(op == 185, state, second)
        return [(spm[:, 0], read0), (spm[:, 1], read1)], [(dst, out), (start, second)]


def _count(state, fmt, rnd, spm, p, ddr):
    state.wb = (int(np.count_nonzero(load(state.spm, spm[0], p[0], fmt))), 0)


def _bitcount(state, fmt, rnd, spm, p, ddr):
    state.wb = (int(load_bits(state.spm, spm[0], p[0]).sum()), 0)


def _arg_runner(pick_nan, pick):
    def run(state, fmt, rnd, spm, p, ddr):
        x = load(state.spm, spm[0], p[0], fmt)
        nan = np.isnan(x)
        where = int(pick_nan(x)) if nan.any() and not nan.all() else int(pick(x))
        state.wb = (scalar_pattern(x[where], fmt), where)

    return run


def _factorize(state, fmt, rnd, spm, p, ddr):
    x = load(state.spm, spm[0], p[0], _F32).copy()
    mantissa, exponent = np.frexp(np.abs(x))
    zero = x == 0
    sign = np.where(np.signbit(x) & ~zero, np.float32(-1), np.float32(1))
    for addr, value in zip(spm[1:4], (sign, np.where(zero, 0, exponent - 1), np.where(zero, 0, mantissa * 2))):
        store(state, addr, value.astype(np.float32), _F32)


def _bit2fp(state, fmt, rnd, spm, p, ddr):
    store(state, spm[1], load_bits(state.spm, spm[0], p[0]).astype(np.float32), fmt)


def _lut_runner(width: int):
    def run(state, fmt, rnd, spm, p, ddr):
        n, entries = p[:2]
        offsets = state.spm[spm[0] : spm[0] + n * width].view(f"u{width}").astype(np.int64)
        table = state.spm[spm[1] : spm[1] + entries * width]
        words = table[offsets[:, None] + np.arange(width)]
        state.spm[spm[2] : spm[2] + n * width] = words.reshape(-1)

    return run


def _random(s0: int, s1: int, n: int):
    """Return n f32 in [0, 1) of xoroshiro128+ and the final state."""

    def rotl(x, k):
        return (x << k | x >> (64 - k)) & _MASK64

    out = np.empty(n, np.float32)
    for i in range(n):
        total = (s0 + s1) & _MASK64
        out[i] = (total >> 40) * 2.0**-24
        s1 ^= s0
        s0, s1 = rotl(s0, 24) ^ s1 ^ (s1 << 16 & _MASK64), rotl(s1, 37)
    return out, s0, s1


def _rand_gen(state, fmt, rnd, spm, p, ddr):
    seeds = [int(state.spm[a : a + 8].view(np.uint64)[0]) for a in spm[:2]]
    values, s0, s1 = _random(seeds[0], seeds[1], p[0])
    store(state, spm[4], values, fmt)
    for addr, word in zip(spm[2:4], (s0, s1)):
        state.spm[addr : addr + 8] = np.array([word], np.uint64).view(np.uint8)


def _elem_mask(state, fmt, rnd, spm, p, ddr):
    n = p[0]
    x = load(state.spm, spm[0], n, fmt)
    scale = load(state.spm, spm[1], 1, fmt)[0]
    prob = np.array([p[1]], np.uint32).view(np.float32)[0]
    values, _, _ = _random(state.seed() | 1, 0x9E3779B97F4A7C15, n)
    store(state, spm[2], np.where(values < prob, np.float32(0), x * scale), fmt, rnd)


def _compact_runner(bits: bool):
    def run(state, fmt, rnd, spm, p, ddr):
        n = p[0]
        mask = load_bits(state.spm, spm[1], n) if bits else load(state.spm, spm[1], n, fmt) != 0
        chosen = raw(state.spm, spm[0], n, fmt)[mask]
        raw(state.spm, spm[2], len(chosen), fmt)[...] = chosen

    return run


class Concat(Instruction):
    """Concatenate two dense (n, h, w, c) sources along dim 0 C, 1 W, 2 H; size1: extent of src1 there."""

    REGS = 9
    FIELDS_SPM = ("src0", "src1", "dst")
    FIELDS_P = ("dim", "n", "h", "w", "c", "size1")

    @staticmethod
    def _bytes(r):
        dim, n, h, w, c, size1 = r["p"][:, :6].T
        axis = np.select([dim == 0, dim == 1], [c, w], h)
        first = n * h * w * c * FORMAT_BYTES[r["fmt"]]
        return first, first // axis * size1

    @staticmethod
    def cycles(machine, r):
        first, second = Concat._bytes(r)
        return ct_time(machine, first + second, np.bitwise_or.reduce(r["spm"], axis=1) % 128 != 0)

    @staticmethod
    def spans(r):
        first, second = Concat._bytes(r)
        spm = r["spm"]
        return [(spm[:, 0], first), (spm[:, 1], second)], [(spm[:, 2], first + second)]

    @staticmethod
    def run(state, fmt, rnd, spm, p, ddr):
        dim, n, h, w, c, size1 = p[:6]
        axis = {0: 3, 1: 2, 2: 1}[dim]
        shape = [n, h, w, c]
        a = raw(state.spm, spm[0], n * h * w * c, fmt).reshape(shape)
        shape[axis] = size1
        b = raw(state.spm, spm[1], int(np.prod(shape)), fmt).reshape(shape)
        y = np.concatenate([a, b], axis=axis)
        raw(state.spm, spm[2], y.size, fmt)[...] = y.reshape(-1)


class Bilinear(Instruction):
    """Sample dense (n, h, w, c) at (y * scale_h, x * scale_w); scales are f32 patterns."""

    REGS = 9
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c", "oh", "ow", "scale_w", "scale_h")

    @staticmethod
    def cycles(machine, r):
        n, h, w, c, oh, ow = r["p"][:, :6].T
        size = n * oh * ow * c * FORMAT_BYTES[r["fmt"]] * 4
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1]) % 128 != 0)

    @staticmethod
    def spans(r):
        n, h, w, c, oh, ow = r["p"][:, :6].T
        e = FORMAT_BYTES[r["fmt"]]
        return [(r["spm"][:, 0], n * h * w * c * e)], [(r["spm"][:, 1], n * oh * ow * c * e)]

    @staticmethod
    def run(state, fmt, rnd, spm, p, ddr):
        n, h, w, c, oh, ow = p[:6]
        scale_w, scale_h = np.array(p[6:8], np.uint32).view(np.float32)
        x = load(state.spm, spm[0], n * h * w * c, fmt).reshape(n, h, w, c)

        def axis(count, scale, size):
            at = np.minimum(np.arange(count, dtype=np.float32) * scale, np.float32(size - 1))
            low = np.floor(at).astype(np.int64)
            return low, np.minimum(low + 1, size - 1), at - low.astype(np.float32)

        y0, y1, fy = axis(oh, scale_h, h)
        x0, x1, fx = axis(ow, scale_w, w)
        fy, fx, one = fy[:, None, None], fx[:, None], np.float32(1)
        top = x[:, y0][:, :, x0] * (one - fx) + x[:, y0][:, :, x1] * fx
        low = x[:, y1][:, :, x0] * (one - fx) + x[:, y1][:, :, x1] * fx
        store(state, spm[1], (top * (one - fy) + low * fy).reshape(-1), fmt, rnd)


def _add(opcode, name, run, spm=("src0",), p=("n",), factor="arithmetic"):
    declare(Peripheral, opcode, name, run=run, FIELDS_SPM=spm, FIELDS_P=p)
    _FACTOR[opcode] = FACTOR_KINDS.index(factor)


declare(Concat, 131, "concat")
_add(136, "mask_gather", _compact_runner(False), ("src0", "src1", "dst"))
_add(137, "mask_gather_b", _compact_runner(True), ("src0", "src1", "dst"))
_add(175, "count", _count)
_add(176, "bitcount", _bitcount)
_add(177, "argmax", _arg_runner(np.nanargmax, np.argmax))
_add(178, "argmin", _arg_runner(np.nanargmin, np.argmin))
_add(180, "factorize", _factorize, ("src0", "dst0", "dst1", "dst2"))
_add(181, "bit2fp", _bit2fp, ("src0", "dst"))
declare(Bilinear, 182, "bilinear")
_add(183, "lut16", _lut_runner(2), ("src0", "table", "dst"), ("n", "entries"), "lut")
_add(184, "lut32", _lut_runner(4), ("src0", "table", "dst"), ("n", "entries"), "lut")
_add(185, "rand_gen", _rand_gen, ("seed0", "seed1", "out_seed0", "out_seed1", "dst"), factor="random")
_add(186, "elem_mask", _elem_mask, ("src0", "scale", "dst"), ("n", "prob"), "random")
