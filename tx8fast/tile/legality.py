"""Whether ops may be one fused op: the rules of their factors and the limits of their kernels, whatever the ops are.

May import: graph_table, lower, machine, tile.*. Must not: know kinds of ops, say whether it pays.

The first of these that fails is the reason; recomputation, where windows of neighbouring tiles overlap, is a matter of price.

1. Results are read by later members only, and every member has a kernel that works on slices.
2. Members see each other's results dimension by dimension (`Composition`).
3. Of the members on one path one at most sums slices, and who reads its sums does so when they are complete.
4. What comes in slices is whole in no member, but ahead of the slices or by running maxima and sums.
5. The least tile fits scratchpad and the instructions' fields.

Summing nothing in slices always satisfies 3 and 4; then 5 speaks for classes that have to be whole.
"""

from __future__ import annotations

from functools import lru_cache

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower import lower
from tx8fast.lower.base import Lowering
from tx8fast.machine import Machine
from tx8fast.tile.compose import NotComposable
from tx8fast.tile.fused_op import FusedOp, Members


def why_not(record: GroupRecord | OpRecord, machine: Machine) -> str | None:
    """Return why the ops of a record have no loop nest in common, None if they have one."""
    ops = record.ops if isinstance(record, GroupRecord) else (record,)
    if isinstance(record, GroupRecord):
        for i, own in enumerate(record.wires):
            if any(w is not None and w[0] == "op" and w[1] >= i for w in own):
                return f"{ops[i].kind} (op {i}) comes before what it reads"
    kernels: list[Lowering] = []
    for i, op in enumerate(ops):
        low, reason = kernel_of(op, machine)
        if low is None:
            return f"{op.kind} (op {i}) has no kernel that works on slices: {reason}"
        kernels.append(low)
    try:
        members = Members(record, kernels)
    except NotComposable as err:
        return str(err)
    found: list[tuple[bool, int, str]] = []
    for opened in members.opened():
        fused = FusedOp(members, opened)
        if (why := _sums(fused)) is not None:
            found.append((True, 0, why))
        elif (limit := _limits(fused, machine)) is not None:
            found.append((False, *limit))
        else:
            return None
    return min(found)[2]


@lru_cache(maxsize=4096)
def kernel_of(op: OpRecord, machine: Machine) -> tuple[Lowering | None, str]:
    """Return the op's kernel, or None and why it has none that works on slices."""
    try:
        low, reason = lower(op, machine)
    except InfeasibleError as err:
        return None, str(err)
    return (low, "") if low.writes else (None, reason or "it moves data between chips")


def _sums(fused: FusedOp) -> str | None:
    """Rules 3 and 4."""
    comp, members = fused.comp, fused.members
    for i, own in enumerate(fused.sliced):
        before = [j for j in sorted(members.behind[i]) if fused.sums[j]]
        if own and before:
            j, c = before[0], min(own)
            return (
                f"{comp.name(i)} works on slices of {fused.dimension(i, c)}, and reads what {comp.name(j)} sums over slices of "
                f"{fused.dimension(j, min(fused.sums[j]))}"
            )
    if fused.opened and not any(fused.sums):
        c = min(fused.opened)
        i = next(i for i, own in enumerate(comp.kinds) if c in own)
        return f"{fused.dimension(i, c)} of {comp.name(i)} is needed whole"
    return None


def _limits(fused: FusedOp, machine: Machine) -> tuple[int, str] | None:
    """Rule 5; also the bytes of the least tile."""
    comp = fused.comp
    room = machine.spm_limit - machine.spm_base
    needed, i = fused.least_bytes(room)
    if needed > room:
        whole = max(fused.whole[i], key=lambda c: comp.sizes[c], default=-1)
        why = f"; {fused.dimension(i, whole)} stays whole" if whole >= 0 else ""
        return needed, (
            f"{comp.name(i)} has no slice that fits: the smallest needs {needed:,} bytes of scratchpad, {room:,} are "
            f"available{why}"
        )
    for i, (low, (lo, hi)) in enumerate(zip(fused.members.kernels, fused.least_part, strict=True)):
        lens = [b - a for a, b in zip(lo, hi, strict=True)]
        if not low.fits(lens):
            return needed, f"{comp.name(i)}: even the smallest slice, {lens}, exceeds the fields of its instructions"
    return None
