"""Creates ops at a place of a block.

May import: ir.core, ir.types. Must not: know any particular op but `none`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tx8fast.ir.core import Block, Context, Op, Value
from tx8fast.ir.types import Type


class Builder:
    """Creates ops at an insertion point: the end of a block, or before an op."""

    def __init__(self, ctx: Context, block: Block, before: Op | None = None, loc: str | None = None) -> None:
        self.ctx = ctx
        self.block = block
        self.before = before
        self.loc = loc

    def op(
        self,
        name: str,
        *operands: Value,
        result_types: Sequence[Type] | None = None,
        loc: str | None = None,
        n_regions: int = 0,
        **attrs: Any,
    ) -> Op:
        """Create and insert an op; operands that are None at the tail are dropped (absent optionals)."""
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        if any(v is None for v in given):
            none = self.op("none", result_types=[self.ctx.types.none]).result
            given = [none if v is None else v for v in given]
        made = self.ctx.create(name, given, result_types, loc or self.loc, n_regions, **attrs)
        return self.block.insert_before(self.before, made)

    def __call__(self, name: str, *operands: Value, **kw: Any) -> Value:
        """Create and insert a one-result op; return its result."""
        return self.op(name, *operands, **kw).result
