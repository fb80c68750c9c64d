"""CT tensor instructions on channel-blocked operands: reduce, pool, unpool.

May import: numpy, isa.base, isa.blocked, isa.vector (cost). Must not: know DDR.
Source: TX8 hardware manual 10.1, 10.2, 16.2. Shapes are logical; padding lanes never take part.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import COMPUTED, OPERAND_BYTES, Instruction, declare
from tx8fast.isa.blocked import position_bytes, span_bytes, used_bytes
from tx8fast.isa.vector import ct_time

DIM_C, DIM_W, DIM_H, DIM_HW = 0, 1, 2, 4


class Reduce(Instruction):
    """Reduce one axis (dim 0 C, 1 W, 2 H, 4 HW) of a blocked (n, h, w, c); reduced axes keep extent 1."""

    REGS = 9
    FORMATS = COMPUTED
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("dim", "n", "h", "w", "c")

    @staticmethod
    def alignment(r):
        return OPERAND_BYTES

    @staticmethod
    def rules(r):
        yield ~np.isin(r["p"][:, 0], tuple(_AXES)), f"a reduction over none of dimensions {tuple(_AXES)}"

    @staticmethod
    def cycles(machine, r):
        dim, n, h, w, c = r["p"][:, :5].T
        size = used_bytes(n, h * w, c, r["fmt"]) + np.where(dim == DIM_C, 128 * n * h * w, 0)
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1]) % 128 != 0)

    @staticmethod
    def spans(r):
        dim, n, h, w, c = r["p"][:, :5].T
        fmt = r["fmt"]
        oh = np.where((dim == DIM_H) | (dim == DIM_HW), 1, h)
        ow = np.where((dim == DIM_W) | (dim == DIM_HW), 1, w)
        out = span_bytes(n, oh * ow, np.where(dim == DIM_C, 1, c), fmt)
        return [(r["spm"][:, 0], span_bytes(n, h * w, c, fmt))], [(r["spm"][:, 1], out)]


_AXES = {DIM_C: (3,), DIM_W: (2,), DIM_H: (1,), DIM_HW: (1, 2)}


class Pool(Instruction):
    """Pool windows of a blocked (n, h, w, c); the indexed forms also write ky * kx_size + kx."""

    REGS = 9
    FORMATS = COMPUTED
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c", "top", "bottom", "left", "right", "kx", "ky", "sx", "sy")

    @staticmethod
    def alignment(r):
        return position_bytes(r["p"][:, 3], r["fmt"])[:, None]  # bands of an image begin at any of its positions

    @staticmethod
    def rules(r):
        oh, ow = Pool.out_size(r["p"][:, :12].T)
        yield (oh < 1) | (ow < 1), "a pool whose window is larger than its operand with pads"

    @staticmethod
    def out_size(p):
        """Return (OH, OW) for columns or integers of FIELDS_P."""
        _, h, w, _, top, bottom, left, right, kx, ky, sx, sy = p[:12]
        return (h + top + bottom - ky) // sy + 1, (w + left + right - kx) // sx + 1

    @staticmethod
    def cycles(machine, r):
        p = r["p"][:, :12].T
        oh, ow = Pool.out_size(p)
        size = used_bytes(p[0], oh * ow, p[3], r["fmt"]) * p[8] * p[9]
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1] | r["spm"][:, 2]) % 128 != 0)

    @staticmethod
    def spans(r):
        p = r["p"][:, :12].T
        oh, ow = Pool.out_size(p)
        fmt, spm = r["fmt"], r["spm"]
        out = span_bytes(p[0], oh * ow, p[3], fmt)
        indexed = (r["opcode"] == 118) | (r["opcode"] == 120)
        writes = [(spm[:, 1], out), (spm[:, 2], np.where(indexed, out, 0))]
        return [(spm[:, 0], span_bytes(p[0], p[1] * p[2], p[3], fmt))], writes


class IndexedPool(Pool):
    FIELDS_SPM = ("src0", "dst", "index")


class Unpool(Instruction):
    """Spread a blocked (n, h, w, c) over windows of a zero (n, oh, ow, c); overlaps add."""

    REGS = 9
    FORMATS = COMPUTED
    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c", "oh", "ow", "kx", "ky", "sx", "sy", "index")
    DEFAULTS = {"index": 0}

    @staticmethod
    def alignment(r):
        return OPERAND_BYTES

    @staticmethod
    def rules(r):
        _, h, w, _, oh, ow, kx, ky, sx, sy = r["p"][:, :10].T
        yield (oh > (h - 1) * sy + ky) | (ow > (w - 1) * sx + kx), "an unpool with a result beyond its last window"

    @staticmethod
    def cycles(machine, r):
        p = r["p"].T
        size = used_bytes(p[0], p[1] * p[2], p[3], r["fmt"]) * p[6] * p[7]
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1] | r["spm"][:, 2]) % 128 != 0)

    @staticmethod
    def spans(r):
        p, fmt, spm = r["p"].T, r["fmt"], r["spm"]
        src = span_bytes(p[0], p[1] * p[2], p[3], fmt)
        # opcode 123 has its index tensor in the third address
        index = np.where(r["opcode"] == 123, src, 0)
        return [(spm[:, 0], src), (spm[:, 2], index)], [(spm[:, 1], span_bytes(p[0], p[4] * p[5], p[3], fmt))]


class MaskUnpool(Unpool):
    FIELDS_SPM = ("src0", "dst", "index_src")


for _k, _name in enumerate(("sum", "avg", "max", "min")):
    declare(Reduce, 111 + _k, f"reduce_{_name}")
for _opcode, _name in ((115, "avg"), (116, "sum"), (117, "max"), (119, "min")):
    declare(Pool, _opcode, f"pool_{_name}")
for _opcode, _name in ((118, "max"), (120, "min")):
    declare(IndexedPool, _opcode, f"pool_{_name}_indexed")
declare(Unpool, 121, "unpool")
declare(Unpool, 122, "unpool_avg")
declare(MaskUnpool, 123, "mask_unpool")
