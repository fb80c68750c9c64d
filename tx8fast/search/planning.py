"""Plans by record: every distinct op or group is lowered and planned once.

May import: graph_table, lower, machine, search.*. Must not: emit programs.
"""

from __future__ import annotations

from dataclasses import replace

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower import NotLowerable, lower, variants
from tx8fast.machine import Machine
from tx8fast.search.plan import Planned
from tx8fast.search.planner import plan_op

Record = OpRecord | GroupRecord


class Planner:
    """Remembers plans, and failures, by record."""

    def __init__(self, machine: Machine, sharing: bool = True) -> None:
        self.machine = machine
        self.sharing = sharing
        self.known: dict[Record, Planned | Exception] = {}

    def plan(self, record: Record, name: str) -> Planned:
        """Return the plan. Raises NotLowerable (groups only) or InfeasibleError."""
        found = self.known.get(record)
        if found is None:
            try:
                found = self._best(record, name)
            except (NotLowerable, InfeasibleError) as err:
                found = err
            self.known[record] = found
        if isinstance(found, Exception):
            raise found
        return found

    def _best(self, record: Record, name: str) -> Planned:
        low, reason = lower(record, self.machine)
        options = []
        failed: InfeasibleError | None = None
        for option in (low, *variants(record, self.machine)):
            option.sharing = self.sharing
            try:
                options.append(Planned(option, plan_op(option, self.machine, name), reason))
            except InfeasibleError as err:
                failed = failed or err
        if not options:
            assert failed is not None
            raise failed
        best = min(options, key=lambda p: p.plan.estimate_cycles)
        others = [p.plan for p in options if p is not best] + [p for p in [best.plan.runner_up] if p is not None]
        second = min(others, key=lambda p: p.estimate_cycles, default=None)
        return replace(best, plan=replace(best.plan, runner_up=second and replace(second, runner_up=None)))
