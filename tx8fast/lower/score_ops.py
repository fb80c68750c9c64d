"""Element-wise ops between the scores of attention and their softmax: soft caps, factors.

May import: lower.base, lower.elementwise, lower.emitter, lower.members, graph_table. Must not: place buffers.

They work on a slice of scores where it lies. A factor on the scores themselves goes to the queries, of which there are fewer, and so
does the softmax's scale if no other op comes before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tx8fast.graph_table import Dim, GroupRecord, OpRecord, TensorSpec
from tx8fast.lower.access import Access
from tx8fast.lower.base import ALIGN_BYTES, NotLowerable, Slice, round_up
from tx8fast.lower.elementwise import Elementwise
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.members import flat_record
from tx8fast.lower.transfer import Local
from tx8fast.machine import Machine
from tx8fast.numerics.formats import ITEM_BYTES

PRODUCTS = ("gemm", "contract")


def is_attention(ops: Sequence[OpRecord]) -> bool:
    """True if these are the kinds of ops, in order, that may be attention."""
    ends = len(ops) > 2 and ops[0].kind in PRODUCTS and ops[-2].kind == "softmax" and ops[-1].kind in PRODUCTS
    return ends and all(may_cap(op) for op in ops[1:-2])


def may_cap(op: OpRecord) -> bool:
    """True for an op of a kind that may stand between scores and softmax."""
    return op.kind in Elementwise.takes


class ScoreOps:
    """Ops 1 to `count` of a group, each on what the one before makes and on single elements from outside. scale: of the softmax.

    reads, args: accesses to these, and the group's operands; factor: the one of them that queries are multiplied by, -1: none."""

    def __init__(self, record: GroupRecord, count: int, scale: float, machine: Machine) -> None:
        shape, self.dtype = record.ops[0].results[0].shape, record.ops[0].results[0].dtype
        flat = (math.prod(shape[:-1]), shape[-1])
        self.scale = scale
        self.reads: list[Access] = []
        self.args: list[int] = []
        self.factor = -1
        self.steps: list[tuple[Elementwise, list[int]]] = []  # per operand the access in `reads`, -1: the scores
        for i in range(1, count + 1):
            op, wires = record.ops[i], record.wires[i]
            sources = [-1 if wire == ("op", i - 1) else self._outside(op, j, wire) for j, wire in enumerate(wires)]
            if sources.count(-1) != 1 or op.results[0].shape != shape or op.results[0].dtype != self.dtype:
                raise NotLowerable(f"{op.kind} between scores and softmax works on the scores in their format")
            if i == 1 and op.kind == "mul" and self.dtype != "f16":  # queries of f16 have a narrow range
                self.factor = max(sources)
                continue
            specs = [TensorSpec(flat, self.dtype, "blocked") if k < 0 else TensorSpec((), self.dtype) for k in sources]
            result = TensorSpec(flat, self.dtype, "blocked")
            self.steps.append((Elementwise(flat_record(op, specs, result, "P"), machine), sources))
        if self.dtype == "f16" and abs(scale) > 1 and not self.steps:
            raise NotLowerable(f"queries of f16 times {scale:g} may leave its range, their scores need not")
        self.spare = any(sources.index(-1) not in low.in_place for low, sources in self.steps)

    def _outside(self, op: OpRecord, j: int, wire: tuple[str, int] | None) -> int:
        spec = op.operands[j]
        if wire is None or wire[0] != "in" or spec is None or math.prod(spec.shape) != 1 or spec.dtype != self.dtype:
            raise NotLowerable(f"{op.kind} between scores and softmax takes single elements besides the scores")
        self.reads.append(Access(spec, [Dim(1)] * len(spec.shape), True))
        self.args.append(wire[1])
        return len(self.reads) - 1

    def scratch_bytes(self, local: Local) -> list[int]:
        """Bytes of one buffer for what the ops need besides slices of scores `local`; none if that is nothing."""
        hi = (local.rows, local.cols)
        own = [sum(round_up(b, ALIGN_BYTES) for b in low.scratch_bytes((0, 0), hi)) for low, _ in self.steps]
        size = max(own, default=0) + self.spare * round_up(local.size_bytes, ALIGN_BYTES)
        return [size] if size else []

    def emit_factors(self, em: Emitter, queries: int, count: int, at: Sequence[int]) -> None:
        """Multiply `count` elements of queries. at: scratchpad addresses of `reads`."""
        if self.factor >= 0:
            em.vuv("mul", queries, at[self.factor], queries, count, 1, self.dtype)
        if self.scale != 1.0 and not self.steps:
            em.vs("mul", queries, self.scale, queries, count, self.dtype)

    def emit(self, em: Emitter, scores: int, local: Local, at: Sequence[int], scratch: int) -> None:
        """Emit the ops on a slice of scores, in place. at: addresses of `reads`; scratch: of the buffer."""
        hi = (local.rows, local.cols)
        for low, sources in self.steps:
            inside = sources.index(-1) in low.in_place
            out, place = scores, scratch + self.spare * round_up(local.size_bytes, ALIGN_BYTES)
            own = []
            for size in low.scratch_bytes((0, 0), hi):
                own.append(place)
                place += round_up(size, ALIGN_BYTES)
            if not inside:
                out = scratch
            reads = [scores if k < 0 else at[k] for k in sources]
            low.emit(em, Slice((0, 0), hi, reads, [out], own, []))
            if not inside:
                em.copy(out, scores, local.elems * ITEM_BYTES[self.dtype])
        if self.scale != 1.0 and self.steps:
            em.vs("mul", scores, self.scale, scores, local.elems, self.dtype)

    def ops_per_point(self) -> float:
        """Vector cycles per score."""
        return sum(low.ops_per_point() for low, _ in self.steps)
