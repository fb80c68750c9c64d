"""Batch normalisation at inference: four operations per element with one value per channel.

May import: lower.base, lower.emitter, lower.transfer, graph_table, numerics. Must not: place buffers.

    y = (x - mean) * (rsqrt(variance + eps) * scale) + offset

A slice is one matrix of all its positions, whatever image they belong to, so every step is one instruction. The
library of back-end notes 5 takes images one by one, moves 16-bit data to make room for widening and multiplies
twice; here the data is widened on its way to the work buffer and the two factors of a channel are multiplied
first. No operand is destroyed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import OpRecord
from tx8fast.lower.base import FLOATS, Lowering, NotLowerable, Slice
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.transfer import Local
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import block_size, padded_channels

WORK = "f32"
MAX_CHANNELS = 16384


class BatchNorm(Lowering):
    """Factors: image, position, channel (a matrix has no image factor)."""

    kind = "batchnorm"
    takes = frozenset({"batchnorm_inference"})

    def __init__(self, record: OpRecord, machine: Machine) -> None:
        super().__init__(record, machine)
        x, *vectors = record.operands
        out = record.results[0]
        if x is None or x.dtype not in FLOATS or out.dtype != x.dtype or {x.layout, out.layout} != {"blocked"}:
            raise NotLowerable("batch normalisation takes one float format in blocked layout")
        if any(v is None or v.dtype not in FLOATS or math.prod(v.shape) != x.shape[-1] for v in vectors):
            raise NotLowerable("batch normalisation takes four float vectors over the channels")
        if x.shape[-1] > MAX_CHANNELS:
            raise NotLowerable(f"{x.shape[-1]} channels are above the limit of {MAX_CHANNELS}")
        self.dtype = x.dtype
        self.eps = float(record.attr("eps"))
        last = len(x.shape) - 1
        runs = [(0,), range(1, last), (last,)] if last > 1 else [(f,) for f in range(last + 1)]
        self.loop_over(runs, [*(1,) * (len(runs) - 1), min(x.shape[-1], block_size(x.dtype))])
        self.reads = [self.operand_access(j, merged=not j) for j in range(len(record.operands))]
        self.writes = [self.result_access(merged=True)]

    @property
    def wide(self) -> bool:
        return self.dtype != WORK

    def _local(self, lo: Sequence[int], hi: Sequence[int]) -> Local:
        return self.reads[0].local(self.reads[0].box(lo, hi))

    def _lanes(self, lo: Sequence[int], hi: Sequence[int]) -> int:
        return padded_channels(hi[-1] - lo[-1], WORK)

    def scratch_bytes(self, lo: tuple[int, ...], hi: tuple[int, ...]) -> list[int]:
        """One vector for the factor of each channel, one per vector that must be widened, the widened input."""
        vector = self._lanes(lo, hi) * ITEM_BYTES[WORK]
        vectors = 1 + sum(a.spec.dtype != WORK for a in self.reads[1:])
        return [vector] * vectors + ([self._local(lo, hi).elems * ITEM_BYTES[WORK]] if self.wide else [])

    def emit(self, em: Emitter, s: Slice) -> None:
        local, lanes = self._local(s.lo, s.hi), self._lanes(s.lo, s.hi)
        factor, *spare = s.scratch
        vectors = []
        for access, at in zip(self.reads[1:], s.reads[1:], strict=True):
            if access.spec.dtype != WORK:
                em.cvt(at, spare[0], lanes, access.spec.dtype, WORK)
                at = spare.pop(0)
            vectors.append(at)
        scale, offset, mean, variance = vectors
        em.vs("add", variance, self.eps, factor, lanes, WORK)
        em.v("rsqrt", factor, factor, lanes, WORK)
        em.vv("mul", factor, scale, factor, lanes, WORK)
        x, y = s.reads[0], s.writes[0]
        if self.wide:
            em.cvt(x, spare[0], local.elems, self.dtype, WORK)
            x = y = spare[0]
        em.vector("sub", x, mean, y, local, WORK)
        em.vector("mul", y, factor, y, local, WORK)
        em.vector("add", y, offset, y, local, WORK)
        if self.wide:
            em.cvt(y, s.writes[0], local.elems, WORK, self.dtype)

    def ops_per_point(self) -> float:
        return (5 if self.wide else 3) * ITEM_BYTES[WORK] / self.machine.ct.bytes_per_cycle
