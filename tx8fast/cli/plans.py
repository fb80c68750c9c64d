"""The outcome of the search as JSON-able rows.

May import: graph_table, search. Must not: search or emit code.
"""

from __future__ import annotations

import math
from typing import Any

from tx8fast.graph_table import GraphTable
from tx8fast.lower.kernel_core import KernelCore
from tx8fast.search.program import Plans
from tx8fast.tile.tiling import Planned


def plan_facts(table: GraphTable, plans: Plans) -> list[dict[str, Any]]:
    """Return one row per distinct op of `table`, named by its first step; keys as in `facts.segment_facts`.

    The parts of a chain are its `nests`; `held` counts their accesses (reads, then writes) that are not moved."""
    names: dict[Any, str] = {}
    for fn in table.functions.values():
        for step in fn.steps:
            if step.record is not None:
                names.setdefault(step.record, step.name)
    return [
        {
            "index": i,
            "name": names[record],
            "op": record.kind,
            "engine": _engine(p),
            "reason": p.reason,
            "parts": list(p.plan.parts),
            "slices": list(p.plan.slices),
            "order": list(p.plan.order),
            "nests": [
                {
                    "op": n.low.record.kind,
                    "engine": _engine(n),
                    "parts": list(n.plan.parts),
                    "slices": list(n.plan.slices),
                    "order": list(n.plan.order),
                    "held": sorted(n.plan.held),
                    "estimate_cycles": n.plan.estimate_cycles,
                }
                for n in p.nests
            ],
            "bound": p.plan.bound,
            "spm_peak_bytes": p.plan.spm_bytes,
            "estimate_cycles": p.plan.estimate_cycles,
            "shared": list(p.plan.shared),
            "steps": math.prod(p.tiling.trips),
            "candidates": p.plan.candidates,
            "runner_up_cycles": p.plan.runner_up_cycles,
        }
        for i, (record, p) in enumerate(plans.items())
    ]


def _engine(p: Planned) -> str:
    return "chain" if p.nests else "kernel core" if isinstance(p.low, KernelCore) else p.low.kind
