"""Which value lies where in DDR, launch by launch: the part of a proof that is about addresses.

May import: numpy formats and layouts, graph_table, proof.graph. Must not: know what launches compute.

Every launch is proved from its own arguments alone. The ledger shows that an argument still holds the value it is named to
hold: it follows every store, and forgets a value of which any byte was stored over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from tx8fast.graph_table import TensorSpec
from tx8fast.numerics.formats import ITEM_BYTES
from tx8fast.numerics.layout import blocked_bytes, dense_bytes, npc
from tx8fast.records import dataclass


def form_of(spec: TensorSpec) -> tuple:
    """Return what two tensors must share for one's bytes to be the other's: format, and how channels are blocked."""
    return (spec.dtype, "blocked", *npc(spec.shape)) if spec.layout == "blocked" else (spec.dtype, "dense")


def size_of(spec: TensorSpec) -> int:
    """Return the bytes of a tensor in DDR."""
    if spec.layout == "blocked":
        return blocked_bytes(*npc(spec.shape), spec.dtype)
    return dense_bytes(spec.shape, spec.dtype) if spec.dtype in ITEM_BYTES else 0


@dataclass(frozen=True)
class Entry:
    """The value `root`, in some form, lies in bytes [begin, end)."""

    begin: int
    end: int
    root: str
    form: tuple
    since: str


class Ledger:
    """Values in DDR; ranges never overlap."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.entries: dict[int, Entry] = {}
        self.lost: dict[str, str] = {}  # root -> what was stored over it

    def overlapping(self, begin: int, end: int) -> list[Entry]:
        """Return the entries that share a byte with [begin, end)."""
        first = max(0, bisect_right(self.starts, begin) - 1)
        last = bisect_left(self.starts, end)
        return [e for e in (self.entries[s] for s in self.starts[first:last]) if e.end > begin]

    def store(self, root: str, spec: TensorSpec, address: int, by: str) -> None:
        """Note that `by` stored a value; what had any byte there is lost."""
        begin, end = address, address + size_of(spec)
        if begin == end:
            return
        for entry in self.overlapping(begin, end):
            self.starts.remove(entry.begin)
            del self.entries[entry.begin]
            self.lost[entry.root] = by
        self.entries[begin] = Entry(begin, end, root, form_of(spec), by)
        insort(self.starts, begin)

    def problem(self, root: str, spec: TensorSpec, address: int) -> str:
        """Return why the value does not lie at an address, "" if it does."""
        begin, end = address, address + size_of(spec)
        if begin == end:
            return ""
        found = self.entries.get(begin)
        if found is not None and found.root == root:
            if found.form != form_of(spec):
                return f"lies there as {found.form}, it is read as {form_of(spec)}"
            return "" if found.end >= end else f"has {found.end - found.begin} bytes there, {end - begin} are read"
        there = self.overlapping(begin, end)
        if there:
            what = ", ".join(f"the value {e.root} of {e.since}" for e in there[:2])
            return f"is not at 0x{address:x}: {what} lies there"
        if root in self.lost:
            return f"is not at 0x{address:x}: {self.lost[root]} stored over it"
        return f"is not at 0x{address:x}: nothing was stored there"
