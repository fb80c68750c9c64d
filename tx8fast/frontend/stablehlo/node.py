"""What a handler sees of one StableHLO op: operands as views, attributes, results, error texts.

May import: frontend.stablehlo.view, errors. Must not: walk the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tx8fast.errors import ImportModelError, UnsupportedError
from tx8fast.frontend.common import Tensor
from tx8fast.frontend.stablehlo.view import Val, Views

if TYPE_CHECKING:
    from tx8fast.frontend.stablehlo.importer import Importer

Result = Val | Tensor | Sequence[Val | Tensor]
Handler = Callable[["Node"], Result]


class Node:
    """One op on its way in. `n[i]` is operand i; `shape` and `dtype` are those of result 0."""

    __slots__ = ("importer", "op", "vals", "v")

    def __init__(self, importer: Importer, op: Any, vals: list[Val]) -> None:
        self.importer, self.op, self.vals = importer, op, vals
        self.v: Views = importer.views

    def __getitem__(self, i: int) -> Val:
        return self.vals[i]

    def __len__(self) -> int:
        return len(self.vals)

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def where(self) -> str:
        return self.importer.where(self.op)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.importer.types(self.op.results[0].type)[0]

    @property
    def dtype(self) -> str:
        return self.importer.types(self.op.results[0].type)[1]

    def result_type(self, i: int) -> tuple[tuple[int, ...], str]:
        return self.importer.types(self.op.results[i].type)

    # ---- attributes

    def attr(self, name: str) -> Any:
        """The attribute object, or None."""
        attrs = self.op.attributes
        return attrs[name] if name in attrs else None

    def numbers(self, kind: str, name: str) -> Any:
        """The dimension numbers in attribute `name`, an object of the bindings' class `kind`."""
        return getattr(self.importer.dialect, kind)(self.op.attributes[name])

    def int(self, name: str, default: int = 0) -> int:
        found = self.attr(name)
        return default if found is None else int(found.value)

    def flag(self, name: str) -> bool:
        found = self.attr(name)
        return False if found is None else bool(found.value)

    def ints(self, name: str, default: Sequence[int] = ()) -> list[int]:
        found = self.attr(name)
        return list(default) if found is None else [int(x) for x in found]

    def pairs(self, name: str, rank: int) -> list[tuple[int, int]]:
        """A rank x 2 table, such as low and high padding; zeros if absent."""
        found = self.attr(name)
        if found is None:
            return [(0, 0)] * rank
        flat = [int(x) for x in found] if not found.is_splat else [int(found.get_splat_value().value)] * (2 * rank)
        return list(zip(flat[::2], flat[1::2]))

    def text(self, name: str) -> str:
        found = self.attr(name)
        return "" if found is None else str(getattr(found, "value", found))

    # ---- emission

    def full(self, i: int) -> Tensor:
        return self.v.full(self.vals[i])

    def op_(self, kind: str, *operands: Tensor | None, **attrs: Any) -> Tensor:
        return self.importer.emitter.op(kind, *operands, **attrs)

    def const(self, value: Any, dtype: str | None = None) -> Tensor:
        return self.importer.emitter.const(value, dtype)

    # ---- regions

    def body(self, i: int = 0) -> Any:
        """The block of region i."""
        return self.op.regions[i].blocks[0]

    def combiner(self, i: int = 0) -> str | None:
        """The op name of a region that is one op over its two arguments, "" if it returns its second argument, else None."""
        block = self.body(i)
        ops = [o.operation for o in block.operations]
        args = list(block.arguments)
        if len(args) != 2:
            return None
        if len(ops) == 1 and len(ops[0].operands) == 1 and ops[0].operands[0] == args[1]:
            return ""
        if len(ops) != 2 or len(ops[0].operands) != 2 or ops[1].operands[0] != ops[0].results[0]:
            return None
        given = list(ops[0].operands)
        return ops[0].name.partition(".")[2] if given == args or given == args[::-1] else None

    # ---- errors

    def unsupported(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {reason}")

    def bad(self, reason: str) -> ImportModelError:
        return ImportModelError(f"{self.where}: {reason}")
