"""Collects the instructions of a slice; short names for the vector forms.

May import: isa, lower.transfer, numerics. Must not: know ops.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tx8fast import isa
from tx8fast.lower.transfer import Local
from tx8fast.numerics.formats import FORMAT_CODES, ITEM_BYTES, np_dtype
from tx8fast.numerics.layout import padded_channels
from tx8fast.records import dataclass

#: fields of a strided move: stride and count of the source's and the destination's levels, innermost first
_MOVE_LEVELS = tuple((f"ss{i}", f"sn{i}", f"ds{i}", f"dn{i}") for i in range(3))


@dataclass
class Emitter:
    """Collects instruction rows; short names for the vector forms."""

    rows: list[tuple] = field(default_factory=list)

    def add(self, name: str, **fields: Any) -> None:
        self.rows.append(isa.make(name, **fields))

    def v(self, fn: str, src: int, dst: int, n: int, fmt: str) -> None:
        self.rows.append(isa.make(f"{fn}_v", src0=src, dst=dst, n=n, fmt=FORMAT_CODES[fmt]))

    def vv(self, fn: str, a: int, b: int, dst: int, n: int, fmt: str) -> None:
        self.rows.append(isa.make(f"{fn}_vv", src0=a, src1=b, dst=dst, n=n, fmt=FORMAT_CODES[fmt]))

    def vv_each(self, fn: str, places: Iterable[tuple[int, int, int]], n: int, fmt: str) -> None:
        """`vv` at every place: both sources and the destination."""
        *head, spm, p = isa.make(f"{fn}_vv", src0=0, src1=0, dst=0, n=n, fmt=FORMAT_CODES[fmt])
        self.rows += [(*head, (*place, *spm[3:]), p) for place in places]

    def vs(self, fn: str, src: int, scalar: float, dst: int, n: int, fmt: str) -> None:
        bits = scalar_bits(scalar, fmt)
        self.add(f"{fn}_vs", src0=src, dst=dst, n=n, scalar=bits, fmt=FORMAT_CODES[fmt])

    def vuv(self, fn: str, src: int, unit_src: int, dst: int, n: int, unit: int, fmt: str) -> None:
        self.add(f"{fn}_vuv", src0=src, src1=unit_src, dst=dst, n=n, unit=unit, fmt=FORMAT_CODES[fmt])

    def vector(self, fn: str, src: int, vec: int, dst: int, local: Local, fmt: str) -> None:
        """dst = fn(src, vec) with a channel vector repeated over the rows of a blocked matrix."""
        lanes = local.elems // local.rows
        if lanes <= 64:
            self.vuv(fn, src, vec, dst, local.elems, lanes, fmt)
        else:
            self.add(
                f"{fn}_vuvloop",
                src0=src,
                src1=vec,
                dst=dst,
                n=local.rows * 64,
                unit=64,
                full=local.elems,
                full_unit=lanes,
                fmt=FORMAT_CODES[fmt],
            )

    def cvt(self, src: int, dst: int, n: int, src_fmt: str, dst_fmt: str) -> None:
        self.add(f"cvt_{src_fmt}_{dst_fmt}", src0=src, dst=dst, n=n, fmt=FORMAT_CODES[src_fmt])

    def reduce(self, fn: str, src: int, dst: int, local: Local, fmt: str) -> None:
        """Reduce the channels of a blocked [rows, cols] matrix to [rows, 1] (value in lane 0 of 4)."""
        n, h, w = factor_rows(local.rows)
        self.add(f"reduce_{fn}", src0=src, dst=dst, dim=0, n=n, h=h, w=w, c=local.cols, fmt=FORMAT_CODES[fmt])

    def gather(self, src: int, dst: int, moves: Sequence[Any]) -> None:
        for mv in moves:
            fields: dict[str, int] = {}
            for (ss, sn, ds, dn), (s, d, n) in zip(_MOVE_LEVELS, mv.loops, strict=False):
                fields[ss], fields[sn], fields[ds], fields[dn] = s, n, d, n
            self.add("gather_scatter", src0=src + mv.src, dst=dst + mv.dst, size=mv.size, **fields)

    def copy(self, src: int, dst: int, n_bytes: int) -> None:
        self.add("gather_scatter", src0=src, dst=dst, size=n_bytes)

    def fill(self, dst: int, value: float, n: int, fmt: str) -> None:
        self.add("memset", dst=dst, value=scalar_bits(value, fmt), n=n, fmt=FORMAT_CODES[fmt])

    def broadcast_rows(self, src: int, ones: int, dst: int, rows: int, lanes: int, fmt: str) -> None:
        """[rows, 1] (lane 0 of 4) -> [rows, lanes], as a product with a row of ones on the matrix engine: exact,
        and far cheaper than moving single elements."""
        for r in range(0, rows, 16384):
            m = min(16384, rows - r)
            pad = padded_channels(lanes, fmt)
            e = ITEM_BYTES[fmt]
            self.gemm(left=src + r * 4 * e, right=ones, out=dst + r * pad * e, m=m, k=1, n=lanes, r_trs=1, fmt=fmt)

    def gemm(
        self,
        *,
        left: int,
        right: int,
        out: int,
        m: int,
        k: int,
        n: int,
        fmt: str,
        batch: int = 1,
        batch_r: int = 0,
        l_trs: int = 0,
        r_trs: int = 0,
        out_fmt: str | None = None,
        psum: int = 0,
        psum_fmt: str = "f32",
        psum_en: int = 0,
        bias: int = 0,
        bias_en: int = 0,
        bias_fmt: str = "f32",
        act: int = 0,
    ) -> None:
        self.rows.append(
            isa.make(
                "gemm",
                left=left,
                right=right,
                out=out,
                psum=psum,
                bias=bias,
                m=m,
                k=k,
                n=n,
                batch_l=batch,
                batch_r=batch_r or batch,
                l_trs=l_trs,
                r_trs=r_trs,
                out_fmt=FORMAT_CODES[out_fmt or fmt],
                psum_fmt=FORMAT_CODES[psum_fmt],
                psum_en=psum_en,
                bias_en=bias_en,
                bias_fmt=FORMAT_CODES[bias_fmt],
                act=act,
                fmt=FORMAT_CODES[fmt],
            )
        )


def scalar_bits(value: float, fmt: str) -> int:
    """Return the raw pattern of `value` in a format, 16-bit formats in the low half."""
    if fmt in ("f32", "tf32"):
        return struct.unpack("<I", struct.pack("<f", np.float32(value)))[0]
    return int(np.array(value, np_dtype(fmt)).view(f"<u{ITEM_BYTES[fmt]}"))


def factor_rows(rows: int) -> tuple[int, int, int]:
    """Split a row count into n, h, w, each at most 4096 (field range of tensor instructions)."""
    w = next(d for d in range(min(rows, 4096), 0, -1) if rows % d == 0)
    rest = rows // w
    h = next(d for d in range(min(rest, 4096), 0, -1) if rest % d == 0)
    return rest // h, h, w
