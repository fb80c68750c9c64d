"""CT peripheral instructions: counting, extrema, tables, resampling, random numbers, compaction, concat.

May import: numpy, isa.base, isa.lanes, isa.vector (cost). Must not: know blocked layouts; operands are dense.
Source: TX8 hardware manual 10.4, 11.4, 16.2. Register results go to `state.wb` = (value pattern, index).
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import COMPUTED, FORMAT_BYTES, N_OPCODES, NAMED, NUMBERS, Instruction, ceil_div, declare
from tx8fast.isa.vector import FACTOR_KINDS, ct_time, factors

_FACTOR = np.zeros(N_OPCODES, np.int64)

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
        read0 = np.select(
            [(op == 176) | (op == 181), op == 180, op == 183, op == 184, op == 185],
            [bits, n * 4, n * 2, n * 4, 8],
            size,
        )
        read1 = np.select(
            [(op == 183) | (op == 184), op == 185, op == 186, op == 136, op == 137], [table, 8, e, size, bits], 0
        )
        three = (op == 183) | (op == 184) | (op == 186) | (op == 136) | (op == 137)
        dst = np.where(three, spm[:, 2], np.where(op == 185, spm[:, 4], spm[:, 1]))
        out = np.select([(op >= 175) & (op <= 178), op == 180, op == 183, op == 184], [0, 4 * n, n * 2, n * 4], size)
        second = np.where(
            op == 180,
            np.maximum(spm[:, 2], spm[:, 3]) - np.minimum(spm[:, 2], spm[:, 3]) + 4 * n,
            0,
        )
        start = np.minimum(spm[:, 2], spm[:, 3])
        state = np.maximum(spm[:, 2], spm[:, 3]) - start + 8
        second = np.where(op == 185, state, second)
        return [(spm[:, 0], read0), (spm[:, 1], read1)], [(dst, out), (start, second)]


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


class Bilinear(Instruction):
    """Sample dense (n, h, w, c) at (y * scale_h, x * scale_w); scales are f32 patterns."""

    FORMATS = COMPUTED
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


def _add(opcode, name, spm=("src0",), p=("n",), factor="arithmetic", formats=NAMED):
    declare(Peripheral, opcode, name, FIELDS_SPM=spm, FIELDS_P=p, FORMATS=formats)
    _FACTOR[opcode] = FACTOR_KINDS.index(factor)


declare(Concat, 131, "concat")
_add(136, "mask_gather", ("src0", "src1", "dst"), formats=NUMBERS)
_add(137, "mask_gather_b", ("src0", "src1", "dst"))
for _k, _name in enumerate(("count", "bitcount", "argmax", "argmin")):
    _add(175 + _k, _name, formats={"count": NUMBERS, "bitcount": NAMED}.get(_name, COMPUTED))
_add(180, "factorize", ("src0", "dst0", "dst1", "dst2"))
_add(181, "bit2fp", ("src0", "dst"), formats=COMPUTED)
declare(Bilinear, 182, "bilinear")
_add(183, "lut16", ("src0", "table", "dst"), ("n", "entries"), "lut")
_add(184, "lut32", ("src0", "table", "dst"), ("n", "entries"), "lut")
_add(185, "rand_gen", ("seed0", "seed1", "out_seed0", "out_seed1", "dst"), factor="random", formats=COMPUTED)
_add(186, "elem_mask", ("src0", "scale", "dst"), ("n", "prob"), "random", COMPUTED)
