"""What the matrix engine and windows of the vector engine need of channel-blocked operands.

May import: isa. Must not: know shadows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tx8fast.isa.base import FORMAT_BYTES
from tx8fast.isa.ne import Conv, Gemm
from tx8fast.isa.tensor import Reduce
from tx8fast.numerics.formats import FORMAT_CODES

F32, I16 = FORMAT_CODES["f32"], FORMAT_CODES["i16"]


def operands(cls: Any, opcode: int, fmt: int, spm: Sequence[int], p: Sequence[int]):
    """Yield (address, n, positions, channels, format) of every operand whose logical lanes a row needs."""
    if issubclass(cls, Gemm):
        m, k, n, batch_l, batch_r, l_trs, r_trs = p[:7]
        yield spm[0], batch_l, *((k, m) if l_trs else (m, k)), fmt
        yield spm[1], batch_r, *((k, n) if r_trs else (n, k)), fmt
        yield from _post(spm, p[7:], max(batch_l, batch_r), m, n, p[12], p[13], p[14])
    elif issubclass(cls, Conv):
        kind, (n, h, w, c, oh, ow, oc) = opcode - 0x200, p[:7]
        taps = p[11] * p[12]
        yield spm[0], n, h * w, c, fmt
        yield spm[1], 1, (taps * oc, taps, taps * c)[kind], oc if kind == 2 else c, fmt
        yield from _post(spm, p[17:], n, oh * ow, oc, F32, p[22], p[23])
    elif issubclass(cls, Reduce):
        yield spm[0], p[1], p[2] * p[3], p[4], fmt
    else:
        yield spm[0], p[0], p[1] * p[2], p[3], fmt
        if opcode == 123:
            yield spm[2], p[0], p[1] * p[2], p[3], 9 if FORMAT_BYTES[fmt] == 2 else 10


def _post(spm: Sequence[int], p: Sequence[int], n: int, pos: int, c: int, bias_fmt: int, scale_n: int, quant: int):
    """Yield partial sums, bias and scales; p: fields from `out_fmt` on."""
    if p[2]:
        yield spm[3], n, pos, c, p[1]
    if p[3]:
        yield spm[4], 1, 1, c, bias_fmt
    for scale in (spm[5], scale_n):
        if scale:
            yield scale, 1, 1, c, I16 if quant & 1 else F32
