"""What a group's products add their sums to: an operand of the group, where their result is needed for nothing else.

May import: lower.base, lower.contraction, lower.emitter, lower.members, graph_table. Must not: place buffers.

The matrix engine adds products to partial sums of any float format (hardware manual 12.3). A sum of a product's result and an
operand, a residual, takes no instruction of its own: the operand is what the first products are added to, and the one
rounding is that of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tx8fast.graph_table import GroupRecord
from tx8fast.lower.access import Access
from tx8fast.lower.base import Slice
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.emitter import Emitter
from tx8fast.lower.members import Member
from tx8fast.lower.transfer import runs
from tx8fast.numerics.formats import ITEM_BYTES

if TYPE_CHECKING:
    from tx8fast.lower.fused import Fused

SUM = "f32"  # format of partial sums
HERE = -1  # instead of a read access: the operand is the rows that the group loads first


def addends(record: GroupRecord, members: Sequence[Member], reads: Sequence[Access]) -> dict[int, tuple[int, int]]:
    """Return the products that add to an operand: product -> (the member that is the sum, the operand's read access)."""
    found = {}
    for i, member in enumerate(members):
        product = member.low
        users = [j for j, m in enumerate(members) if ("op", i) in m.sources]
        if not isinstance(product, Contraction) or product.act or i in record.outputs or len(users) != 1:
            continue
        low, sources = members[users[0]].low, members[users[0]].sources
        others = [k for kind, k in sources if kind == "in"]
        # a sum that may be written over either operand has both of them in full
        if low.record.kind != "add" or len(others) != 1 or len(low.in_place) != 2:
            continue
        if product.writes[0].spec.dtype == reads[others[0]].spec.dtype == low.writes[0].spec.dtype:
            found[i] = users[0], others[0]
    return found


def replaced(group: Fused) -> dict[int, int]:
    """Return the results that take the buffers of what products add to, where nothing else reads these: access of the result ->
    read access. The sum is complete when the first products are added."""
    out = {}
    for j, k in group.addends.values():
        if k == HERE:
            continue
        uses = sum([m.sources.count(("in", k)) for m in group.members])
        owner = group.owners[j]
        if uses > 1 or owner not in group.record.outputs:
            continue
        w = group.record.outputs.index(owner)
        read, write = group.reads[k], group.writes[w]
        if (read.spec.dtype, read.factors) == (write.spec.dtype, write.factors):
            out[len(group.reads) + w] = k
    return out


def take_rows(group: Fused, boxes: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
    """Where a product adds to the rows that its group loads first and then normalises, they are not loaded again: they begin its sums,
    and nobody needs the rows any more when the sums are complete. boxes: slices of the group's factors by which accesses are told
    apart."""
    first = group.reads[0]
    for i, (j, k) in group.addends.items():
        other = group.reads[k]
        uses = sum([m.sources.count(("in", k)) for m in group.members])
        if uses > 1 or group.args[k] != group.args[0] or first.spec != other.spec:
            continue
        if all(runs(first.transfers(*box)) == runs(other.transfers(*box)) for box in boxes):
            group.addends[i] = j, HERE
            _drop(group, k)
            if group.owners[j] in group.record.outputs:
                group.rows_at = len(group.reads) + group.record.outputs.index(group.owners[j]), 0
            return


def begin_sums(group: Fused, em: Emitter, s: Slice) -> None:
    """Emit what keeps rows that a sum needs as they came in: as its partial sums, or where it will be."""
    dtype = group.reads[0].spec.dtype
    for i, j in [(i, j) for i, (j, k) in group.addends.items() if k == HERE]:
        size = group.result_bytes(j, s.lo, s.hi)  # the rows' buffer may be longer
        to, kept = origin(group, i, s)
        if kept in ("", dtype):
            em.copy(s.reads[0], to, size)
        else:
            em.cvt(s.reads[0], to, size // ITEM_BYTES[dtype], dtype, kept)


def origin(group: Fused, product: int, s: Slice) -> tuple[int, str]:
    """Return where a product finds in the first slice of its sum what it adds to, and the format if it is not its result's."""
    j, k = group.addends[product]
    if k != HERE:
        return s.reads[k], ""
    return (s.acc, SUM) if s.acc else (group.home(j, s), "")


def _drop(group: Fused, k: int) -> None:
    """Remove a read access that nothing loads; its member reads the first one."""
    del group.reads[k], group.args[k]
    for m in group.members:
        m.sources = [(kind, n if kind == "op" or n < k else 0 if n == k else n - 1) for kind, n in m.sources]
    group.addends = {i: (j, n - (n > k)) for i, (j, n) in group.addends.items()}
