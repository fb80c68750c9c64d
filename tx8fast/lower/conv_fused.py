"""A convolution followed by element-wise ops on its result, which never leaves scratchpad in between.

May import: the family files, graph_table, machine. Must not: decide which ops belong together.

The group's factors are the convolution's. Element-wise members see an image's rows and columns as one dimension of
positions; a band of output rows is a range of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.base import Access, Lowering, NotLowerable
from tx8fast.lower.convolution import Convolution, Windowed, convolution
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.fused import Fused
from tx8fast.lower.links import Link, LinkedAccess, LinkedDim
from tx8fast.lower.windows import ROW
from tx8fast.machine import Machine


@dataclass(frozen=True)
class Wide(Link):
    """A member factor of which every point of the group's factor covers `width` points."""

    width: int = 1

    def range(self, lo: Sequence[int], hi: Sequence[int]) -> tuple[int, int]:
        return min(lo[self.factor] * self.width, self.size), min(hi[self.factor] * self.width, self.size)


class WideDim(LinkedDim):
    """A member's dimension over the group's factors."""

    def __init__(self, dim, links: Sequence[Link]) -> None:
        super().__init__(dim, links)
        link = links[dim.terms[0][0]] if dim.terms else None
        self.width = link.width if isinstance(link, Wide) else 1
        self.terms = tuple((f, c * self.width) for f, c in self.terms)
        self.reach += self.width - 1

    def extent(self, lens: Sequence[int]) -> int:
        if self.full or not self.terms:
            return self.size if self.full else 1
        return min(self.size, lens[self.terms[0][0]] * self.width)


class WideAccess(LinkedAccess):
    """An element-wise member's access over the convolution's factors."""

    def __init__(self, inner: Access, links: Sequence[Link]) -> None:
        super().__init__(inner, links)
        self.dims = tuple(WideDim(d, links) for d in inner.dims)  # type: ignore[assignment]


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
            self._add(i, low, self._elementwise_links(low))
        self.writes = [self._access(self.members[i].low.writes[0], self.members[i].links) for i in record.outputs]
        most = self._limited(lead.max_len, lead.units)
        self.set_factors(lead.sizes, lead.units, lead.shard, lead.split, lead.reduce, most)

    def _access(self, access: Access, links: Sequence[Link]) -> Access:
        own = access in self.conv.reads or access in self.conv.writes
        return access if own else WideAccess(access, links)

    def _elementwise_links(self, low: Lowering) -> list[Link]:
        n, oh, ow, oc = self.conv.out.shape
        chans = self.conv.writes[0].dims[-1]
        width = chans.reach + 1
        last = Wide(2, oc, width=width) if width > 1 else Link(2, oc)
        positions = Wide(ROW, oh * ow, width=ow)
        if not low.writes[0].blocked:
            raise NotLowerable("an element-wise member must keep the blocked form")
        if low.sizes == (n, oh * ow, oc):
            return [Link(0, n), positions, last]
        raise NotLowerable("an element-wise member must keep the convolution's shape")

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
