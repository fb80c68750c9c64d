"""Which ops of a block may change places, and doing so.

May import: ir.core, ir.interfaces, ir.storage, errors. Must not: know particular ops.

Two ops are ordered if one uses the other's result, if both touch one buffer and at least one writes it, or if both
touch one named state (a parameter, a channel) and at least one writes it. An op with unknown effects is ordered
against every op that has effects or touches a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tx8fast.errors import VerifyError
from tx8fast.ir.core import CONSTANT_LIKE, PURE, TERMINATOR, Block, Op
from tx8fast.ir.interfaces import effects
from tx8fast.ir.storage import Storage


class Order:
    """The order constraints of a block as it stands."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.storage = Storage(block)
        self._known: dict[Op, tuple[set[Any], set[Any], bool]] = {}

    def facts(self, op: Op) -> tuple[set[Any], set[Any], bool]:
        """Return (buffers and states read or written, those written, whether nothing is known of the op)."""
        found = self._known.get(op)
        if found is None:
            buffers, written = self.storage.reads_and_writes(op)
            touched: set[Any] = set(buffers)
            changed: set[Any] = set(written)
            listed = [] if op.info.traits & (PURE | CONSTANT_LIKE) else effects(op)
            for verb, target in listed or ():
                if verb in ("read", "write") and target[0] == "state":
                    touched.add(target)
                    if verb == "write":
                        changed.add(target)
            found = self._known[op] = (touched, changed, listed is None)
        return found

    def reason(self, first: Op, second: Op) -> str | None:
        """Say why `second` must stay behind `first`, which stands before it; None if they may change places."""
        if second.has(TERMINATOR):
            return "it ends the block"
        inside = {v for op in second.walk() for v in op.operands}
        if any(r in inside for r in first.results):
            return "it uses its result"
        (touched, changed, unknown), (touched2, changed2, unknown2) = self.facts(first), self.facts(second)
        if (unknown and (touched2 or unknown2)) or (unknown2 and touched):
            return "its effects are unknown"
        shared = (changed & touched2) | (changed2 & touched)
        if not shared:
            return None
        states = sorted(str(s[1]) for s in shared if type(s) is tuple)
        return f"both touch the state '{states[0]}'" if states else "both touch one buffer and one of them writes it"


def reorder(block: Block, ops: Sequence[Op]) -> None:
    """Put the block's ops into the order `ops`. Raises VerifyError, and changes nothing, if a constraint forbids it."""
    old = list(block)
    if len(ops) != len(old) or set(ops) != set(old):
        raise VerifyError(f"reordering a block: found {len(ops)} ops, required a permutation of its {len(old)}")
    order = Order(block)
    place = {op: i for i, op in enumerate(ops)}
    for i, first in enumerate(old):
        for second in old[i + 1 :]:
            if place[second] < place[first] and (why := order.reason(first, second)) is not None:
                raise VerifyError(
                    f"reordering a block: {second.name} '{second.loc or ''}' cannot go before {first.name} "
                    f"'{first.loc or ''}': {why}"
                )
    for op in old:
        op.detach()
    for op in ops:
        block.append(op)


def may_swap(first: Op, second: Op) -> bool:
    """True if two ops of one block, `first` standing before `second`, may change their relative order."""
    assert first.block is not None
    return Order(first.block).reason(first, second) is None
