"""A program: one graph, the weight table it refers to, and a name.

May import: ir (core, clone, interfaces, printer, symbols, verify, versions), weights by interface only, errors.
Must not: copy or compare weights; a clone shares the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tx8fast.errors import VerifyError
from tx8fast.ir.clone import clone_op, equal
from tx8fast.ir.core import SYMBOL, Context, Op
from tx8fast.ir.interfaces import effects
from tx8fast.ir.printer import print_op
from tx8fast.ir.symbols import SymbolTable
from tx8fast.ir.verify import verify
from tx8fast.ir.versions import read_text


class IRProgram:
    """`module` is the root op; `weights` is the table behind `get_param` keys (None: no weights).

    `phase`: "prefill" or "decode" where a model has both and one was built. `config_dtype`: the float format that a
    configuration chose for a graph that would be the same in another one; "" where the graph itself says it. `shares`: of a model that can be cut
    over n chips, gives (bytes of the weights that one of them holds, its share of the caches); raises Tx8Error if it
    cannot be cut into so many. `parts`: chips over which the passes are to cut the graph, which is whole; `again` reads such a model once more. `family`: the family of models that a builder recognised, "" for graphs that were read."""

    __slots__ = (
        "ctx",
        "module",
        "weights",
        "name",
        "phase",
        "config_dtype",
        "family",
        "shares",
        "parts",
        "again",
        "_whole",
    )

    def __init__(self, ctx: Context, module: Op, weights: Any = None, name: str = "") -> None:
        self._whole: IRProgram | None = None
        self.ctx = ctx
        self.module = module
        self.weights = weights
        self.name = name
        self.phase = ""
        self.config_dtype = ""
        self.shares: Callable[[int], tuple[int, float]] | None = None
        self.parts = 1
        self.again: Callable[[], IRProgram] | None = None
        self.family = ""

    @classmethod
    def from_text(
        cls, ctx: Context, text: str, weights: Any = None, name: str = "", filename: str = "<text>"
    ) -> IRProgram:
        """Read a module's text of this or an older version. Raises VerifyError with file, line and column."""
        program = cls(ctx, read_text(ctx, text, filename), weights, name)
        program.mark_mutable()
        return program

    def mark_mutable(self) -> list[str]:
        """Mark the table's entries that some op of this program writes; return their keys. Unknown keys are left out."""
        found: dict[str, None] = {}
        for op in self.module.walk():
            if "key" in op.attrs or "keys" in op.attrs:
                for verb, target in effects(op) or ():
                    if verb == "write" and target[0] == "state":
                        found[target[1]] = None
        table = self.weights
        written = [key for key in found if table is not None and key in table]
        if table is not None:
            for key in written:
                table[key].mutable = True
        return written

    def clone(self) -> IRProgram:
        """Return a copy with its own ops, the same context and the same weight table."""
        return IRProgram(self.ctx, clone_op(self.module), self.weights, self.name)

    @property
    def chips(self) -> tuple[int, int]:
        """The grid (x, y) of chips that run the program together."""
        return self.module.attrs["chip_x"], self.module.attrs["chip_y"]

    def text(self, locations: bool = False) -> str:
        return print_op(self.module, locations)

    def same_as(self, other: IRProgram) -> bool:
        """True if both graphs have equal structure; weights and names of values do not count."""
        return equal(self.module, other.module)

    def symbols(self) -> SymbolTable:
        return SymbolTable(self.module)

    @contextmanager
    def only(self, symbol: Op) -> Iterator[IRProgram]:
        """Give a program that holds `symbol` alone, for the time of a `with`; this one lacks it meanwhile."""
        block, place = symbol.block, symbol.next
        assert block is not None
        module = Op(self.module.info, (), (), dict(self.module.attrs), 1)
        symbol.detach()
        module.regions[0].add_block().append(symbol)
        part = IRProgram(self.ctx, module, self.weights, self.name)
        part._whole = self.whole
        try:
            yield part
        finally:
            symbol.detach()
            block.insert_before(place, symbol)

    @property
    def whole(self) -> IRProgram:
        """The program that this one is a part of while `only` is active, else itself."""
        return self if self._whole is None else self._whole

    @property
    def functions(self) -> list[Op]:
        """All functions and subgraphs in order."""
        return [op for op in self.module.body if op.has(SYMBOL)]

    @property
    def main(self) -> Op:
        """The entry function "main". Raises VerifyError if there is none."""
        for op in self.functions:
            if op.attrs["sym_name"] == "main":
                return op
        raise VerifyError(f"program '{self.name}': no function named main")

    def n_ops(self) -> int:
        """Number of ops, the module not counted."""
        return sum(1 for _ in self.module.walk()) - 1

    def verify(self, level: int = 2, doing: str | None = None) -> None:
        """Check the graph and, from level 2, its parameters against the weight table. Raises VerifyError."""
        verify(self.module, level, self.weights, doing or f"verifying program '{self.name}'")
