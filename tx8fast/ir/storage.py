"""Who shares storage: aliasable tensors of a block, grouped by the buffer they may lie in.

May import: ir.core, ir.interfaces, ir.types. Must not: change the graph.

A value-semantic op gives its result a buffer of its own; a view and an in-place op pass on operand 0's; an op that
says nothing about its results may pass on any of its operands' buffers.
"""

from __future__ import annotations

from tx8fast.ir.core import INPLACE, VALUE_SEMANTICS, VIEW, Block, Op, Value
from tx8fast.ir.interfaces import effects
from tx8fast.ir.types import TensorType

#: run-time attribute of an op that writes its first result over an operand: the index of that operand
REUSE = "rt_mem_inplace"


def is_aliasable(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.kind == "tensor"


def touches_storage(op: Op) -> bool:
    """True if an operand or result of `op` may change behind a reader."""
    return any(map(is_aliasable, op.operands)) or any(map(is_aliasable, op.results))


class Storage:
    """The buffers of one block. `root(v)` stands for v's buffer; value tensors have none."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._up: dict[Value, Value] = {}
        self._visible: set[Value] = set()
        outside: Value | None = None  # buffers that come in may be one and the same
        for v in filter(is_aliasable, block.args):
            outside = self._join(outside, v)
        for op in block:
            results = [r for r in op.results if is_aliasable(r)]
            operands = [v for v in op.operands if is_aliasable(v)]
            for r in results:
                if (op.has(INPLACE) or op.has(VIEW)) and r.index == 0 and is_aliasable(op.operands[0]):
                    self._join(op.operands[0], r)
                elif op.has(VALUE_SEMANTICS):
                    self._up.setdefault(r, r)
                else:  # a parameter, a call: it may be a buffer that others know
                    outside = self._join(outside, r)
            if _unknown(op):
                for v in operands:
                    outside = self._join(outside, v)
        if outside is not None:
            self._visible.add(self._find(outside))

    def _find(self, v: Value) -> Value:
        up = self._up
        up.setdefault(v, v)
        while up[v] is not v:
            up[v] = up[up[v]]
            v = up[v]
        return v

    def _join(self, a: Value | None, b: Value) -> Value:
        b = self._find(b)
        if a is None:
            return b
        a = self._find(a)
        self._up[b] = a
        return a

    def root(self, v: Value) -> Value | None:
        return self._find(v) if is_aliasable(v) else None

    def names(self, v: Value) -> list[Value]:
        """All values of the block that lie in v's buffer, v included, in no useful order."""
        root = self.root(v)
        return [u for u in self._up if self._find(u) is root]

    def is_visible(self, v: Value) -> bool:
        """True if somebody outside the block may read or write v's buffer while the block runs."""
        return self.root(v) in self._visible

    def reads_and_writes(self, op: Op) -> tuple[set[Value], set[Value]]:
        """Return the buffers `op` may read and those it may write."""
        buffers = [self.root(v) for v in op.operands]
        touched = {b for b in buffers if b is not None}
        if _unknown(op):
            return touched | self._visible, touched | self._visible
        written = {
            buffers[target[1]] for verb, target in effects(op) or () if verb == "write" and target[0] == "operand"
        }
        return touched, {b for b in written if b is not None}


def _unknown(op: Op) -> bool:
    """True if `op` may write any buffer it can get at: nothing is declared, or its region does not say."""
    if op.regions:
        return touches_storage(op)
    return effects(op) is None
