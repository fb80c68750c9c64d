"""Topological order of a block's ops.

May import: ir.core, errors. Must not: move an op across one it depends on.
"""

from __future__ import annotations

import heapq

from tx8fast.errors import VerifyError
from tx8fast.ir.core import TERMINATOR, Block


def topological_sort(block: Block) -> bool:
    """Reorder `block` so that definitions precede uses, keeping the present order where it may.

    An op depends on the ops of this block that define its operands or the outer values its regions use;
    a terminator stays last. Returns whether anything moved. Raises VerifyError if the uses are circular.
    """
    ops = list(block)
    index = {op: n for n, op in enumerate(ops)}
    waits = [0] * len(ops)
    users: list[list[int]] = [[] for _ in ops]
    for n, op in enumerate(ops):
        sources: dict[int, None] = {}
        for inner in op.walk():
            for v in inner.operands:
                m = index.get(v.op) if v.op is not None else None
                if m is not None and m != n:
                    sources[m] = None
                elif m == n and inner is op:
                    raise VerifyError(f"sorting a block: {op.name} uses its own result")
        if op.has(TERMINATOR):
            sources = dict.fromkeys(k for k in range(len(ops)) if k != n)
        waits[n] = len(sources)
        for m in sources:
            users[m].append(n)
    ready = [n for n, w in enumerate(waits) if w == 0]
    order: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for m in users[n]:
            waits[m] -= 1
            if waits[m] == 0:
                heapq.heappush(ready, m)
    if len(order) < len(ops):
        stuck = next(op for n, op in enumerate(ops) if waits[n] > 0)
        raise VerifyError(f"sorting a block: the uses of {stuck.name} '{stuck.loc or ''}' are circular")
    if order == list(range(len(ops))):
        return False
    for op in ops:
        op.detach()
    for n in order:
        block.append(ops[n])
    return True
