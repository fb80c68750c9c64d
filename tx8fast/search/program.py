"""Plan a whole graph table: one plan per distinct op, all infeasible ops reported together.

May import: graph_table, lower, machine, search.*. Must not: emit programs.
"""

from __future__ import annotations

from collections.abc import Callable

from tx8fast.errors import InfeasibleError, raise_all
from tx8fast.graph_table import GraphTable, OpRecord
from tx8fast.lower import lower
from tx8fast.machine import Machine
from tx8fast.search.plan import Planned
from tx8fast.search.planner import plan_op

Plans = dict[OpRecord, Planned]


def plan_table(table: GraphTable, machine: Machine, progress: Callable[[int, int], None] | None = None) -> Plans:
    """Return a plan for every distinct record. Raises InfeasibleError naming every op that cannot fit."""
    names: dict[OpRecord, str] = {}
    for fn in table.functions.values():
        for step in fn.steps:
            if step.record is not None and not step.is_empty:
                names.setdefault(step.record, step.name)
    plans: Plans = {}
    problems: list[str] = []
    for i, (record, name) in enumerate(names.items()):
        low, reason = lower(record, machine)
        try:
            plans[record] = Planned(low, plan_op(low, machine, name), reason)
        except InfeasibleError as err:
            problems.append(str(err))
        if progress is not None:
            progress(i + 1, len(names))
    raise_all(InfeasibleError, "placing slices in scratchpad", problems)
    return plans
