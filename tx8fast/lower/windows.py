"""Sliding windows over images: which input rows a band of output rows needs, and what is padded around them.

May import: graph_table. Must not: know ops or instructions.

Convolutions and pools cut images into bands of whole output rows. The bands of input rows overlap; at the
borders they are clipped to the image and the instruction pads what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROW = 1  # the factor of output rows in every windowed lowering: factor 0 is the image, 2 the channel


class Band:
    """Input rows that a band of output rows needs, clipped to the image. Has the interface of `graph_table.Dim`."""

    full = False

    def __init__(self, size: int, stride: int, reach: int, pad: int) -> None:
        self.size, self.stride, self.reach, self.pad = size, stride, reach, pad
        self.terms = ((ROW, stride),)

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        a = max(0, lo[ROW] * self.stride - self.pad)
        b = min(self.size, (hi[ROW] - 1) * self.stride - self.pad + self.reach + 1)
        return a, max(a, b)

    def extent(self, lens: Sequence[int]) -> int:
        return min(self.size, (lens[ROW] - 1) * self.stride + self.reach + 1)


class Spread:
    """A dimension of which every point of a factor covers `width` neighbouring coordinates."""

    full = False

    def __init__(self, size: int, factor: int, width: int) -> None:
        self.size, self.factor, self.width = size, factor, width
        self.terms = ((factor, width),)
        self.reach = width - 1

    def box(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        return min(lo[self.factor] * self.width, self.size), min(hi[self.factor] * self.width, self.size)

    def extent(self, lens: Sequence[int]) -> int:
        return min(self.size, lens[self.factor] * self.width)


@dataclass(frozen=True)
class Window:
    """One kind of window over images of `size` (rows, columns) giving `out`; pairs are (rows, columns). resident: the image
    is in scratchpad with all its rows, also those behind the last window."""

    size: tuple[int, int]
    out: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    lo: tuple[int, int]
    resident: bool = False

    def band(self) -> Band:
        return Band(self.size[0], self.stride[0], (self.kernel[0] - 1) * self.dilation[0], self.lo[0])

    def columns_behind(self) -> int:
        """Padding columns that the last window reaches."""
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return max(0, (self.out[1] - 1) * self.stride[1] - self.lo[1] + reach - self.size[1])

    def fields(self, lo: Sequence[int], hi: Sequence[int]) -> dict[str, int]:
        """Return the instruction fields of output rows [lo[1], hi[1])."""
        a, b = self.band().box(lo, hi)
        if self.resident and hi[ROW] == self.out[0]:
            b = self.size[0]
        first = lo[ROW] * self.stride[0] - self.lo[0]
        last = (hi[ROW] - 1) * self.stride[0] - self.lo[0] + (self.kernel[0] - 1) * self.dilation[0] + 1
        return {
            "h": b - a, "w": self.size[1], "top": max(0, min(last, 0) - first), "bottom": max(0, last - b), "left": self.lo[1],
            "right": self.columns_behind(), "kx": self.kernel[1], "ky": self.kernel[0], "sx": self.stride[1],
            "sy": self.stride[0],
        }  # fmt: skip

    def form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """What instructions depend on besides the lengths of all factors: what is clipped from the band."""
        fields = self.fields(lo, hi)
        return (*(b - a for a, b in zip(lo, hi, strict=True)), fields["h"], fields["top"], fields["bottom"])
