"""A convolution followed by element-wise ops on its result, which never leaves scratchpad in between.

May import: the family files, graph_table, machine. Must not: decide which ops belong together.

The group's factors are the convolution's. Element-wise members see an image's rows and columns as one dimension of
positions; a band of output rows is a range of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tx8fast.graph_table import Dim, GroupRecord
from tx8fast.lower.base import Lowering, NotLowerable
from tx8fast.lower.convolution import Convolution, Windowed, convolution
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.fused import Fused
from tx8fast.lower.links import Link, followed
from tx8fast.lower.windows import ROW
from tx8fast.machine import Machine


class FusedConvolution(Fused):
    """A convolution of any kind with a window, then element-wise members."""

    kind = "fused conv"
    positional = True

    def __init__(self, record: GroupRecord, machine: Machine) -> None:
        Lowering.__init__(self, record, machine)
        self._begin()
        lead = convolution(record.ops[0], machine)
        if not isinstance(lead, Windowed) or any(op.kind == "conv" for op in record.ops[1:]):
            raise NotLowerable("one convolution leads a group")
        self.conv = self.lead = lead  # type: ignore[assignment]
        self.products = [0]
        self._add(0, lead, [Link(f, n) for f, n in enumerate(lead.sizes)])
        for i, op in enumerate(record.ops[1:], 1):
            low = Elementwise(op, machine)
            self._add(i, low, followed(low, self._made())[0])
        self.writes = [self._access(self.members[i].low.writes[0], self.members[i].links) for i in record.outputs]
        most = self._limited(lead.max_len, lead.units)
        self.set_factors(lead.sizes, lead.units, lead.shard, lead.split, lead.reduce, most)

    def _made(self) -> list[Dim]:
        """The dimensions of the convolution's result as members see it: rows and columns are one."""
        lead, rows, columns, channels = self.conv.writes[0].dims
        n = columns.size
        return [lead, Dim(rows.size * n, ((ROW, n),), reach=n - 1), channels]

    def fits(self, lens: Sequence[int]) -> bool:
        return self.conv.fits(lens)

    def slice_form(self, lo: Sequence[int], hi: Sequence[int]) -> tuple:
        return self.conv.slice_form(lo, hi)

    def ops_per_point(self) -> float:
        depth = self.conv.sizes[3] if isinstance(self.conv, Convolution) else 1
        vector = sum(m.low.ops_per_point() for m in self.members[1:]) * self.conv.out.shape[2]
        taps = self.conv.w.shape[0] * self.conv.w.shape[1] * self.conv.out.shape[2]
        macs = taps * (1 if depth > 1 else self.conv.w.shape[3])
        return macs / self.machine.peak_macs_per_cycle(self.conv.dtype) * self.machine.n_tiles + vector / depth
