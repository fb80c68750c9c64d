"""The search alone: the plan of every distinct op, without its code.

May import: graph_table, lower, search, machine, errors. Must not: emit code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tx8fast.errors import InfeasibleError, raise_all
from tx8fast.graph_table import GraphTable, OpRecord
from tx8fast.lower import lower
from tx8fast.machine import Machine
from tx8fast.schedule.assemble import is_empty
from tx8fast.search.planner import plan_op


def plan_facts(table: GraphTable, machine: Machine, progress: Callable[[int, int], None] | None) -> list[dict[str, Any]]:
    """Return one row per distinct op, keys as in `facts.segment_facts`. Raises InfeasibleError listing all that fail."""
    steps: dict[OpRecord, str] = {}
    for fn in table.functions.values():
        for step in fn.steps:
            if step.kind == "group" and step.record is not None and not is_empty(step):
                steps.setdefault(step.record, step.name)
    rows, problems = [], []
    for i, (record, name) in enumerate(steps.items()):
        low, _ = lower(record, machine)
        try:
            plan = plan_op(low, machine, name)
        except InfeasibleError as e:
            problems.append(str(e))
            continue
        rows.append({
            "index": i, "name": name, "op": record.kind, "engine": low.kind, "parts": list(plan.parts),
            "slices": list(plan.slices), "order": list(plan.order), "bound": plan.bound,
            "spm_peak_bytes": plan.spm_bytes, "estimate_cycles": plan.estimate_cycles,
            "candidates": plan.candidates, "runner_up_cycles": plan.runner_up_cycles,
        })  # fmt: skip
        if progress is not None:
            progress(i + 1, len(steps))
    raise_all(InfeasibleError, "placing slices in scratchpad", problems)
    return rows
