"""Plans by record: every distinct op or group is lowered and planned once.

May import: graph_table, lower, machine, search.*. Must not: emit programs.
"""

from __future__ import annotations

from tx8fast.errors import InfeasibleError
from tx8fast.graph_table import GroupRecord, OpRecord
from tx8fast.lower import NotLowerable, lower
from tx8fast.machine import Machine
from tx8fast.search.plan import Planned
from tx8fast.search.planner import plan_op

Record = OpRecord | GroupRecord


class Planner:
    """Remembers plans, and failures, by record."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[Record, Planned | Exception] = {}

    def plan(self, record: Record, name: str) -> Planned:
        """Return the plan. Raises NotLowerable (groups only) or InfeasibleError."""
        found = self.known.get(record)
        if found is None:
            try:
                low, reason = lower(record, self.machine)
                found = Planned(low, plan_op(low, self.machine, name), reason)
            except (NotLowerable, InfeasibleError) as err:
                found = err
            self.known[record] = found
        if isinstance(found, Exception):
            raise found
        return found
