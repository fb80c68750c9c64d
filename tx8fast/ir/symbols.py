"""Symbol tables: look up, insert, rename and erase functions and subgraphs by name.

May import: ir.core, errors. Must not: know particular ops; a symbol is any op with the SYMBOL trait
and a `sym_name`, a use of it any op with a `callee` attribute.
"""

from __future__ import annotations

from tx8fast.errors import VerifyError
from tx8fast.ir.core import SYMBOL, Op, Value


class SymbolTable:
    """The symbols directly inside `owner`, in order. A second symbol of one name raises VerifyError."""

    def __init__(self, owner: Op) -> None:
        self.owner = owner
        self.symbols: dict[str, Op] = {}
        for region in owner.regions:
            for block in region.blocks:
                for op in block:
                    if op.has(SYMBOL):
                        self._add(op)

    def _add(self, op: Op) -> None:
        name = op.attrs["sym_name"]
        if name in self.symbols:
            raise VerifyError(f"symbol '{name}' is defined twice in {self.owner.name}")
        self.symbols[name] = op

    def __contains__(self, name: str) -> bool:
        return name in self.symbols

    def get(self, name: str) -> Op | None:
        return self.symbols.get(name)

    def lookup(self, name: str) -> Op:
        """Return the symbol's op. Raises VerifyError naming the symbols that exist."""
        found = self.symbols.get(name)
        if found is None:
            known = list(self.symbols)
            listed = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise VerifyError(f"symbol '{name}' is not defined, found {listed or 'none'}")
        return found

    def unique_name(self, wanted: str) -> str:
        """Return `wanted`, or `wanted` with the first free number appended."""
        name, n = wanted, 0
        while name in self.symbols:
            name = f"{wanted}_{n}"
            n += 1
        return name

    def insert(self, op: Op) -> str:
        """Append `op` to the owner's last block under a free name; set and return that name."""
        name = self.unique_name(op.attrs["sym_name"])
        op.attrs["sym_name"] = name
        if op.block is None:
            self.owner.regions[0].blocks[-1].append(op)
        self.symbols[name] = op
        return name

    def rename(self, old: str, new: str) -> int:
        """Rename a symbol and every use of it; return the number of uses changed."""
        op = self.lookup(old)
        if new in self.symbols and new != old:
            raise VerifyError(f"cannot rename symbol '{old}' to '{new}': that name is taken")
        self.symbols = {new if name == old else name: s for name, s in self.symbols.items()}
        op.attrs["sym_name"] = new
        return self.replace_uses(old, new)

    def replace_uses(self, old: str, new: str) -> int:
        """Make every call of `old` a call of `new`; return how many changed."""
        calls = self.uses(old)
        for call in calls:
            call.attrs["callee"] = new
        return len(calls)

    def uses(self, name: str) -> list[Op]:
        """All ops inside the owner whose `callee` is `name`, in order."""
        return [op for op in self.owner.walk() if op.attrs.get("callee") == name]

    def call_counts(self) -> dict[str, int]:
        """Number of calls of each symbol, 0 included."""
        counts = dict.fromkeys(self.symbols, 0)
        for op in self.owner.walk():
            callee = op.attrs.get("callee")
            if callee in counts:
                counts[callee] += 1
        return counts

    def erase(self, name: str) -> None:
        """Remove a symbol that nothing calls any more. Raises VerifyError otherwise."""
        op = self.lookup(name)
        users = [u for u in self.uses(name) if not _inside(u, op)]
        if users:
            raise VerifyError(f"cannot erase symbol '{name}': {len(users)} calls use it")
        del self.symbols[name]
        op.erase()


def _inside(op: Op, outer: Op) -> bool:
    at: Op | None = op
    while at is not None and at is not outer:
        at = at.parent
    return at is outer


def signature(symbol: Op) -> tuple[list[Value], list[Value]]:
    """Return a function's arguments and the values its terminator returns (empty if it has none)."""
    block = symbol.body
    end = block.terminator
    return block.args, list(end.operands) if end is not None else []
