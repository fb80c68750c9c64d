"""CT conversions (opcodes 139..174): dense runs from one format to another.

May import: numpy, numerics, isa.base, isa.lanes, isa.vector (cost). Must not: know layouts.
Source: TX8 hardware manual 10.3, 16.2.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import FORMAT_BYTES, N_OPCODES, Instruction, declare
from tx8fast.isa.vector import ct_time
from tx8fast.numerics.formats import FORMAT_CODES

_FLOATS = ("f16", "bf16", "f32", "tf32")
#: (first opcode, source, destinations in opcode order)
PAIRS = (
    (139, "i8", _FLOATS),
    (143, "i16", _FLOATS),
    (147, "i32", _FLOATS),
    (151, "bf16", ("i8", "i16", "i32", "f16", "f32", "tf32")),
    (157, "f16", ("i8", "i16", "i32", "bf16", "f32", "tf32")),
    (163, "f32", ("i8", "i16", "i32", "f16", "bf16", "tf32")),
    (169, "tf32", ("i8", "i16", "i32", "f16", "bf16", "f32")),
)

_SRC_BYTES = np.zeros(N_OPCODES, np.int64)
_DST_BYTES = np.zeros(N_OPCODES, np.int64)


class Convert(Instruction):
    """Convert `n` elements; `zp` is subtracted from INT8 sources."""

    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "zp")
    DEFAULTS = {"zp": 0}

    @staticmethod
    def alignment(r):
        out = np.ones((len(r), r["spm"].shape[1]), np.int64)
        out[:, 0], out[:, 1] = _SRC_BYTES[r["opcode"]], _DST_BYTES[r["opcode"]]
        return out

    @staticmethod
    def cycles(machine, r):
        op = r["opcode"]
        size = r["p"][:, 0] * np.maximum(_SRC_BYTES[op], _DST_BYTES[op])
        return ct_time(machine, size, (r["spm"][:, 0] | r["spm"][:, 1]) % 128 != 0)

    @staticmethod
    def spans(r):
        op, n = r["opcode"], r["p"][:, 0]
        return [(r["spm"][:, 0], n * _SRC_BYTES[op])], [(r["spm"][:, 1], n * _DST_BYTES[op])]


def overlap_is_legal(src: int, dst: int, n: int, src_bytes: int, dst_bytes: int) -> bool:
    """Return whether a conversion of `n` elements may run on these SPM byte addresses."""
    if src + n * src_bytes <= dst or dst + n * dst_bytes <= src:
        return True
    if src_bytes == dst_bytes:
        return src == dst
    if dst_bytes > src_bytes:
        return src >= dst + n * (dst_bytes - src_bytes)
    return dst <= src


for _first, _src, _dsts in PAIRS:
    for _k, _dst in enumerate(_dsts):
        _SRC_BYTES[_first + _k] = FORMAT_BYTES[FORMAT_CODES[_src]]
        _DST_BYTES[_first + _k] = FORMAT_BYTES[FORMAT_CODES[_dst]]
        declare(Convert, _first + _k, f"cvt_{_src}_{_dst}")
