"""TDMA instructions: strided SPM moves, memset, and the moves that know NHWC shapes.

May import: numpy, isa.base, isa.blocked, isa.strided. Must not: touch DDR.
Source: TX8 hardware manual 10.4 (memset), 11, 16.5. All shape-aware moves work on dense operands
except tensor_norm, which converts dense <-> channel-blocked.
"""

from __future__ import annotations

import numpy as np

from tx8fast.isa.base import FORMAT_BYTES, Instruction, ceil_div, declare
from tx8fast.isa.blocked import geometry, span_bytes
from tx8fast.isa.strided import LEVEL_DEFAULTS, LEVELS, envelope


class Tdma(Instruction):
    UNIT = "tdma"
    REGS = 14


class GatherScatter(Tdma):
    """Runs of `size` bytes gathered by the source loops, consumed by the destination loops in order."""

    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = (
        "size",
        "ss0",
        "sn0",
        "ss1",
        "sn1",
        "ss2",
        "sn2",
        "ds0",
        "dn0",
        "ds1",
        "dn1",
        "ds2",
        "dn2",
    )
    DEFAULTS = {f"{side}{kind}{k}": int(kind == "n") for side in "sd" for kind in "sn" for k in range(3)}

    @staticmethod
    def cycles(machine, r):
        p = r["p"]
        runs = p[:, 2] * p[:, 4] * p[:, 6]
        return machine.tdma.startup + runs * np.maximum(1, ceil_div(p[:, 0], machine.tdma.bytes_per_cycle))

    @staticmethod
    def alignment(r):
        return 1  # runs of bytes

    @staticmethod
    def rules(r):
        p = r["p"]
        source, target = (p[:, k] * p[:, k + 2] * p[:, k + 4] for k in (2, 8))
        yield source != target, "a gather_scatter with different numbers of runs on its sides"

    @staticmethod
    def spans(r):
        p = r["p"].T
        return [(r["spm"][:, 0], envelope(p[0], p[1:7]))], [(r["spm"][:, 1], envelope(p[0], p[7:13]))]


class Memset(Tdma):
    """Set runs of `n` elements to the raw pattern `value`; byte strides s0..s2 with counts n0..n2."""

    FIELDS_SPM = ("dst",)
    FIELDS_P = ("value", "n", *LEVELS)
    DEFAULTS = LEVEL_DEFAULTS

    @staticmethod
    def cycles(machine, r):
        p = r["p"]
        size = p[:, 1] * FORMAT_BYTES[r["fmt"]] * p[:, 3] * p[:, 5] * p[:, 7]
        return machine.tdma.startup + ceil_div(size, machine.tdma.bytes_per_cycle)

    @staticmethod
    def spans(r):
        p = r["p"].T
        return [], [(r["spm"][:, 0], envelope(p[1] * FORMAT_BYTES[r["fmt"]], p[2:8]))]


class Move(Tdma):
    """Dense (n, h, w, c) rearranged; `n`, `h`, `w`, `c` are the source's logical sizes."""

    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c")

    @staticmethod
    def cycles(machine, r):
        n, h, w, c = r["p"][:, :4].T
        row = ceil_div(c * FORMAT_BYTES[r["fmt"]], machine.tdma.bytes_per_cycle)
        return machine.tdma.startup + n * h * w * np.maximum(1, row)

    @staticmethod
    def spans(r):
        n, h, w, c = r["p"][:, :4].T
        size = n * h * w * c * FORMAT_BYTES[r["fmt"]]
        return [(r["spm"][:, 0], size)], [(r["spm"][:, 1], size)]


class Pad(Move):
    """Zero border on the two middle axes."""

    FIELDS_P = ("n", "h", "w", "c", "top", "bottom", "left", "right")

    @staticmethod
    def _out(r):
        n, h, w, c, top, bottom, left, right = r["p"][:, :8].T
        return n * (h + top + bottom) * (w + left + right), c * FORMAT_BYTES[r["fmt"]]

    @staticmethod
    def cycles(machine, r):
        rows, size = Pad._out(r)
        return machine.tdma.startup + rows * np.maximum(1, ceil_div(size, machine.tdma.bytes_per_cycle))

    @staticmethod
    def spans(r):
        n, h, w, c = r["p"][:, :4].T
        rows, size = Pad._out(r)
        return [(r["spm"][:, 0], n * h * w * size)], [(r["spm"][:, 1], rows * size)]


class Img2col(Move):
    """Dense windows as (n, ky * kx, oh * ow, c), zero outside the image."""

    FIELDS_P = ("n", "h", "w", "c", "top", "bottom", "left", "right", "kx", "ky", "sx", "sy")

    @staticmethod
    def _out(r):
        n, h, w, c, top, bottom, left, right, kx, ky, sx, sy = r["p"][:, :12].T
        oh, ow = (h + top + bottom - ky) // sy + 1, (w + left + right - kx) // sx + 1
        return n * kx * ky * oh * ow, c * FORMAT_BYTES[r["fmt"]]

    @staticmethod
    def cycles(machine, r):
        rows, size = Img2col._out(r)
        return machine.tdma.startup + rows * np.maximum(1, ceil_div(size, machine.tdma.bytes_per_cycle))

    @staticmethod
    def spans(r):
        n, h, w, c = r["p"][:, :4].T
        rows, size = Img2col._out(r)
        return [(r["spm"][:, 0], n * h * w * size)], [(r["spm"][:, 1], rows * size)]


class TensorNorm(Tdma):
    """Dense (n, h, w, c) to channel-blocked in one instruction; inverse 1: the other way."""

    FIELDS_SPM = ("src0", "dst")
    FIELDS_P = ("n", "h", "w", "c", "inverse")
    DEFAULTS = {"inverse": 0}

    @staticmethod
    def cycles(machine, r):
        n, h, w, c = r["p"][:, :4].T
        rate, e = machine.tdma.bytes_per_cycle, FORMAT_BYTES[r["fmt"]]
        block = np.where(e == 1, 128, 64)
        rest = c % block
        return (
            machine.tdma.startup
            + n * h * w * (c // block) * ceil_div(block * e, rate)
            + n * h * w * (rest > 0) * ceil_div(rest * e, rate)
        )

    @staticmethod
    def spans(r):
        n, h, w, c, inverse = r["p"][:, :5].T
        dense = n * h * w * c * FORMAT_BYTES[r["fmt"]]
        blocked = span_bytes(n, h * w, c, r["fmt"])
        src, dst = np.where(inverse, blocked, dense), np.where(inverse, dense, blocked)
        return [(r["spm"][:, 0], src)], [(r["spm"][:, 1], dst)]


def channel_norm(n: int, pos: int, c: int, fmt: int, inverse: bool = False) -> list[dict[str, int]]:
    """Return gather_scatter fields (offsets `src_offset`, `dst_offset` in bytes) that pack or unpack.

    One descriptor for the full blocks, one for the tail, each only if present; padding is not written.
    """
    block, cx, c0, whole, rest = geometry(c, fmt)
    e = int(FORMAT_BYTES[fmt])
    stride = -(-pos * (cx * block + c0) * e // 256) * 256
    out = []

    def add(dense_offset, blocked_offset, size, dense, blocked):
        sides = (blocked, dense) if inverse else (dense, blocked)
        offsets = (blocked_offset, dense_offset) if inverse else (dense_offset, blocked_offset)
        fields = {"src_offset": offsets[0], "dst_offset": offsets[1], "size": size}
        for side, levels in zip("sd", sides):
            for k, (step, count) in enumerate(levels):
                fields[f"{side}s{k}"], fields[f"{side}n{k}"] = step, count
        out.append(fields)

    if whole:
        dense = ((c * e, pos), (block * e, whole), (pos * c * e, n))
        add(0, 0, block * e, dense, ((block * e, pos), (pos * block * e, whole), (stride, n)))
    if rest:
        start = whole * block * e
        row = (c0 or block) * e
        add(
            start,
            start * pos,
            rest * e,
            ((c * e, pos), (0, 1), (pos * c * e, n)),
            ((row, pos), (0, 1), (stride, n)),
        )
    return out


for _opcode, _name in (
    (124, "mirror"),
    (125, "transpose"),
    (126, "rotate90"),
    (127, "rotate180"),
    (128, "rotate270"),
    (129, "nchw2nhwc"),
    (130, "nhwc2nchw"),
):
    declare(Move, _opcode, _name)
declare(Pad, 132, "pad")
declare(TensorNorm, 133, "tensor_norm")
declare(GatherScatter, 135, "gather_scatter")
declare(Img2col, 138, "img2col")
declare(Memset, 179, "memset")
