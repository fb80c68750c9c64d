"""Sliding windows over images: which input rows a band of output rows needs, and what is padded around them.

May import: graph_table. Must not: know ops or instructions.

Convolutions and pools cut images into bands of whole output rows. The bands of input rows overlap; at the
borders they are clipped to the image and the instruction pads what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.graph_table import Dim
from tx8fast.records import cached_property, dataclass

MAX_EXTENT = 4096  # field range of image rows and columns
ROW = 1  # the factor of output rows in every windowed lowering: factor 0 is the image, 2 the channel


@dataclass(frozen=True)
class Window:
    """One kind of window over images of `size` (rows, columns) giving `out`; pairs are (rows, columns). resident: the image
    is in scratchpad with all its rows, also those behind the last window; taps: the factor of the kernel's rows if slices have some of
    them, else -1."""

    size: tuple[int, int]
    out: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    lo: tuple[int, int]
    resident: bool = False
    taps: int = -1

    @cached_property
    def rows(self) -> Dim:
        """The input rows that output rows need."""
        terms, step, own = ((ROW, self.stride[0]),), self.dilation[0], self.taps < 0
        reach = (self.kernel[0] - 1) * step if own else 0
        return Dim(self.size[0], terms if own else (*terms, (self.taps, step)), -self.lo[0], reach=reach)

    @cached_property
    def most_rows(self) -> int:
        """Output rows of which an instruction takes no more, so that the input rows that they need are not too many either; below 1 if
        even one window is too high."""
        if max(self.size[0], self.out[0]) <= MAX_EXTENT:
            return MAX_EXTENT
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        return min(MAX_EXTENT, (MAX_EXTENT - reach) // self.stride[0] + 1)

    def columns_behind(self) -> int:
        """Padding columns that the last window reaches."""
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return max(0, (self.out[1] - 1) * self.stride[1] - self.lo[1] + reach - self.size[1])

    def fields(self, lo: Sequence[int], hi: Sequence[int]) -> dict[str, int]:
        """Return the instruction fields of output rows [lo[1], hi[1])."""
        a, b = self.rows.box(lo, hi)
        if self.resident and hi[ROW] == self.out[0]:
            b = self.size[0]
        p, q = (0, self.kernel[0]) if self.taps < 0 else (lo[self.taps], hi[self.taps])
        first = lo[ROW] * self.stride[0] - self.lo[0] + p * self.dilation[0]
        last = (hi[ROW] - 1) * self.stride[0] - self.lo[0] + (q - 1) * self.dilation[0] + 1
        return {
            "h": b - a,
            "w": self.size[1],
            "top": max(0, min(last, 0) - first),
            "bottom": max(0, last - b),
            "left": self.lo[1],
            "right": self.columns_behind(),
            "kx": self.kernel[1],
            "ky": q - p,
            "sx": self.stride[1],
            "sy": self.stride[0],
        }

    def form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        """What instructions depend on besides the lengths of all factors: what is clipped from the band."""
        fields = self.fields(lo, hi)
        return (*(b - a for a, b in zip(lo, hi, strict=True)), fields["h"], fields["top"], fields["bottom"])
