"""The plan of an op that a routine of the kernel core performs: it leaves nothing to choose but how many tiles share it.

May import: lower.kernel_core, tile.tiling, isa, machine, _kernels. Must not: try plans; `check` asks before any search.
"""

from __future__ import annotations

import math

import numpy as np

from tx8fast import isa
from tx8fast._kernels import enumerate_shardings
from tx8fast.errors import InfeasibleError
from tx8fast.isa.limits import LIMITS
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.machine import Machine
from tx8fast.tile.tiling import Plan


def kernel_core_plan(low: KernelCore, machine: Machine, name: str = "") -> Plan:
    """Return the sharding that keeps most kernel cores busy; a routine runs in one piece on each tile. Raises InfeasibleError
    for work that no counter holds."""
    limit = [machine.n_tiles if ok else 1 for ok in low.shard]
    vectors, _, _ = enumerate_shardings(low.sizes, low.units, machine.n_tiles, limit)
    ones = np.ones(len(low.sizes), np.int64)
    busy = lambda v: math.prod(-(-s // -(-s // int(p))) for s, p in zip(low.sizes, v, strict=True))  # noqa: E731
    parts = tuple(int(p) for p in max([ones, *vectors], key=busy))
    shard = tuple(-(-s // p) for s, p in zip(low.sizes, parts, strict=True))
    work = low.descriptor((0,) * len(shard), shard)[1]
    for what, amount in work.to_json().items():
        if amount >= LIMITS[what][1]:
            raise InfeasibleError(
                f"{name or low.record.kind}: the kernel core would do {amount:,} {what}, at most {LIMITS[what][1] - 1:,} can be counted"
            )
    run = isa.make("kcore", routine=0, **work.to_json())
    rows = isa.sequence_cycles(machine, run, isa.make("wait"), isa.make("barrier"))
    cost = machine.kcore.launch_cycles + rows
    return Plan(parts, shard, shard, tuple(range(len(shard))), 1, cost, 0, "kernel core", len(vectors))
